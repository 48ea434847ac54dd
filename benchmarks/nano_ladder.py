"""Is the nano ladder an instrument? Whole pilots with the defaults, through ``race run``, over seeds and rewards.

    python benchmarks/nano_ladder.py --out nano_ladder.json             # gains, wall clock, memory; then the rho sweep
    python benchmarks/nano_ladder.py --out nano_ladder.json --report    # only the tables of what is there

Every pilot is one process, ``race run --model M --reward R --seed S --json`` with no other flag (``--rho`` in the
sweep), so what is measured is what a user gets. Results are kept in ``--out`` after each pilot and not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MODELS = ("nano-s", "nano-m", "nano-l")
REWARDS = ("sparse", "structured", "dense", "proxy-prm", "prm")
RHOS = (0.2, 0.4, 0.6, 0.8, 0.93)
TARGETS = ("native", "pass@1", "judge")


def pilot(model: str, reward: str, seed: int, rho: float | None) -> dict[str, Any]:
    """One pilot in a process of its own: its curves, shares, wall clock, CPU seconds and peak memory."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable, "-m", "race", "run", "--model", model, "--reward", reward, "--seed", str(seed),
            "--json", "--out", str(Path(folder) / "run"),
        ]  # fmt: skip
        command += [] if rho is None else ["--rho", str(rho)]
        started = time.perf_counter()
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert child.stdout is not None
        assert child.stderr is not None
        text = child.stdout.read()
        errors = child.stderr.read()
        _, status, usage = os.wait4(child.pid, 0)
        wall = time.perf_counter() - started
    if status:
        raise SystemExit(f"{' '.join(command)} failed:\n{errors[-2000:]}")
    record = json.loads(text)
    curves = record["curves"]
    return {
        "model": model,
        "reward": reward,
        "seed": seed,
        "asked_rho": rho,
        "rho": round(record["flops"]["learning"] / record["flops"]["total"], 3),
        "steps": record["steps"],
        "curves": {target: curves[target]["value"] for target in TARGETS},
        "health": record["health"]["status"],
        "flops": record["flops"],
        "wall_s": round(wall, 1),
        "cpu_s": round(usage.ru_utime + usage.ru_stime, 1),
        "peak_mb": usage.ru_maxrss // 1024,
        "load": round(os.getloadavg()[0], 1),
    }


def wanted(seeds: int, sweep_models: list[str], models: list[str], rewards: list[str]) -> Iterator[tuple[Any, ...]]:
    """What to run, the first seeds of everything first."""
    for seed in range(seeds):
        for model in models:
            for reward in rewards:
                yield model, reward, seed, None
    for model in sweep_models:
        for rho in RHOS:
            for seed in range(2):
                yield model, "sparse", seed, rho


def mean(values: list[float]) -> float:
    """Arithmetic mean."""
    return statistics.fmean(values)


def tables(found: list[dict[str, Any]]) -> Iterator[str]:
    """What the results say, line by line (Markdown)."""
    yield "| model | reward | seeds | pass@1 base -> end (least end - base) | judge | native | collapsed | steps |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for model in MODELS:
        for reward in REWARDS:
            runs = [r for r in found if (r["model"], r["reward"], r["asked_rho"]) == (model, reward, None)]
            if not runs:
                continue
            ends = {t: [mean([r["curves"][t][at] for r in runs]) for at in (0, -1)] for t in TARGETS}
            least = min(r["curves"]["pass@1"][-1] - r["curves"]["pass@1"][0] for r in runs)
            cell = {t: f"{a:.3f} -> {b:.3f}" for t, (a, b) in ends.items()}
            yield (
                f"| {model} | {reward} | {len(runs)} | {cell['pass@1']} ({least:+.3f}) | {cell['judge']} | "
                f"{cell['native']} | {sum(r['health'] == 'collapsed' for r in runs)} | "
                f"{mean([r['steps'] for r in runs]):.0f} |"
            )
    swept = [r for r in found if r["asked_rho"] is not None]
    if swept:
        yield ""
        yield "| model | rho asked | seeds | steps | pass@1 at the end | judge |"
        yield "| --- | --- | --- | --- | --- | --- |"
    for model in MODELS:
        for rho in RHOS:
            runs = [r for r in swept if r["model"] == model and r["asked_rho"] == rho]
            if runs:
                by_seed = ", ".join(f"{r['curves']['pass@1'][-1]:.3f}" for r in runs)
                judge = mean([r["curves"]["judge"][-1] for r in runs])
                steps = mean([r["steps"] for r in runs])
                yield f"| {model} | {rho} | {len(runs)} | {steps:.0f} | {by_seed} | {judge:.3f} |"
    yield ""
    for model in MODELS:
        runs = [r for r in found if r["model"] == model]
        if runs:
            yield (
                f"{model}: {max(r['cpu_s'] for r in runs)} s of CPU at most, wall {min(r['wall_s'] for r in runs)} to "
                f"{max(r['wall_s'] for r in runs)} s (load {max(r['load'] for r in runs)} at most), "
                f"peak memory {max(r['peak_mb'] for r in runs)} MB"
            )


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--rewards", nargs="*", default=list(REWARDS))
    parser.add_argument("--sweep", nargs="*", default=["nano-s"], help="models of the rho sweep")
    parser.add_argument("--report", action="store_true")
    chosen = parser.parse_args()
    found: list[dict[str, Any]] = json.loads(chosen.out.read_text()) if chosen.out.exists() else []
    for model, reward, seed, rho in () if chosen.report else wanted(
        chosen.seeds, chosen.sweep, chosen.models, chosen.rewards
    ):
        if any((r["model"], r["reward"], r["seed"], r["asked_rho"]) == (model, reward, seed, rho) for r in found):
            continue
        result = pilot(model, reward, seed, rho)
        print(json.dumps({k: v for k, v in result.items() if k not in ("curves", "flops")}
                         | {t: [result["curves"][t][0], result["curves"][t][-1]] for t in TARGETS}), flush=True)
        found.append(result)
        chosen.out.write_text(json.dumps(found, indent=1) + "\n")
    print(*tables(found), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
