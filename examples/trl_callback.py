"""A TRL GRPO run that says where its compute goes and ends at a FLOP budget, on a laptop CPU in a minute.

A nano policy learns chain arithmetic from the right answer and from a small reward model. The only line that is not
TRL's own is the callback.

    pip install 'race-rl[runs]' 'trl>=1.16'
    python examples/trl_callback.py
"""

from __future__ import annotations

import tempfile
from typing import Any

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen2ForSequenceClassification
from trl import GRPOConfig, GRPOTrainer

from race.integrations.trl import ComputeCallback
from race.units import format_flops
from real_runs.nano import NanoTask, load_tokenizer, model_folder
from real_runs.nano.reading import read_solution

BUDGET = "2e10"


def right_answer(completions: list[str], gold: list[str], **_: Any) -> list[float]:
    """1 where the completion ends on the right number."""
    return [float(str(read_solution(text).answer) == right) for text, right in zip(completions, gold, strict=True)]


def reward_model() -> Any:
    """Any sequence classifier; this one is untrained and stands for yours."""
    config = Qwen2Config(
        vocab_size=27, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, num_labels=1, architectures=["Qwen2ForSequenceClassification"],
    )  # fmt: skip
    config._name_or_path = "my-reward-model"
    return Qwen2ForSequenceClassification(config)


def main() -> None:
    torch.set_num_threads(1)  # matrices this small only lose by sharing the work
    problems = [NanoTask().train_problems(seed=0, step=i, count=1)[0] for i in range(256)]
    with tempfile.TemporaryDirectory() as folder:
        callback = ComputeCallback(budget=BUDGET, reward="sparse")
        trainer = GRPOTrainer(
            model=AutoModelForCausalLM.from_pretrained(model_folder("nano-s"), dtype="float32"),
            args=GRPOConfig(
                output_dir=folder, max_steps=200, per_device_train_batch_size=32, num_generations=8, beta=0.04,
                num_iterations=2, max_completion_length=40, learning_rate=1e-3, reward_weights=[1.0, 0.05],
                logging_steps=2, report_to=[], save_strategy="no", use_cpu=True, bf16=False, seed=0,
                gradient_checkpointing=False, disable_tqdm=False,
            ),
            reward_funcs=[right_answer, reward_model()],
            reward_processing_classes=[None, load_tokenizer()],
            processing_class=load_tokenizer(),
            train_dataset=Dataset.from_list([{"prompt": p.prompt, "gold": p.gold} for p in problems]),
            peft_config=LoraConfig(r=8, target_modules="all-linear", task_type="CAUSAL_LM"),
            callbacks=[callback],
        )
        trainer.train()

    spent, tally = callback.spent, callback.tally
    print(f"{trainer.state.global_step} steps, {format_flops(int(spent.total))} of {BUDGET} FLOPs")
    print(f"  search   {spent.sigma:6.1%}")
    print(f"  learning {spent.rho:6.1%}   rho")
    for name in ("update", "old_logprobs", "reference"):
        print(f"    {name:13}{tally.get('needed', 'causal', name) / spent.total:6.1%}")
    print(f"  reward   {spent.phi:6.1%}")
    executed = tally.allocation("executed", "causal").total
    print(f"padding and rows that waited: {executed / spent.total - 1:.1%} on top")


if __name__ == "__main__":
    main()
