"""Good logs per format, for the contract tests: add one here with every new importer or container.

The metrics are made up; names, spellings and layouts are those of the released trainers.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from race.importers import ModelRef, RunFacts

RECIPE = {
    "reward": "sparse",
    "prompts_per_step": 8,
    "group_size": 4,
    "prompt_tokens": 105,
    "completion_tokens": 250,
    "lora_rank": 16,
}
MODEL = {"run": ModelRef("qwen2.5-1.5b")}
STEPS = range(1, 7)


@dataclass(frozen=True)
class Sample:
    """A log that ``write`` puts into a folder, what is known about it, and how many runs it holds.

    ``needed`` are the recipe fields that this log does not say.
    """

    write: Callable[[Path], Path]
    facts: RunFacts
    runs: int = 1
    format: str = ""
    needed: tuple[str, ...] = ("reward", "prompts_per_step", "group_size", "lora_rank")


def _known(*names: str) -> RunFacts:
    return RunFacts(recipe={name: RECIPE[name] for name in names}, models=MODEL)


def _csv(folder: Path) -> Path:
    path = folder / "curves.csv"
    path.write_text("step,a,b\n0,0.1,0.3\n10,,0.4\n20,0.3,0.5\n")
    return path


def trl_rows() -> list[dict[str, Any]]:
    """``log_history`` of a GRPO run: 32 samples a step, prompts of 100 tokens."""
    rows, tokens = [], 0
    for step in STEPS:
        mean = 200.0 + 10 * step
        tokens += round(32 * (100 + mean))
        rows.append(
            {
                "step": step, "epoch": step / 10, "loss": 0.01, "grad_norm": 0.5, "learning_rate": 1e-6,
                "num_tokens": float(tokens), "completions/mean_length": mean, "completions/min_length": 20.0,
                "completions/max_length": 512.0, "completions/mean_terminated_length": mean - 5,
                "completions/clipped_ratio": 0.05, "rewards/accuracy_reward/mean": 0.2 + 0.05 * step,
                "rewards/accuracy_reward/std": 0.4, "reward": 0.2 + 0.05 * step, "reward_std": 0.4,
                "frac_reward_zero_std": 0.25, "entropy": 0.3, "clip_ratio/region_mean": 0.0, "step_time": 12.5,
            }
        )  # fmt: skip
    return rows


def write_trl(folder: Path) -> Path:
    path = folder / "trainer_state.json"
    state = {"global_step": len(STEPS), "total_flos": 0.0, "log_history": trl_rows()}
    path.write_text(json.dumps(state, indent=2))
    return path


def write_trl_console(folder: Path) -> Path:
    path = folder / "train.log"
    rows = ({k: v for k, v in row.items() if k != "step"} for row in trl_rows())
    path.write_text(
        "Loading checkpoint shards: 100%\n" + "".join(f" {i}%|# {row}\n" for i, row in enumerate(rows))
    )
    return path


def write_trl_wandb_csv(folder: Path) -> Path:
    path = folder / "wandb_export.csv"
    rows = [
        {"_step": row["step"] - 1, "_runtime": 9.0, "train/global_step": row["step"]}
        | {f"train/{k}": v for k, v in row.items() if k not in ("step",)}
        for row in trl_rows()
    ]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def write_trl_wandb_json(folder: Path) -> Path:
    path = folder / "history.json"
    rows = [
        {"_step": r["step"], **{f"train/{k}": v for k, v in r.items() if k != "step"}} for r in trl_rows()
    ]
    path.write_text(json.dumps(rows))
    return path


def verl_rows() -> list[dict[str, float]]:
    return [
        {
            "training/global_step": step, "training/epoch": 0, "actor/pg_loss": 0.02, "actor/kl_loss": 0.001,
            "actor/grad_norm": 0.4, "actor/lr": 1e-6, "critic/score/mean": 0.3,
            "critic/rewards/mean": 0.3 + 0.02 * step,
            "critic/rewards/max": 1.0, "critic/rewards/min": 0.0, "response_length/mean": 250.0 + step,
            "response_length/max": 1024.0, "response_length/min": 30.0, "response_length/clip_ratio": 0.03,
            "prompt_length/mean": 100.0, "prompt_length/max": 180.0, "prompt_length/min": 60.0,
            "perf/total_num_tokens": 32 * (350.0 + step), "perf/mfu/actor": 0.35, "timing_s/gen": 20.0,
            "timing_s/old_log_prob": 4.0, "timing_s/ref": 4.0, "timing_s/update_actor": 15.0, "timing_s/step": 45.0,
        }
        for step in STEPS
    ]  # fmt: skip


def write_verl_jsonl(folder: Path) -> Path:
    path = folder / "experiment.jsonl"
    path.write_text(
        "".join(json.dumps({"step": s, "data": r}) + "\n" for s, r in zip(STEPS, verl_rows(), strict=True))
    )
    return path


def write_verl_console(folder: Path) -> Path:
    path = folder / "verl.log"
    lines = ["(TaskRunner pid=77) Initial validation metrics: None", "(WorkerDict pid=78) step:profile off"]
    for step, row in zip(STEPS, verl_rows(), strict=True):
        pairs = " - ".join(
            f"{k}:np.float64({v})" if "/" in k and step % 2 else f"{k}:{v}" for k, v in row.items()
        )
        lines.append(f"\x1b[36m(TaskRunner pid=77)\x1b[0m step:{step} - {pairs}")
    path.write_text("\n".join(lines) + "\n")
    return path


def openrlhf_rows() -> list[dict[str, Any]]:
    return [
        {
            "policy_loss": 0.1, "actor_lr": 1e-6, "actor_grad_norm": 0.3, "reward": 0.4, "return": 0.4, "kl": 0.01,
            "ppo_clip_ratio": 0.0, "response_length": 240.0 + step, "total_length": 340.0 + step,
            "rollout/reward_mean": 0.3 + 0.02 * step, "rollout/response_length_mean": 240.0 + step,
            "rollout/truncated_rate": 0.02, "rollout/num_samples": 32, "timing/generation": 9.0,
            "timing/make_experience": 12.0, "timing/ppo_train": 8.0, "timing/step_total": 30.0,
        }
        for step in STEPS
    ]  # fmt: skip


def write_openrlhf(folder: Path) -> Path:
    path = folder / "openrlhf.log"
    lines = ["(PPOTrainer pid=5) INFO 08-13 loading"]
    for step, row in zip(STEPS, openrlhf_rows(), strict=True):
        text = repr(row).replace("'reward': 0.4", "'reward': np.float64(0.4)")
        lines.append(f"(PPOTrainer pid=5) INFO ✨ Global step {step}: {text}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def write_prime_rl(folder: Path) -> Path:
    """Trainer rows come late, interleaved with the orchestrator's rows of the next step."""
    path = folder / "metrics.jsonl"
    lines: list[dict[str, Any]] = []
    late: dict[str, Any] | None = None
    for step in range(len(STEPS)):
        mean = 230.0 + step
        lines.append(
            {
                "step": step, "time": 1.0 * step, "time/step": 30.0, "progress/rollouts": 32, "progress/tasks": 8,
                "progress/input_tokens": 3200, "progress/output_tokens": 32 * mean,
                "train/agg/effective/policy/num_output_tokens/mean": mean,
                "train/agg/effective/policy/num_output_tokens/max": 900.0,
                "train/agg/effective/policy/num_input_tokens/mean": 100.0,
                "train/agg/all/policy/reward/mean": 0.3 + 0.02 * step, "train/agg/all/policy/solved_none": 0.2,
                "train/agg/all/policy/solved_all": 0.1, "train/agg/effective/policy/is_truncated/mean": 0.01,
            }
        )  # fmt: skip
        if late is not None:
            lines.append(late)
        late = {
            "step": step, "time": 1.0 * step, "time/step": 28.0, "time/forward_backward": 11.0, "loss/mean": 0.1,
            "perf/mfu": 31.0, "perf/throughput": 9000.0, "mismatch_kl/all/mean": 0.001,
        }  # fmt: skip
    assert late is not None
    path.write_text("".join(json.dumps(row) + "\n" for row in [*lines, late]))
    return path


def nemo_rows() -> list[dict[str, float]]:
    return [
        {
            "train/loss": 1.2, "train/reward": 0.3 + 0.02 * step, "train/mean_gen_tokens_per_sample": 220.0 + step,
            "train/max_gen_tokens_per_sample": 1024.0, "train/mean_prompt_length": 100.0,
            "train/total_num_tokens": 32 * (320.0 + step), "train/global_valid_seqs": 32.0, "train/probs_ratio": 1.0,
            "train/gen_kl_error": 0.001, "train/kl_penalty": 0.002, "train/truncation_rate": 0.01,
            "train/baseline_reward/pct_mixed": 0.6, "timing/train/total_step_time": 40.0,
            "timing/train/generation": 15.0, "timing/train/policy_training": 12.0,
            "timing/train/policy_and_reference_logprobs": 6.0, "performance/train_flops_per_gpu": 1e14,
        }
        for step in STEPS
    ]  # fmt: skip


def write_nemo_json(folder: Path) -> Path:
    path = folder / "metrics.json"
    rows = nemo_rows()
    tags = {tag: {str(s): row[tag] for s, row in zip(STEPS, rows, strict=True)} for tag in rows[0]}
    path.write_text(json.dumps(tags))
    return path


def write_nemo_events(folder: Path) -> Path:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.record_writer import RecordWriter

    path = folder / "events.out.tfevents.1700000000.host.1.0"
    with path.open("wb") as file:
        writer = RecordWriter(file)
        writer.write(Event(wall_time=1.0, file_version="brain.Event:2").SerializeToString())
        for step, row in zip(STEPS, nemo_rows(), strict=True):
            for tag, value in row.items():
                summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
                writer.write(Event(wall_time=1.0, step=step, summary=summary).SerializeToString())
        writer.flush()
    return path


_LOG = ("reward", "group_size", "lora_rank")
#: Container by name; the importer that reads it is ``format``.
SAMPLES: dict[str, Sample] = {
    "csv": Sample(
        _csv,
        RunFacts(
            recipe=RECIPE,
            allow_gaps=True,
            target="pass@1:gsm8k",
            models={"a": ModelRef("qwen2.5-1.5b"), "b": ModelRef("qwen2.5-3b")},
        ),
        runs=2,
        format="csv",
        needed=(
            "reward",
            "prompts_per_step",
            "group_size",
            "prompt_tokens",
            "completion_tokens",
            "lora_rank",
        ),
    ),
    "trl state": Sample(write_trl, _known("prompts_per_step", *_LOG), format="trl"),
    "trl console": Sample(write_trl_console, _known("prompts_per_step", *_LOG), format="trl"),
    "trl wandb csv": Sample(write_trl_wandb_csv, _known("prompts_per_step", *_LOG), format="trl"),
    "trl wandb json": Sample(write_trl_wandb_json, _known("prompts_per_step", *_LOG), format="trl"),
    "verl jsonl": Sample(write_verl_jsonl, _known(*_LOG), format="verl", needed=_LOG),
    "verl console": Sample(write_verl_console, _known(*_LOG), format="verl", needed=_LOG),
    "openrlhf console": Sample(write_openrlhf, _known(*_LOG), format="openrlhf", needed=_LOG),
    "prime-rl jsonl": Sample(write_prime_rl, _known(*_LOG), format="prime-rl", needed=_LOG),
    "nemo-rl json": Sample(write_nemo_json, _known(*_LOG), format="nemo-rl", needed=_LOG),
    "nemo-rl events": Sample(write_nemo_events, _known(*_LOG), format="nemo-rl", needed=_LOG),
}
