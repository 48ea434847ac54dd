"""Regenerate RESULTS.md, APPENDIX.md, results.json and the figures of a study from its records.

    python examples/nano_study/results.py STORE ... --out examples/nano_study/results

STORE is a folder of records (`records/` under the `--out` of `race study run`) or a packed study (.jsonl.gz); several
are read together. The rates that the stages used come from --rates or the pack, else from the tuning runs. Only
records are read, and with --jobs the ledgers of the jobs folder. RESULTS.md has the answers and the tables at the main
budget and LoRA rank, and keeps the words that people wrote around its generated blocks; APPENDIX.md has every table.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the fits here are small: two threads are slower than one

from race.errors import RaceError
from race.packed import SUFFIX, read_pack
from race.records import PilotRecord
from race.store import Store
from real_runs.study import Rates, read_study
from real_runs.study.results.evidence import StudyRecords
from real_runs.study.results.figures import draw_all
from real_runs.study.results.page import update
from real_runs.study.results.statistics import number
from real_runs.study.results.study import Effort, appendix, blocks, evaluate

HERE = Path(__file__).parent


def read(stores: list[Path]) -> tuple[list[PilotRecord], Rates | None]:
    """Records of all stores, each id once, and the rates that a pack says were tuned."""
    found: dict[str, PilotRecord] = {}
    rates = None
    for path in stores:
        if path.name.endswith(SUFFIX):
            pack = read_pack(path)
            rates = Rates.from_dict(pack.rates) if pack.rates else rates
            records = pack.records
        else:
            loaded = Store(path).records()
            records = tuple(loaded.records)
            for problem in loaded.problems:
                print(f"left out: {problem}", file=sys.stderr)
        found |= {record.id: record for record in records}
    return list(found.values()), rates


def main() -> None:
    default = Effort()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path, nargs="+", help="folder of records, or packed study")
    parser.add_argument("--study", type=Path, default=HERE / "study.toml", help="the study file")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--rates", type=Path, help="tuned rates, as rates.json of a study has them")
    parser.add_argument("--jobs", type=Path, help="folder with each run's ledger, to compare with the records")
    for name in vars(default):
        flag = "--" + name.replace("_", "-")
        parser.add_argument(flag, type=int, default=getattr(default, name), help="default %(default)s")
    options = parser.parse_args()
    started = time.perf_counter()

    def told(what: str) -> None:
        print(f"{time.perf_counter() - started:6.0f} s  {what}", file=sys.stderr, flush=True)

    try:
        records, rates = read(options.store)
        if options.rates:
            rates = Rates.read(options.rates)
        evidence = StudyRecords.sort(read_study(options.study), records, rates=rates)
        effort = Effort(**{name: getattr(options, name) for name in vars(default)})
        found = evaluate(evidence, jobs=options.jobs, effort=effort, told=told)
        options.out.mkdir(parents=True, exist_ok=True)
        page = options.out / "RESULTS.md"
        text = page.read_text(encoding="utf-8") if page.exists() else "# Results of the nano study\n"
        page.write_text(update(text, blocks(found)), encoding="utf-8")
        text = update("# Every table of the nano study\n", appendix(found))
        (options.out / "APPENDIX.md").write_text(text, encoding="utf-8")
        text = json.dumps(number(found), indent=None, allow_nan=False, separators=(",", ":"))
        (options.out / "results.json").write_text(text + "\n", encoding="utf-8")
        for path in draw_all(found, options.out):
            told(f"{path} ({path.stat().st_size / 1000:.0f} kB)")
    except RaceError as error:
        sys.exit(f"error: {error}")
    told("done")


if __name__ == "__main__":
    main()
