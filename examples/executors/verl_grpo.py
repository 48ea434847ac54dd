"""A pilot with verl: reads RACE's spec, runs ``verl.trainer.main_ppo``, turns its log into RACE's record.

    race loop ... --executor examples/executors/verl.toml
    python verl_grpo.py spec.json record.json --progress progress.jsonl --folder pilot/ \\
        --train gsm8k/train.parquet --val gsm8k/test.parquet -- trainer.n_gpus_per_node=8

What follows ``--`` goes to verl as it is, after our overrides, so it wins. The environment needs verl and race-rl, not
necessarily this interpreter's: ``--verl python`` names the one that runs verl.

What of a spec verl can do: it reuses whole batches (``ppo_epochs``), so the update ratio must be 1, 2, 3, ...; and it
always recomputes old log-probs, so the recipe must say ``recompute_old_logprobs``. Everything else is refused with exit
code 2, which is not tried again. FLOPs are rebuilt from the lengths in the log, as `race import` does; verl's own
counter knows nothing of LoRA.

verl writes checkpoints every few steps and resumes from them (``resume_mode=auto``). Its log file is started anew each
time, so the earlier parts are kept and read first.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from race.allocation import size_run
from race.errors import InvalidInput, RaceError
from race.flops import Architecture
from race.flops.models import hub_id
from race.importers import import_log
from race.records import PilotRecord, PilotSpec


def overrides(spec: PilotSpec, told: argparse.Namespace) -> list[str]:
    """verl's settings for a spec, as Hydra overrides."""
    recipe = spec.recipe
    ratio = recipe.update_ratio
    if ratio != int(ratio) or ratio < 1:
        raise InvalidInput(
            f"update_ratio: found {ratio:g}; verl can do 1, 2, 3, ... (ppo_epochs over whole batches)"
        )
    if not recipe.recompute_old_logprobs:
        raise InvalidInput("recompute_old_logprobs: found false; verl always does, say so in the recipe")
    steps = size_run(Architecture.from_config(spec.model), recipe, spec.budget).steps
    lora = recipe.lora
    settings: dict[str, Any] = {
        "algorithm.adv_estimator": "grpo",
        "algorithm.use_kl_in_reward": False,
        "data.train_files": told.train.absolute(),
        "data.val_files": told.val.absolute(),
        "data.train_batch_size": recipe.prompts_per_step,
        "data.max_prompt_length": told.max_prompt_tokens,
        "data.max_response_length": told.max_completion_tokens,
        "data.filter_overlong_prompts": True,
        "actor_rollout_ref.model.path": hub_id(spec.model) or spec.model,
        "actor_rollout_ref.model.lora_rank": 0 if lora is None else lora.rank,
        "actor_rollout_ref.model.lora_alpha": told.lora_alpha,
        "actor_rollout_ref.model.target_modules": "all-linear",
        "actor_rollout_ref.model.enable_gradient_checkpointing": recipe.gradient_checkpointing,
        "actor_rollout_ref.actor.optim.lr": told.learning_rate * recipe.learning_rate,
        "actor_rollout_ref.actor.ppo_mini_batch_size": recipe.prompts_per_step,
        "actor_rollout_ref.actor.ppo_epochs": int(ratio),
        "actor_rollout_ref.actor.use_dynamic_bsz": True,
        "actor_rollout_ref.actor.use_kl_loss": recipe.kl,
        "actor_rollout_ref.actor.clip_ratio_low": 0.2,
        "actor_rollout_ref.actor.clip_ratio_high": 0.28,
        "actor_rollout_ref.rollout.name": "vllm",
        "actor_rollout_ref.rollout.n": recipe.group_size,
        "actor_rollout_ref.rollout.load_format": "safetensors",
        "actor_rollout_ref.rollout.layered_summon": lora is not None,
        "actor_rollout_ref.rollout.tensor_model_parallel_size": 1,
        "trainer.logger": "[console,file]",
        "trainer.project_name": "race",
        "trainer.experiment_name": told.folder.name,
        "trainer.default_local_dir": (told.folder / "verl").absolute(),
        "trainer.resume_mode": "auto",
        "trainer.save_freq": max(1, steps // 10),
        "trainer.test_freq": max(1, steps // 6),
        "trainer.val_before_train": True,
        "trainer.total_training_steps": steps,
        "trainer.total_epochs": 1000,
    }
    return [f"{name}={_hydra(value)}" for name, value in settings.items()] + told.rest


def _hydra(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def follow(
    process: subprocess.Popen[bytes], spec: PilotSpec, told: argparse.Namespace, logs: list[Path]
) -> int:
    """Wait for verl and tell how far it is; SIGTERM is passed on."""
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    told_steps = -1
    while True:
        code = process.poll()
        record = read(spec, told, logs)
        if record is not None and record.steps != told_steps and told.progress is not None:
            told_steps = record.steps
            flops = {name: getattr(record.flops, name) for name in ("search", "learning", "reward")}
            with told.progress.open("a") as file:
                file.write(json.dumps({"flops": flops, "step": record.steps}) + "\n")
        if code is not None:
            return code
        time.sleep(told.poll)


def read(spec: PilotSpec, told: argparse.Namespace, logs: list[Path]) -> PilotRecord | None:
    """What the logs say so far; ``None`` before the first step."""
    rows: dict[int, str] = {}
    for log in logs:
        lines = log.read_text().splitlines() if log.exists() else []
        for line in lines:
            try:
                rows[json.loads(line)["step"]] = line
            except (ValueError, KeyError, TypeError):
                continue  # the line that is being written
    if not rows:
        return None
    whole = told.folder / "verl-all.jsonl"
    whole.write_text("".join(rows[step] + "\n" for step in sorted(rows)))
    series = {"native": told.native}
    for name in spec.targets:
        if name.startswith("pass@1"):
            series[name] = told.validation
    try:
        (record,) = import_log(
            whole, format="verl", models={"run": spec.model}, recipe=spec.recipe, seed=spec.seed,
            series=series, native_range=tuple(told.native_range), eval_size=told.eval_size, allow_gaps=True,
        )  # fmt: skip
    except RaceError:
        if len(rows) > 2:
            raise
        return None  # validation before training comes first, and alone
    return record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("spec", type=Path)
    parser.add_argument("record", type=Path)
    parser.add_argument("--progress", type=Path)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--val", type=Path, required=True)
    parser.add_argument("--verl", default=sys.executable, help="interpreter that has verl")
    parser.add_argument("--max-prompt-tokens", type=int, default=1024)
    parser.add_argument("--max-completion-tokens", type=int, default=3072)
    parser.add_argument("--learning-rate", type=float, default=2e-5)
    parser.add_argument("--lora-alpha", type=int, default=32)
    parser.add_argument("--native", default="critic/rewards/mean", help="logged key of the training reward")
    parser.add_argument("--native-range", type=float, nargs=2, default=(0.0, 1.0))
    parser.add_argument(
        "--validation", default="val-core/openai/gsm8k/reward/mean@1", help="logged key of pass@1"
    )
    parser.add_argument("--eval-size", type=int, default=1319, help="problems in --val")
    parser.add_argument("--poll", type=float, default=5.0)
    ours, _, rest = _split(sys.argv[1:])
    told = parser.parse_args(ours)
    told.rest = rest
    try:
        spec = PilotSpec.from_dict(json.loads(told.spec.read_text()))
        command = [told.verl, "-m", "verl.trainer.main_ppo", *overrides(spec, told)]
        told.folder.mkdir(parents=True, exist_ok=True)
        parts = sorted(told.folder.glob("verl-part-*.jsonl"))
        log = told.folder / f"verl-part-{len(parts):04d}.jsonl"
        process = subprocess.Popen(
            command, env={**os.environ, "VERL_FILE_LOGGER_PATH": str(log)}, stdout=sys.stderr
        )
        code = follow(process, spec, told, [*parts, log])
        if code:
            sys.exit(code if code > 0 else 1)
        record = read(spec, told, [*parts, log])
    except RaceError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    if record is None:
        sys.exit("error: verl ended without logging a step")
    data = record.to_dict()
    about = {"runner": "examples/executors/verl_grpo.py", "trainer": "verl"}
    told.record.write_text(
        json.dumps({
            "flops": data["flops"], "curves": data["curves"], "steps": data["steps"],
            "provenance": {**data["provenance"], **about},
        })
    )  # fmt: skip


def _split(words: list[str]) -> tuple[list[str], str, list[str]]:
    at = words.index("--") if "--" in words else len(words)
    return words[:at], "--", words[at + 1 :]


if __name__ == "__main__":
    main()
