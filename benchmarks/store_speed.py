"""How fast a store writes, loads, and loads again. Usage: python benchmarks/store_speed.py [records]

Every record carries two targets with 20 points each (about 2.5 kB), and every one is flushed to disk before
the next, so writing measures the disk more than the code.
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from race.allocation import Allocation
from race.recipe import Recipe
from race.records import Curve, PilotRecord, PilotSpec
from race.store import Store


def example() -> PilotRecord:
    steps = tuple(range(0, 200, 10))
    curve = Curve(
        steps, tuple(1e12 * s for s in steps), tuple(0.9 - 0.8 / (1 + s / 50) for s in steps), (0.01,) * 20
    )
    spec = PilotSpec(
        "nano-s", 10**5, Recipe("sparse"), rho=0.5, budget=190 * 10**12, targets=("native", "pass@1")
    )
    flops = Allocation(95 * 10**12, 95 * 10**12, 0)
    return PilotRecord(spec, flops, {"native": curve, "pass@1": curve}, evidence="simulated", steps=190)


def main(count: int) -> None:
    base = example()
    batch = [replace(base, id=f"r{i}") for i in range(count)]
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "store", create=True)
        for what, action in (
            (f"write {count} records", lambda: store.add_all(batch)),
            ("load, cold", lambda: store.records()),
            ("load, nothing new", lambda: store.records()),
        ):
            began = time.perf_counter()
            action()
            print(f"{what:<24} {time.perf_counter() - began:7.2f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5000)
