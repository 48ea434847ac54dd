"""Wall time and peak memory of whole `race` processes, cold: the median and the best of ten.

    python benchmarks/startup.py

Run it on an idle machine; the interpreter's own start is part of every figure and shown for scale.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time

CODE = """
import sys
from race.cli import run
code = run(sys.argv[1:]) if len(sys.argv) > 1 else 0
status = open("/proc/self/status").read().split()
print(status[status.index("VmHWM:") + 1], file=sys.stderr)
sys.exit(code)
"""
COMMANDS = {
    "python alone": None,
    "race --help": ["--help"],
    "race flops": ["flops", "Qwen2.5-7B", "--reward", "prm", "--json"],
    "race plan": ["plan", "--budget", "1e18", "--reward", "prm"],
    "race plan, nano": ["plan", "--ladder", "nano", "--budget", "4e11", "--reward", "prm"],
}


def measure(args: list[str] | None, repeats: int = 10) -> dict[str, float]:
    times, peaks = [], []
    for _ in range(repeats):
        started = time.perf_counter()
        code = "pass" if args is None else CODE
        done = subprocess.run(
            [sys.executable, "-c", code, *(args or [])], capture_output=True, text=True, check=True
        )
        times.append(time.perf_counter() - started)
        if args is not None:
            peaks.append(int(done.stderr.split()[-1]) / 1024)
    result = {"median_s": statistics.median(times), "best_s": min(times)}
    if peaks:
        result["peak_mib"] = max(peaks)
    return {key: round(value, 3) for key, value in result.items()}


if __name__ == "__main__":
    print(json.dumps({name: measure(args) for name, args in COMMANDS.items()}, indent=2))
