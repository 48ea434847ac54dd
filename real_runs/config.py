"""Options of a real run: what the recipe leaves open because it does not change what a step costs.

The recipe and these options together are the only truth about a run; both are saved beside it, and a resume
with other values is refused. Read from TOML or flags with `RunOptions.from_dict`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, get_args

from race.checks import check_real
from race.errors import InvalidInput
from race.recipe import Recipe

Loss = Literal["grpo", "dapo", "dr-grpo"]
RatioLevel = Literal["token", "sequence"]
Subset = Literal["random", "max-variance"]
Dtype = Literal["float32", "bfloat16"]
Backend = Literal["hf", "vllm"]
Forward = Literal["auto", "lean", "transformers"]
Schedule = Literal["constant", "linear"]
LostWork = Literal["beside", "inside"]


@dataclass(frozen=True)
class RunOptions:
    """How a run is carried out.

    Attributes
    ----------
    learning_rate
        Adam step size that ``recipe.learning_rate = 1`` stands for.
    schedule
        ``linear`` decays to 0 with the share of the budget spent; ``constant`` does not.
    betas, weight_decay, grad_clip
        AdamW's, and the largest gradient norm.
    loss
        How token losses are averaged: ``dapo`` over all tokens of the step, ``grpo`` per completion first,
        ``dr-grpo`` over samples times the length limit (names as in TRL).
    ratio_level
        Importance ratios per ``token`` or per ``sequence`` (GSPO).
    clip_low, clip_high
        Ratios are clipped to [1 - low, 1 + high]; high > low is DAPO's clip-higher.
    beta, unbiased_kl
        Weight of the KL penalty to the base model, used only when ``recipe.kl``; and whether its gradient is that of
        the reverse KL (see `real_runs.grpo.loss`).
    scale_advantages
        Divide centred rewards by the group's standard deviation.
    subset
        Which samples of a group are trained on when a < 1.
    importance_cap
        Truncated importance weights min(pi_train / pi_rollout, cap) against a rollout engine that disagrees
        with the trainer; ``None`` is off.
    temperature, top_p, top_k, min_p
        Sampling of training rollouts and evaluation. Truncation (top_p < 1, top_k > 0, min_p > 0) biases
        importance ratios, so it is refused where ratios are used.
    max_completion_tokens
        Length limit; ``None`` takes the task's.
    lora_alpha
        LoRA scale numerator. At a fixed alpha the best learning rate hardly depends on rank ("LoRA Without
        Regret", Thinking Machines 2025), which is what comparing ranks needs.
    micro_batch_tokens
        Most padded tokens in one forward/backward.
    rollout_sequences
        Most sequences sampled at once.
    dtype, device, threads
        Weights' precision, torch device (``auto``: cuda when there is one), CPU threads (0: leave alone).
    forward
        Whose forward runs: ``transformers``'s own, the ``lean`` one of `real_runs.lean` (same weights, same numbers,
        faster for small models on a CPU), or ``auto``: lean on a CPU where it can read the model.
    backend
        Who samples: ``hf`` (own loop around transformers) or ``vllm``.
    engine_memory, max_prompt_tokens
        vLLM only: share of the GPU's memory (or GiB of KV cache on a CPU) it may take, and the longest prompt it is
        built for.
    sync_timeout
        Seconds a weight sync or a generation call of the engine may take before it is called hung.
    eval_points
        Curve points after the base model's, evenly spaced in FLOPs.
    eval_problems, eval_samples
        Held-out problems per evaluation, and completions sampled for each.
    checkpoint_every, keep_checkpoints
        Steps between checkpoints (1 loses at most the current step), complete ones kept.
    lost_work
        FLOPs regenerated after a crash are always written down. ``beside`` keeps them out of the budget, so an
        interrupted run ends with the weights of an undisturbed one; ``inside`` pays for them from the budget.
    """

    learning_rate: float = 2e-5
    schedule: Schedule = "constant"
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.0
    grad_clip: float = 1.0
    loss: Loss = "dapo"
    ratio_level: RatioLevel = "token"
    clip_low: float = 0.2
    clip_high: float = 0.28
    beta: float = 0.04
    unbiased_kl: bool = True
    scale_advantages: bool = True
    subset: Subset = "random"
    importance_cap: float | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    max_completion_tokens: int | None = None
    lora_alpha: float = 32.0
    micro_batch_tokens: int = 16384
    rollout_sequences: int = 1024
    dtype: Dtype = "float32"
    device: str = "auto"
    threads: int = 0
    forward: Forward = "auto"
    backend: Backend = "hf"
    engine_memory: float = 0.35
    max_prompt_tokens: int = 2048
    sync_timeout: float = 300.0
    eval_points: int = 8
    eval_problems: int = 256
    eval_samples: int = 1
    checkpoint_every: int = 1
    keep_checkpoints: int = 2
    lost_work: LostWork = "beside"

    def __post_init__(self) -> None:
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                raise InvalidInput(f"{name}: found {getattr(self, name)!r}; allowed are {', '.join(allowed)}")
        for name, (low, high) in _REALS.items():
            value = getattr(self, name)
            if value is not None:
                check_real(name, value, low=low, high=high)
            elif name not in _OPTIONAL:
                raise InvalidInput(f"{name}: found None; allowed is a number from {low:g} to {high:g}")
        for name, (least, most) in _INTS.items():
            value = getattr(self, name)
            if value is None and name in _OPTIONAL:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                raise InvalidInput(f"{name}: found {value!r}; allowed is a whole number from {least} to {most}")
        for name in ("scale_advantages", "unbiased_kl"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidInput(f"{name}: found {getattr(self, name)!r}; allowed are true and false")
        if not isinstance(self.device, str) or not self.device:
            raise InvalidInput(f"device: found {self.device!r}; allowed are auto, cpu, cuda or cuda:N")
        if not isinstance(self.betas, tuple) or len(self.betas) != 2:
            raise InvalidInput(f"betas: found {self.betas!r}; allowed are two numbers from 0 to 1")
        for value in self.betas:
            check_real("betas", value, low=0, high=0.99999)

    @property
    def truncates(self) -> bool:
        """True when sampling cuts the tail of the distribution off."""
        return self.top_p < 1 or self.top_k > 0 or self.min_p > 0

    def check_with(self, recipe: Recipe) -> None:
        """Refuse combinations of recipe and options that would train on wrong ratios."""
        if self.truncates and (recipe.update_ratio > 1 or recipe.kl or self.importance_cap is not None):
            raise InvalidInput(
                "top_p/top_k/min_p: truncated sampling with importance ratios (update ratio > 1, kl, or "
                "importance_cap) renormalises one side only; allowed is top_p = 1, top_k = 0, min_p = 0"
            )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {**asdict(self), "betas": list(self.betas)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], *, where: str = "options") -> RunOptions:
        """Build from plain JSON or TOML types; an unknown name is `InvalidInput`."""
        if not isinstance(data, Mapping):
            raise InvalidInput(f"{where}: found {type(data).__name__}; allowed is a table of options")
        known = {f.name for f in fields(cls)}
        unknown = sorted(set(data) - known)
        if unknown:
            raise InvalidInput(f"{where}: unknown option {unknown[0]!r}; allowed are {', '.join(sorted(known))}")
        values = dict(data)
        if isinstance(values.get("betas"), list):
            values["betas"] = tuple(values["betas"])
        return cls(**values)

    def with_changes(self, **changes: Any) -> RunOptions:
        """The same options with some replaced; None values are left as they are."""
        return replace(self, **{k: v for k, v in changes.items() if v is not None})


_CHOICES: dict[str, tuple[str, ...]] = {
    "loss": get_args(Loss),
    "ratio_level": get_args(RatioLevel),
    "subset": get_args(Subset),
    "dtype": get_args(Dtype),
    "forward": get_args(Forward),
    "backend": get_args(Backend),
    "schedule": get_args(Schedule),
    "lost_work": get_args(LostWork),
}
_REALS: dict[str, tuple[float, float]] = {
    "learning_rate": (1e-9, 1.0),
    "weight_decay": (0, 1),
    "grad_clip": (1e-6, 1e6),
    "clip_low": (0, 1),
    "clip_high": (0, 10),
    "beta": (0, 10),
    "importance_cap": (1, 100),
    "temperature": (0.01, 10),
    "top_p": (0.01, 1),
    "min_p": (0, 0.99),
    "lora_alpha": (1e-3, 1e5),
    "sync_timeout": (0.1, 86400),
    "engine_memory": (0.01, 1024),
}
_INTS: dict[str, tuple[int, int]] = {
    "top_k": (0, 10**6),
    "max_completion_tokens": (1, 10**6),
    "max_prompt_tokens": (1, 10**6),
    "micro_batch_tokens": (1, 10**8),
    "rollout_sequences": (2, 10**6),
    "threads": (0, 1024),
    "eval_points": (1, 10**4),
    "eval_problems": (1, 10**6),
    "eval_samples": (1, 1024),
    "checkpoint_every": (1, 10**6),
    "keep_checkpoints": (1, 10**3),
}
_OPTIONAL = ("importance_cap", "max_completion_tokens")
