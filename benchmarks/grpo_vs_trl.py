"""Samples per second of a GRPO step, here and in TRL: same model, LoRA, group, batch, lengths, cores.

    python benchmarks/grpo_vs_trl.py                 # both, interleaved, where trl is installed
    python benchmarks/grpo_vs_trl.py --only race     # ours alone

Both sides sample 64 completions of 32 tokens (no EOS, so that lengths cannot differ) from a random Qwen2 of about
0.6M parameters, score them with the same cheap rule, and take one optimiser step. Rounds alternate, and the median
round counts, because the machine may be busy; CPU seconds, which depend less on that, stand beside. It also prints each
phase's FLOP/s as a share of this machine's measured matmul peak.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from race.flops import LoraSpec, cost_functions
from race.recipe import Recipe
from real_runs.config import RunOptions
from real_runs.contracts import Completion, Problem, Scores
from real_runs.grpo.collector import settled_objects
from real_runs.grpo.lanes import Lanes
from real_runs.grpo.optimizer import make_optimizer
from real_runs.grpo.pricing import Prices
from real_runs.grpo.sizing import Sizer, StepSize
from real_runs.grpo.step import RunState, Trainer
from real_runs.grpo.update import Learner
from real_runs.ledger import Ledger, read_ledger
from real_runs.policy import build_policy
from real_runs.rollout import Sampling, build_backend

PROMPTS, GROUP, PROMPT_TOKENS, COMPLETION_TOKENS, VOCAB, RANK = 8, 8, 16, 32, 26, 8
PAD, EOS = 24, 25
LETTERS = [chr(ord("a") + i) for i in range(24)]


def model() -> PreTrainedModel:
    config = Qwen2Config(
        vocab_size=VOCAB, hidden_size=112, intermediate_size=336, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128, tie_word_embeddings=True, pad_token_id=PAD,
        eos_token_id=EOS, bos_token_id=None,
    )
    torch.manual_seed(0)
    return Qwen2ForCausalLM(config)


class Letters:
    """Random prompts; the score is the share of the letter a."""

    name = "letters"
    eos_id, pad_id, max_completion_tokens = EOS, PAD, COMPLETION_TOKENS

    def train_problems(self, *, seed: int, step: int, count: int) -> Sequence[Problem]:
        rng = np.random.default_rng([seed, step])
        rows = rng.integers(0, 24, size=(count, PROMPT_TOKENS)).tolist()
        return [Problem(str(i), tuple(row), "", "") for i, row in enumerate(rows)]

    def heldout_problems(self, *, count: int) -> Sequence[Problem]:
        return self.train_problems(seed=1, step=0, count=count)

    def decode(self, token_ids: Sequence[int]) -> str:
        return "".join(LETTERS[t] for t in token_ids if t < 24)

    def correct(self, completions: Sequence[Completion]) -> np.ndarray:
        return np.array([c.text.count("a") / 32 for c in completions])


class ShareOfA:
    name = "sparse"

    def score(self, completions: Sequence[Completion]) -> Scores:
        return Scores(np.array([c.text.count("a") / 32 for c in completions]))

    def flops_bound(self, prompt_tokens: int, completion_tokens: int) -> int:
        return 0


def race_stepper(folder: Path) -> Callable[[], None]:
    """One call is one step of ours, ledger included."""
    recipe = Recipe("sparse", prompts_per_step=PROMPTS, group_size=GROUP, prompt_tokens=PROMPT_TOKENS,
                    completion_tokens=COMPLETION_TOKENS, lora=LoraSpec(RANK))
    options = RunOptions(learning_rate=1e-4, device="cpu")
    policy = build_policy(model, recipe, options, seed=0)
    # EOS is banned here and suppressed in TRL: every completion has 32 tokens on both sides.
    sampling = Sampling(max_tokens=COMPLETION_TOKENS, eos_id=EOS, banned=(PAD, EOS))
    prices = Prices.of(policy.architecture, recipe)
    task = Letters()
    reward = ShareOfA()
    size = StepSize(PROMPTS, GROUP)
    trainer = Trainer(
        seed=0, options=options, task=task, reward=reward,
        backend=build_backend(policy, options, max_tokens=COMPLETION_TOKENS, folder=str(folder)),
        learner=Learner(policy, make_optimizer(policy, recipe, options), options, sampling,
                        cost_functions(policy.architecture, lora=policy.lora, attention="full"), False,
                        Lanes(torch.get_num_threads())),
        prices=prices,
        sizer=Sizer(prices, reward.flops_bound, 1.0, size, COMPLETION_TOKENS, 10**18),
        ledger=Ledger(folder / "ledger.jsonl", attempt=1, step=-1),
    )
    state = RunState()

    def step() -> None:
        trainer.take(state, task.train_problems(seed=0, step=state.step, count=PROMPTS), size)

    return step


def trl_stepper(folder: Path, rounds: int) -> Callable[[], None]:
    """One call is one `training_step` of TRL's GRPOTrainer, generation included."""
    from datasets import Dataset
    from peft import LoraConfig
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast
    from trl import GRPOConfig, GRPOTrainer

    raw = Tokenizer(models.WordLevel({w: i for i, w in enumerate([*LETTERS, "<pad>", "<eos>"])}, unk_token="<pad>"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="<pad>", eos_token="<eos>",
                                        padding_side="left")
    rng = np.random.default_rng(0)
    prompts = [" ".join(LETTERS[i] for i in rng.integers(0, 24, PROMPT_TOKENS)) for _ in range(PROMPTS * rounds)]

    def share_of_a(completions: list[str], **_: Any) -> list[float]:
        return [c.replace(" ", "").count("a") / 32 for c in completions]

    config = GRPOConfig(
        output_dir=str(folder), per_device_train_batch_size=PROMPTS * GROUP, num_generations=GROUP,
        gradient_accumulation_steps=1, max_completion_length=COMPLETION_TOKENS, learning_rate=1e-4, beta=0.0,
        max_steps=rounds, report_to=[], save_strategy="no", use_cpu=True, bf16=False, logging_steps=10**6,
        disable_tqdm=True, gradient_checkpointing=False, generation_kwargs={"suppress_tokens": [PAD, EOS]},
        dataloader_num_workers=0, temperature=1.0,
    )
    trainer = GRPOTrainer(
        model=model(), args=config, reward_funcs=share_of_a, processing_class=tokenizer,
        train_dataset=Dataset.from_dict({"prompt": prompts}),
        peft_config=LoraConfig(r=RANK, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    trainer.create_optimizer_and_scheduler(rounds)
    trainer.model, trainer.optimizer = trainer.accelerator.prepare(trainer.model, trainer.optimizer)
    trainer.model_wrapped = trainer.model
    trainer.current_gradient_accumulation_steps = 1
    batches = iter(trainer.get_train_dataloader())

    def step() -> None:
        trainer.model.train()
        trainer.training_step(trainer.model, next(batches), None)
        torch.nn.utils.clip_grad_norm_(trainer.model.parameters(), 1.0)
        trainer.optimizer.step()
        trainer.model.zero_grad()
        trainer.state.global_step += 1

    return step


def matmul_peak() -> float:
    """FLOP/s of a large square float32 matmul: the most this machine gives."""
    a, b = torch.randn(1024, 1024), torch.randn(1024, 1024)
    best = 0.0
    for _ in range(8):
        start = time.perf_counter()
        a @ b
        best = max(best, 2 * 1024**3 / (time.perf_counter() - start))
    return best


class Side:
    """One trainer in a process of its own, so that what one imports or leaves running does not slow the other."""

    def __init__(self, name: str, folder: Path, arguments: argparse.Namespace) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, name, folder / name, arguments))
        self._process.start()

    def round(self) -> tuple[float, float]:
        """Wall and CPU seconds per step of one round."""
        self._pipe.send("round")
        wall, cpu = self._pipe.recv()
        return wall, cpu

    def close(self) -> None:
        self._pipe.send("end")
        self._process.join()


def serve(pipe: Connection, name: str, folder: Path, arguments: argparse.Namespace) -> None:
    """The child's side: build the trainer, then one round per request."""
    torch.set_num_threads(arguments.threads)
    folder.mkdir()
    wanted = (arguments.rounds + 1) * arguments.steps + 1
    step = race_stepper(folder) if name == "race" else trl_stepper(folder, wanted)
    # As a run of ours does; TRL does not.
    with settled_objects() if name == "race" else nullcontext():
        take_rounds(pipe, step, arguments.steps)


def take_rounds(pipe: Connection, step: Callable[[], None], steps: int) -> None:
    """A round per request, timed, until asked to end."""
    while pipe.recv() == "round":
        start, start_cpu = time.perf_counter(), time.process_time()
        for _ in range(steps):
            step()
        pipe.send(((time.perf_counter() - start) / steps, (time.process_time() - start_cpu) / steps))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["race", "trl"])
    parser.add_argument("--rounds", type=int, default=9, help="measured rounds per side")
    parser.add_argument("--steps", type=int, default=5, help="steps per round")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    folder = Path(tempfile.mkdtemp())
    sides = {name: Side(name, folder, arguments) for name in ("race", "trl") if arguments.only in (None, name)}
    for side in sides.values():
        side.round()  # warms up
    rounds = [{name: side.round() for name, side in sides.items()} for _ in range(arguments.rounds)]
    for side in sides.values():
        side.close()
    seconds = {name: [r[name][0] for r in rounds] for name in sides}
    cpu = {name: [r[name][1] for r in rounds] for name in sides}
    ledger = folder / "race" / "ledger.jsonl" if "race" in sides else None
    peak = matmul_peak()
    samples = PROMPTS * GROUP
    report: dict[str, Any] = {
        "threads": arguments.threads,
        "samples_per_second": {name: round(samples / statistics.median(s), 1) for name, s in seconds.items()},
        "steps_per_second": {name: round(1 / statistics.median(s), 2) for name, s in seconds.items()},
        "cpu_seconds_per_step": {name: round(statistics.median(s), 4) for name, s in cpu.items()},
        "matmul_peak_gflops": round(peak / 1e9, 1),
    }
    if len(sides) == 2:
        rate = report["samples_per_second"]
        report["ratio"] = round(rate["race"] / rate["trl"], 2)
        spent = report["cpu_seconds_per_step"]
        report["cpu_ratio"] = round(spent["trl"] / spent["race"], 2)
    if ledger is not None:
        view = read_ledger(ledger)
        report["share_of_peak"] = {
            phase: round(view.executed[phase] / view.seconds[phase] / peak, 3)
            for phase in ("search", "update")
        }
        report["ms_per_step"] = {
            phase: round(1e3 * view.seconds[phase] / len(view.steps), 1) for phase in ("search", "reward", "update")
        }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
