"""Model ladders: the sizes a plan chooses among, with the recipe they are compared under."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from race.errors import InvalidInput
from race.flops import Architecture, LoraSpec
from race.recipe import Recipe


@dataclass(frozen=True)
class LadderModel:
    """One rung.

    Attributes
    ----------
    name
        As users and records spell it.
    architecture
        What the accounting reads.
    params
        Parameters, all of them; the surrogate's size axis is log(params).
    """

    name: str
    architecture: Architecture
    params: int


@dataclass(frozen=True)
class Ladder:
    """At least two models, ascending in size, and the recipe defaults they share.

    ``recipe_defaults`` are `Recipe` fields other than ``reward``; ``reward_models`` are the scorers of learned rewards
    where they are not the usual ones.
    """

    name: str
    models: tuple[LadderModel, ...]
    recipe_defaults: tuple[tuple[str, object], ...] = ()
    reward_models: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if len(self.models) < 2:
            found = ", ".join(m.name for m in self.models) or "no model"
            raise InvalidInput(
                f"ladder: found {found}; allowed is at least 2 models, since a plan compares sizes"
            )
        names = [m.name for m in self.models]
        # Models are looked up without regard to case, so two spellings are one model.
        if len({name.lower() for name in names}) < len(names):
            raise InvalidInput(f"ladder: found {', '.join(names)}; allowed is each model once")
        if any(b.params < a.params for a, b in zip(self.models, self.models[1:], strict=False)):
            raise InvalidInput(f"ladder: found {', '.join(names)}; allowed is ascending size")

    def recipe(self, reward: str, **changes: object) -> Recipe:
        """The ladder's default recipe under ``reward``, with ``changes``."""
        scorer = dict(self.reward_models).get(reward)
        return Recipe.from_dict(
            {**dict(self.recipe_defaults), "reward": reward, "reward_model": scorer, **changes}
        )

    def under(self, recipe: Recipe, reward: str) -> Recipe:
        """``recipe`` under ``reward``, scored by the ladder's own model for it.

        A reward model chosen for one reward system says nothing about another's.
        """
        if recipe.reward == reward:
            return recipe
        return replace(recipe, reward=reward, reward_model=self.recipe(reward).reward_model)

    def __getitem__(self, name: str) -> LadderModel:
        for model in self.models:
            if model.name.lower() == name.lower():
                return model
        raise InvalidInput(
            f"model: found {name!r}, which is not on ladder {self.name!r}; allowed are "
            + ", ".join(m.name for m in self.models)
        )

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and any(m.name.lower() == name.lower() for m in self.models)


_BUILT_IN: dict[str, tuple[str, ...]] = {
    "qwen2.5": ("Qwen2.5-1.5B-Instruct", "Qwen2.5-3B-Instruct", "Qwen2.5-7B-Instruct"),
    "qwen3": ("Qwen3-0.6B", "Qwen3-1.7B", "Qwen3-4B"),
    "nano": ("nano-s", "nano-m", "nano-l"),
}
# Means over the task's training levels, and what its pilots were tuned with (docs/nano-ladder.md).
_NANO_DEFAULTS = (
    ("prompts_per_step", 8),
    ("group_size", 8),
    ("prompt_tokens", 15),
    ("completion_tokens", 27),
    ("lora", LoraSpec(rank=8)),
)
_NANO_REWARDS = (("proxy-prm", "nano-proxy-prm"), ("prm", "nano-prm"))
DEFAULT_LADDER = "qwen2.5"


def model(name: str, *, config: object | None = None) -> LadderModel:
    """One ladder model by name; ``config`` (path, dict, ...) overrides the built-in table."""
    arch = Architecture.from_config(name if config is None else config)
    return LadderModel(name, arch, arch.params())


def ladder(spec: str | Sequence[str] = DEFAULT_LADDER) -> Ladder:
    """A built-in ladder (``qwen2.5``, ``qwen3``, ``nano``) or a comma-separated list of models.

    Raises
    ------
    InvalidInput
        Unknown name, fewer than two models, or a model twice.
    """
    if isinstance(spec, str) and spec.lower() in _BUILT_IN:
        key = spec.lower()
        models = tuple(model(n) for n in _BUILT_IN[key])
        return Ladder(key, models, _NANO_DEFAULTS, _NANO_REWARDS) if key == "nano" else Ladder(key, models)
    names = [n.strip() for n in (spec.split(",") if isinstance(spec, str) else spec) if n.strip()]
    if len(names) == 1:
        # A lone word is a misspelt ladder or a one-model ladder: name both possibilities.
        raise InvalidInput(
            f"ladder: found {names[0]!r}, one name; allowed are {', '.join(_BUILT_IN)} or at least "
            "2 models separated by commas"
        )
    rungs = sorted((model(n) for n in names), key=lambda m: m.params)
    return Ladder(",".join(m.name for m in rungs), tuple(rungs))
