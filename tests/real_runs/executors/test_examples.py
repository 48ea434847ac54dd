"""The runners in ``examples/executors``: TRL for real, verl against a stand-in that logs as verl does."""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from jobs import job, spec

from race.allocation import size_run
from race.flops import Architecture
from race.ladders import ladder
from race.records import PilotSpec
from real_runs.executors import Job, Outcome, build_executor

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples" / "executors"


def run(name: str, pilot: Job, python: str = sys.executable, extra: str = "", **options: object) -> Outcome:
    """Run a pilot with an example's own TOML file, only that ``python`` is a given one."""
    table = tomllib.loads((EXAMPLES / name).read_text())["executor"]
    command = table["command"].replace(
        "python examples/", f"{shlex.quote(python)} {shlex.quote(str(ROOT))}/examples/"
    )
    command = command.replace(" --train ", " --poll 0.1 --train ")
    with build_executor({**table, "command": command + extra, "retries": 0, **options}) as executor:
        executor.submit(pilot)
        (outcome,) = executor.wait(240)
        return outcome


@pytest.mark.slow
@pytest.mark.parametrize("ratio", [0.5, 1.5])
def test_trl_for_real(ratio: float, tmp_path: Path) -> None:
    """RACE_TRL_PYTHON may name an interpreter that has trl (and torch, transformers, peft) when this one has not."""
    python = os.environ.get("RACE_TRL_PYTHON", sys.executable)
    if python == sys.executable and importlib.util.find_spec("trl") is None:
        pytest.skip("trl is not installed; pip install trl, or set RACE_TRL_PYTHON")
    asked = spec()
    asked = replace(
        asked, recipe=asked.recipe.with_update_ratio(ratio), targets=("native", "pass@1", "judge")
    )
    env = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    outcome = run("trl.toml", Job("trl", asked, tmp_path / "trl"), python, " --eval-problems 64", env=env)
    record = outcome.record
    assert record.health.status == "ok", record.health
    assert 0.75 * asked.budget < record.flops.total <= asked.budget
    assert set(record.curves) == {"native", "pass@1", "judge"}
    assert len(record.curves["native"]) >= 4
    # What TRL spent is what the recipe plans, but for lengths, and old log-probs of all samples when a > 1.
    planned = size_run(Architecture.from_config("nano-s"), asked.recipe, asked.budget).flops
    assert record.flops.rho == pytest.approx(planned.rho, abs=0.06)
    last = (tmp_path / "trl" / "progress.jsonl").read_text().splitlines()[-1]
    assert sum(json.loads(last)["flops"].values()) == record.flops.total


# Logs as verl 0.7 does through its file backend, checks its overrides, resumes if there is a checkpoint.
STAND_IN = """
import json, os, sys
settings = dict(word.split("=", 1) for word in sys.argv[1:])
known = set(json.loads(os.environ["KNOWN"]))
unknown = set(settings) - known
assert not unknown, f"Key '{sorted(unknown)[0]}' is not in struct"
steps = int(settings["trainer.total_training_steps"])
print("(TaskRunner pid=1) {'noise': 1}")
folder = settings["trainer.default_local_dir"]
os.makedirs(folder, exist_ok=True)
saved = folder + "/latest_checkpointed_iteration.txt"
first = int(open(saved).read()) + 1 if os.path.exists(saved) else 1
with open(os.environ["VERL_FILE_LOGGER_PATH"], "w") as log:
    for step in range(first - 1 if first == 1 else first, steps + 1):
        row = {}
        if step:
            row = {"training/global_step": step, "critic/rewards/mean": 0.2 + 0.4 * step / steps,
                   "critic/rewards/max": 1.0, "critic/rewards/min": 0.0,
                   **{f"prompt_length/{which}": 100.0 for which in ("mean", "max", "min")},
                   **{f"response_length/{which}": 300.0 for which in ("mean", "max", "min")},
                   "response_length/clip_ratio": 0.0, "actor/lr": 1e-5,
                   "perf/total_num_tokens": 400 * int(settings["data.train_batch_size"])
                   * int(settings["actor_rollout_ref.rollout.n"]), "timing_s/step": 3.0}
        if step % int(settings["trainer.test_freq"]) == 0 or step == steps:
            row["val-core/openai/gsm8k/reward/mean@1"] = 0.5 + 0.2 * step / steps
        log.write(json.dumps({"step": step, "data": row}) + "\\n")
        log.flush()
        if step == steps // 2 and os.environ.get("CRASH") and first == 1:
            open(saved, "w").write(str(step - 1))
            os.kill(os.getpid(), 9)
"""
# As in verl 0.7's generated reference configuration, for the tables that the example touches.
KNOWN = [
    "algorithm.adv_estimator", "algorithm.use_kl_in_reward", "data.train_files", "data.val_files",
    "data.train_batch_size", "data.max_prompt_length", "data.max_response_length",
    "data.filter_overlong_prompts", "actor_rollout_ref.model.path", "actor_rollout_ref.model.lora_rank",
    "actor_rollout_ref.model.lora_alpha", "actor_rollout_ref.model.target_modules",
    "actor_rollout_ref.model.enable_gradient_checkpointing", "actor_rollout_ref.actor.optim.lr",
    "actor_rollout_ref.actor.ppo_mini_batch_size", "actor_rollout_ref.actor.ppo_epochs",
    "actor_rollout_ref.actor.use_dynamic_bsz", "actor_rollout_ref.actor.use_kl_loss",
    "actor_rollout_ref.actor.clip_ratio_low", "actor_rollout_ref.actor.clip_ratio_high",
    "actor_rollout_ref.rollout.name", "actor_rollout_ref.rollout.n",
    "actor_rollout_ref.rollout.load_format", "actor_rollout_ref.rollout.layered_summon",
    "actor_rollout_ref.rollout.tensor_model_parallel_size", "trainer.logger", "trainer.project_name",
    "trainer.experiment_name", "trainer.default_local_dir", "trainer.resume_mode", "trainer.save_freq",
    "trainer.test_freq", "trainer.val_before_train", "trainer.total_training_steps", "trainer.total_epochs",
    "trainer.n_gpus_per_node",
]  # fmt: skip


def verl_spec(ratio: float = 2.0, **changes: object) -> PilotSpec:
    arch = Architecture.from_config("Qwen2.5-1.5B-Instruct")
    recipe = replace(
        ladder("qwen2.5").recipe("sparse"), prompts_per_step=32, prompt_tokens=100, completion_tokens=300,
        recompute_old_logprobs=True, **changes,  # type: ignore[arg-type]
    ).with_update_ratio(ratio)  # fmt: skip
    budget = int(12.5 * size_run(arch, recipe, 10**19).step.total)
    return PilotSpec("qwen2.5-1.5b-instruct", arch.params(), recipe, 0.7, budget, 3, ("native", "pass@1"))


@pytest.fixture
def verl(tmp_path: Path) -> dict[str, str]:
    package = tmp_path / "stand-in" / "verl" / "trainer"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    (package / "main_ppo.py").write_text(STAND_IN)
    return {"PYTHONPATH": f"{tmp_path / 'stand-in'}{os.pathsep}{ROOT}", "KNOWN": json.dumps(KNOWN)}


@pytest.mark.parametrize("crash", [False, True])
def test_verl_against_a_stand_in(crash: bool, verl: dict[str, str], tmp_path: Path) -> None:
    pilot = Job("verl", verl_spec(), tmp_path / "verl")
    env = {**verl, **({"CRASH": "1"} if crash else {})}
    outcome = run("verl.toml", pilot, env=env, retries=int(crash), retry_wait=0.05)
    record = outcome.record
    assert record.health.status == "ok", record.health
    assert outcome.attempts == 1 + crash
    assert (record.steps, record.evidence) == (12, "real")
    plan = size_run(Architecture.from_config(pilot.spec.model), pilot.spec.recipe, pilot.spec.budget)
    # A log has mean lengths; reading one allows for their spread, which attention makes dearer.
    assert record.flops.total == pytest.approx((plan.step * 12).total, rel=0.02)
    assert record.flops.rho == pytest.approx(plan.step.rho, abs=0.01)
    assert record.curves["pass@1"].value[-1] == pytest.approx(0.7)
    assert record.curves["native"].value[-1] == pytest.approx(0.6)
    assert outcome.spent >= record.flops.total


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (lambda: verl_spec(1.5), "exit code 2: error: update_ratio: found 1.5; verl can do 1, 2, 3"),
        (lambda: replace(verl_spec(), recipe=replace(verl_spec().recipe, recompute_old_logprobs=False)),
         "exit code 2: error: recompute_old_logprobs: found false"),
    ],
)  # fmt: skip
def test_what_verl_cannot_do_is_refused(asked, reason: str, verl: dict[str, str], tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    outcome = run("verl.toml", Job("verl", asked(), tmp_path / "verl"), env=verl, retries=3)
    assert reason in outcome.record.health.reason
    assert outcome.attempts == 1


def test_a_setting_that_verl_does_not_know_is_a_failure_with_its_words(
    verl: dict[str, str], tmp_path: Path
) -> None:
    outcome = run(
        "verl.toml", Job("verl", verl_spec(), tmp_path / "verl"), env=verl, extra=" trainer.colour=red"
    )
    assert "Key 'trainer.colour' is not in struct" in outcome.record.health.reason
    assert job(tmp_path).id == "pilot"
