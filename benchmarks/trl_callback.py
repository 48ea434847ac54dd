"""Real TRL GRPO runs on the nano ladder, under torch's own FLOP counter: what the callback says against the truth.

Each case is a whole ``GRPOTrainer.train()``: real generation with ragged prompts and early ends, old-log-prob and
reference passes, updates. The counter watches all of it; its total is read around ``generate`` and around the reward
models, so that the truth is by phase and owes nothing to the callback.

    python benchmarks/trl_callback.py                     every case, one line each
    python benchmarks/trl_callback.py lora kl             some of them
    python benchmarks/trl_callback.py --logs DIR          also write the runs' logs with their truth, for importers

One thing is put right before anything is compared: torch's counter has no entry for the in-place ``addmm_``, with which
TRL's fused head (1.15 and later, off the GPU kernels) forms its gradients, so it is registered here. The raw counter is
reported beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import PrinterCallback

from race.integrations.trl import ComputeCallback
from real_runs.nano import NanoTask, load_tokenizer, model_folder
from real_runs.nano.reading import read_solution

STEPS, PROMPTS, GROUP, LIMIT = 9, 4, 4, 40


@dataclass(frozen=True)
class Case:
    """One run: ``config`` goes to ``GRPOConfig`` over the defaults below."""

    name: str
    model: str = "nano-s"
    lora: int = 8
    scorer: bool = False
    evaluate: bool = False
    config: dict[str, Any] = field(default_factory=dict)


CASES = (
    Case("lora"),
    Case("lora-kl", config={"beta": 0.04}),
    Case("lora-reuse", config={"num_iterations": 4, "max_steps": 8}),
    Case("lora-reuse-kl", config={"num_iterations": 4, "beta": 0.04, "max_steps": 8}),
    Case("lora-scorer", scorer=True),
    Case("lora-checkpointing", config={"gradient_checkpointing": True}),
    Case("lora-reentrant", config={"gradient_checkpointing": True,
                                   "gradient_checkpointing_kwargs": {"use_reentrant": True}}),
    Case("lora-every-3-steps", config={"logging_steps": 3}),
    Case("lora-accumulation", config={"gradient_accumulation_steps": 2, "per_device_train_batch_size": 8}),
    Case("lora-split", config={"steps_per_generation": 4, "gradient_accumulation_steps": 2,
                               "per_device_train_batch_size": 8}),
    Case("lora-eval", evaluate=True),
    Case("lora-gspo", config={"importance_sampling_level": "sequence", "loss_type": "grpo"}),
    Case("lora-masked-truncated", config={"mask_truncated_completions": True, "max_completion_length": 14}),
    Case("full", lora=0),
    Case("full-kl", lora=0, config={"beta": 0.04}),
    Case("full-checkpointing", lora=0, config={"gradient_checkpointing": True}),
    Case("full-reuse-kl-scorer", lora=0, scorer=True,
         config={"num_iterations": 4, "beta": 0.04, "max_steps": 8}),
    Case("nano-m-lora-kl-scorer", model="nano-m", lora=16, scorer=True, config={"beta": 0.04}),
)  # fmt: skip


def prompts(count: int, *, heldout: bool = False) -> Any:
    """Chain arithmetic of several lengths, so that batches are padded."""
    from datasets import Dataset

    task = NanoTask()
    if heldout:
        problems = list(task.heldout_problems(count=count))
    else:
        problems = [task.train_problems(seed=0, step=i, count=1)[0] for i in range(count)]
    return Dataset.from_list([{"prompt": p.prompt, "gold": p.gold} for p in problems])


def exact_answer(completions: list[str], gold: list[str], **_: Any) -> list[float]:
    """1 where the completion states the right answer."""
    return [float(str(read_solution(text).answer) == right) for text, right in zip(completions, gold, strict=True)]


def scorer_model() -> Any:
    """A reward model with a sequence-classification head, random but always the same."""
    from transformers import Qwen2Config, Qwen2ForSequenceClassification

    torch.manual_seed(7)
    config = Qwen2Config(
        vocab_size=27, hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128, num_labels=1, pad_token_id=26, eos_token_id=26,
        bos_token_id=None, attn_implementation="eager", architectures=["Qwen2ForSequenceClassification"],
    )  # fmt: skip
    config._name_or_path = "nano-scorer"
    return Qwen2ForSequenceClassification(config)


def build_trainer(case: Case, folder: Path, callbacks: list[Any], **overrides: Any) -> Any:
    """The trainer of a case."""
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM
    from trl import GRPOConfig, GRPOTrainer

    torch.manual_seed(0)
    policy = AutoModelForCausalLM.from_pretrained(
        model_folder(case.model), attn_implementation="eager", dtype=torch.float32
    )
    tokenizer = load_tokenizer()
    settings = {
        "output_dir": str(folder), "per_device_train_batch_size": PROMPTS * GROUP, "num_generations": GROUP,
        "gradient_accumulation_steps": 1, "max_completion_length": LIMIT, "learning_rate": 1e-4, "beta": 0.0,
        "max_steps": STEPS, "report_to": [], "save_strategy": "no", "use_cpu": True, "bf16": False,
        "logging_steps": 1, "disable_tqdm": True, "gradient_checkpointing": False, "seed": 3,
        "per_device_eval_batch_size": GROUP, **case.config, **overrides,
    }  # fmt: skip
    if case.evaluate:
        settings |= {"eval_strategy": "steps", "eval_steps": 3}
    rewards: list[Any] = [exact_answer, *([scorer_model()] if case.scorer else [])]
    trainer = GRPOTrainer(
        model=policy, args=GRPOConfig(**settings), reward_funcs=rewards, processing_class=tokenizer,
        reward_processing_classes=[None, *([load_tokenizer()] if case.scorer else [])],
        train_dataset=prompts(256), eval_dataset=prompts(6, heldout=True) if case.evaluate else None,
        peft_config=LoraConfig(r=case.lora, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
        if case.lora else None, callbacks=callbacks,
    )  # fmt: skip
    if trainer.ref_model is not None:
        # Before 1.16 TRL loads it with fused attention whatever the policy has, which torch's counter does not see.
        trainer.ref_model.set_attn_implementation("eager")
    return trainer


@dataclass
class Truth:
    """FLOPs that the counter saw, by phase."""

    search: int = 0
    reward: int = 0
    eval: int = 0
    total: int = 0
    raw_total: int = 0

    @property
    def learning(self) -> int:
        """What is left: old-log-prob, reference and update passes."""
        return self.total - self.search - self.reward - self.eval

    def to_dict(self) -> dict[str, int]:
        """Phases, with the total of the three without evaluation."""
        return {"search": self.search, "learning": self.learning, "reward": self.reward, "eval": self.eval,
                "total": self.total - self.eval}  # fmt: skip


def _addmm_in_place(total: Any, left: Any, right: Any, **_: Any) -> int:
    """Shapes of ``total += left @ right``."""
    return 2 * left[0] * left[1] * right[1]


@contextmanager
def counted(trainer: Any) -> Iterator[Truth]:
    """Count everything that runs inside, by phase."""
    truth, phases = Truth(), {"search": 0, "reward": 0, "eval": 0}
    counter = FlopCounterMode(display=False, custom_mapping={torch.ops.aten.addmm_: _addmm_in_place})
    depth: list[str] = []

    def around(original: Callable[..., Any], phase: str) -> Callable[..., Any]:
        def measured(*args: Any, **kwargs: Any) -> Any:
            if depth:  # generation inside an evaluation is evaluation
                return original(*args, **kwargs)
            depth.append(phase)
            before = counter.get_total_flops()
            try:
                return original(*args, **kwargs)
            finally:
                phases[phase] += counter.get_total_flops() - before
                depth.pop()

        return measured

    inner = trainer.model.get_base_model() if hasattr(trainer.model, "peft_config") else trainer.model
    inner.generate = around(inner.generate, "search")
    trainer.evaluate = around(trainer.evaluate, "eval")
    trainer._calculate_rewards = around(trainer._calculate_rewards, "reward")
    with counter:
        yield truth
    truth.search, truth.reward, truth.eval = phases["search"], phases["reward"], phases["eval"]
    truth.total = counter.get_total_flops()
    added = sum(v for k, v in counter.get_flop_counts()["Global"].items() if "addmm_" in str(k))
    truth.raw_total = truth.total - added


def run_case(case: Case, folder: Path) -> tuple[Any, ComputeCallback, Truth]:
    """Train under the counter."""
    callback = ComputeCallback(attention="full", count="executed")
    trainer = build_trainer(case, folder, [callback])
    trainer.remove_callback(PrinterCallback)  # the report is what is printed
    with counted(trainer) as truth:
        trainer.train()
    return trainer, callback, truth


def write_log(case: Case, trainer: Any, callback: ComputeCallback, truth: Truth, folder: Path) -> None:
    """The run as a user would have it on disk without the callback, and the truth beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    state = trainer.state
    for entry in state.log_history:
        for name in [name for name in entry if name.startswith("compute/")]:
            del entry[name]
        if "total_flos" in entry:
            entry["total_flos"] = 0.0
    state.total_flos = 0.0
    state.stateful_callbacks.pop("ComputeCallback", None)
    state.save_to_json(str(folder / "trainer_state.json"))
    arguments = {k: v for k, v in trainer.args.to_dict().items() if "dir" not in k and "hub" not in k}
    (folder / "args.json").write_text(json.dumps(arguments, indent=1, default=str) + "\n")
    config = json.loads((model_folder(case.model) / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    if case.lora:
        peft = trainer.model.peft_config["default"].to_dict()
        plain = {k: sorted(v) if isinstance(v, set) else v for k, v in peft.items()}
        plain["base_model_name_or_path"] = case.model
        (folder / "adapter_config.json").write_text(json.dumps(plain, indent=1, default=str) + "\n")
    if case.scorer:
        (folder / "scorer_config.json").write_text(trainer.reward_funcs[1].config.to_json_string())
    import transformers
    import trl

    tally = callback.tally
    said = {"versions": {"trl": trl.__version__, "transformers": transformers.__version__, "torch": torch.__version__},
            "counter": {"attention": "full", "column": "executed", **truth.to_dict()},
            "callback": tally.to_dict(),
            "needed": {a: tally.allocation("needed", a).to_dict() for a in ("causal", "full")},
            "prompt_tokens": callback.record.spec.recipe.prompt_tokens,
            "completion_tokens": callback.record.spec.recipe.completion_tokens,
            "samples": callback._counts.tokens["samples"],
            "reward_model": "scorer_config.json" if case.scorer else None,
            }  # fmt: skip
    (folder / "truth.json").write_text(json.dumps(said, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", help="names; default all")
    parser.add_argument("--logs", type=Path, help="folder for logs with truth")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    scratch = Path(tempfile.mkdtemp())
    known = {case.name: case for case in CASES}
    report = []
    try:
        for name in arguments.cases or known:
            started = time.perf_counter()
            trainer, callback, truth = run_case(known[name], scratch / name)
            found = callback.spent
            report.append({
                "case": name, "counter": truth.to_dict(), "callback": found.to_dict(),
                "difference": int(found.total) - truth.to_dict()["total"],
                "relative": (found.total / truth.to_dict()["total"]) - 1,
                "eval_difference": callback.tally.get("executed", "full", "eval") - truth.eval,
                "raw_counter_sees": truth.raw_total / truth.total,
                "needed_causal": callback.tally.allocation("needed", "causal").to_dict(),
                "seconds": round(time.perf_counter() - started, 1),
            })  # fmt: skip
            line = report[-1]
            print(
                f"{name:26} counter {line['counter']['total']:>13,}  callback {int(found.total):>13,}  "
                f"{line['relative']:+.4%}  eval {line['eval_difference']:+d}  {line['seconds']} s",
                file=sys.stderr,
            )
            if arguments.logs:
                write_log(known[name], trainer, callback, truth, arguments.logs / name)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
