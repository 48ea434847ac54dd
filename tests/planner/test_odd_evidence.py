"""Evidence as it comes: a sensible wide answer or one clear message, never NaN, never a traceback."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from planner import Planner
from race.ladders import Ladder
from race.records import Curve, Health, PilotRecord
from surrogate.model import STRAIN_NOTE
from tests.planner.conftest import World


def flat(record: PilotRecord, value: float) -> PilotRecord:
    curve = record.curves["native"]
    count = len(curve)
    return replace(
        record, curves={"native": Curve(curve.step, curve.flops, (value,) * count, (0.0,) * count)}
    )


def pilots(rungs: Ladder, world: World, count: int, **question: object) -> list[PilotRecord]:
    planner = Planner(rungs, **{"budget": "1e19", "reward": "sparse", **question})  # type: ignore[arg-type]
    space = planner.space
    able = planner.proposer._cells
    return [world(space.spec(able[(7 * i) % len(able)], seed=i)) for i in range(count)]


def answer(rungs: Ladder, records: list[PilotRecord]) -> dict[str, object]:
    planner = Planner(rungs, budget="1e19", reward="sparse", records=records)
    decision = planner.decide(pilots=2)
    data = decision.to_dict()
    json.dumps(data, allow_nan=False)
    assert sum(decision.view.regimes.values()) == pytest.approx(1)
    return data


def test_one_record_only(rungs: Ladder, bump: World) -> None:
    data = answer(rungs, pilots(rungs, bump, 1))
    assert data["evidence"] == {"real": 1, "imported": 0, "simulated": 0}


def test_duplicates_count_once(rungs: Ladder, bump: World) -> None:
    records = pilots(rungs, bump, 3)
    once, thrice = answer(rungs, records), answer(rungs, records * 3)
    assert once["regime"] == thrice["regime"]
    assert thrice["evidence"] == {"real": 3, "imported": 0, "simulated": 0}


@pytest.mark.parametrize("value", [0.0, 0.5, 1.0])
def test_all_records_equal_even_at_the_ends(rungs: Ladder, bump: World, value: float) -> None:
    data = answer(rungs, [flat(r, value) for r in pilots(rungs, bump, 6)])
    stated = data["recommendation"]["value"]  # type: ignore[index]
    assert 0 <= stated["lo"] <= stated["mean"] <= stated["hi"] <= 1


def test_contradictory_records_leave_it_open(rungs: Ladder, bump: World) -> None:
    records = pilots(rungs, bump, 4)
    disagreeing = [replace(flat(r, v), id=f"{r.id}-{i}") for r in records for i, v in enumerate((0.05, 0.95))]
    stated = answer(rungs, disagreeing)["recommendation"]["value"]  # type: ignore[index]
    assert stated["hi"] - stated["lo"] > 0.1


def test_a_hundred_collapsed_runs(rungs: Ladder, bump: World) -> None:
    gone = [
        replace(r, health=Health("collapsed", "KL jumped"), id=f"gone-{i}")
        for i, r in enumerate(pilots(rungs, bump, 100))
    ]
    data = answer(rungs, gone)
    assert data["prior_only"] is True
    assert any("collapsed" in note for note in data["notes"])  # type: ignore[attr-defined]


def test_records_of_another_model_and_reward(rungs: Ladder, bump: World) -> None:
    record = pilots(rungs, bump, 1)[0]
    foreign = replace(record, spec=replace(record.spec, model="Elsewhere-400B", params=4 * 10**11), id="foreign")
    other = pilots(rungs, bump, 2, reward="dense")
    data = answer(rungs, [foreign, *other])
    assert any("Elsewhere-400B" in note for note in data["notes"])  # type: ignore[attr-defined]


def test_budgets_ten_orders_apart(rungs: Ladder, bump: World) -> None:
    record = pilots(rungs, bump, 1)[0]
    records = [
        replace(
            record,
            spec=replace(record.spec, budget=10**exponent),
            curves={"native": Curve((1, 2), (10.0**exponent / 2, 10.0**exponent), (0.3, 0.4), (0.02, 0.02))},
            id=f"at-{exponent}",
        )
        for exponent in (14, 19, 24)
    ]
    answer(rungs, records)


def test_records_of_random_values_are_called_contradictory(rungs: Ladder, bump: World) -> None:
    records = pilots(rungs, bump, 12)
    assert STRAIN_NOTE not in answer(rungs, records)["notes"]  # type: ignore[operator]
    luck = np.random.default_rng(0)
    noise = [flat(r, float(v)) for r, v in zip(records, luck.integers(0, 2, len(records)), strict=True)]
    assert STRAIN_NOTE in answer(rungs, noise)["notes"]  # type: ignore[operator]
