"""What a finished run leaves behind: a PEFT adapter and a model card that carries the compute split."""

from __future__ import annotations

from pathlib import Path

from peft import PeftModel
from transformers import PreTrainedModel

from race.errors import CannotDo
from race.records import PilotRecord
from race.units import format_flops
from real_runs.policy import Policy


def save_adapter(folder: Path, policy: Policy, record: PilotRecord) -> None:
    """Write the adapter in PEFT's format (or the whole model, under full fine-tuning) with its card.

    Raises
    ------
    CannotDo
        The folder cannot be written.
    """
    try:
        if isinstance(policy.model, PeftModel):
            # Embeddings are never trained here; left to itself PEFT looks the base model up on the hub to find out.
            policy.model.save_pretrained(str(folder), save_embedding_layers=False)
        elif isinstance(policy.model, PreTrainedModel):
            policy.model.save_pretrained(str(folder))
        (folder / "README.md").write_text(model_card(record), encoding="utf-8")
    except OSError as error:
        raise CannotDo(
            f"adapter: cannot write {folder}: {error.strerror or error}; free space and run again"
        ) from error


def model_card(record: PilotRecord) -> str:
    """The card: what was trained, where the FLOPs went, what it reached."""
    spec, flops = record.spec, record.flops
    recipe = spec.recipe
    lora = f"LoRA r = {recipe.lora.rank}" if recipe.lora else "full fine-tuning"
    lost = record.provenance.get("lost_flops", {})
    rows = "\n".join(
        f"| {name} | {format_flops(value)} | {value / flops.total:.1%} |"
        for name, value in (("search (rollouts)", flops.search), ("learning (updates)", flops.learning),
                            ("reward (reward model)", flops.reward))
    )
    targets = "\n".join(
        f"| {target} | {curve.value[0]:.3f} | {curve.value[-1]:.3f} | {curve.se[-1]:.3f} |"
        for target, curve in record.curves.items()
    )
    return f"""---
library_name: peft
base_model: {spec.model}
tags: [grpo, race]
---

# {spec.model}, GRPO under a compute budget

{lora}, reward system `{spec.reward}`, {recipe.prompts_per_step} prompts x {recipe.group_size} completions per step,
update ratio {recipe.update_ratio:g}, seed {spec.seed}, {record.steps} steps. Status: {record.health.status}\
{f" ({record.health.reason})" if record.health.reason else ""}.

## Compute

| phase | FLOPs | share |
| --- | --- | --- |
{rows}
| **total** | {format_flops(flops.total)} | of a budget of {format_flops(spec.budget)} |

Update fraction rho = {flops.rho:.3f}. Evaluation, beside the budget: {format_flops(record.eval_flops)} FLOPs. \
Work lost to interruptions and done again: {format_flops(sum(lost.values()))} FLOPs.
Convention: matrix-multiply FLOPs (2mnk) on true sequence lengths, attention over unmasked pairs, LoRA-aware.

## Results

| target | base | trained | standard error |
| --- | --- | --- | --- |
{targets}
"""
