"""How long reading and pricing a long log takes, and how much memory: a 10,000-step trainer_state.json, start to card.

    python benchmarks/importers_speed.py [--steps 10000] [--json]

The file has what TRL logs for every step, indented as transformers writes it (hundreds of thousands of lines). The
command is timed as a fresh process (imports included), reading and pricing are timed inside one. A console log of
``--console`` MiB is streamed, with its memory, to show that it does not grow with the file.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CONFIG = {
    "num_generations": 8, "per_device_train_batch_size": 8, "gradient_accumulation_steps": 8,
    "generation_batch_size": 64, "steps_per_generation": 8, "num_iterations": 1, "use_vllm": False,
    "gradient_checkpointing": True, "max_completion_length": 1024, "beta": 0.0,
}  # fmt: skip


def entry(step: int, tokens: float, draw: random.Random) -> dict[str, float]:
    """One entry of ``log_history`` with the keys of TRL 1.16."""
    mean = 300 + 200 * draw.random()
    row = {
        "clip_ratio/high_max": 0.0, "clip_ratio/high_mean": 0.0, "clip_ratio/low_mean": 0.0, "clip_ratio/low_min": 0.0,
        "clip_ratio/region_mean": 0.0, "completions/clipped_ratio": 0.1 * draw.random(),
        "completions/max_length": 1024.0, "completions/max_terminated_length": 1000.0, "completions/mean_length": mean,
        "completions/mean_terminated_length": mean - 10, "completions/min_length": 40.0,
        "completions/min_terminated_length": 40.0, "entropy": draw.random(), "epoch": step / 1e4,
        "frac_reward_zero_std": draw.random(), "grad_norm": draw.random(), "learning_rate": 1e-6, "loss": draw.random(),
        "num_tokens": tokens + round(64 * (200 + mean)), "reward": draw.random(), "reward_std": 0.4,
        "rewards/accuracy/mean": draw.random(), "rewards/accuracy/std": 0.4, "rewards/format/mean": draw.random(),
        "rewards/format/std": 0.1, "step": step, "step_time": 12 * draw.random(),
    }  # fmt: skip
    return row


def write_state(folder: Path, steps: int) -> Path:
    """A ``trainer_state.json`` of this many steps, with its training arguments beside it."""
    draw, rows, tokens = random.Random(0), [], 0.0
    for step in range(1, steps + 1):
        rows.append(entry(step, tokens, draw))
        tokens = rows[-1]["num_tokens"]
    path = folder / "trainer_state.json"
    path.write_text(json.dumps({"global_step": steps, "total_flos": 0.0, "log_history": rows}, indent=2))
    (folder / "training_args.json").write_text(json.dumps(CONFIG))
    return path


def write_console(folder: Path, mebibytes: int) -> Path:
    """A verl console log in which lines of metrics lie among much larger samples."""
    path, step = folder / "console.log", 0
    noise = "(TaskRunner pid=1) " + "x" * 2000 + "\n"
    with path.open("w") as file:
        while file.tell() < mebibytes * 2**20:
            step += 1
            file.write(noise * 50)
            file.write(
                f"(TaskRunner pid=1) step:{step} - response_length/mean:np.float64(300.0) - prompt_length/mean:100.0 - "
                "perf/total_num_tokens:25600 - critic/rewards/mean:np.float64(0.5) - timing_s/gen:1.0\n"
            )
    return path


def timed_command(*args: str) -> dict[str, float]:
    """CPU and wall seconds and peak MiB of one fresh process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", "from race.cli import main; main()", *args],
        capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    wall = time.perf_counter() - start
    if done.returncode:
        raise SystemExit(done.stderr)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"wall_s": wall, "cpu_s": cpu, "peak_mib": after.ru_maxrss / 1024}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--console", type=int, default=200, help="MiB")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    from race.cards import card_of
    from race.importers import read_runs

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        state = write_state(folder, args.steps)
        lines = state.read_text().count("\n") + 1
        start = time.perf_counter()
        (log,) = read_runs(state)
        read = time.perf_counter() - start
        start = time.perf_counter()
        card_of(log, "qwen2.5-1.5b")
        priced = time.perf_counter() - start
        result = {
            "steps": args.steps, "lines": lines, "mib": state.stat().st_size / 2**20, "read_s": read, "price_s": priced,
            "card": timed_command("card", str(state), "--model", "qwen2.5-1.5b", "--json"),
            "import": timed_command(
                "import", str(state), "--store", str(folder / "store"), "--model", "qwen2.5-1.5b", "--reward", "sparse",
                "--lora-rank", "16", "--json",
            ),
        }  # fmt: skip
        console = write_console(folder, args.console)
        result["console"] = {
            "mib": console.stat().st_size / 2**20,
            **timed_command("card", str(console), "--model", "qwen2.5-1.5b", "--json"),
        }
    if args.json:
        print(json.dumps(result))
        return
    print(f"{result['steps']:,} steps, {lines:,} lines, {result['mib']:.1f} MiB")
    print(f"read {read:.2f} s, price {priced:.2f} s (inside a process)")
    for name in ("card", "import", "console"):
        row = result[name]
        size = f" ({row['mib']:.0f} MiB)" if "mib" in row else ""
        print(
            f"race {name}{size}: {row['wall_s']:.2f} s wall, {row['cpu_s']:.2f} s CPU, {row['peak_mib']:.0f} MiB peak"
        )


if __name__ == "__main__":
    main()
