"""kill -9 at random moments of a nano pilot: is every resumed run the undisturbed one, bit for bit?

    python benchmarks/kill_and_resume.py                       # 20 runs of nano-s, each killed once and resumed
    python benchmarks/kill_and_resume.py --kills 3             # ... each killed three times before it may end
    python benchmarks/kill_and_resume.py --reward sparse --model nano-m

A run with reuse, KL and a PRM is done once undisturbed. Then it is done again, killed at a moment drawn uniformly from
the duration of the undisturbed one, and resumed until it ends; every third time the newest checkpoint is torn between
the two. Compared are the adapter's bytes, every point of the curves, and every useful line of the ledger. FLOPs that
had to be spent again must be in the ledger, beside the budget. At last the disk fills up: on a file system of its own
where user namespaces allow mounting one, else by a limit on file sizes.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from race.errors import CannotDo
from race.ladders import ladder
from race.records import PilotSpec
from real_runs.assemble import Setup, assembled
from real_runs.config import RunOptions
from real_runs.ledger import read_ledger
from real_runs.nano.defaults import default_options
from real_runs.progress import Progress
from real_runs.run import run_pilot

# Children inherit the imported torch: a moment is then a moment of the run, not of its imports.
FORK = multiprocessing.get_context("fork")


def pilot(arguments: argparse.Namespace) -> tuple[PilotSpec, Setup, RunOptions]:
    nano = ladder("nano")
    recipe = nano.recipe(arguments.reward).with_update_ratio(1.5)
    recipe = type(recipe).from_dict({**recipe.to_dict(), "kl": True})
    params = next(m.params for m in nano.models if m.name == arguments.model)
    spec = PilotSpec(arguments.model, params, recipe, 0.5, int(float(arguments.budget)), seed=1,
                     targets=("native", "pass@1", "judge"))
    options = {**default_options(arguments.model), "threads": 1, "eval_problems": 32, "eval_points": 4}
    return spec, Setup(arguments.model, reward=arguments.reward), RunOptions.from_dict(options)


def go(arguments: argparse.Namespace, folder: Path) -> None:
    spec, setup, options = pilot(arguments)
    notes: list[str] = []

    def progress(now: Progress) -> None:
        if now.note:
            notes.append(now.note)
            (folder.parent / f"{folder.name}.notes").write_text("\n".join(notes))

    with assembled(setup, options) as parts:
        assert parts.reward is not None
        run_pilot(spec, task=parts.task, reward=parts.reward, judge=parts.judge, policy=parts.policy, out_dir=folder,
                  options=options, progress=progress)


def in_child(work: Callable[[], object], seconds: float | None = None) -> int | None:
    """Exit code of ``work`` in a process of its own; killed after ``seconds``."""
    process = FORK.Process(target=work)
    process.start()
    process.join(seconds)
    if process.exitcode is None:
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
    return process.exitcode


def outcome(folder: Path) -> dict[str, Any]:
    """Everything that must not depend on interruptions."""
    record = json.loads((folder / "record.json").read_bytes())
    steps = [{k: v for k, v in row.items() if k not in ("seconds", "attempt")}
             for row in read_ledger(folder / "ledger.jsonl").steps]
    return {
        "adapter": (folder / "adapter" / "adapter_model.safetensors").read_bytes(),
        "curves": record["curves"], "flops": record["flops"], "steps": steps,
        "training": record["provenance"]["training"], "health": record["health"],
    }


def tear(folder: Path, rng: random.Random) -> str | None:
    """Damage the newest of several checkpoints, as a failing disk would; its name."""
    complete = sorted(folder.glob("checkpoints/step-*"))
    if len(complete) < 2:
        return None
    victim = complete[-1] / rng.choice(["policy.safetensors", "optimizer.safetensors", "state.json", "COMPLETE"])
    if not victim.exists():
        return None
    victim.write_bytes(victim.read_bytes()[: max(0, victim.stat().st_size // 2)])
    return complete[-1].name


def disturbed(arguments: argparse.Namespace, folder: Path, number: int, duration: float) -> dict[str, Any]:
    rng = random.Random(f"{arguments.seed}/{number}")
    moments, killed_at = [], []
    torn = None
    while len(killed_at) < arguments.kills:
        moment = rng.uniform(0.0, duration)
        code = in_child(lambda moment=moment: go(arguments, folder), moment)
        moments.append(round(moment, 2))
        if code != -signal.SIGKILL:
            # It ended first: the machine is faster now than it was. Once more, from the beginning.
            shutil.rmtree(folder)
            duration, killed_at, torn = duration / 2, [], None
            continue
        killed_at.append(len(read_ledger(folder / "ledger.jsonl").steps))
        if number % 3 == 2:
            torn = tear(folder, rng) or torn
    code = in_child(lambda: go(arguments, folder))
    view = read_ledger(folder / "ledger.jsonl")
    notes = folder.parent / f"{folder.name}.notes"
    said = notes.read_text() if notes.exists() else ""
    record = json.loads((folder / "record.json").read_bytes()) if (folder / "record.json").exists() else {}
    return {
        "moments": moments, "killed_after_steps": killed_at, "exit": code, "attempts": view.attempts,
        "lost_flops": view.lost.total, "lost_in_record": record.get("provenance", {}).get("lost_flops"),
        "torn": torn, "torn_named": torn is None or torn in said,
        "charged": record.get("provenance", {}).get("lost_flops") == view.lost.to_dict(),
    }


def until_full(arguments: argparse.Namespace, folder: Path, limit: int) -> str:
    """Run against a full disk in this process; what it said."""
    if limit:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        go(arguments, folder)
    except CannotDo as error:
        return str(error)
    return "finished"


def full_disk(arguments: argparse.Namespace, scratch: Path, whole: dict[str, Any]) -> dict[str, Any]:
    """Fill the disk in mid-run, make room, resume."""
    disk = scratch / "disk"
    disk.mkdir()
    used = sum(p.stat().st_size for p in (scratch / "undisturbed").rglob("*") if p.is_file())
    # Room for less than the two checkpoints, the ledger and the adapter of a whole run.
    size = int(0.6 * used) // 4096 * 4096
    again = [sys.executable, __file__, "--model", arguments.model, "--reward", arguments.reward, "--budget",
             arguments.budget, "--until-full", str(disk / "run")]
    script = (
        f"mount -t tmpfs -o size={size} tmpfs {disk} && {' '.join(again)} && df --output=avail {disk} | tail -1 && "
        f"ls {disk}/run/checkpoints | wc -l && mount -o remount,size={size * 16} {disk} && {' '.join(again)} && "
        f"cp -r {disk}/run {scratch}/after"
    )
    done = subprocess.run(["unshare", "-rm", "sh", "-c", script], capture_output=True, text=True, check=False)
    how = f"tmpfs of {size // 1024} KiB"
    lines = done.stdout.strip().splitlines()
    if done.returncode or len(lines) != 4:
        how = f"limit on file sizes ({done.stderr.strip()[-80:]})"
        whole_ledger = (scratch / "undisturbed" / "ledger.jsonl").stat().st_size
        said: list[str] = []
        for limit in (whole_ledger // 2, 0):
            box = scratch / "said"
            in_child(lambda limit=limit, box=box: box.write_text(until_full(arguments, scratch / "after", limit)))
            said.append(box.read_text())
        lines = [said[0], "", "", said[1]]
    return {"disk": how, "said": lines[0], "complete_checkpoints_then": lines[2], "then": lines[3],
            "equal": outcome(scratch / "after") == whole}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="nano-s")
    parser.add_argument("--reward", default="prm")
    parser.add_argument("--budget", default="1e11")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--kills", type=int, default=1, help="of each run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--until-full", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.until_full is not None:
        print(until_full(arguments, arguments.until_full, 0))
        return 0
    scratch = Path(tempfile.mkdtemp(prefix="race-kill-"))
    try:
        start = time.perf_counter()
        assert in_child(lambda: go(arguments, scratch / "undisturbed")) == 0
        duration = time.perf_counter() - start
        whole = outcome(scratch / "undisturbed")
        rows = []
        for number in range(arguments.runs):
            folder = scratch / f"run-{number}"
            row = disturbed(arguments, folder, number, duration)
            row["equal"] = row["exit"] == 0 and outcome(folder) == whole
            rows.append(row)
            print(json.dumps(row), file=sys.stderr, flush=True)
            shutil.rmtree(folder)
        full = full_disk(arguments, scratch, whole)
        killed = [row for row in rows if row["killed_after_steps"]]
        report = {
            "model": arguments.model, "steps": len(whole["steps"]), "seconds_undisturbed": round(duration, 2),
            "runs": len(rows), "really_killed": len(killed), "equal": sum(row["equal"] for row in rows),
            "lost_work_charged": sum(row["charged"] for row in rows),
            "lost_share_of_budget": round(
                sum(row["lost_flops"] for row in killed) / max(len(killed), 1) / float(arguments.budget), 4
            ),
            "checkpoints_torn": sum(row["torn"] is not None for row in rows),
            "torn_and_named": sum(row["torn"] is not None and row["torn_named"] for row in rows),
            "full_disk": full,
        }
        print(json.dumps(report, indent=1))
        good = all(row["equal"] and row["charged"] and row["torn_named"] for row in rows) and full["equal"]
        return 0 if good else 1
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
