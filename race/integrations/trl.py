"""Where the compute of a TRL GRPO run goes, while it runs: FLOPs by phase in the trainer's own logs, and a budget.

    from race.integrations.trl import ComputeCallback

    trainer = GRPOTrainer(..., callbacks=[ComputeCallback(budget="1e18")])

The callback meters what the modules run (`race.integrations.hooks`) instead of estimating it from settings, so reuse
(``num_iterations``, ``steps_per_generation``, accumulation), the old-log-prob and reference passes, reward models and
evaluation need no special case. It never touches a tensor, a weight or the random state.

What it does not see: engines outside the process (vLLM, a rollout function) are charged by the lengths they return;
models that a reward function runs by itself, unless passed as ``reward_models``; work lost between a checkpoint and a
crash.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState

from race.allocation import Allocation
from race.checks import check_whole
from race.errors import CannotDo, InvalidInput
from race.integrations.counts import RunCounts
from race.integrations.evidence import MAX_POINTS, Generation, RunSummary, check_range, record_of, thinned
from race.integrations.forecast import Forecast, longest_prompt
from race.integrations.tally import Attention, Column, Tally
from race.integrations.watch import TrainerWatch, calling_trainer
from race.records import PilotRecord
from race.rewards import reward_system
from race.store import Store
from race.units import format_flops, parse_budget

#: The record's file in the trainer's ``output_dir``.
RECORD_FILE = "race_record.json"


class ComputeCallback(TrainerCallback, ExportableState):
    """Meter, log and bound the FLOPs of a `trl.GRPOTrainer`.

    Parameters
    ----------
    budget
        FLOPs that training must not exceed (``"1e18"``, ``"300PFLOP"``): it ends before the optimisation step that
        could. Evaluation comes on top.
    attention
        ``"causal"`` (unmasked pairs only, the convention of budgets) or ``"full"`` (what eager attention executes).
    count
        ``"needed"``: every sample at its own length. ``"executed"``: padding, waiting rows and all.
        Budget, logs and ``total_flos`` are in this convention; the record is always needed and causal.
    reward
        Reward system of the record: ``sparse``, ``structured``, ``dense``, ``proxy-prm`` or ``prm``. By default
        ``prm`` when a reward model is metered and ``sparse`` when not, which the record lists as an assumption.
    reward_range
        Lowest and highest possible training reward, to scale the record's native reward; by default (0, 1) if all
        rewards are inside, else what was observed.
    reward_models
        Models that reward *functions* run by themselves; those passed as ``reward_funcs`` are found.
    store
        A `race.store` folder that the record is added to; it is also written to ``output_dir/race_record.json``.
    model
        Name of the policy in the record; by default the last part of the name it was loaded by.
    prefix_caching
        Charge the prompt of a group once; by default with vLLM only.
    max_prompt_tokens
        No prompt is longer; only a budget needs it, and by default the training set is searched.
    trainer
        The trainer, if it cannot be found on the call stack.

    Attributes
    ----------
    record
        The `PilotRecord` of the finished training, on the main process.

    Raises
    ------
    InvalidInput
        A value that is not allowed; a budget below the cost of one step, when training begins.
    CannotDo
        A trainer or a model that cannot be metered, when training begins.
    """

    def __init__(
        self,
        budget: str | int | float | None = None,
        *,
        attention: Attention = "causal",
        count: Column = "needed",
        reward: str | None = None,
        reward_range: Sequence[float] | None = None,
        reward_models: Sequence[Any] = (),
        store: str | Path | None = None,
        model: str | None = None,
        prefix_caching: bool | None = None,
        max_prompt_tokens: int | None = None,
        trainer: Any = None,
    ) -> None:
        self.budget = None if budget is None else parse_budget(budget)
        for name, value, allowed in (
            ("attention", attention, get_args(Attention)),
            ("count", count, get_args(Column)),
        ):
            if value not in allowed:
                raise InvalidInput(f"{name}: found {value!r}; allowed are {' and '.join(allowed)}")
        self.attention, self.count = attention, count
        self.reward = None if reward is None else reward_system(reward).name
        self.reward_range = None if reward_range is None else check_range(reward_range)
        self.reward_models = tuple(reward_models)
        self.store = None if store is None else str(store)
        self.model = model
        self.prefix_caching = prefix_caching
        if max_prompt_tokens is not None:
            check_whole("max_prompt_tokens", max_prompt_tokens, low=1, high=1e9)
        self.max_prompt_tokens = max_prompt_tokens
        self.record: PilotRecord | None = None
        self._trainer = trainer
        self._watch: TrainerWatch | None = None
        self._forecast: Forecast | None = None
        self._counts = RunCounts()

    # State: Trainer writes `state()` into trainer_state.json at every checkpoint and hands it back on resume.

    def state(self) -> dict[str, Any]:
        """Arguments and counts as plain JSON types, for ``trainer_state.json``."""
        return {
            "args": {
                "budget": self.budget,
                "attention": self.attention,
                "count": self.count,
                "reward": self.reward,
                "reward_range": self.reward_range,
                "store": self.store,
                "model": self.model,
                "prefix_caching": self.prefix_caching,
                "max_prompt_tokens": self.max_prompt_tokens,
            },
            "attributes": {"restored": self._counts.to_dict(reward_models=len(self.reward_models))},
        }

    def _restore(self, state: Any) -> None:
        """Take over the counts of the checkpoint that training resumes from."""
        saved = (state.stateful_callbacks or {}).get(type(self).__name__)
        if isinstance(saved, list):
            raise CannotDo(
                f"{type(self).__name__}: the checkpoint holds {len(saved)} of them; allowed is one per trainer"
            )
        self._counts = RunCounts()
        if state.global_step == 0:
            return
        if saved is None:
            # A run that was not metered before: what it spent so far is unknown, and the record says so.
            self._counts.started_at = int(state.global_step)
            state.stateful_callbacks[type(self).__name__] = self.state()
            return
        self._counts = RunCounts.from_dict(
            saved["attributes"]["restored"],
            reward_models=len(self.reward_models),
            where="trainer_state.json: ComputeCallback",
        )

    # Events, in the order of a run.

    def on_init_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Remember the trainer that is being built."""
        self._trainer = self._trainer or calling_trainer(self)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Attach the meters; check that the budget pays for a step."""
        trainer = self._trainer or calling_trainer(self)
        if trainer is None:
            raise CannotDo(
                "trainer: not found on the call stack; allowed is ComputeCallback(trainer=trainer), added with "
                "trainer.add_callback"
            )
        self._trainer = trainer
        self._restore(state)
        if self._watch is not None:
            self._watch.detach()  # an earlier training ended with an exception
        self._watch = TrainerWatch(
            trainer,
            extra_rewards=self.reward_models,
            prefix_caching=self.prefix_caching,
            on_generation=self._on_generation,
        )
        self._go_first(trainer.callback_handler.callbacks)
        self._forecast = None
        if self.budget is not None:
            self._forecast = Forecast(
                trainer,
                self._watch.policy,
                self._watch.reference,
                self._watch.rewards,
                max_prompt_tokens=self.max_prompt_tokens or longest_prompt(trainer),
                column=self.count,
                attention=self.attention,
            )
            spent, step = int(self.spent.total), self._forecast.next_step()
            if spent + step > self.budget:
                raise InvalidInput(
                    f"budget: found {format_flops(self.budget)} FLOPs with {format_flops(spent)} spent, and the next "
                    f"step can take {format_flops(step)}; allowed is at least their sum: raise the budget, or lower "
                    "max_completion_length or the batch"
                )
        self._watch.attach()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Add up what all processes did; stop if the next step could exceed the budget."""
        self._collect()
        state.total_flos = float(self.spent.total)
        if self._forecast is None or self.budget is None:
            return
        if int(self.spent.total) + self._forecast.next_step() > self.budget:
            control.should_training_stop = True
            control.should_log = True
            control.should_save = control.should_save or str(getattr(args.save_strategy, "value", "")) != "no"

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any
    ) -> None:
        """Put ``compute/*`` into the log, before anyone else sees it."""
        if logs is None or self._watch is None:
            return
        self._collect()
        for name in ("loss", "grad_norm"):
            value = logs.get(name)
            if isinstance(value, (int, float)) and not math.isfinite(value) and not self._counts.diverged:
                self._counts.diverged = f"{name} is {value} at step {state.global_step}"
        logs.update(self.metrics())
        if state.log_history:
            state.log_history[-1].update(self.metrics())

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Detach the meters and write the record."""
        if self._watch is None:
            return
        self._collect()
        watch, self._watch = self._watch, None
        watch.detach()
        if not state.is_world_process_zero:
            return
        self.record = record_of(self._summary(watch, args, state))
        folder = Path(args.output_dir)
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self.record.to_dict(), indent=1)
        (folder / RECORD_FILE).write_text(text + "\n", encoding="utf-8")
        if self.store is not None:
            Store(self.store, create=True).add(self.record)

    # What is reported.

    @property
    def spent(self) -> Allocation:
        """FLOPs so far by phase, in the convention of this callback, over all processes."""
        return self._counts.tally.allocation(self.count, self.attention)

    @property
    def tally(self) -> Tally:
        """FLOPs so far in every convention."""
        return self._counts.tally

    def metrics(self) -> dict[str, float]:
        """The ``compute/*`` entries of a log: cumulative FLOPs and shares."""
        spent = self.spent
        found = {
            "compute/total_flops": float(spent.total),
            "compute/search": float(spent.search),
            "compute/learning": float(spent.learning),
            "compute/reward": float(spent.reward),
            "compute/eval": float(self._counts.tally.get(self.count, self.attention, "eval")),
            "compute/executed_flops": float(self._counts.tally.allocation("executed", "full").total),
        }
        if spent.total:
            found |= {"compute/rho": spent.rho, "compute/sigma": spent.sigma, "compute/phi": spent.phi}
        if self.budget is not None:
            found["compute/budget_used"] = float(spent.total / self.budget)
        return found

    def _on_generation(self) -> None:
        assert self._watch is not None  # only a running watch calls
        pending = self._watch.seen
        before = int(self._counts.tally.allocation("needed", "causal").total)
        index = self._counts.steps + len(pending.rewards) - 1
        reward = pending.rewards[-1]
        if not math.isfinite(reward):
            return  # no reward function scored anything: there is no point to put on a curve
        samples = self._watch.prompts_per_generation * int(self._watch.trainer.num_generations)
        self._counts.generations.append(Generation(index, before, reward, samples))
        if len(self._counts.generations) >= 4 * MAX_POINTS:
            self._counts.generations = thinned(self._counts.generations)

    def _collect(self) -> None:
        assert self._watch is not None  # events arrive between begin and end only
        everyone = self._watch.hand_over()
        self._counts.add(everyone)
        if self._forecast is not None and everyone[0].rewards:
            longest = [max(values) for values in zip(*(seen.longest for seen in everyone), strict=True)]
            self._forecast.saw(*longest)

    def _go_first(self, callbacks: list[Any]) -> None:
        """Reporters pass the log on when their turn comes, so the callback that fills it has to be the first."""
        callbacks.remove(self)
        callbacks.insert(0, self)

    def _summary(self, watch: TrainerWatch, args: Any, state: Any) -> RunSummary:
        import transformers
        import trl

        assumptions = []
        name = (
            self.model
            or str(getattr(watch.policy.inner.config, "_name_or_path", "")).rstrip("/").split("/")[-1]
        )
        if not name:
            name = watch.policy.prices.architecture.family
            assumptions.append(f"model: {name}, its architecture (not given, and loaded without a name)")
        reward = self.reward
        if reward is None:
            reward = "prm" if watch.rewards else "sparse"
            why = "a reward model ran" if watch.rewards else "no reward model ran"
            assumptions.append(f"reward: {reward}, because {why} (not given)")
        if self._counts.started_at:
            assumptions.append(
                f"FLOPs: metered from step {self._counts.started_at} on; the checkpoint had no earlier counts"
            )
        samples = max(self._counts.tokens["samples"], 1)
        scorer = watch.rewards[0].inner.config._name_or_path if watch.rewards else ""
        lora = next(iter(watch.policy.adapters.values()), None)
        learned = reward_system(reward).learned
        return RunSummary(
            run_id=f"{self._counts.run_id}-{state.global_step}",
            model=name,
            params=watch.policy.prices.architecture.params(),
            reward=reward,
            reward_model=(scorer or None) if learned else None,
            lora=lora,
            kl=watch.trainer.beta != 0.0,
            prompts_per_step=watch.prompts_per_generation,
            group_size=int(watch.trainer.num_generations),
            prompt_tokens=self._counts.tokens["prompt"] / samples,
            completion_tokens=self._counts.tokens["completion"] / samples,
            update_ratio=float(watch.trainer.num_iterations),
            prefix_caching=watch.prefix_caching,
            gradient_checkpointing=bool(args.gradient_checkpointing),
            recompute_old_logprobs=self._counts.tally.get("needed", "causal", "old_logprobs") > 0,
            # A budget in another convention is not what the record's FLOPs are to be held against.
            budget=self.budget if (self.count, self.attention) == ("needed", "causal") else None,
            seed=int(args.seed),
            flops=self._counts.tally.allocation("needed", "causal"),
            eval_flops=self._counts.tally.get("needed", "causal", "eval"),
            steps=self._counts.steps,
            generations=tuple(self._counts.generations),
            reward_range=self.reward_range,
            diverged=self._counts.diverged,
            provenance={
                "source": f"race.integrations.trl, TRL {trl.__version__}, transformers {transformers.__version__}",
                "flops": "metered in the trainer; needed tokens, causal attention",
                "tally": self._counts.tally.to_dict(),
                "optimizer_steps": int(state.global_step),
                "logged": {"count": self.count, "attention": self.attention},
            },
            assumptions=tuple(assumptions),
        )
