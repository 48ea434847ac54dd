"""The typed recipe: everything about a GRPO run that decides what one step costs.

Model, budget and seed are not part of a recipe: one recipe is run on several models at one budget, which is
what an IsoFLOP slice compares.

Notation
    P   prompts per step            a   update ratio: samples trained on per sample generated
    G   group size (paper: K)       S   samples generated per step, P * G
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from race.checks import check_real, check_whole
from race.errors import InvalidInput
from race.flops import LoraSpec
from race.rewards import reward_system

MIN_UPDATE_RATIO = 1 / 16
MAX_UPDATE_RATIO = 16.0
MAX_COUNT = 10**7  # prompts per step, rollouts per prompt

# r = 16 on every linear layer is what TRL's and PEFT's own GRPO examples use, and sits inside the paper's 8-256.
DEFAULT_LORA = LoraSpec(rank=16, targets="all-linear")


@dataclass(frozen=True)
class Recipe:
    """How a GRPO run spends its compute, per step.

    Attributes
    ----------
    reward
        One of the five reward systems.
    prompts_per_step, group_size
        P and G. G must be at least 2: a group of one has no advantage.
    prompt_tokens, completion_tokens
        Mean lengths in tokens. Real runs are metered on true lengths; the plan is made on these.
    update_ratio
        a. Below 1 a subset is trained on; above 1 samples are reused in ceil(a) passes.
    lora
        The adapter, or ``None`` for full fine-tuning.
    kl
        True when beta > 0, which adds one adapter-off forward per distinct trained sample.
    reward_model
        Name of the model the reward phase runs; defaults to the reward system's own, ``None`` for rules.
    prefix_caching
        True when a group's shared prompt is prefilled once instead of G times.
    gradient_checkpointing
        Recompute each decoder layer in the backward pass.
    recompute_old_logprobs
        True when every trained sample gets an old-log-prob forward of its own, as verl does always and TRL when it
        corrects for vLLM; False when only samples that are used again do (`race.allocation` says why that is enough).
    learning_rate
        Adam step size relative to the tuned one; it costs nothing, but the simulator's collapse and
        drift depend on it.
    """

    reward: str
    prompts_per_step: int = 4
    group_size: int = 8
    prompt_tokens: float = 200
    completion_tokens: float = 800
    update_ratio: float = 1.0
    lora: LoraSpec | None = DEFAULT_LORA
    kl: bool = False
    reward_model: str | None = None
    prefix_caching: bool = True
    gradient_checkpointing: bool = False
    recompute_old_logprobs: bool = False
    learning_rate: float = 1.0

    def __post_init__(self) -> None:
        system = reward_system(self.reward)
        if self.reward_model is None:
            object.__setattr__(self, "reward_model", system.default_model)
        elif not system.learned:
            raise InvalidInput(
                f"reward_model: found {self.reward_model!r} with reward {self.reward!r}; rule-based rewards "
                "run no model, so leave it out or choose proxy-prm or prm"
            )
        elif not isinstance(self.reward_model, str) or not self.reward_model.strip():
            raise InvalidInput(f"reward_model: found {self.reward_model!r}; allowed is a model name or path")
        check_whole("prompts_per_step", self.prompts_per_step, low=1, high=MAX_COUNT)
        check_whole("group_size", self.group_size, low=2, high=MAX_COUNT)
        check_real("prompt_tokens", self.prompt_tokens, low=1, high=1e7)
        check_real("completion_tokens", self.completion_tokens, low=1, high=1e7)
        check_real("update_ratio", self.update_ratio, low=MIN_UPDATE_RATIO, high=MAX_UPDATE_RATIO)
        check_real("learning_rate", self.learning_rate, low=1e-4, high=1e4)
        if self.lora is not None and not isinstance(self.lora, LoraSpec):
            raise InvalidInput(
                f"lora: found {self.lora!r}; allowed is a LoraSpec or None for full fine-tuning"
            )
        for name in ("kl", "prefix_caching", "gradient_checkpointing", "recompute_old_logprobs"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidInput(f"{name}: found {getattr(self, name)!r}; allowed are true and false")

    @property
    def samples_per_step(self) -> int:
        """S = P * G, the samples generated in one step."""
        return self.prompts_per_step * self.group_size

    @property
    def sequence_tokens(self) -> float:
        """Mean prompt plus completion length."""
        return self.prompt_tokens + self.completion_tokens

    def with_update_ratio(self, a: float) -> Recipe:
        """Return the same recipe at another update ratio."""
        return replace(self, update_ratio=a)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], *, where: str = "recipe") -> Recipe:
        """Build from plain JSON types; an unknown or missing key is `InvalidInput`."""
        if not isinstance(data, Mapping):
            raise InvalidInput(f"{where}: found {type(data).__name__}; allowed is an object of recipe fields")
        known = {f.name for f in fields(cls)}
        unknown = sorted(set(data) - known)
        if unknown:
            raise InvalidInput(
                f"{where}: unknown field {unknown[0]!r}; allowed are {', '.join(sorted(known))}"
            )
        if "reward" not in data:
            raise InvalidInput(f"{where}.reward: missing; a recipe needs its reward system")
        values = dict(data)
        if values.get("lora") is not None:
            values["lora"] = _lora_from_dict(values["lora"], where=f"{where}.lora")
        return cls(**values)


def parse_lora_targets(text: str) -> str | list[str]:
    """``all-linear``, or ``q_proj,v_proj`` as a list; `LoraSpec` checks the names."""
    return text if text == "all-linear" else [name.strip() for name in text.split(",") if name.strip()]


def exact(value: Any) -> Any:
    """``800.0`` tokens are 800 tokens: whole lengths keep FLOPs exact."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _lora_from_dict(data: Any, *, where: str) -> LoraSpec:
    if isinstance(data, LoraSpec):
        return data
    if not isinstance(data, Mapping):
        raise InvalidInput(f"{where}: found {data!r}; allowed is an object with rank and targets, or null")
    known = {f.name for f in fields(LoraSpec)}
    unknown = sorted(set(data) - known)
    if unknown:
        raise InvalidInput(f"{where}: unknown field {unknown[0]!r}; allowed are {', '.join(sorted(known))}")
    if "rank" not in data:
        raise InvalidInput(f"{where}.rank: missing; an adapter needs its rank")
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
    return LoraSpec(**values)
