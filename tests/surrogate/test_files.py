import hashlib
import io
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from surrogate_pilots import RUNGS, pilots, record, spec

from race.errors import CannotDo, InvalidInput, RaceError
from race.ladders import ladder
from race.simulator import Settings, Worlds
from surrogate import Surrogate
from surrogate.files import ARRAYS_NAME, JSON_NAME, check_writable
from surrogate.optimum import optimum

GRID = Settings.grid(RUNGS, RUNGS.recipe("prm"), rhos=[0.3, 0.6], budgets=[1e18, 1e20])


@pytest.fixture(scope="module")
def fitted() -> Surrogate:
    records = pilots(5, Worlds.prior(1, seed=2), reward="prm", targets=("native", "judge"))
    records += [record(spec("dense", seed=50 + i), 0.2, evidence="simulated") for i in range(2)]
    return Surrogate.fit(records, ladder=RUNGS, recipe=RUNGS.recipe("prm"), targets=("native", "judge"), seed=3)


@pytest.fixture
def saved(fitted: Surrogate, tmp_path: Path) -> Path:
    return fitted.save(tmp_path / "surrogate")


def test_a_loaded_surrogate_answers_identically(fitted: Surrogate, saved: Path) -> None:
    loaded = Surrogate.load(saved)
    for target in ("native", "judge", "pass@1"):
        one, two = fitted.predict(GRID, target), loaded.predict(GRID, target)
        assert np.array_equal(one.mean, two.mean)
        assert np.array_equal(one.lo, two.lo)
    draws = [s.sample(GRID, "judge", draws=30, seed=1) for s in (fitted, loaded)]
    assert np.array_equal(*draws)
    assert optimum(fitted, budget=1e19) == optimum(loaded, budget=1e19)
    for name in ("ladder", "recipe", "targets", "evidence", "unhealthy", "notes", "runs", "seed"):
        assert getattr(fitted, name) == getattr(loaded, name)
    assert np.array_equal(fitted.collapse_risk(GRID), loaded.collapse_risk(GRID))
    assert fitted.diagnostics() == loaded.diagnostics()
    assert fitted.diagnostics(leave_out="model") == loaded.diagnostics(leave_out="model")


def test_the_prior_can_be_saved_too(tmp_path: Path) -> None:
    prior = Surrogate.fit([], ladder=RUNGS, recipe=RUNGS.recipe("sparse"))
    loaded = Surrogate.load(prior.save(tmp_path / "prior"))
    assert np.array_equal(prior.predict(GRID, "native").mean, loaded.predict(GRID, "native").mean)


def test_a_ladder_whose_defaults_hold_an_adapter_comes_back_whole(tmp_path: Path) -> None:
    rungs = ladder("nano")
    prior = Surrogate.fit([], ladder=rungs, recipe=rungs.recipe("prm"))
    back = Surrogate.load(prior.save(tmp_path / "nano"))
    assert back.ladder == rungs
    assert back.ladder.recipe("sparse") == rungs.recipe("sparse")


def test_saving_again_replaces(fitted: Surrogate, saved: Path) -> None:
    fitted.save(saved)
    assert sorted(p.name for p in saved.iterdir()) == [ARRAYS_NAME, JSON_NAME]
    Surrogate.load(saved)


def test_nothing_else_is_overwritten(fitted: Surrogate, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InvalidInput, match="other things"):
        fitted.save(tmp_path)
    with pytest.raises(InvalidInput, match="is a file"):
        check_writable(tmp_path / "notes.txt")
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_pending_pilots_are_not_saved(fitted: Surrogate, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="pending"):
        fitted.condition(GRID[np.array([0])]).save(tmp_path / "x")


def edit(change: Callable[[dict], None]) -> Callable[[Path], None]:
    def apply(path: Path) -> None:
        document = json.loads((path / JSON_NAME).read_text())
        change(document)
        (path / JSON_NAME).write_text(json.dumps(document))

    return apply


def rearray(change: Callable[[dict], None]) -> Callable[[Path], None]:
    """Change arrays and forge the checksum: what is left is the checking of each array."""

    def apply(path: Path) -> None:
        with np.load(path / ARRAYS_NAME) as archive:
            arrays = dict(archive)
        change(arrays)
        np.savez(path / ARRAYS_NAME, **arrays)
        digest = hashlib.sha256((path / ARRAYS_NAME).read_bytes()).hexdigest()
        edit(lambda d: d["arrays"].update(sha256=digest))(path)

    return apply


def npy(shape: str) -> bytes:
    """An array file that promises a shape and holds next to nothing."""
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(64)


def forge(path: Path, packed: bytes) -> None:
    (path / ARRAYS_NAME).write_bytes(packed)
    edit(lambda d: d["arrays"].update(sha256=hashlib.sha256(packed).hexdigest()))(path)


def remember(name: str, content: bytes) -> Callable[[Path], None]:
    """Put other bytes into the archive under the name of an array."""

    def apply(path: Path) -> None:
        with zipfile.ZipFile(path / ARRAYS_NAME) as old:
            members = {n: old.read(n) for n in old.namelist()}
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as new:
            for n, held in {**members, name: content}.items():
                new.writestr(n, held)
        forge(path, buffer.getvalue())

    return apply


def repack(change: Callable[[bytearray, int], None]) -> Callable[[Path], None]:
    """Change the first entry of the archive's directory."""

    def apply(path: Path) -> None:
        raw = bytearray((path / ARRAYS_NAME).read_bytes())
        change(raw, raw.find(b"PK\x01\x02"))
        forge(path, bytes(raw))

    return apply


def nan(arrays: dict) -> None:
    arrays["data_latent"][0] = np.nan


def other_worlds(arrays: dict) -> None:
    arrays["worlds"] = np.roll(arrays["worlds"], 1, axis=0)


DAMAGE: dict[str, tuple[Callable[[Path], None], str]] = {
    "json cut short": (lambda p: (p / JSON_NAME).write_text((p / JSON_NAME).read_text()[:200]), "not a JSON object"),
    "json is binary": (lambda p: (p / JSON_NAME).write_bytes(b"\xff\xfe\x00"), "not a JSON object"),
    "json of gigabytes": (lambda p: os.truncate(p / JSON_NAME, 2**33), "8589934592 bytes"),
    "json is a list": (lambda p: (p / JSON_NAME).write_text("[1, 2]"), "schema"),
    "another schema": (edit(lambda d: d.update(schema="race.surrogate/1")), "race.surrogate/1"),
    "no schema": (edit(lambda d: d.pop("schema")), "schema"),
    "unknown field": (edit(lambda d: d.update(extra=1)), "'extra' is unknown"),
    "missing field": (edit(lambda d: d.pop("ladder")), "'ladder' is missing"),
    "foreign hyperparameters": (edit(lambda d: d["hyperparameters"].pop()), "hyperparameters"),
    "bad recipe": (edit(lambda d: d["recipe"].update(reward="gold")), "reward"),
    "bad architecture": (edit(lambda d: d["ladder"]["models"][0]["architecture"].update(layers=-1)), "layers"),
    "architecture of text": (edit(lambda d: d["ladder"]["models"][0].update(architecture="big")), "architecture"),
    "unknown target": (edit(lambda d: d.update(targets=["luck"])), "luck"),
    "negative count": (edit(lambda d: d["evidence"].update(real=-1)), "evidence.real"),
    "text count": (edit(lambda d: d["unhealthy"].update(collapsed="2")), "unhealthy.collapsed"),
    "runs of text": (edit(lambda d: d.update(runs=["a"])), "runs"),
    "arrays changed": (lambda p: (p / ARRAYS_NAME).write_bytes(b"x" + (p / ARRAYS_NAME).read_bytes()), "not the file"),
    "array missing": (rearray(lambda a: a.pop("worlds")), "worlds"),
    "array unknown": (rearray(lambda a: a.update(more=np.ones(2))), "more"),
    "array of objects": (rearray(lambda a: a.update(weights=np.array([{}], dtype=object))), "array archive"),
    "array of text": (rearray(lambda a: a.update(weights=np.array(["1"]))), "weights"),
    "array too short": (rearray(lambda a: a.update(data_x=a["data_x"][:-1])), "shape"),
    "not finite": (rearray(nan), "not finite"),
    "value above 1": (rearray(lambda a: a["data_value"].fill(1.5)), "data_value"),
    "weights not a distribution": (rearray(lambda a: a["weights"].fill(0.0)), "weights"),
    "runs out of order": (rearray(lambda a: a.update(data_run=a["data_run"][::-1].copy())), "data_run"),
    "impossible trials": (rearray(lambda a: a["trials"].fill(0.0)), "trials"),
    "other worlds": (rearray(other_worlds), "simulator"),
    "a number for an array": (rearray(lambda a: a.update(weights=np.float64(1))), "weights"),
    "values that overflow": (rearray(lambda a: a["data_x"].fill(1e300)), "data_x"),
    "an array of nothing known": (remember("weights.npy", b"hello"), "weights"),
    "an array of petabytes": (remember("weights.npy", npy("(10000000000000,)")), "array archive"),
    "an array beyond counting": (remember("weights.npy", npy("(99999999999999999999999,)")), "array archive"),
    "a header that never ends": (remember("weights.npy", npy("(" * 5000)), "array archive"),
    "a bad decompressor": (repack(lambda raw, at: raw.__setitem__(slice(at + 10, at + 12), b"c\0")), "array archive"),
    "an encrypted archive": (repack(lambda raw, at: raw.__setitem__(at + 8, raw[at + 8] | 1)), "array archive"),
    "a family that is an object": (
        edit(lambda d: d["ladder"]["models"][0]["architecture"].update(family={})), "malformed",
    ),
    "a size beyond floats": (
        edit(lambda d: d["ladder"]["models"][0]["architecture"].update(hidden=10**400)), "surrogate",
    ),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_one_clear_line(saved: Path, name: str) -> None:
    damage, message = DAMAGE[name]
    damage(saved)
    with pytest.raises(RaceError) as caught:
        Surrogate.load(saved)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(CannotDo, match=r"surrogate\.json"):
        Surrogate.load(tmp_path)
    (tmp_path / JSON_NAME).write_text("{}")
    with pytest.raises(CannotDo, match=r"arrays\.npz"):
        Surrogate.load(tmp_path)


def test_a_pickle_inside_is_not_executed(saved: Path, tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self):  # type: ignore[no-untyped-def]
            return (Path.touch, (tmp_path / "boom",))

    rearray(lambda a: a.update(weights=np.array([Bomb()], dtype=object)))(saved)
    with pytest.raises(InvalidInput):
        Surrogate.load(saved)
    assert not (tmp_path / "boom").exists()
