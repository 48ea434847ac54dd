"""What the calibrated simulator says about the published findings, each with the tolerance it is held to.

    OMP_NUM_THREADS=1 python benchmarks/simulator_findings.py [--worlds 160] [--out findings.json]

Exits 1 when one of them is missed. The full table of published numbers with residuals is
``python -m race.simulator.calibrate --show``; what lies behind each line here is under test in tests/simulator.

Fitted: the Qwen2.5 law and the Qwen3 curves (root mean square error of the ensemble's mean). Emergent: where the best
update fraction lies on the paper's slice (10^16.2 FLOPs, groups of 2, largest model), as the median over worlds; no
optimum is written down in the simulator, and what its costs and dynamics are is in race/simulator.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from race.simulator import Worlds
from race.simulator.calibrate import Calibration, shipped
from race.simulator.paper import paper_rhos
from race.simulator.sources import families, published

LARGEST = 2
RULES, PROCESS = ("sparse", "structured", "dense"), ("proxy-prm", "prm")


@dataclass(frozen=True)
class Finding:
    """One number: what it should be, what it is, and how sure the ensemble is."""

    what: str
    asked: str
    found: float
    lo: float
    hi: float
    met: bool


def fitted(worlds: int) -> list[Finding]:
    """Errors of the ensemble's mean on the two sources that have a limit."""
    whole = shipped()
    part = Calibration(whole.z[:worlds], {name: values[:worlds] for name, values in whole.nuisance.items()})
    by_name = {family.name: family for family in families()}
    found = []
    for name, limit, start in (("law", 0.02, 0), ("qwen3", 0.03, 8)):
        family = by_name[name]
        off = (family.predict(part.worlds, part.nuisance).mean(axis=0) - family.observed).reshape(3, -1)
        if start:
            off = off[:, np.array(published()[name]["step"]) >= start]
        each = np.sqrt(np.mean(off**2, axis=1))
        found.append(Finding(f"{name}: RMSE, worst of three models", f"<= {limit}", float(each.max()),
                             float(each.min()), float(each.max()), bool(each.max() <= limit)))  # fmt: skip
    return found


def emergent(worlds: int) -> list[Finding]:
    """Optima that come out of the dynamics."""
    draws = Worlds.prior(worlds, seed=11)
    rho = {r: paper_rhos(draws, r, ("native", "pass@1", "judge")) for r in RULES + PROCESS}
    small = paper_rhos(draws, "prm", ("native",), reward_model="Qwen2.5-PRM-0.5B")["native"]
    found = []
    for reward in RULES + PROCESS:
        asked = 0.72 if reward in RULES else 0.445
        at = rho[reward]["native"][:, LARGEST]
        middle = float(np.median(at))
        lo, hi = (float(x) for x in np.quantile(at, (0.05, 0.95)))
        met = abs(middle - asked) <= 0.06
        found.append(Finding(f"native rho* under {reward}", f"{asked} +- 0.06", middle, lo, hi, met))
    for reward in ("dense", "prm"):
        apart = (rho[reward]["pass@1"] - rho[reward]["judge"])[:, LARGEST]
        lo, hi = (float(x) for x in np.quantile(apart, (0.05, 0.95)))
        what, mean = f"rho* of pass@1 less that of the judge under {reward}, mean", float(apart.mean())
        found.append(Finding(what, "> 0", mean, lo, hi, mean > 0))
    moved = (small - rho["prm"]["native"])[:, LARGEST]
    lo, hi = (float(x) for x in np.quantile(moved, (0.05, 0.95)))
    found.append(Finding("rho* gained by a 0.5B instead of a 7B PRM", "> 0.05", float(np.median(moved)), lo, hi,
                         bool(np.median(moved) > 0.05)))  # fmt: skip
    return found


def main() -> int:
    """Print the table; 1 if something is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worlds", type=int, default=160)
    parser.add_argument("--out", type=Path, help="write the numbers as JSON")
    options = parser.parse_args()
    found = [*fitted(options.worlds), *emergent(options.worlds)]
    print(f"{'':58}{'asked':>15}{'found':>9}{'90 % of worlds':>20}")
    for row in found:
        span = f"{row.lo:.3f} to {row.hi:.3f}"
        print(f"{row.what:58}{row.asked:>15}{row.found:9.3f}{span:>20}{'' if row.met else '   MISSED'}")
    if options.out:
        options.out.write_text(json.dumps([asdict(row) for row in found], indent=1) + "\n")
    return int(not all(row.met for row in found))


if __name__ == "__main__":
    sys.exit(main())
