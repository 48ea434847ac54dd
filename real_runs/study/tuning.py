"""Learning rates chosen before the study, on seeds of their own.

Which update ratio looks best moves with the learning rate (more updates want a smaller step), so a frontier at one
rate compares rates as much as allocations. The rule is one for all reward systems: at each model and update ratio, the
rate with the best mean over the tuning seeds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from race.checks import check_object, check_real
from race.errors import CannotDo, InvalidInput
from real_runs.study.design import StudyRun

if TYPE_CHECKING:
    from race.records import PilotRecord
    from real_runs.study.file import Study


@dataclass(frozen=True)
class Rates:
    """The best learning rate by model and update ratio.

    Attributes
    ----------
    table
        Model to {update ratio: rate}.
    scores
        Model to {update ratio: {rate: mean value}}: what was compared.
    """

    table: Mapping[str, Mapping[float, float]]
    scores: Mapping[str, Mapping[float, Mapping[float, float]]]

    def at(self, model: str, update_ratio: float) -> float:
        """The rate for ``model`` at ``update_ratio``: linear in log rate over log a, constant beyond the ends.

        Raises
        ------
        InvalidInput
            A model that was not tuned.
        """
        import numpy as np

        if model not in self.table:
            raise InvalidInput(f"tuning.models: {model} is not among {', '.join(self.table)}; tune it too")
        known = sorted(self.table[model].items())
        x = [math.log(a) for a, _ in known]
        y = [math.log(rate) for _, rate in known]
        # Four digits, as in the name of the run.
        return float(f"{math.exp(float(np.interp(math.log(update_ratio), x, y))):.4g}")

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            model: {
                f"{a:g}": {
                    "best": rate,
                    "means": {f"{r:g}": mean for r, mean in self.scores[model][a].items()},
                }
                for a, rate in by_ratio.items()
            }
            for model, by_ratio in self.table.items()
        }

    @classmethod
    def read(cls, path: Path) -> Rates:
        """From a file such as the ``rates.json`` of a study; `InvalidInput` says what is wrong with it."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise InvalidInput(f"rates: cannot read {path}: {error.strerror or error}") from None
        except ValueError as error:
            raise InvalidInput(f"rates: {path} is not JSON: {error}") from None
        return cls.from_dict(data)

    @classmethod
    def from_dict(cls, data: Any) -> Rates:
        """As `to_dict` wrote it; `InvalidInput` names what is not."""
        table: dict[str, dict[float, float]] = {}
        scores: dict[str, dict[float, dict[float, float]]] = {}
        if not isinstance(data, Mapping) or not data:
            raise InvalidInput("rates: allowed is an object by model, as rates.json of a study has it")
        for model, by_ratio in data.items():
            if not isinstance(by_ratio, Mapping) or not by_ratio:
                raise InvalidInput(f"rates.{model}: allowed is an object by update ratio")
            for text, given in by_ratio.items():
                where = f"rates.{model}.{text}"
                entry = check_object(where, given, required=("best",), optional=("means",))
                a = _ratio(where, text)
                table.setdefault(model, {})[a] = check_real(
                    f"{where}.best", entry["best"], low=1e-4, high=1e4
                )
                means = entry.get("means", {})
                if not isinstance(means, Mapping):
                    raise InvalidInput(
                        f"{where}.means: found {type(means).__name__}; allowed is an object by rate"
                    )
                scores.setdefault(model, {})[a] = {
                    _ratio(where, r): check_real(f"{where}.means", m, low=0, high=1) for r, m in means.items()
                }
        return cls(table, scores)


def _ratio(where: str, text: Any) -> float:
    try:
        return float(text)
    except (TypeError, ValueError):
        raise InvalidInput(f"{where}: found {text!r}; allowed is a number") from None


def tuned_rates(study: Study, runs: Iterable[StudyRun], records: Mapping[str, PilotRecord]) -> Rates:
    """The best rates, from the records of the tuning runs.

    A run that failed or diverged counts as 0: a rate that breaks runs is not the best one.

    Raises
    ------
    CannotDo
        Records are missing; tuning comes first.
    """
    assert study.tuning is not None
    values: dict[str, dict[float, dict[float, list[float]]]] = {}
    missing = []
    for run in runs:
        record = records.get(run.id)
        if record is None:
            missing.append(run.id)
            continue
        curve = record.curves.get(study.tuning.target)
        value = curve.value[-1] if curve is not None and record.health.status in ("ok", "collapsed") else 0.0
        recipe = run.spec.recipe
        values.setdefault(run.spec.model, {}).setdefault(recipe.update_ratio, {}).setdefault(
            recipe.learning_rate, []
        ).append(value)
    if missing:
        raise CannotDo(
            f"tuning: {len(missing)} tuning run{'s' if len(missing) > 1 else ''} not there yet, such as "
            f"{missing[0]}; run the tuning stage first"
        )
    means = {
        model: {a: {rate: fmean(found) for rate, found in rates.items()} for a, rates in by_ratio.items()}
        for model, by_ratio in values.items()
    }
    # On a tie the smaller step: it is the safer one.
    best = {
        model: {a: max(sorted(rates), key=lambda rate: rates[rate]) for a, rates in by_ratio.items()}
        for model, by_ratio in means.items()
    }
    return Rates(best, means)
