"""One process's work on one run: open or resume the folder, take steps until the budget is spent, write the record."""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from race.allocation import size_run
from race.errors import CannotDo, InvalidInput
from race.flops import cost_functions
from race.records import PilotRecord, PilotSpec
from real_runs.card import save_adapter
from real_runs.checkpoint import Checkpoint, newest_checkpoint, save_checkpoint, write_atomically
from real_runs.config import RunOptions
from real_runs.contracts import Judge, Problem, Reward, Task
from real_runs.curves import Evaluator, as_curves, check_targets, last_evaluated
from real_runs.folder import RunFolder
from real_runs.grpo.collector import settled_objects
from real_runs.grpo.health import flags, verdict
from real_runs.grpo.lanes import Lanes
from real_runs.grpo.optimizer import load_moments, make_optimizer, moments
from real_runs.grpo.pricing import Prices
from real_runs.grpo.ranks import DividedRollouts, DividedScores, Ranks
from real_runs.grpo.sizing import Sizer, StepSize
from real_runs.grpo.step import RunState, Trainer
from real_runs.grpo.update import Learner
from real_runs.ledger import Ledger, LedgerView, read_ledger
from real_runs.policy import Policy, PolicyFactory, build_policy
from real_runs.progress import Progress, ProgressCallback
from real_runs.rollout import RolloutBackend, Sampling, build_backend


class Attempt:
    """See the module's text. `real_runs.run.run_pilot` says what the arguments are."""

    def __init__(
        self,
        spec: PilotSpec,
        task: Task,
        reward: Reward,
        judge: Judge | None,
        benchmarks: Mapping[str, Task],
        options: RunOptions,
        progress: ProgressCallback | None,
        folder: RunFolder,
        factory: PolicyFactory,
        ranks: Ranks,
    ) -> None:
        self.spec, self.task, self.benchmarks = spec, task, benchmarks
        self.reward: Reward = reward if ranks.count == 1 else DividedScores(reward, ranks)
        self.judge = judge if ranks.count == 1 or judge is None else DividedScores(judge, ranks)
        self.options, self.folder, self.ranks = options, folder, ranks
        self._progress = progress if ranks.first else None
        self._factory = factory
        self._started = time.perf_counter()
        self._metrics: dict[str, float] = {}
        self._spent_at_start = 0
        self._stop: KeyboardInterrupt | None = None
        self.sampling = Sampling(
            max_tokens=options.max_completion_tokens or task.max_completion_tokens,
            eos_id=task.eos_id,
            banned=() if task.pad_id == task.eos_id else (task.pad_id,),
            temperature=options.temperature,
            top_p=options.top_p,
            top_k=options.top_k,
            min_p=options.min_p,
        )

    def go(self) -> PilotRecord:
        """Do the run, or what is left of it."""
        if self.ranks.told(self.folder.record.exists()):
            if self.ranks.first:
                self.folder.identify(self._identity(None))
            return _read_record(self.folder.record)
        if self.options.threads:
            torch.set_num_threads(self.options.threads)
        policy = build_policy(self._factory, self.spec.recipe, self.options, seed=self.spec.seed)
        self._check(policy)
        # Process 0 looks, the others believe it: a folder may change between two looks.
        found = self.ranks.told(self._open(policy) if self.ranks.first else None)
        assert found is not None
        manifest, checkpoint, skipped, so_far = found
        optimizer = make_optimizer(policy, self.spec.recipe, self.options)
        state = RunState()
        if checkpoint is not None:
            state = self._restore(checkpoint, policy, optimizer, so_far)
        backend = build_backend(
            policy, self.options, max_tokens=self.sampling.max_tokens, folder=str(self.folder.path / "engine"),
            banned=self.sampling.banned,
        )  # fmt: skip
        if self.ranks.count > 1:
            backend = DividedRollouts(backend, self.ranks)
        with self._ledger(so_far, state, fresh=checkpoint is None) as ledger:
            try:
                self._notes(checkpoint, skipped, so_far, state)
                trainer = self._trainer(policy, optimizer, backend, ledger, so_far)
                try:
                    with settled_objects():
                        self._loop(trainer, self._evaluator(trainer), state, fresh=checkpoint is None)
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

    # -- opening ---------------------------------------------------------------------------------------------------

    def _open(self, policy: Policy) -> tuple[dict[str, Any], Checkpoint | None, list[str], LedgerView]:
        """Manifest, newest complete checkpoint, why newer ones were skipped, and the ledger up to it."""
        manifest = self.folder.identify(self._identity(policy))
        checkpoint, skipped = newest_checkpoint(self.folder.checkpoints)
        so_far = read_ledger(self.folder.ledger, up_to=checkpoint.step if checkpoint else -1)
        if checkpoint is None and so_far.lost.learning:
            raise CannotDo(
                f"out: {self.folder.path} has a ledger of training but no complete checkpoint "
                f"({'; '.join(skipped) or 'none found'}); not restarted from the beginning: use another folder"
            )
        return manifest, checkpoint, skipped, so_far

    def _ledger(self, so_far: LedgerView, state: RunState, *, fresh: bool) -> Ledger:
        path = self.folder.ledger if self.ranks.first else None
        try:
            return Ledger(path, attempt=so_far.attempts + 1, step=-1 if fresh else state.step)
        except OSError as error:
            raise CannotDo(f"ledger: cannot write {self.folder.ledger}: {error.strerror or error}") from error

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
        size_run(policy.architecture, self.spec.recipe, self.spec.budget)
        check_targets(self.spec, self.task, self.benchmarks, self.judge)
        vocab = policy.architecture.vocab
        for name, token in (("eos_id", self.task.eos_id), ("pad_id", self.task.pad_id)):
            if not 0 <= token < vocab:
                raise InvalidInput(f"task.{name}: found {token}; allowed is a token id from 0 to {vocab - 1}")
        if self.ranks.count > 1 and self.options.backend == "vllm":
            raise InvalidInput(
                f"backend: found 'vllm' in {self.ranks.count} processes; an engine plans for the whole machine by "
                "itself: use hf, or start one process"
            )

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
        so_far: LedgerView,
    ) -> Trainer:  # fmt: skip
        recipe, options = self.spec.recipe, self.options
        prices = Prices.of(policy.architecture, recipe)
        costs = cost_functions(
            policy.architecture, lora=policy.lora, attention="full",
            gradient_checkpointing=recipe.gradient_checkpointing,
        )  # fmt: skip
        # A GPU is filled by one micro-batch, and transformers' forwards are not made for several threads.
        lanes = Lanes(torch.get_num_threads() if policy.lean and policy.device.type == "cpu" else 1)
        budget = self.spec.budget - (so_far.lost.total if options.lost_work == "inside" else 0)
        full = StepSize(recipe.prompts_per_step, recipe.group_size)
        return Trainer(
            seed=self.spec.seed,
            options=options,
            task=self.task,
            reward=self.reward,
            backend=backend,
            learner=Learner(policy, optimizer, options, self.sampling, costs, recipe.kl, lanes, self.ranks),
            prices=prices,
            sizer=Sizer(
                prices, self.reward.flops_bound, recipe.update_ratio, full, self.sampling.max_tokens, budget
            ),
            ledger=ledger,
        )

    def _evaluator(self, trainer: Trainer) -> Evaluator:
        return Evaluator(
            self.spec, self.options, self.task, self.reward, self.judge, self.benchmarks, trainer.backend,
            trainer.prices, self.sampling, trainer.ledger,
        )  # fmt: skip

    # -- running ---------------------------------------------------------------------------------------------------

    def _loop(self, trainer: Trainer, evaluator: Evaluator, state: RunState, *, fresh: bool) -> None:
        self._spent_at_start = state.account.total
        if fresh:
            self._evaluate(evaluator, state)
            self._save(trainer, state)
        while not state.counts.unstable and not self._stopped():
            problems = self._problems(trainer.learner.policy, state.step)
            size = trainer.sizer.next_size(
                [len(p.prompt_ids) for p in problems], state.account.total,
                state.mean_completion(self.spec.recipe.completion_tokens),
            )  # fmt: skip
            if size is None:
                break
            self._metrics = trainer.take(state, problems, size)
            done = state.account.total * self.options.eval_points // trainer.sizer.budget
            if done > state.milestone:
                state.milestone = done
                self._evaluate(evaluator, state)
            if state.step % self.options.checkpoint_every == 0:
                self._save(trainer, state)
            self._report(state)
        if self._stopped():
            if state.step % self.options.checkpoint_every:
                self._save(trainer, state)
            raise self._stop or KeyboardInterrupt
        if last_evaluated(state) < state.step:
            self._evaluate(evaluator, state)
        self._save(trainer, state)
        self._report(state)

    def _stopped(self) -> bool:
        """Whether any process was asked to stop."""
        return any(self.ranks.gathered(self._stop is not None))

    def _problems(self, policy: Policy, step: int) -> list[Problem]:
        context = getattr(policy.causal_lm.config, "max_position_embeddings", None) or 10**9
        count = self.spec.recipe.prompts_per_step
        problems = list(self.task.train_problems(seed=self.spec.seed, step=step, count=count))
        if len(problems) != count:
            raise CannotDo(
                f"task: {self.task.name!r} gave {len(problems)} problems for step {step}, not {count}"
            )
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

    def _evaluate(self, evaluator: Evaluator, state: RunState) -> None:
        state.watch.close(state.step)
        evaluator.add_points(state)
        self._report(state)

    def _save(self, trainer: Trainer, state: RunState) -> None:
        if not self.ranks.first:
            return
        trainer.ledger.sync()
        save_checkpoint(
            self.folder.checkpoints, state.step,
            policy=trainer.learner.policy.state(),
            optimizer=moments(trainer.learner.optimizer, trainer.learner.policy),
            state=state.to_dict(), keep=self.options.keep_checkpoints,
        )  # fmt: skip

    def _report(self, state: RunState, note: str = "") -> None:
        if self._progress is None:
            return
        seconds = time.perf_counter() - self._started
        spent = state.account.total - self._spent_at_start
        eta = None
        if spent > 0:
            eta = seconds / spent * max(0, self.spec.budget - state.account.total)
        values = {t: c["value"][-1] for t, c in state.curves.items()}
        try:
            self._progress(Progress(
                state.step, self.spec.budget, state.account.to_dict(), dict(self._metrics), values, seconds, eta, note
            ))  # fmt: skip
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

    # -- the end ---------------------------------------------------------------------------------------------------

    def _finish(self, policy: Policy, state: RunState, manifest: Mapping[str, Any]) -> PilotRecord:
        if not self.ranks.first:
            return self.ranks.told(None)  # type: ignore[return-value]  # process 0 sends a record
        view = read_ledger(self.folder.ledger)
        found = flags(
            state.counts, used=state.account.total / self.spec.budget, truncates=self.options.truncates,
            gamed=state.watch.gamed,
        )  # fmt: skip
        curves = as_curves(state)
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
                "processes": self.ranks.count,
                "completion_tokens": state.mean_completion(0.0),
                "training": state.watch.rows,
                "silent_groups": state.counts.silent / max(state.counts.groups, 1),
                "versions": versions(),
            },
        )
        save_adapter(self.folder.adapter, policy, record)
        write_atomically(self.folder.record, json.dumps(record.to_dict(), indent=1).encode())
        return self.ranks.told(record)


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
