"""A fit kept beside a packed study: the same answers as fitting, for those records and no others."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from race.ladders import ladder
from race.packed import Pack, pack, packaged_study, read_pack
from race.simulator import Settings
from surrogate import Surrogate
from surrogate.prefitted import FITTED_TO, SEED, fit_pack, fitted_to

RUNGS = ladder("nano")


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Pack:
    file = tmp_path_factory.mktemp("pack") / "few.jsonl.gz"
    chosen = [r for r in packaged_study("nano-study").records if r.health.status == "ok"][:6]
    file.write_bytes(pack(chosen, name="few"))
    found = read_pack(file)
    assert fitted_to(found, RUNGS) == (None, "")
    fit_pack(found, RUNGS, "sparse")
    return found


def asked() -> Settings:
    return Settings.build([(model, RUNGS.recipe("prm"), 4 * 10**11) for model in RUNGS.models])


def same(one: Surrogate, other: Surrogate, atol: float) -> None:
    for target in ("native", "pass@1"):
        a, b = one.predict(asked(), target), other.predict(asked(), target)
        np.testing.assert_allclose(a.mean, b.mean, atol=atol)
        np.testing.assert_allclose(a.sd, b.sd, atol=atol)


def test_it_answers_as_a_fit_does(few: Pack) -> None:
    kept, why = fitted_to(few, RUNGS)
    assert kept is not None, why
    same(kept, Surrogate.fit(few.records, ladder=RUNGS, recipe=RUNGS.recipe("sparse"), seed=SEED), 1e-9)


def test_it_serves_no_other_records_ladder_or_state(few: Pack, tmp_path: Path) -> None:
    assert "other records" in fitted_to(replace(few, sha256="0" * 64), RUNGS)[1]
    assert "another ladder" in fitted_to(few, ladder("nano-s,nano-m"))[1]
    shutil.copytree(few.path.parent, tmp_path / "copy")
    damaged = replace(few, path=tmp_path / "copy" / few.path.name)
    arrays = damaged.fitted / "arrays.npz"
    arrays.write_bytes(arrays.read_bytes()[:-1])
    assert fitted_to(damaged, RUNGS)[0] is None
    for content in ("[", "[]", json.dumps({"schema": "x", "sha256": few.sha256})):
        (damaged.fitted / FITTED_TO).write_text(content)
        found, why = fitted_to(damaged, RUNGS)
        assert found is None
        assert why


@pytest.mark.slow
def test_the_shipped_fit_is_that_of_this_version() -> None:
    """If this fails, the surrogate changed: call `fit_pack` on the packaged study again."""
    shipped = packaged_study("nano-study")
    kept, why = fitted_to(shipped, RUNGS)
    assert kept is not None, why
    fresh = Surrogate.fit(shipped.records, ladder=RUNGS, recipe=RUNGS.recipe("sparse"), seed=SEED)
    assert kept.evidence == fresh.evidence
    same(kept, fresh, 0.01)
