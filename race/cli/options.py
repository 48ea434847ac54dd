"""Options that several commands share, declared once.

`recipe_options` expands a ``recipe`` parameter into one command-line option per `Recipe` field, so that
``race flops``, ``plan``, ``simulate``, ``import`` and ``run`` spell a recipe the same way. A value given on the
command line wins over the TOML file, which wins over the ladder's default.
"""

from __future__ import annotations

import functools
import inspect
import re
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from race.errors import InvalidInput

if TYPE_CHECKING:
    from race.allocation import Allocation
    from race.hardware import HardwareCost
    from race.recipe import Recipe

PANEL = "Recipe"

LadderOption = Annotated[
    str,
    typer.Option("--ladder", help="qwen2.5, qwen3, nano, or at least two models separated by commas."),
]
TargetOption = Annotated[
    str, typer.Option("--target", help="native, judge, pass@1 or pass@1:<benchmark>; several by commas.")
]
StoreOption = Annotated[Path, typer.Option("--store", help="Folder of records.")]
RewardOption = Annotated[
    str | None,
    typer.Option("--reward", help="sparse, structured, dense, proxy-prm or prm.", show_default=False),
]
PilotBudgetOption = Annotated[
    str,
    typer.Option(
        "--pilot-budget", help="For all pilots together: FLOPs, or a share of the budget such as 10%."
    ),
]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="Seed of everything random.")]


def _option(*names: str, help: str) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=PANEL, show_default=False)


_FIELDS: dict[str, Any] = {
    "prompts_per_step": Annotated[int | None, _option("--prompts-per-step", help="Prompts per step, P.")],
    "group_size": Annotated[int | None, _option("--group-size", help="Rollouts per prompt, G.")],
    "prompt_tokens": Annotated[float | None, _option("--prompt-tokens", help="Mean prompt length.")],
    "completion_tokens": Annotated[
        float | None, _option("--completion-tokens", help="Mean completion length.")
    ],
    "update_ratio": Annotated[
        float | None, _option("--update-ratio", help="Samples trained on per sample generated, a.")
    ],
    "lora_rank": Annotated[int | None, _option("--lora-rank", help="LoRA rank; 0 for full fine-tuning.")],
    "lora_targets": Annotated[
        str | None, _option("--lora-targets", help="all-linear, or projections by commas (q_proj,v_proj).")
    ],
    "kl": Annotated[bool | None, _option("--kl/--no-kl", help="beta > 0: add reference log-probs.")],
    "reward_model": Annotated[
        str | None, _option("--reward-model", help="Model that proxy-prm or prm runs.")
    ],
    "prefix_caching": Annotated[
        bool | None,
        _option("--prefix-caching/--no-prefix-caching", help="Prefill a group's prompt once, or G times."),
    ],
    "gradient_checkpointing": Annotated[
        bool | None,
        _option("--gradient-checkpointing/--no-gradient-checkpointing", help="Recompute in the backward."),
    ],
    "recompute_old_logprobs": Annotated[
        bool | None,
        _option(
            "--recompute-old-logprobs/--no-recompute-old-logprobs",
            help="Old log-probs for every trained sample (verl, TRL with vLLM).",
        ),
    ],
    "learning_rate": Annotated[
        float | None, _option("--learning-rate", help="Relative to the tuned rate (nano ladder: the default one).")
    ],
}
_RECIPE_WORDS = {"reward", "lora", *_FIELDS}
_FILE = Annotated[
    Path | None, _option("--recipe", help="TOML file with recipe fields; options given here win.")
]


_COST = "Cost"


def _cost(*names: str, help: str) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=_COST, show_default=False)


_HARDWARE: dict[str, Any] = {
    "gpu": Annotated[
        str | None, _cost("--gpu", help="Translate to GPU-hours, dollars and kWh, e.g. H100-SXM.")
    ],
    "gpus": Annotated[int | None, _cost("--gpus", help="How many; changes wall-clock hours only.")],
    "price": Annotated[float | None, _cost("--gpu-price", help="Dollars per GPU-hour.")],
    "watts": Annotated[float | None, _cost("--gpu-watts", help="Board power limit.")],
    "peak_flops": Annotated[float | None, _cost("--gpu-peak", help="Dense bf16 FLOP/s, e.g. 989e12.")],
    "mfu_search": Annotated[float | None, _cost("--mfu-search", help="Utilisation of rollouts.")],
    "mfu_learning": Annotated[float | None, _cost("--mfu-learning", help="Utilisation of updates.")],
    "mfu_reward": Annotated[float | None, _cost("--mfu-reward", help="Utilisation of scoring.")],
    "pue": Annotated[float | None, _cost("--pue", help="Facility power over IT power.")],
}


@dataclass(frozen=True)
class HardwareOptions:
    """What was said about hardware; nothing is translated unless a GPU is named."""

    gpu: str | None = None
    gpus: int | None = None
    price: float | None = None
    watts: float | None = None
    peak_flops: float | None = None
    mfu_search: float | None = None
    mfu_learning: float | None = None
    mfu_reward: float | None = None
    pue: float | None = None

    def check(self) -> None:
        """Refuse what cannot be translated before any work is done on the question itself."""
        from race.allocation import Allocation

        self.cost(Allocation(0, 0, 0))

    def cost(self, allocation: Allocation) -> HardwareCost | None:
        """GPU-hours, dollars and kWh of ``allocation``; ``None`` when no GPU was named.

        Raises
        ------
        InvalidInput
            An unknown GPU, a value out of range, or hardware details without ``--gpu``.
        """
        from race.hardware import hardware_cost

        if self.gpu is None:
            if any(value is not None for value in vars(self).values()):
                raise InvalidInput("gpu: missing; the other cost options need --gpu NAME beside them")
            return None
        mfu = {"search": self.mfu_search, "learning": self.mfu_learning, "reward": self.mfu_reward}
        return hardware_cost(
            allocation,
            self.gpu,
            count=1 if self.gpus is None else self.gpus,
            utilisation={phase: value for phase, value in mfu.items() if value is not None},
            price=self.price,
            watts=self.watts,
            peak_flops=self.peak_flops,
            pue=self.pue,
        )


@dataclass(frozen=True)
class RecipeOptions:
    """Recipe fields given on the command line or in a TOML file; absent ones keep the ladder's default."""

    given: dict[str, Any] = field(default_factory=dict)

    def reward(self, asked: str | None, *, default: str | None = None) -> str:
        """The reward system: ``asked`` on the command line, else the file's, else ``default``.

        Raises
        ------
        InvalidInput
            Unknown, missing without a default, or the file says another one than the command line.
        """
        from race.rewards import reward_system

        in_file = self.given.get("reward")
        if asked is not None and in_file is not None and asked != in_file:
            raise InvalidInput(
                f"reward: found {asked!r} on the command line and {in_file!r} in the recipe file; drop one"
            )
        chosen = asked if asked is not None else in_file if in_file is not None else default
        if chosen is None:
            raise InvalidInput("reward: missing; give --reward, or reward in the recipe file")
        return reward_system(chosen).name

    def build(self, base: Recipe) -> Recipe:
        """``base`` with what was given on top; the reward system stays that of ``base``."""
        from race.recipe import Recipe

        values = {name: value for name, value in self.given.items() if name != "reward"}
        rank = values.pop("lora_rank", None)
        targets = values.pop("lora_targets", None)
        if rank == 0:
            if targets is not None:
                raise InvalidInput(
                    "lora_targets: given with --lora-rank 0, which is full fine-tuning; drop one"
                )
            values["lora"] = None
        elif rank is not None or targets is not None:
            default = base.lora
            lora: dict[str, Any] = {
                "rank": rank if rank is not None else default.rank if default else 16,
                "targets": default.targets if default else "all-linear",
            }
            if targets is not None:
                lora["targets"] = _targets(targets)
            values["lora"] = lora
        return Recipe.from_dict({**base.to_dict(), **values})


def _targets(value: Any) -> Any:
    from race.recipe import parse_lora_targets

    if isinstance(value, str):
        return parse_lora_targets(value)
    if isinstance(value, list):
        return value
    raise InvalidInput(f"lora_targets: found {value!r}; allowed is all-linear or a list of projection names")


def recipe_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Replace the parameter ``recipe: RecipeOptions`` of ``command`` by one option per recipe field."""

    def build(values: dict[str, Any]) -> RecipeOptions:
        from race.recipe import exact

        file = values.pop("recipe_file")
        given = _read_recipe_file(file) if file else {}
        return RecipeOptions({**given, **{k: exact(v) for k, v in values.items() if v is not None}})

    return _expand(command, "recipe", {"recipe_file": _FILE, **_FIELDS}, build)


def hardware_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Replace the parameter ``hardware: HardwareOptions`` of ``command`` by the hardware options."""
    return _expand(command, "hardware", _HARDWARE, lambda values: HardwareOptions(**values))


def _expand(
    command: Callable[..., Any], name: str, options: dict[str, Any], build: Callable[[dict[str, Any]], Any]
) -> Callable[..., Any]:
    """Give ``command`` the keyword options instead of its parameter ``name``, which ``build`` makes of them."""
    signature = inspect.signature(command, eval_str=True)
    own = [
        p.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for p in signature.parameters.values()
        if p.name != name
    ]
    extra = [
        inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for key, annotation in options.items()
    ]

    @functools.wraps(command)
    def wrapper(**values: Any) -> Any:
        taken = {key: values.pop(key) for key in options}
        return command(**values, **{name: build(taken)})

    wrapper.__signature__ = signature.replace(parameters=[*own, *extra])  # type: ignore[attr-defined]
    wrapper.__annotations__ = {p.name: p.annotation for p in [*own, *extra]}
    return wrapper


def _read_recipe_file(path: Path) -> dict[str, Any]:
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"recipe: cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"recipe: {path} is not TOML: {error}") from None
    table = data.get("recipe", data)
    if not isinstance(table, dict):
        raise InvalidInput(f"recipe: {path} has no [recipe] table")
    stray = sorted(set(data) & _RECIPE_WORDS) if table is not data else []
    if stray:
        raise InvalidInput(f"recipe: {path} has {stray[0]!r} outside its [recipe] table; move it inside")
    unknown = sorted(set(table) - _RECIPE_WORDS)
    if unknown:
        raise InvalidInput(
            f"recipe: {path} has unknown field {unknown[0]!r}; allowed are {', '.join(sorted(_RECIPE_WORDS))}"
        )
    return dict(table)


def split_targets(text: str) -> list[str]:
    """``native,pass@1`` as a list of checked targets, each once."""
    from race.rewards import check_target

    return list(dict.fromkeys(check_target(name.strip()) for name in text.split(",")))


def preferred(targets: Sequence[str]) -> list[str]:
    """The target that fitted ones are asked about where nobody names one: native, or the first."""
    return ["native"] if "native" in targets else [targets[0]]


def pilot_flops(text: str, budget: int) -> int:
    """``10%`` or ``0.1`` of the budget, or FLOPs, which are never below one."""
    from race.units import parse_budget, parse_fraction

    if text.strip().endswith("%") or re.fullmatch(r"\s*0*\.\d*[1-9]\d*\s*", text):
        return max(1, int(budget * parse_fraction(text, field="pilot_budget")))
    try:
        return parse_budget(text, field="pilot_budget")
    except InvalidInput as error:
        raise InvalidInput(f"{error}, or a share of the budget such as 10%") from None
