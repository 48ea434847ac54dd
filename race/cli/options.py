"""Options that several commands share, declared once.

`recipe_options` expands a ``recipe`` parameter into one command-line option per `Recipe` field, so that
``race flops``, ``plan``, ``simulate``, ``import`` and ``run`` spell a recipe the same way. A value given on the
command line wins over the TOML file, which wins over the ladder's default.
"""

from __future__ import annotations

import functools
import inspect
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from race.errors import InvalidInput

if TYPE_CHECKING:
    from race.ladder import Ladder
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
    "learning_rate": Annotated[
        float | None, _option("--learning-rate", help="Relative to the tuned rate; costs nothing.")
    ],
}
_FILE = Annotated[
    Path | None, _option("--recipe", help="TOML file with recipe fields; options given here win.")
]


@dataclass(frozen=True)
class RecipeOptions:
    """Recipe fields given on the command line or in a TOML file; absent ones keep the ladder's default."""

    given: dict[str, Any] = field(default_factory=dict)

    def build(self, ladder: Ladder, reward: str) -> Recipe:
        """The ladder's recipe under ``reward`` with what was given on top."""
        values = dict(self.given)
        reward = values.pop("reward", reward)
        rank = values.pop("lora_rank", None)
        targets = values.pop("lora_targets", None)
        if rank == 0:
            if targets is not None:
                raise InvalidInput(
                    "lora_targets: given with --lora-rank 0, which is full fine-tuning; drop one"
                )
            values["lora"] = None
        elif rank is not None or targets is not None:
            default = ladder.recipe(reward).lora
            lora: dict[str, Any] = {
                "rank": rank if rank is not None else default.rank if default else 16,
                "targets": default.targets if default else "all-linear",
            }
            if targets is not None:
                names = [t.strip() for t in targets.split(",") if t.strip()]
                lora["targets"] = targets if targets == "all-linear" else names
            values["lora"] = lora
        return ladder.recipe(reward, **values)


def recipe_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Replace the parameter ``recipe: RecipeOptions`` of ``command`` by one option per recipe field."""
    signature = inspect.signature(command, eval_str=True)
    parameters = [p for p in signature.parameters.values() if p.name != "recipe"]
    extra = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in {"recipe_file": _FILE, **_FIELDS}.items()
    ]
    keyword = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]

    @functools.wraps(command)
    def wrapper(**values: Any) -> Any:
        file = values.pop("recipe_file")
        given = _read_recipe_file(file) if file else {}
        for name in _FIELDS:
            value = values.pop(name)
            if value is not None:
                given[name] = _whole(value)
        return command(**values, recipe=RecipeOptions(given))

    wrapper.__signature__ = signature.replace(parameters=[*keyword, *extra])  # type: ignore[attr-defined]
    wrapper.__annotations__ = {p.name: p.annotation for p in [*keyword, *extra]}
    return wrapper


def _whole(value: Any) -> Any:
    """``800.0`` typed as a length means 800 tokens: keep whole numbers exact."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


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
    return dict(table)


def choose_ladder(name: str) -> Ladder:
    """Resolve ``--ladder``."""
    from race.ladder import ladder

    return ladder(name)
