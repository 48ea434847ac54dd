"""Put a run together from names: model, data, reward and judge to the objects that `real_runs.run` works with.

Two kinds of models. A nano policy (``nano-s``, ``nano-m``, ``nano-l``) brings its own task, rewards and judge. Any
other causal LM (a folder, a hub id, or a name of the built-in table) needs data with answers.

A `Setup` is plain data: it is saved beside the run, compared when the run is resumed, and read back for evaluation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from race.errors import CannotDo, InvalidInput
from race.rewards import REWARD_SYSTEMS
from real_runs.nano import (
    POLICIES,
    REWARD_MODELS,
    NanoTask,
    StepJudge,
    load_policy,
    nano_benchmarks,
    nano_reward,
)

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from real_runs.config import RunOptions
    from real_runs.contracts import Judge, Reward, Task
    from real_runs.grading import Grader
    from real_runs.prm import ProcessRewardModel

# Name to what may be given for it. A value of another type must not get through: "no" is a true value in Python.
_DATA_KINDS = {
    "train": "text", "heldout": "text", "benchmarks": "a table of texts", "prompt_column": "text",
    "answer_column": "text", "heldout_fraction": "a number", "instruction": "text", "system": "text",
    "template_options": "a table",
}  # fmt: skip
_PRM_KINDS = {
    "aggregation": "text", "step_format": "text", "separator": "text", "dtype": "text", "device": "text",
    "max_tokens": "a whole number >= 1", "batch_tokens": "a whole number >= 1",
    "trust_remote_code": "true or false", "engine": "text", "memory": "a number",
}  # fmt: skip
DATA_FIELDS = tuple(_DATA_KINDS)
_OPTIONAL_TEXTS = ("instruction", "system", "prompt_column", "answer_column", "train", "heldout", "separator")
_DEFAULT_COMPLETION_TOKENS = 2048


@dataclass(frozen=True)
class Setup:
    """What a run is made of, by name.

    Attributes
    ----------
    model
        A nano policy, a folder, a hub id, or a built-in name.
    reward
        A reward system or a mix such as ``0.9*prm+0.1*sparse``.
    reward_model, judge_model
        Process reward models of a text task: what ``prm`` and ``proxy-prm`` run, and what the judge is.
    data
        Of a text task: ``train`` and ``heldout`` (a file, a named set or a hub id), ``benchmarks`` (name to source),
        and the other parameters of `real_runs.data.text_task`.
    prm
        How process reward models are read: ``aggregation`` and the parameters of `real_runs.prm.load.load_prm`.
    """

    model: str
    reward: str = "sparse"
    reward_model: str | None = None
    judge_model: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    prm: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.model, str) or not self.model.strip():
            raise InvalidInput(f"model: found {self.model!r}; allowed is a model name or folder")
        _known("data", self.data, _DATA_KINDS)
        _known("prm", self.prm, _PRM_KINDS)
        for name in ("reward_model", "judge_model"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, str) or not value.strip()):
                raise InvalidInput(f"{name}: found {value!r}; allowed is a model name or folder")
        if not self.nano:
            return
        if self.data:
            raise InvalidInput(f"data: given with {self.model}, which has its own task; leave it out")
        if self.prm:
            raise InvalidInput(
                f"prm: given with {self.model}, which reads its own reward models; leave it out"
            )
        if self.judge_model is not None:
            raise InvalidInput(
                f"judge_model: given with {self.model}, which has a ground-truth judge; leave it out"
            )

    @property
    def nano(self) -> bool:
        """Whether the model is one of the nano ladder."""
        return is_nano(self.model)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; local data files are named with their digest, so that a changed one is noticed."""
        sources = {name: self.data.get(name) for name in ("train", "heldout")}
        sources |= {f"benchmarks.{name}": source for name, source in self.data.get("benchmarks", {}).items()}
        digests = {name: found for name, source in sources.items() if (found := _digest(source))}
        return {**asdict(self), "data": dict(self.data), "prm": dict(self.prm), "digests": digests}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Setup:
        """As `to_dict` wrote it."""
        return cls(**{f.name: data[f.name] for f in fields(cls) if f.name in data})


@dataclass(frozen=True)
class Parts:
    """What `real_runs.run.run_pilot` needs beside a spec.

    Attributes
    ----------
    notes
        What was decided or left out while reading the data, in plain words.
    """

    task: Task
    reward: Reward | None
    judge: Judge | None
    policy: Callable[[], PreTrainedModel]
    benchmarks: Mapping[str, Task]
    notes: tuple[str, ...] = ()


def is_nano(model: str) -> bool:
    """Whether ``model`` names a policy of the nano ladder."""
    return model.lower() in POLICIES


def locate(model: str) -> str:
    """Where a model is read from: a nano name or a folder as it is, a built-in name as its hub id.

    Raises
    ------
    InvalidInput
        None of these.
    """
    from race.flops.models import hub_id

    if is_nano(model):
        return model.lower()
    if Path(model).exists():
        return model
    found = hub_id(model)
    if found is not None:
        return found
    owner, _, repository = model.partition("/")
    if owner and repository and "/" not in repository and not model.startswith((".", "~")):
        return model
    raise InvalidInput(
        f"model: found {model!r}; allowed are {', '.join(POLICIES)}, a folder, a hub id owner/name, or a built-in name "
        "such as Qwen2.5-1.5B-Instruct"
    )


def priced_reward(text: str) -> str:
    """The one reward system that a recipe names for a reward or mix: the learned part, which is what costs FLOPs.

    Raises
    ------
    InvalidInput
        A malformed mix, or one of two learned rewards, which one recipe cannot price.
    """
    from real_runs.rewards import parse_mix

    weights = parse_mix(text)
    learned = [name for name in weights if REWARD_SYSTEMS[name].learned]
    if len(learned) > 1:
        raise InvalidInput(
            f"reward: found {' and '.join(learned)} in {text!r}; allowed is at most one learned reward"
        )
    return learned[0] if learned else max(weights, key=lambda name: weights[name])


def reward_model_for(model: str, reward: str, given: str | None) -> str | None:
    """The name of the model behind a recipe's ``reward`` on ``model``; ``None`` leaves the recipe's own default."""
    if not is_nano(model) or reward not in REWARD_MODELS:
        return given
    own = REWARD_MODELS[reward]
    if given not in (None, own):
        raise InvalidInput(
            f"reward_model: found {given!r} with {model}; allowed is {own}, the nano ladder's own"
        )
    return own


@contextmanager
def assembled(setup: Setup, options: RunOptions, *, train: bool = True) -> Iterator[Parts]:
    """The parts of a run; grading processes live as long as the context.

    Parameters
    ----------
    train
        Whether training problems and the reward are needed; ``False`` is for evaluation.

    Raises
    ------
    InvalidInput, CannotDo
        Whatever data, models and rewards have to say before a run may start.
    """
    if setup.nano:
        task: Task = NanoTask()
        name = setup.model.lower()
        reward, judge = _nano_reward(setup.reward), StepJudge()
        yield Parts(task, reward, judge, lambda: named(load_policy(name), name), nano_benchmarks())
        return
    from real_runs.grading import Grader

    with Grader() as grader:
        yield _text_parts(setup, options, grader, train=train)


def named(model: PreTrainedModel, name: str) -> PreTrainedModel:
    """``model``, known to adapters that are saved from it as ``name`` instead of a path on this machine."""
    model.name_or_path = name
    model.config._name_or_path = name
    return model


def load_causal_lm(path: str, dtype: str) -> PreTrainedModel:
    """A causal LM from a folder or the hub, on the CPU.

    Raises
    ------
    CannotDo
        It cannot be read or fetched here, or weights are missing, which would be random then.
    """
    import torch
    from transformers import AutoModelForCausalLM

    try:
        # With output_loading_info it returns a pair, which its annotations do not say.
        found: Any = AutoModelForCausalLM.from_pretrained(
            path, dtype=getattr(torch, dtype), output_loading_info=True
        )
    except (OSError, ValueError, ImportError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0][:160]
        raise CannotDo(
            f"model: {path!r} cannot be read or fetched here ({first}); give a folder with its files"
        ) from None
    loaded: PreTrainedModel = found[0]
    missing = sorted(found[1]["missing_keys"])
    if missing:
        raise CannotDo(
            f"model: {path!r} has no weight {missing[0]!r} ({len(missing)} missing), so that part would be random; "
            "give a whole causal language model"
        )
    return loaded


def _nano_reward(text: str) -> Reward:
    from real_runs.rewards import build_reward

    return build_reward(text, {name: lambda name=name: nano_reward(name) for name in REWARD_SYSTEMS})  # type: ignore[misc]


def _text_parts(setup: Setup, options: RunOptions, grader: Grader, *, train: bool) -> Parts:
    from real_runs.data import text_task
    from real_runs.prm.steps import check_aggregation
    from real_runs.rewards import PrmJudge, text_reward

    aggregation = check_aggregation(setup.prm.get("aggregation", "min"))  # before gigabytes are read for nothing
    path = locate(setup.model)
    data = dict(setup.data)
    benchmarks: Mapping[str, str] = data.pop("benchmarks", {})
    source, heldout = data.pop("train", None), data.pop("heldout", None)
    if source is None and (train or heldout is None):
        raise InvalidInput(
            f"data: missing with model {setup.model!r}; give a parquet, JSONL or CSV file with questions and answers, "
            "or polaris-53k, gsm8k, math500, or a hub id"
        )
    lengths: dict[str, Any] = {
        "max_prompt_tokens": options.max_prompt_tokens,
        "max_completion_tokens": options.max_completion_tokens or _DEFAULT_COMPLETION_TOKENS,
    }
    task = text_task(path, grader, data=source, heldout=heldout, **lengths, **data)
    chat = {name: data[name] for name in ("instruction", "system", "template_options") if name in data}
    others: dict[str, Task] = {
        name: text_task(path, grader, data=None, heldout=where, name=name, **lengths, **chat)
        for name, where in benchmarks.items()
    }
    loading = {name: value for name, value in setup.prm.items() if name != "aggregation"}

    def load(model: str) -> ProcessRewardModel:
        from real_runs.prm.load import load_prm

        return load_prm(_locate_prm(model), **loading)

    reward = None
    if train:
        reward = text_reward(
            setup.reward, grader, reward_model=setup.reward_model, load=load,
            aggregation=aggregation,
        )  # fmt: skip
    judge = PrmJudge(load(setup.judge_model)) if setup.judge_model else None
    notes = (f"data: {task.report.summary()}", *task.report.notes)
    return Parts(task, reward, judge, lambda: named(load_causal_lm(path, options.dtype), path), others, notes)


def _locate_prm(model: str) -> str:
    from race.flops.models import builtin_config, hub_id

    if Path(model).exists():
        return model
    found = hub_id(model)
    if found is None and builtin_config(model) is not None:
        raise InvalidInput(
            f"reward_model: {model!r} has a size for planning but no published checkpoint; give the folder or hub id "
            "of a process reward model"
        )
    return found or model


def _known(table: str, given: object, kinds: Mapping[str, str]) -> None:
    if not isinstance(given, Mapping):
        raise InvalidInput(f"{table}: found {given!r}; allowed is a table")
    for name, value in given.items():
        if name not in kinds:
            raise InvalidInput(f"{table}: unknown name {name!r}; allowed are {', '.join(kinds)}")
        if value is None and (name in _OPTIONAL_TEXTS or not kinds[name].startswith("text")):
            continue
        if not _KINDS[kinds[name]](value):
            raise InvalidInput(f"{table}.{name}: found {value!r}; allowed is {kinds[name]}")


_KINDS: dict[str, Callable[[Any], bool]] = {
    "text": lambda x: isinstance(x, str),
    "a number": lambda x: isinstance(x, (int, float)) and not isinstance(x, bool),
    "a whole number >= 1": lambda x: isinstance(x, int) and not isinstance(x, bool) and x >= 1,
    "true or false": lambda x: isinstance(x, bool),
    "a table": lambda x: isinstance(x, Mapping),
    "a table of texts": lambda x: isinstance(x, Mapping) and all(isinstance(v, str) for v in x.values()),
}


def _digest(source: object) -> str | None:
    if not isinstance(source, str) or not Path(source).is_file():
        return None
    return hashlib.sha256(Path(source).read_bytes()).hexdigest()
