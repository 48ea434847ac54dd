"""How many (model, recipe) evaluations a second the closed form makes, on one core.

    python benchmarks/flops_speed.py [--json]

One evaluation is one recipe on one model: prefill, decode, update, old and reference log-probs and a reward
model's forward, that is six costs. Lengths are float64 arrays, models are the ladder's three.
"""

from __future__ import annotations

import argparse
import json
import os
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from race.flops import Architecture, LoraSpec, cost_functions

MODELS = ("qwen2.5-1.5b", "qwen2.5-3b", "qwen2.5-7b")


def measure(recipes: int, repeats: int) -> dict[str, float]:
    """Median over ``repeats`` of evaluations per second for whole recipes and for the update alone."""
    rng = np.random.default_rng(0)
    prompt, completion = rng.integers(50, 1000, recipes), rng.integers(50, 4000, recipes)
    length = prompt + completion
    policies = [cost_functions(Architecture.from_config(name), lora=LoraSpec(16)) for name in MODELS]
    scorer = cost_functions(Architecture.from_config("qwen2.5-math-prm-7b"), lora=None)
    whole, single = [], []
    for _ in range(repeats):
        start = time.perf_counter()
        for costs in policies:
            total = (
                costs.prefill(prompt) + costs.decode(prompt, completion) + costs.update(length, completion)
            )
            total += costs.forward(length, completion) + costs.forward_base(length, completion)
            total += scorer.forward(length, length)
        whole.append(len(MODELS) * recipes / (time.perf_counter() - start))
        start = time.perf_counter()
        for costs in policies:
            costs.update(length, completion)
        single.append(len(MODELS) * recipes / (time.perf_counter() - start))
    return {"recipes_per_second": float(np.median(whole)), "updates_per_second": float(np.median(single))}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--recipes", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result = measure(options.recipes, options.repeats)
    if options.json:
        print(json.dumps(result))
    else:
        for name, rate in result.items():
            print(f"{name}: {rate:.3g}")


if __name__ == "__main__":
    main()
