"""Saved surrogates: a folder with ``surrogate.json`` and ``arrays.npz``. Plain data, nothing executed.

The JSON says what was fitted to what (ladder, recipe, targets, evidence, notes) and carries a schema version; the
npz, read with ``allow_pickle=False``, holds the observations, the hyperparameter draws and the worlds. The
posterior is rebuilt from them by the same code that made it, so a loaded surrogate answers identically. The
simulator is code and not in the file: what it said at the data is, so a file whose simulator has changed since
is recognised and refused instead of answering with a prior and data that do not fit together.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np

from race.errors import CannotDo, InvalidInput, RaceError
from race.flops import Architecture, LoraSpec
from race.flops.architecture import MoE
from race.ladders import Ladder, LadderModel
from race.recipe import Recipe
from race.records import EVIDENCE
from race.rewards import REWARD_SYSTEMS, check_target
from race.simulator import Settings, Worlds
from surrogate.calibration import MAX_SPREAD
from surrogate.ensemble import Ensemble
from surrogate.fitting import Fit
from surrogate.hyperparameters import NAMES
from surrogate.model import RunLabel, Surrogate
from surrogate.pending import Pending
from surrogate.points import Data
from surrogate.posterior import Component, Posterior
from surrogate.schema import counts, expect, field, strings

SCHEMA = "race.surrogate/2"
JSON_NAME, ARRAYS_NAME = "surrogate.json", "arrays.npz"
_MAX_BYTES = 2**31  # of arrays, unpacked: a small file must not be able to ask for more memory than that
_MAX_JSON = 2**26
_WHOLE = ("reward", "target", "run")
# Logs, logits and latent values: far beyond what a record can say, and far below what overflows when squared.
_BOUNDED = ("data_x", "data_recipe", "data_ensemble", "data_gain", "data_latent", "probe")
_LARGEST = 1e4
_PROBE = 5  # settings on which the simulator is compared with what it said when the file was written


def check_writable(path: Path) -> None:
    """Refuse early what `save` would refuse late.

    Raises
    ------
    InvalidInput
        ``path`` is a file, or a folder that holds something else.
    """
    if path.exists() and not path.is_dir():
        raise InvalidInput(f"surrogate: found {path}, which is a file; allowed is a new folder, or one race fit wrote")
    if path.is_dir() and any(path.iterdir()) and not (path / JSON_NAME).is_file():
        raise InvalidInput(
            f"surrogate: found {path}, a folder with other things in it; allowed is a new folder, or one race fit wrote"
        )


def save(surrogate: Surrogate, path: Path) -> Path:
    """Write ``surrogate`` to folder ``path`` and return it; an older surrogate there is replaced.

    Raises
    ------
    InvalidInput
        The folder holds something else, or pending pilots are conditioned on (save what is known instead).
    CannotDo
        The file system refuses.
    """
    check_writable(path)
    state = surrogate.state
    if isinstance(state.posterior, Pending):
        raise InvalidInput("surrogate: found one conditioned on pending pilots; save the one it was made from")
    arrays = {f"data_{f.name}": getattr(state.data, f.name) for f in fields(Data)}
    probe = _probe(surrogate.ladder, surrogate.recipe)
    arrays |= {
        "variance": state.variance,
        "inflation": state.inflation,
        "theta": np.stack([c.theta for c in state.posterior.components]),
        "bandwidth": np.array([c.bandwidth for c in state.posterior.components]),
        "weights": state.posterior.weights,
        "worlds": surrogate.ensemble.worlds.values,
        "trials": _to_table(surrogate.trials),
        "collapsed": surrogate.collapsed,
        "probe": surrogate.ensemble.at(probe, surrogate.targets[0]),
    }
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    packed = buffer.getvalue()
    document = {
        "schema": SCHEMA,
        "arrays": {"file": ARRAYS_NAME, "sha256": hashlib.sha256(packed).hexdigest()},
        "hyperparameters": list(NAMES),
        "ladder": {
            "name": surrogate.ladder.name,
            "recipe_defaults": [
                [k, asdict(v) if isinstance(v, LoraSpec) else v] for k, v in surrogate.ladder.recipe_defaults
            ],
            "reward_models": [[k, v] for k, v in surrogate.ladder.reward_models],
            "models": [
                {"name": m.name, "params": m.params, "architecture": asdict(m.architecture)}
                for m in surrogate.ladder.models
            ],
        },
        "recipe": surrogate.recipe.to_dict(),
        "targets": list(surrogate.targets),
        "evidence": dict(surrogate.evidence),
        "unhealthy": dict(surrogate.unhealthy),
        "notes": list(surrogate.notes),
        "runs": [asdict(run) for run in surrogate.runs],
        "spread": surrogate.spread,
        "seed": surrogate.seed,
    }
    text = json.dumps(document, indent=1, allow_nan=False)
    try:
        path.mkdir(parents=True, exist_ok=True)
        _replace(path / ARRAYS_NAME, packed)
        _replace(path / JSON_NAME, text.encode())
    except OSError as error:
        raise CannotDo(f"surrogate: cannot write to {path}: {error.strerror or error}") from None
    return path


def load(path: Path) -> Surrogate:
    """Read a saved surrogate.

    Raises
    ------
    CannotDo
        There is none, or it cannot be read.
    InvalidInput
        Another schema, a missing or unknown field, an array of the wrong shape or with values that are not
        finite, a file changed after it was written, or one whose simulator has changed since.
    """
    document, packed = _read(path)
    try:
        # Damaged worlds overflow in the simulator; what they give is compared with the probe, warnings help nobody.
        with np.errstate(all="ignore"):
            return _rebuild(document, packed, path)
    except RaceError:
        raise
    except (TypeError, ValueError, AttributeError, ArithmeticError, LookupError, MemoryError) as error:
        # Every field was checked for what it means; this is for the one whose check was forgotten.
        found = " ".join(str(error).split())[:200] or type(error).__name__
        raise InvalidInput(f"{path}: malformed ({found}); fit again") from None


def _rebuild(document: dict[str, Any], packed: bytes, path: Path) -> Surrogate:
    where = str(path / JSON_NAME)
    expect(document, where, {
        "schema", "arrays", "hyperparameters", "ladder", "recipe", "targets", "evidence", "unhealthy", "notes",
        "runs", "spread", "seed",
    })  # fmt: skip
    if document["hyperparameters"] != list(NAMES):
        raise InvalidInput(f"{where}.hyperparameters: found another list than this version's; fit again")
    if hashlib.sha256(packed).hexdigest() != field(document["arrays"], f"{where}.arrays", "sha256", str):
        raise InvalidInput(f"{path / ARRAYS_NAME}: it is not the file {JSON_NAME} was written with; fit again")
    arrays = _arrays(path / ARRAYS_NAME, packed)
    ladder = _ladder(document["ladder"], f"{where}.ladder")
    recipe = Recipe.from_dict(document["recipe"], where=f"{where}.recipe")
    targets = tuple(check_target(t) for t in strings(document, where, "targets"))
    if not targets:
        raise InvalidInput(f"{where}.targets: found none; allowed is at least one")
    runs = tuple(
        RunLabel(field(r, f"{where}.runs", "record", str), field(r, f"{where}.runs", "model", str))
        for r in field(document, where, "runs", list)
    )
    data, extra = _checked(arrays, str(path / ARRAYS_NAME), len(targets), len(runs))
    ensemble = Ensemble(Worlds(arrays["worlds"]))
    _same_simulator(ensemble, ladder, recipe, targets[0], arrays["probe"], path)
    components = tuple(
        Component(data, theta, float(h), extra["variance"], extra["inflation"])
        for theta, h in zip(arrays["theta"], arrays["bandwidth"], strict=True)
    )
    spread = _spread(document["spread"], where)
    state = Fit(data, extra["variance"], extra["inflation"], Posterior(components, arrays["weights"], spread))
    return Surrogate(
        ladder, recipe, targets, ensemble, state,
        counts(document, where, "evidence", EVIDENCE),
        counts(document, where, "unhealthy", None),
        tuple(strings(document, where, "notes")),
        runs,
        _from_table(arrays["trials"], str(path / ARRAYS_NAME)),
        arrays["collapsed"],
        field(document, where, "seed", int),
    )  # fmt: skip


def _spread(value: object, where: str) -> float:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 1 <= float(value) <= MAX_SPREAD:  # type: ignore[arg-type]
        raise InvalidInput(f"{where}.spread: found {value!r}; allowed is a number from 1 to {MAX_SPREAD:g}")
    return float(value)  # type: ignore[arg-type]


def _replace(path: Path, content: bytes) -> None:
    """Write beside and rename, so that a killed writer leaves the old file."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(content)
    temporary.replace(path)


def _read(path: Path) -> tuple[dict[str, Any], bytes]:
    if not (path / JSON_NAME).is_file():
        raise CannotDo(f"surrogate: found no {JSON_NAME} in {path}; give the folder that race fit wrote")
    try:
        for name, most in ((JSON_NAME, _MAX_JSON), (ARRAYS_NAME, _MAX_BYTES)):
            if (size := (path / name).stat().st_size) > most:
                raise InvalidInput(f"{path / name}: found {size} bytes; allowed are {most}")
        document = json.loads((path / JSON_NAME).read_text(encoding="utf-8"))
        packed = (path / ARRAYS_NAME).read_bytes()
    except InvalidInput:
        raise
    except (ValueError, RecursionError):
        raise InvalidInput(f"{path / JSON_NAME}: not a JSON object; fit again") from None
    except OSError as error:
        raise CannotDo(f"surrogate: cannot read {error.filename}: {error.strerror}") from None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        found = document.get("schema") if isinstance(document, dict) else type(document).__name__
        raise InvalidInput(
            f"{path / JSON_NAME}.schema: found {found!r}; allowed is {SCHEMA!r}: make it again with race fit"
        )
    return document, packed


def _arrays(path: Path, packed: bytes) -> dict[str, np.ndarray]:
    names = {f"data_{f.name}" for f in fields(Data)} | {
        "variance", "inflation", "theta", "bandwidth", "weights", "worlds", "probe", "trials", "collapsed",
    }  # fmt: skip
    try:
        with zipfile.ZipFile(io.BytesIO(packed)) as archive:
            size = sum(info.file_size for info in archive.infolist())
        if size > _MAX_BYTES:
            raise InvalidInput(f"{path}: unpacks to {size} bytes; allowed are {_MAX_BYTES}")
        with np.load(io.BytesIO(packed), allow_pickle=False) as archive:
            if set(archive.files) != names:
                odd = sorted(set(archive.files) ^ names)[0]
                raise InvalidInput(f"{path}: array {odd!r} is missing or unknown; fit again")
            arrays = {name: archive[name] for name in archive.files}
    except InvalidInput:
        raise
    except Exception as error:  # noqa: BLE001 - zipfile, decompressors and header parsers raise a dozen kinds
        found = " ".join(str(error).split())[:200] or type(error).__name__
        raise InvalidInput(f"{path}: not an array archive of this project ({found}); fit again") from None
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray) or array.ndim == 0:
            raise InvalidInput(f"{path}: array {name!r} is no array; fit again")
        whole = name.removeprefix("data_") in _WHOLE
        if array.dtype.kind not in ("iu" if whole else "f"):
            raise InvalidInput(f"{path}: array {name!r} holds {array.dtype}; allowed are numbers")
        if not np.isfinite(array).all():
            raise InvalidInput(f"{path}: array {name!r} holds values that are not finite; fit again")
        if name in _BOUNDED and array.size and np.abs(array).max() > _LARGEST:
            raise InvalidInput(f"{path}: array {name!r} leaves [-{_LARGEST:g}, {_LARGEST:g}]; fit again")
    return arrays


def _checked(
    arrays: Mapping[str, np.ndarray], where: str, targets: int, runs: int
) -> tuple[Data, dict[str, np.ndarray]]:
    """Observations with every shape and range checked."""
    n, worlds, k, trials = (len(arrays[name]) for name in ("data_x", "worlds", "weights", "trials"))
    shapes: dict[str, tuple[int, ...]] = {f"data_{f.name}": (n,) for f in fields(Data)}
    shapes |= {
        "data_x": (n, 3), "data_recipe": (n, 6), "data_ensemble": (worlds, n), "variance": (n,),
        "inflation": (runs,), "theta": (k, len(NAMES)), "bandwidth": (k,), "weights": (k,), "probe": (worlds, _PROBE),
        "trials": (trials, len(fields(Settings))), "collapsed": (trials,),
    }  # fmt: skip
    for name, shape in shapes.items():
        if arrays[name].shape != shape:
            raise InvalidInput(f"{where}: array {name!r} has shape {arrays[name].shape}; allowed is {shape}")
    run = arrays["data_run"]
    ranges = {
        "data_value": (0, 1), "data_se": (0, 1), "data_growth": (0, 1), "data_target": (0, targets - 1),
        "data_reward": (0, len(REWARD_SYSTEMS) - 1), "data_run": (0, max(runs - 1, 0)), "bandwidth": (0, 1),
        "weights": (0, 1), "variance": (0, np.inf), "inflation": (1, np.inf), "theta": (-50, 50),
        "data_gain": (0, np.inf), "trials": (0, np.inf), "collapsed": (0, 1),
    }  # fmt: skip
    for name, (low, high) in ranges.items():
        if arrays[name].size and not (arrays[name].min() >= low and arrays[name].max() <= high):
            raise InvalidInput(f"{where}: array {name!r} leaves [{low}, {high}]; fit again")
    if not worlds or not k or abs(arrays["weights"].sum() - 1) > 1e-6:
        raise InvalidInput(f"{where}: weights do not sum to 1; fit again")
    if n and (np.any(np.diff(run) < 0) or len(np.unique(run)) != runs):
        raise InvalidInput(f"{where}: array 'data_run' does not number {runs} runs in order; fit again")
    if not n and runs:
        raise InvalidInput(f"{where}: found no observations of {runs} runs; fit again")
    columns: dict[str, Any] = {
        f.name: arrays[f"data_{f.name}"].astype(np.intp if f.name in _WHOLE else np.float64) for f in fields(Data)
    }
    data = Data(**columns)
    return data, {name: arrays[name].astype(np.float64) for name in ("variance", "inflation")}


def _to_table(settings: Settings) -> np.ndarray:
    """Settings as numbers, shape (n, fields). A rank of 0 stands for full fine-tuning, whose rank is infinite."""
    columns = [np.asarray(getattr(settings, f.name), dtype=np.float64) for f in fields(Settings)]
    return np.stack([np.where(np.isinf(c), 0.0, c) for c in columns], axis=1)


def _from_table(table: np.ndarray, where: str) -> Settings:
    """Inverse of `_to_table`."""
    columns: dict[str, Any] = {f.name: table[:, i].copy() for i, f in enumerate(fields(Settings))}
    columns["rank"] = np.where(columns["rank"] == 0, np.inf, columns["rank"])
    columns["reward"] = columns["reward"].astype(np.int64)
    positive = ("params", "prompts", "group", "a", "lr", "search", "learning", "budget")
    if any(np.any(columns[name] <= 0) for name in positive) or np.any(columns["reward"] >= len(REWARD_SYSTEMS)):
        raise InvalidInput(f"{where}: array 'trials' holds runs that cannot have been; fit again")
    return Settings(**columns)


def _probe(ladder: Ladder, recipe: Recipe) -> Settings:
    """A few settings across the ladder and three decades of budget."""
    rungs = [ladder.models[i % len(ladder.models)] for i in range(_PROBE)]
    settings = Settings.build([(model, recipe, 1) for model in rungs])
    return settings.with_budget(settings.step_flops * np.geomspace(2, 2000, _PROBE))


def _same_simulator(
    ensemble: Ensemble, ladder: Ladder, recipe: Recipe, target: str, said: np.ndarray, path: Path
) -> None:
    now = ensemble.at(_probe(ladder, recipe), target)
    if not np.allclose(now, said, rtol=0, atol=1e-6):
        raise InvalidInput(
            f"{path}: it was fitted with another version of the simulator; fit again from the records"
        )


def _ladder(data: Any, where: str) -> Ladder:
    expect(data, where, {"name", "recipe_defaults", "reward_models", "models"})
    models = []
    for i, entry in enumerate(field(data, where, "models", list)):
        at = f"{where}.models[{i}]"
        expect(entry, at, {"name", "params", "architecture"})
        architecture = entry["architecture"]
        expect(architecture, f"{at}.architecture", {f.name for f in fields(Architecture)})
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in architecture.items()}
        try:
            if values["moe"] is not None:
                expect(values["moe"], f"{at}.architecture.moe", {f.name for f in fields(MoE)})
                values["moe"] = MoE(**values["moe"])
            models.append(
                LadderModel(field(entry, at, "name", str), Architecture(**values), field(entry, at, "params", int))
            )
        except (TypeError, AttributeError) as error:
            raise InvalidInput(f"{at}.architecture: malformed ({error})") from None
    defaults, scorers = (_pairs(data, where, name) for name in ("recipe_defaults", "reward_models"))
    # An adapter among the defaults was written as the object it is in a recipe, and is read as one.
    read = tuple(
        (k, Recipe.from_dict({"reward": "sparse", k: v}, where=f"{where}.recipe_defaults").lora if k == "lora" else v)
        for k, v in defaults
    )
    return Ladder(field(data, where, "name", str), tuple(models), read, scorers)


def _pairs(data: Any, where: str, name: str) -> tuple[tuple[str, Any], ...]:
    pairs = field(data, where, name, list)
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str):
            raise InvalidInput(f"{where}.{name}: found {pair!r}; allowed are [name, value] pairs")
    return tuple((pair[0], pair[1]) for pair in pairs)
