"""One real budgeted run: a spec goes in, a record comes out, a folder keeps everything in between.

The same call resumes a run that was interrupted, and returns the record of one that is finished.
"""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from race.allocation import size_run
from race.errors import CannotDo, InvalidInput
from race.flops import cost_functions
from race.records import Curve, PilotRecord, PilotSpec
from real_runs import require_runs_extra

require_runs_extra()

import torch  # noqa: E402  # after the check, so that a missing extra is named

from real_runs.card import save_adapter  # noqa: E402
from real_runs.checkpoint import Checkpoint, newest_checkpoint, save_checkpoint, write_atomically  # noqa: E402
from real_runs.config import RunOptions  # noqa: E402
from real_runs.contracts import Judge, Problem, Reward, Task  # noqa: E402
from real_runs.evaluate import Evaluation, evaluate  # noqa: E402
from real_runs.folder import RunFolder  # noqa: E402
from real_runs.grpo.health import flags, verdict  # noqa: E402
from real_runs.grpo.lanes import Lanes  # noqa: E402
from real_runs.grpo.optimizer import load_moments, make_optimizer, moments  # noqa: E402
from real_runs.grpo.pricing import Prices  # noqa: E402
from real_runs.grpo.seeds import seed_for  # noqa: E402
from real_runs.grpo.sizing import Sizer, StepSize  # noqa: E402
from real_runs.grpo.step import RunState, Trainer  # noqa: E402
from real_runs.grpo.update import Learner  # noqa: E402
from real_runs.ledger import Ledger, LedgerView, read_ledger  # noqa: E402
from real_runs.policy import Policy, PolicyFactory, build_policy  # noqa: E402
from real_runs.rollout import RolloutBackend, Sampling, build_backend  # noqa: E402


@dataclass(frozen=True)
class Progress:
    """Where a run stands; what a live table shows.

    Attributes
    ----------
    step, budget
        Steps done; FLOPs the run may spend.
    flops
        Spent so far by phase, and ``eval`` beside it.
    metrics
        Of the last step.
    values
        Latest evaluation by target.
    seconds, eta
        Of this process; forecast of what is left at the current pace, ``None`` before the first step.
    note
        Something worth telling once: a resume, a skipped checkpoint.
    """

    step: int
    budget: int
    flops: Mapping[str, int]
    metrics: Mapping[str, float]
    values: Mapping[str, float]
    seconds: float
    eta: float | None
    note: str = ""


ProgressCallback = Callable[[Progress], None]


def run_pilot(
    spec: PilotSpec,
    *,
    task: Task,
    reward: Reward,
    policy: PolicyFactory,
    out_dir: str | Path,
    judge: Judge | None = None,
    benchmarks: Mapping[str, Task] | None = None,
    options: RunOptions | None = None,
    progress: ProgressCallback | None = None,
) -> PilotRecord:
    """Run ``spec`` for real, within its budget, and return its record.

    Parameters
    ----------
    task, reward, judge
        Where problems come from, what is trained on, and the process score common to all reward systems.
    policy
        Builds the base model.
    out_dir
        The run's folder: new, or of the same run, which is then resumed.
    benchmarks
        Tasks behind targets such as ``pass@1:gsm8k``; plain ``pass@1`` is the task's own held-out set.
    progress
        Called after every step and evaluation; what it raises stops the run, resumably. `KeyboardInterrupt` lets the
        step end and be saved first.

    Raises
    ------
    InvalidInput
        A budget below one step, an option or target that does not fit, a folder of another run.
    CannotDo
        The folder cannot be written or read, or a part of the run broke its contract.
    """
    options = options or RunOptions()
    options.check_with(spec.recipe)
    folder = RunFolder(Path(out_dir))
    with folder.locked():
        return _Run(spec, task, reward, judge, dict(benchmarks or {}), options, progress, folder, policy).go()


class _Run:
    """One process's work on one run."""

    def __init__(
        self,
        spec: PilotSpec,
        task: Task,
        reward: Reward,
        judge: Judge | None,
        benchmarks: dict[str, Task],
        options: RunOptions,
        progress: ProgressCallback | None,
        folder: RunFolder,
        factory: PolicyFactory,
    ) -> None:
        self.spec, self.task, self.reward, self.judge = spec, task, reward, judge
        self.benchmarks, self.options, self.folder = benchmarks, options, folder
        self._progress, self._factory = progress, factory
        self._started = time.perf_counter()
        self._metrics: dict[str, float] = {}
        self._spent_at_start = 0
        self._stop: KeyboardInterrupt | None = None

    def go(self) -> PilotRecord:
        if self.folder.record.exists():
            self.folder.identify(self._identity(None))
            return _read_record(self.folder.record)
        if self.options.threads:
            torch.set_num_threads(self.options.threads)
        policy = build_policy(self._factory, self.spec.recipe, self.options, seed=self.spec.seed)
        self._check(policy)
        manifest = self.folder.identify(self._identity(policy))
        checkpoint, skipped = newest_checkpoint(self.folder.checkpoints)
        so_far = read_ledger(self.folder.ledger, up_to=checkpoint.step if checkpoint else -1)
        if checkpoint is None and so_far.lost.learning:
            raise CannotDo(
                f"out: {self.folder.path} has a ledger of training but no complete checkpoint "
                f"({'; '.join(skipped) or 'none found'}); not restarted from the beginning: use another folder"
            )
        optimizer = make_optimizer(policy, self.spec.recipe, self.options)
        state = RunState()
        if checkpoint is not None:
            state = self._restore(checkpoint, policy, optimizer, so_far)
        max_tokens = self.options.max_completion_tokens or self.task.max_completion_tokens
        backend = build_backend(policy, self.options, max_tokens=max_tokens, folder=str(self.folder.path / "engine"))
        try:
            ledger = Ledger(self.folder.ledger, attempt=so_far.attempts + 1, step=state.step if checkpoint else -1)
        except OSError as error:
            raise CannotDo(f"ledger: cannot write {self.folder.ledger}: {error.strerror or error}") from error
        with ledger:
            try:
                self._notes(checkpoint, skipped, so_far, state)
                trainer = self._trainer(policy, optimizer, backend, ledger, so_far, max_tokens)
                try:
                    self._loop(trainer, state, fresh=checkpoint is None)
                finally:
                    trainer.learner.lanes.close()
            except OSError as error:
                raise CannotDo(
                    f"out: cannot write {self.folder.path}: {error.strerror or error}; everything up to the last "
                    "checkpoint is intact, free space and run the same command again"
                ) from error
            finally:
                backend.close()
        return self._finish(policy, state, manifest)

    def _identity(self, policy: Policy | None) -> dict[str, Any]:
        identity = {
            "spec": self.spec.to_dict(),
            "options": self.options.to_dict(),
            "task": self.task.name,
            "reward": self.reward.name,
            "judge": None if self.judge is None else self.judge.name,
            "benchmarks": sorted(self.benchmarks),
        }
        if policy is not None:
            identity |= {"id": uuid.uuid4().hex, "base": fingerprint(policy)}
        return identity

    def _check(self, policy: Policy) -> None:
        """Everything that can be refused before a FLOP is spent."""
        plan = size_run(policy.architecture, self.spec.recipe, self.spec.budget)
        if plan.steps < 1:  # size_run raises; this guards its contract
            raise InvalidInput("budget: below one step")
        for target in self.spec.targets:
            name = target.partition(":")[2]
            if name and name not in self.benchmarks and name != self.task.name:
                raise InvalidInput(
                    f"targets: found {target!r}; allowed are pass@1 for {self.task.name!r}"
                    + "".join(f", pass@1:{b}" for b in sorted(self.benchmarks))
                )
            if target == "judge" and self.judge is None:
                raise InvalidInput("targets: found 'judge', but the run was given no judge")
        vocab = policy.architecture.vocab
        for name, token in (("eos_id", self.task.eos_id), ("pad_id", self.task.pad_id)):
            if not 0 <= token < vocab:
                raise InvalidInput(f"task.{name}: found {token}; allowed is a token id from 0 to {vocab - 1}")

    def _restore(
        self, checkpoint: Checkpoint, policy: Policy, optimizer: torch.optim.Optimizer, so_far: LedgerView
    ) -> RunState:
        state = RunState.from_dict(checkpoint.state)
        if so_far.useful.to_dict() != state.account.to_dict():
            raise CannotDo(
                f"ledger: {self.folder.ledger} adds up to {so_far.useful.to_dict()} at step {state.step}, the "
                f"checkpoint says {state.account.to_dict()}; lines are missing, so the run cannot be accounted for"
            )
        policy.load_state(checkpoint.policy)
        load_moments(optimizer, policy, checkpoint.optimizer)
        return state

    def _trainer(
        self, policy: Policy, optimizer: torch.optim.Optimizer, backend: RolloutBackend, ledger: Ledger,
        so_far: LedgerView, max_tokens: int,
    ) -> Trainer:
        recipe, options = self.spec.recipe, self.options
        self.sampling = Sampling(
            max_tokens=max_tokens,
            eos_id=self.task.eos_id,
            banned=() if self.task.pad_id == self.task.eos_id else (self.task.pad_id,),
            temperature=options.temperature,
            top_p=options.top_p,
            top_k=options.top_k,
            min_p=options.min_p,
        )
        prices = Prices.of(policy.architecture, recipe)
        budget = self.spec.budget - (so_far.lost.total if options.lost_work == "inside" else 0)
        return Trainer(
            seed=self.spec.seed,
            options=options,
            task=self.task,
            reward=self.reward,
            backend=backend,
            learner=Learner(
                policy, optimizer, options, self.sampling,
                cost_functions(policy.architecture, lora=policy.lora, attention="full",
                               gradient_checkpointing=recipe.gradient_checkpointing),
                recipe.kl,
                # A GPU is filled by one micro-batch, and transformers' forwards are not made for several threads.
                Lanes(torch.get_num_threads() if policy.lean and policy.device.type == "cpu" else 1),
            ),
            prices=prices,
            sizer=Sizer(prices, self.reward.flops_bound, recipe.update_ratio,
                        StepSize(recipe.prompts_per_step, recipe.group_size), max_tokens, budget),
            ledger=ledger,
        )

    def _loop(self, trainer: Trainer, state: RunState, *, fresh: bool) -> None:
        self._spent_at_start = state.account.total
        if fresh:
            self._evaluate(trainer, state)
            self._save(trainer, state)
        while not state.counts.unstable and self._stop is None:
            problems = self._problems(trainer.learner.policy, state.step)
            size = trainer.sizer.next_size(
                [len(p.prompt_ids) for p in problems], state.account.total,
                state.mean_completion(self.spec.recipe.completion_tokens),
            )
            if size is None:
                break
            self._metrics = trainer.take(state, problems, size)
            done = state.account.total * self.options.eval_points // trainer.sizer.budget
            if done > state.milestone:
                state.milestone = done
                self._evaluate(trainer, state)
            if state.step % self.options.checkpoint_every == 0:
                self._save(trainer, state)
            self._report(state)
        if self._stop is not None:
            if state.step % self.options.checkpoint_every:
                self._save(trainer, state)
            raise self._stop
        if self._last_evaluated(state) < state.step:
            self._evaluate(trainer, state)
        self._save(trainer, state)
        self._report(state)

    def _problems(self, policy: Policy, step: int) -> list[Problem]:
        context = getattr(policy.causal_lm.config, "max_position_embeddings", None) or 10**9
        count = self.spec.recipe.prompts_per_step
        problems = list(self.task.train_problems(seed=self.spec.seed, step=step, count=count))
        if len(problems) != count:
            raise CannotDo(f"task: {self.task.name!r} gave {len(problems)} problems for step {step}, not {count}")
        for problem in problems:
            length = len(problem.prompt_ids)
            if not length:
                raise InvalidInput(f"task: problem {problem.id!r} has an empty prompt; drop it from the data")
            if length + self.sampling.max_tokens > context:
                raise InvalidInput(
                    f"task: problem {problem.id!r} has a prompt of {length} tokens, which with "
                    f"{self.sampling.max_tokens} for the completion is beyond the model's context of {context}; "
                    "filter long prompts or lower max_completion_tokens"
                )
        return problems

    def _evaluate(self, trainer: Trainer, state: RunState) -> None:
        """Add a point to every curve."""
        step = state.step
        trainer.backend.refresh(step)
        targets = set(self.spec.targets)
        sets: dict[str, Task] = {"": self.task}
        sets |= {t.partition(":")[2]: self.benchmarks.get(t.partition(":")[2], self.task) for t in targets if ":" in t}
        for name, task in sets.items():
            bound = self._eval_bound(trainer, task)
            with trainer.ledger.phase(step, "eval", bound) as phase:
                found = evaluate(
                    trainer.backend, task, prices=trainer.prices, sampling=self.sampling,
                    problems=self.options.eval_problems, samples=self.options.eval_samples,
                    seed=seed_for(self.spec.seed, step, f"eval:{name}"),
                    reward=self.reward if not name and "native" in targets else None,
                    judge=self.judge if not name and "judge" in targets else None,
                )
                phase.flops, phase.executed = found.flops, found.executed
            state.account.add("eval", found.flops)
            self._add_points(state, found, name)
        self._report(state)

    def _add_points(self, state: RunState, found: Evaluation, benchmark: str) -> None:
        for target in self.spec.targets:
            key, _, name = target.partition(":")
            if name != benchmark or key not in found.estimates:
                continue
            estimate = found.estimates[key]
            curve = state.curves.setdefault(target, {"step": [], "flops": [], "value": [], "se": []})
            point = {"step": state.step, "flops": state.account.total, "value": min(max(estimate.value, 0), 1),
                     "se": min(estimate.se, 1)}
            for column, value in point.items():
                curve[column].append(value)

    def _eval_bound(self, trainer: Trainer, task: Task) -> int:
        """What an evaluation that never ended is charged: everything at the length limit.

        A judge without ``flops_bound`` cannot say what it would have cost, and is left out.
        """
        limit, samples = self.sampling.max_tokens, self.options.eval_samples
        bounds = [self.reward.flops_bound, getattr(self.judge, "flops_bound", None)]
        total = 0
        for problem in task.heldout_problems(count=self.options.eval_problems):
            prompt = len(problem.prompt_ids)
            total += trainer.prices.search(prompt, [limit] * samples)
            total += samples * sum(bound(prompt, limit) for bound in bounds if bound is not None)
        return total

    @staticmethod
    def _last_evaluated(state: RunState) -> int:
        return max((int(c["step"][-1]) for c in state.curves.values()), default=-1)

    def _save(self, trainer: Trainer, state: RunState) -> None:
        trainer.ledger.sync()
        save_checkpoint(
            self.folder.checkpoints, state.step,
            policy=trainer.learner.policy.state(),
            optimizer=moments(trainer.learner.optimizer, trainer.learner.policy),
            state=state.to_dict(), keep=self.options.keep_checkpoints,
        )

    def _report(self, state: RunState, note: str = "") -> None:
        if self._progress is None:
            return
        seconds = time.perf_counter() - self._started
        spent = state.account.total - self._spent_at_start
        eta = None
        if spent > 0:
            eta = seconds / spent * max(0, self.spec.budget - state.account.total)
        try:
            self._progress(Progress(
                state.step, self.spec.budget, state.account.to_dict(), dict(self._metrics),
                {t: c["value"][-1] for t, c in state.curves.items()}, seconds, eta, note,
            ))
        except KeyboardInterrupt as stop:
            # Kept until the step is whole: an evaluation reports before its step is saved.
            self._stop = stop

    def _notes(
        self, checkpoint: Checkpoint | None, skipped: list[str], so_far: LedgerView, state: RunState
    ) -> None:
        for reason in skipped:
            self._report(state, f"skipped a torn checkpoint: {reason}")
        if so_far.attempts:
            where = f"step {state.step}" if checkpoint else "the beginning, nothing was trained yet"
            self._report(state, f"resumed from {where}; {so_far.lost.total} FLOPs of lost work so far")

    def _finish(self, policy: Policy, state: RunState, manifest: Mapping[str, Any]) -> PilotRecord:
        view = read_ledger(self.folder.ledger)
        found = flags(state.counts, used=state.account.total / self.spec.budget, truncates=self.options.truncates)
        curves = {
            target: Curve(tuple(int(s) for s in c["step"]), tuple(c["flops"]), tuple(c["value"]), tuple(c["se"]))
            for target, c in state.curves.items()
        }
        record = PilotRecord(
            spec=self.spec,
            flops=state.account.allocation,
            curves=curves,
            evidence="real",
            health=verdict(state.counts, curves, found),
            eval_flops=state.account.eval,
            steps=state.step,
            seconds=view.seconds,
            id=str(manifest["id"]),
            provenance={
                "runner": "race.real_runs",
                "task": self.task.name,
                "reward": self.reward.name,
                "base": manifest["base"],
                "options": self.options.to_dict(),
                "executed_flops": view.executed,
                "lost_flops": view.lost.to_dict(),
                "attempts": view.attempts,
                "completion_tokens": state.mean_completion(0.0),
                "silent_groups": state.counts.silent / max(state.counts.groups, 1),
                "versions": versions(),
            },
        )
        save_adapter(self.folder.adapter, policy, record)
        write_atomically(self.folder.record, json.dumps(record.to_dict(), indent=1).encode())
        return record


def fingerprint(policy: Policy) -> str:
    """A digest of the base model: its shapes and a sample of every frozen weight."""
    digest = hashlib.blake2b(digest_size=16)
    for name, parameter in policy.causal_lm.named_parameters():
        if parameter.requires_grad and policy.lora is not None:
            continue
        flat = parameter.detach().reshape(-1)
        picked = flat[:: max(1, flat.numel() // 256)].float().cpu().numpy()
        digest.update(f"{name}{tuple(parameter.shape)}".encode())
        digest.update(picked.tobytes())
    return digest.hexdigest()


def versions() -> dict[str, str]:
    """Versions of what the numbers depend on."""
    import peft
    import transformers

    return {"torch": torch.__version__, "transformers": transformers.__version__, "peft": peft.__version__}


def _read_record(path: Path) -> PilotRecord:
    try:
        return PilotRecord.from_dict(json.loads(path.read_bytes()), where=str(path))
    except (OSError, ValueError) as error:
        raise CannotDo(f"out: cannot read {path} ({error}); not run again over it") from error
