"""Runners that misbehave: each becomes a record with a reason, and what was spent counts."""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jobs import job, python, spec

from race.records import PilotRecord
from real_runs.executors import Job, Outcome
from real_runs.executors.command import CommandExecutor
from real_runs.executors.limits import Limits
from real_runs.executors.results import last_json_object

NOW = Limits(retries=0, grace=0.5)
BUDGET = spec().budget
CURVE = {"step": [0, 5], "flops": [0, 0.9 * BUDGET], "value": [0.2, 0.4], "se": [0.02, 0.02]}
PHASES = {"search": 0.3 * BUDGET, "learning": 0.6 * BUDGET, "reward": 0}
# The least that a runner has to say.
GOOD: dict[str, Any] = {"flops": PHASES, "curves": {"native": CURVE, "pass@1": CURVE}}


def run(command: list[str], pilot: Job, **options: Any) -> Outcome:
    with CommandExecutor(command, **{"limits": NOW, **options}) as executor:
        executor.submit(pilot)
        (outcome,) = executor.wait(60)
        return outcome


def says(answer: Any) -> list[str]:
    return python(f"print({(answer if isinstance(answer, str) else json.dumps(answer))!r})")


def test_a_runner_needs_to_say_only_what_it_measured(tmp_path: Path) -> None:
    record = run(says(GOOD), job(tmp_path)).record
    assert record.health.status == "ok"
    assert (record.evidence, record.spec, record.flops.total) == ("real", spec(), 0.9 * BUDGET)


def test_the_spec_comes_on_stdin_and_in_a_file_and_the_record_may_go_to_a_file(tmp_path: Path) -> None:
    text = f"""
import json, os, sys
asked = json.load(open(sys.argv[1]))
assert asked == json.load(open(os.environ["RACE_SPEC"])), "spec"
answer = {GOOD!r}
answer["provenance"] = {{"seed": asked["seed"], "stdin": sys.stdin.read(), "folder": sys.argv[3]}}
print('{{"flops": "not this one"}}')
json.dump(answer, open(sys.argv[2], "w"))
"""
    pilot = job(tmp_path, seed=7)
    record = run([*python(text), "{spec}", "{record}", "{folder}"], pilot).record
    assert record.health.status == "ok", record.health
    assert record.provenance["seed"] == 7
    assert record.provenance["stdin"] == ""
    assert record.provenance["folder"] == str(pilot.folder)
    on_stdin = f"import json, sys; json.load(sys.stdin); print({json.dumps(GOOD)!r})"
    assert run(python(on_stdin), job(tmp_path, "second")).record.health.status == "ok"


@pytest.mark.parametrize(
    "text",
    [
        "loading {model} ... 100%|####| {'loss': 0.1}\n" + json.dumps(GOOD),
        json.dumps({"step": 1, "flops": 3}) + "\n" + json.dumps(GOOD, indent=2) + "\nwandb: synced\n",
        json.dumps(GOOD) + '\n{"wandb": {"url": "x"}}',
        '{"cut off": [1, 2\n' + json.dumps(GOOD),
    ],
)
def test_noise_around_the_record_is_tolerated(text: str, tmp_path: Path) -> None:
    assert run(says(text), job(tmp_path)).record.health.status == "ok"


def test_the_record_is_found_among_any_braces() -> None:
    assert last_json_object("{" * 10_000 + json.dumps(GOOD) + "}" * 10) == GOOD
    assert last_json_object('{"a": {"flops": 1}}') == {"a": {"flops": 1}}
    assert last_json_object("[" * 100_000) is None
    assert last_json_object('{"a":' * 50_000) is None


def wrong(**changes: Any) -> dict[str, Any]:
    return {**GOOD, **changes}


def flops(**changes: Any) -> dict[str, Any]:
    return wrong(flops={**PHASES, **changes})


REFUSED = {
    "nothing": ("", "left no record"),
    "noise": ("all done!", "left no record"),
    "a list": ("[1, 2]", "left no record"),
    "another object": ('{"loss": 0.3}', "not a record: it has no flops"),
    "a number of FLOPs": (wrong(flops=3e10), "impossible FLOPs: stdout.flops is"),
    "no FLOPs": (wrong(flops={"search": 0, "learning": 0, "reward": 0}), "impossible FLOPs: 0 spent"),
    "negative FLOPs": (flops(search=-1), "impossible FLOPs: stdout.flops.search is -1"),
    "NaN": (json.dumps(flops(learning=float("nan"))), "impossible FLOPs: stdout.flops.learning is nan"),
    "whole FLOPs that no float holds": (flops(learning=10**400), "impossible FLOPs: stdout.flops.learning is 10{56}"),
    "a page of FLOPs": (flops(learning="9" * 10**4), "impossible FLOPs: stdout.flops.learning is '9{56}"),
    "infinite FLOPs": (json.dumps(flops(learning=float("inf"))), "impossible FLOPs"),
    "text FLOPs": (flops(learning="1e9"), "impossible FLOPs: stdout.flops.learning is '1e9'"),
    "far over budget": (flops(learning=3 * BUDGET), "impossible FLOPs: .* spent, the budget was"),
    "teraFLOPs": (
        wrong(flops={"search": 0.01, "learning": 0.02, "reward": 0}, curves={"native": {**CURVE, "flops": [0, 0.03]}}),
        "is it in FLOPs",
    ),
    "a curve beyond the total": (flops(learning=0.1 * BUDGET), "impossible FLOPs: the curve of native ends at"),
    "values out of range": (wrong(curves={"native": {**CURVE, "value": [0.2, 40.0]}}), "not a record: curve.value"),
    "no curve asked for": (wrong(curves={"judge": CURVE}), "curves of none of the targets: native, pass@1"),
    "another pilot": (wrong(spec=replace(spec(), seed=9).to_dict()), "another pilot: stdout.spec.seed is 9"),
    "another schema": (wrong(schema="race.pilot/9"), "not a record: .*schema"),
    "an unknown field": (wrong(colour="red"), "not a record: .*colour"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_record_is_refused_with_its_reason(name: str, tmp_path: Path) -> None:
    answer, reason = REFUSED[name]
    outcome = run(says(answer), job(tmp_path), limits=replace(NOW, retries=3))
    assert outcome.record.health.status == "failed"
    assert "flops-unknown" in outcome.record.health.flags
    assert outcome.attempts == 1, "a wrong record would be wrong again"
    import re

    assert re.search(reason, outcome.record.health.reason), outcome.record.health.reason


def test_a_result_file_that_is_garbage_is_refused(tmp_path: Path) -> None:
    text = "import sys; open(sys.argv[1], 'wb').write(b'{\"flops\": \\xff')"
    record = run([*python(text), "{record}"], job(tmp_path)).record
    assert "result file is not JSON" in record.health.reason


def test_a_missing_target_is_flagged(tmp_path: Path) -> None:
    record = run(says(wrong(curves={"native": CURVE})), job(tmp_path)).record
    assert (record.health.status, record.health.flags) == ("ok", ("missing-target:pass@1",))


def test_an_exit_code_is_reported_with_the_last_words(tmp_path: Path) -> None:
    text = "import sys; print('CUDA out of memory', file=sys.stderr); sys.exit(3)"
    pilot = job(tmp_path)
    outcome = run(python(text), pilot, limits=Limits(retries=1, retry_wait=0.01))
    assert outcome.record.health.reason == "exit code 3: CUDA out of memory (attempt 2 of 2)"
    assert outcome.attempts == 2
    assert (pilot.folder / "stderr.log").read_text().count("CUDA out of memory\n") == 2


def test_a_record_with_an_exit_code_is_not_believed(tmp_path: Path) -> None:
    record = run(python(f"print({json.dumps(GOOD)!r}); raise SystemExit(1)"), job(tmp_path)).record
    assert (record.health.status, record.health.reason) == ("failed", "exit code 1")


def test_a_result_of_an_earlier_attempt_is_not_taken_for_this_one(tmp_path: Path) -> None:
    text = f"""
import os, sys
if not os.path.exists("tried"):
    open("tried", "w").close()
    open(sys.argv[1], "w").write({json.dumps(GOOD)!r})
    sys.exit(1)
"""
    limits = Limits(retries=1, retry_wait=0.01)
    record = run([*python(text), "{record}"], job(tmp_path), cwd=tmp_path, limits=limits).record
    assert "left no record" in record.health.reason


CRASHES_ONCE = """
import json, os, sys
first = not os.path.exists("tried")
open("tried", "w").close()
with open(sys.argv[1], "a") as progress:
    spent = [0.1, 0.5] if first else [0.4, 0.9]
    for share in spent:
        progress.write(json.dumps({"flops": {name: share / 0.9 * n for name, n in PHASES.items()}}) + "\\n")
if first:
    os.kill(os.getpid(), 9)
print(json.dumps(GOOD))
"""


def test_a_crash_is_tried_again_and_what_was_lost_is_charged(tmp_path: Path) -> None:
    text = f"PHASES = {PHASES!r}\nGOOD = {GOOD!r}\n" + CRASHES_ONCE
    command = [*python(text), "{progress}"]
    outcome = run(command, job(tmp_path), cwd=tmp_path, limits=Limits(retries=1, retry_wait=0.01))
    assert outcome.record.health.status == "ok"
    assert outcome.attempts == 2
    # It got to 0.5, went back to 0.4, and from there to 0.9: a tenth of the budget was spent twice.
    assert outcome.record.flops.total == pytest.approx(0.9 * BUDGET)
    assert outcome.spent == pytest.approx(1.0 * BUDGET)


def test_what_a_failed_pilot_spent_and_measured_is_kept(tmp_path: Path) -> None:
    lines = [
        {
            "flops": PHASES | {"learning": 0},
            "step": 1,
            "values": {"native": [0.25, 0.02], "pass@1": [0.3, 0.03]},
        },
        "not JSON",
        {"flops": -1},
        {"flops": PHASES, "step": 2, "values": {"native": [0.35, 0.02], "pass@1": [7, 0.1]}},
    ]
    told = (
        "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
        + '{"flops": 1'
    )
    text = f"import sys; open(sys.argv[1], 'w').write({told!r}); sys.exit(5)"
    record = run([*python(text), "{progress}"], job(tmp_path)).record
    assert record.flops.to_dict() == pytest.approx({**PHASES, "total": 0.9 * BUDGET})
    assert record.curves["native"].value == (0.25, 0.35)
    assert record.curves["pass@1"].value == (0.3,)
    assert record.steps == 2
    assert "flops-unknown" not in record.health.flags


def test_a_total_alone_is_split_as_the_recipe_plans(tmp_path: Path) -> None:
    text = f"import sys; open(sys.argv[1], 'w').write('{{\"flops\": {BUDGET // 2}}}\\n'); sys.exit(5)"
    record = run([*python(text), "{progress}"], job(tmp_path)).record
    assert record.flops.total == pytest.approx(BUDGET // 2)
    assert record.flops.rho == pytest.approx(spec().rho, abs=0.02)


def test_wrong_usage_is_not_tried_again(tmp_path: Path) -> None:
    outcome = run(python("raise SystemExit(2)"), job(tmp_path), limits=Limits(retries=5))
    assert outcome.attempts == 1


def test_a_command_that_does_not_exist(tmp_path: Path) -> None:
    outcome = run(["no-such-trainer", "{spec}"], job(tmp_path), limits=Limits(retries=5))
    assert outcome.record.health.status == "failed"
    assert "cannot start 'no-such-trainer'" in outcome.record.health.reason
    assert (outcome.attempts, outcome.spent) == (0, 0)
    assert "flops-unknown" not in outcome.record.health.flags, "nothing was started, so nothing was spent"


SLEEPS = """
import json, signal, sys, time
if "deaf" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
with open(sys.argv[1], "a") as progress:
    progress.write(json.dumps({"flops": 1e9, "step": 1, "values": {"native": [0.2, 0.1]}}) + "\\n")
    progress.write(json.dumps({"flops": 2e9, "step": 2, "values": {"native": [0.3, 0.1]}}) + "\\n")
time.sleep(100)
"""


@pytest.mark.parametrize("how", ["polite", "deaf"])
def test_a_pilot_that_takes_too_long_is_stopped(how: str, tmp_path: Path) -> None:
    limits = Limits(timeout=0.5, grace=0.5, retries=3)
    start = time.monotonic()
    outcome = run([*python(SLEEPS), "{progress}", how], job(tmp_path), limits=limits)
    assert time.monotonic() - start < 10
    assert outcome.record.health.status == "timeout"
    assert outcome.record.health.reason == "ran for more than 0.5 s"
    assert outcome.record.flops.total == pytest.approx(2e9)
    assert len(outcome.record.curves["native"]) == 2
    assert outcome.attempts == 1


def test_what_a_pilot_leaves_in_the_background_ends_with_it(tmp_path: Path) -> None:
    command = ["sh", "-c", f"sleep 300 & echo $! > '{tmp_path}/pid'; echo '{json.dumps(GOOD)}'"]
    assert run(command, job(tmp_path)).record.health.status == "ok"
    pid = int((tmp_path / "pid").read_text())
    for _ in range(100):
        if not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text().split()[2]:
            return
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    pytest.fail("the background process went on")


def test_environment_by_slot_pins_gpus(tmp_path: Path) -> None:
    text = f"""
import json, os, time
answer = {GOOD!r}
answer["provenance"] = {{name: os.environ[name] for name in ("CUDA_VISIBLE_DEVICES", "MINE")}}
time.sleep(0.3)
print(json.dumps(answer))
"""
    gpus = [{"CUDA_VISIBLE_DEVICES": "0,1"}, {"CUDA_VISIBLE_DEVICES": "2,3"}]
    with CommandExecutor(python(text), slots=2, per_slot=gpus, env={"MINE": "yes"}, limits=NOW) as executor:
        for i in range(4):
            executor.submit(job(tmp_path, f"pilot-{i}"))
        outcomes: list[Outcome] = []
        while executor.running():
            outcomes += executor.wait(10)
    seen = [o.record.provenance["CUDA_VISIBLE_DEVICES"] for o in outcomes]
    assert sorted(seen) == ["0,1", "0,1", "2,3", "2,3"]
    assert {o.record.provenance["MINE"] for o in outcomes} == {"yes"}


def test_a_record_from_before_the_crash_of_the_loop_is_found(tmp_path: Path) -> None:
    pilot = job(tmp_path)
    first = run(says(GOOD), pilot)
    again = run(python("raise SystemExit(1)"), pilot)  # would fail if it were run
    assert again.record == first.record
    failed = job(tmp_path, "failed")
    assert run(python("raise SystemExit(1)"), failed).record.health.status == "failed"
    assert run(says(GOOD), failed).record.health.status == "ok", "a failed one is run again"


def test_a_record_read_back_is_the_record(tmp_path: Path) -> None:
    pilot = job(tmp_path)
    record = run(says(wrong(health={"status": "collapsed", "reason": "KL jumped"})), pilot).record
    assert record.health.status == "collapsed"
    assert PilotRecord.from_dict(json.loads((pilot.folder / "record.json").read_bytes())) == record
