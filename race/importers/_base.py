"""What every importer is: someone's log and what the log does not say in, records out.

An importer is all or nothing: it returns every run it was asked for or raises one `InvalidInput` that names
the file, the place and what is allowed. It never guesses a number that FLOPs depend on: what neither the log
nor the facts say is an error, and what is taken by default is listed in ``provenance["assumptions"]``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from race.errors import InvalidInput
from race.records import PilotRecord
from race.rewards import check_target


@dataclass(frozen=True)
class ModelRef:
    """Which model a run in a log trained.

    Attributes
    ----------
    name
        As on the ladder.
    config
        Path, hub id or config that describes it, when the name is not a built-in one.
    seed
        Overrides the seed of the facts, for logs that hold several seeds of one model.
    """

    name: str
    config: str | None = None
    seed: int | None = None


@dataclass(frozen=True)
class RunFacts:
    """What whoever imports a log knows about its runs.

    Attributes
    ----------
    recipe
        `Recipe` fields that are known, in the words of the command line (``lora_rank``, 0 for full
        fine-tuning) or of a record (``lora``).
    target
        What the logged values measure.
    models
        Name of a run in the log (a column, a run id) to the model it trained; empty: the log's own names.
    eval_size
        Questions or samples behind each value; its square root is what standard errors come from.
    seed
        Seed of the runs; 0 where unknown.
    step_column
        Name of the step counter, where the format has a choice.
    source
        Where the log comes from: a URL, a paper, a run name.
    allow_gaps
        Empty cells mean "not evaluated"; otherwise they are an error, since they may as well be lost data.
    assumptions
        In plain words, what was assumed and why; kept in the record.
    series
        Target to the logged key that measures it, for trainers' logs; ``native`` is the training reward by default.
    native_range
        Smallest and largest possible training reward, which maps it to [0, 1].
    config
        The run's own config, or a folder with it; by default what lies beside the log.
    run
        Which run of a log that holds several, from 1.
    salvage
        Read the complete entries of a damaged JSON file instead of refusing it.
    """

    recipe: Mapping[str, Any] = field(default_factory=dict)
    target: str | None = None
    models: Mapping[str, ModelRef] = field(default_factory=dict)
    eval_size: int | None = None
    seed: int = 0
    step_column: str = "step"
    source: str = ""
    allow_gaps: bool = False
    assumptions: tuple[str, ...] = ()
    series: Mapping[str, str] = field(default_factory=dict)
    native_range: tuple[float, float] | None = None
    config: Path | None = None
    run: int | None = None
    salvage: bool = False

    def __post_init__(self) -> None:
        if self.target is not None:
            check_target(self.target)
        if self.eval_size is not None:
            _whole("eval_size", self.eval_size, 1)
        _whole("seed", self.seed, 0)
        if not isinstance(self.allow_gaps, bool):
            raise InvalidInput(f"allow_gaps: found {self.allow_gaps!r}; allowed are true and false")
        for name in ("step_column", "source"):
            if not isinstance(getattr(self, name), str):
                raise InvalidInput(f"{name}: found {getattr(self, name)!r}; allowed is text")
        if not isinstance(self.salvage, bool):
            raise InvalidInput(f"salvage: found {self.salvage!r}; allowed are true and false")
        if self.run is not None:
            _whole("run", self.run, 1)
        self._check_series()
        if not all(isinstance(line, str) for line in self.assumptions):
            raise InvalidInput(f"assumptions: found {self.assumptions!r}; allowed is a list of sentences")

    def _check_series(self) -> None:
        for target, key in self.series.items():
            check_target(target)
            if not isinstance(key, str) or not key:
                raise InvalidInput(f"series.{target}: found {key!r}; allowed is a key of the log")
        ends = self.native_range
        numbers = ends is None or all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in ends)
        if ends is not None and not (len(ends) == 2 and numbers and -1e12 < ends[0] < ends[1] < 1e12):
            raise InvalidInput(f"native_range: found {ends!r}; allowed are two numbers, the smaller first")


@runtime_checkable
class Importer(Protocol):
    """Reads one kind of log.

    Attributes
    ----------
    name
        What users call the format: ``csv``.
    summary
        One line for help texts.
    """

    name: str
    summary: str

    def recognises(self, path: Path) -> bool:
        """Whether ``path`` looks like this format: cheap, and never raises for any existing file."""
        ...

    def read(self, path: Path, facts: RunFacts) -> list[PilotRecord]:
        """Every run in ``path``, as records with evidence ``imported``.

        Reading the same file with the same facts twice gives equal records with equal ids.

        Raises
        ------
        InvalidInput
            The file or the facts are wrong or incomplete; one line with file, place and what is allowed.
        """
        ...


def _whole(name: str, value: Any, low: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value < 2**63:
        raise InvalidInput(f"{name}: found {value!r}; allowed is a whole number of at least {low}")
