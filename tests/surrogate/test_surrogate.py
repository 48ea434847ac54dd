from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from surrogate_pilots import RUNGS, pilots, record, spec

from race.errors import InvalidInput
from race.records import Health, PilotRecord
from race.simulator import Settings, Worlds
from surrogate import Surrogate
from surrogate.ensemble import LOCAL_EVERY
from surrogate.link import to_value
from surrogate.model import PRIOR_NOTE

RECIPE = RUNGS.recipe("sparse")
GRID = Settings.grid(RUNGS, RECIPE, rhos=[0.3, 0.6, 0.85], budgets=[1e17, 1e19])


def fit(records: list[PilotRecord], **changes: object) -> Surrogate:
    return Surrogate.fit(records, ladder=RUNGS, recipe=RECIPE, **changes)  # type: ignore[arg-type]


def healthy(surrogate: Surrogate, grid: Settings = GRID, target: str = "native") -> None:
    """Whatever was fitted: every answer finite, in order, in [0, 1]."""
    found = surrogate.predict(grid, target)
    draws = surrogate.sample(grid, target, draws=64, seed=1)
    for array in (found.mean, found.lo, found.hi, found.sd, draws):
        assert np.isfinite(array).all()
        assert array.min() >= 0
        assert array.max() <= 1
    assert np.all(found.lo <= found.mean)
    assert np.all(found.mean <= found.hi)


@pytest.fixture(scope="module")
def prior() -> Surrogate:
    return fit([])


def test_without_records_the_answer_is_the_prior_and_says_so(prior: Surrogate) -> None:
    healthy(prior)
    assert prior.notes == (PRIOR_NOTE,)
    assert prior.evidence == {"real": 0, "imported": 0, "simulated": 0}
    found = prior.predict(GRID, "native")
    from race.simulator import simulate

    simulated = simulate(prior.ensemble.worlds, GRID, targets=("native",))["native"]
    believed = to_value(prior.ensemble.at(GRID, "native"))
    dynamic = np.arange(len(believed)) % LOCAL_EVERY != LOCAL_EVERY - 1
    assert np.allclose(believed[dynamic], simulated[dynamic])
    assert dynamic.mean() == 1 - 1 / LOCAL_EVERY
    assert np.allclose(found.mean, believed.mean(0), atol=0.03)
    assert np.all(found.hi - found.lo > 0.1)


def test_same_records_and_seed_same_answer() -> None:
    records = pilots(3, Worlds.prior(1, seed=4))
    one, two = (fit(records, seed=7).sample(GRID, "native", draws=20, seed=3) for _ in range(2))
    assert np.array_equal(one, two)


def test_pilots_narrow_the_intervals_and_find_the_truth(prior: Surrogate) -> None:
    from race.simulator import simulate

    world = Worlds.prior(1, seed=21)
    found = fit(pilots(12, world, budget=5e18))
    truth = simulate(world, GRID, targets=("native",))["native"][0]
    before, after = prior.predict(GRID, "native"), found.predict(GRID, "native")
    assert after.sd.mean() < 0.6 * before.sd.mean()
    assert np.abs(after.mean - truth).mean() < np.abs(before.mean - truth).mean()
    assert np.abs(after.mean - truth).max() < 0.2
    assert found.evidence["simulated"] + sum(found.unhealthy.values()) == 12


def test_records_that_contradict_the_simulator_win() -> None:
    """Real runs that get worse with budget and best at low rho: nothing the simulator would ever say."""
    records = [
        record(
            spec(model=m, rho=rho, budget=b, seed=s),
            lambda t, rho=rho, b=b: 0.8 - (0.3 + 0.4 * (rho - 0.2)) * np.sqrt(t * b / 1e18),
        )
        for m in range(3)
        for rho in (0.2, 0.5, 0.8)
        for s, b in enumerate((3e17, 1e18))
    ]
    found = fit(records)
    grid = Settings.grid(RUNGS, RECIPE, rhos=[0.2, 0.5, 0.8], budgets=[1e18])
    answer = found.predict(grid, "native")
    truth = np.tile([0.5, 0.38, 0.26], 3)
    assert np.abs(answer.mean - truth).max() < 0.06
    prior = fit([]).predict(grid, "native")
    assert np.abs(prior.mean - truth).max() > 0.15
    draws = found.sample(grid, "native", draws=400, seed=0).reshape(400, 3, 3)
    assert np.mean(draws.argmax(axis=2) == 0) > 0.9


def test_one_outlier_among_many_is_doubted_not_believed() -> None:
    good = [record(spec(rho=0.5, seed=s), lambda t, s=s: 0.3 + 0.3 * t + 0.001 * s) for s in range(8)]
    bad = record(spec(rho=0.5, seed=99), lambda t: 0.3 - 0.25 * t)
    clean, spoiled = fit(good), fit([*good, bad])
    at = Settings.build([(RUNGS.models[0], good[0].spec.recipe, good[0].spec.budget)])
    assert abs(clean.predict(at, "native").mean[0] - spoiled.predict(at, "native").mean[0]) < 0.03
    assert any(bad.id in note and "noise" in note for note in spoiled.notes)
    assert not any("noise" in note for note in clean.notes)


BAD_INPUT = {
    "one record": [record(spec(), 0.4)],
    "one point": [record(spec(), 0.4, points=1)],
    "all equal": [record(spec(model=i % 3, rho=0.2 + 0.1 * (i % 6), seed=i), 0.5, se=0.0) for i in range(20)],
    "duplicates": [replace(record(spec(), 0.4), id=f"r{i}") for i in range(20)],
    "same setting, opposite results": [record(spec(seed=i), float(i % 2), se=0.0) for i in range(10)],
    "zeros": [record(spec(seed=i, rho=0.3 + 0.05 * i), 0.0, se=0.0) for i in range(6)],
    "ones": [record(spec(seed=i, rho=0.3 + 0.05 * i), 1.0, se=0.0) for i in range(6)],
    "zero to one": [record(spec(seed=i), lambda t: (t > 0.5) * 1.0, se=0.0) for i in range(3)],
    "a hundred collapsed": [
        record(spec(seed=i), 0.1, health=Health("collapsed", "reward fell")) for i in range(100)
    ],
    "ten orders apart": [record(spec(budget=b, seed=i), 0.3) for i, b in enumerate((1e15, 1e18, 1e25))],
    "a reward outside the question": [record(spec("prm", seed=i), 0.3) for i in range(3)],
    "only the base model": [record(spec(seed=i, budget=1e18), 0.3, points=1) for i in range(5)],
}


@pytest.mark.parametrize("name", BAD_INPUT)
def test_awkward_records_give_sensible_wide_answers(name: str) -> None:
    found = fit(BAD_INPUT[name])
    healthy(found)
    if name not in ("zeros", "ones"):  # a hundred-fold budget is not expected to move those much
        far = found.predict(Settings.grid(RUNGS, RECIPE, rhos=[0.5], budgets=[1e21]), "native")
        assert np.all(far.hi - far.lo > 0.02)


def test_a_hundred_collapsed_runs_leave_the_prior_and_are_counted() -> None:
    found = fit(BAD_INPUT["a hundred collapsed"])
    assert found.unhealthy == {"collapsed": 100}
    assert PRIOR_NOTE in found.notes
    assert any("100 of 100 run(s) collapsed" in note for note in found.notes)


def test_contradictory_records_stay_wide() -> None:
    found = fit(BAD_INPUT["same setting, opposite results"])
    made = BAD_INPUT["same setting, opposite results"][0].spec
    at = Settings.build([(RUNGS.models[0], made.recipe, made.budget)])
    answer = found.predict(at, "native")
    assert answer.hi[0] - answer.lo[0] > 0.2


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2),
            st.floats(0.05, 0.95),
            st.floats(15, 24),
            st.lists(st.sampled_from([0.0, 1.0]) | st.floats(0, 1), min_size=1, max_size=6),
            st.sampled_from([0.0, 1e-12, 0.02, 0.5]),
            st.sampled_from(["sparse", "dense", "prm"]),
        ),
        min_size=1,
        max_size=6,
    )
)
@settings(max_examples=40)
def test_never_nan_whatever_the_records(rows: list[tuple[int, float, float, list[float], float, str]]) -> None:
    records = [
        record(
            spec(reward, model=m, rho=rho, budget=10**exponent, seed=i), values, points=len(values), se=se
        )
        for i, (m, rho, exponent, values, se, reward) in enumerate(rows)
    ]
    healthy(fit(records))


def test_an_unseen_target_leans_on_the_seen_one() -> None:
    world = Worlds.prior(1, seed=30)
    found = fit(pilots(9, world, targets=("native",), budget=5e18), targets=("judge",))
    assert found.targets == ("judge", "native")
    assert any("judge: no record has it" in note for note in found.notes)
    before, after = fit([], targets=("judge",)).predict(GRID, "judge"), found.predict(GRID, "judge")
    healthy(found, target="judge")
    assert after.sd.mean() < before.sd.mean()


def test_a_benchmark_the_simulator_does_not_know_is_said() -> None:
    for records in ([], BAD_INPUT["one record"]):
        notes = fit(records, targets=("pass@1:aime",)).notes
        assert any("no benchmark 'aime'" in note for note in notes)
        assert not any("no benchmark" in note for note in fit(records, targets=("pass@1:GSM8K",)).notes)


def test_an_unseen_reward_is_said() -> None:
    found = fit(BAD_INPUT["a reward outside the question"])
    assert any("reward sparse: no record has it" in note and "prm" in note for note in found.notes)


def test_a_ladder_far_from_the_simulators_is_learned_from_data() -> None:
    """Nano models: the simulator says next to nothing is solved, real runs go from .16 to .9 within minutes."""
    from race.ladders import ladder

    nano = ladder("nano")
    recipe = nano.recipe("sparse")
    records = [
        record(
            spec(rungs=nano, model=m, rho=rho, budget=6e10 * 3**m, seed=i),
            lambda t, rho=rho: 0.16 + 0.7 * (1 - np.exp(-3 * t)) * (1 - 2 * (rho - 0.6) ** 2),
        )
        for m in range(3)
        for i, rho in enumerate((0.35, 0.55, 0.75))
    ]
    found = Surrogate.fit(records, ladder=nano, recipe=recipe)
    settings = Settings.build([(nano[r.spec.model], r.spec.recipe, r.spec.budget) for r in records])
    ends = np.array([r.curves["native"].value[-1] for r in records])
    answer = found.predict(settings, "native")
    assert np.abs(answer.mean - ends).max() < 0.05
    healthy(found, settings)


def test_pass_at_1_of_two_benchmarks_is_ambiguous() -> None:
    records = [record(spec(seed=i), 0.4, target=f"pass@1:{b}") for i, b in enumerate(("gsm8k", "math500"))]
    with pytest.raises(InvalidInput, match="pass@1:gsm8k, pass@1:math500"):
        fit(records, targets=("pass@1",))
    found = fit(records, targets=("native",))
    with pytest.raises(InvalidInput, match="pass@1:gsm8k, pass@1:math500"):
        found.predict(GRID, "pass@1")
    healthy(found, target="pass@1:gsm8k")
    one = fit(records[:1], targets=("pass@1",))
    assert one.targets == ("pass@1:gsm8k",)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: s.predict(GRID, "reward"), "target"),
        (lambda s: s.predict(GRID, "native", level=1.0), "level"),
        (lambda s: s.sample(GRID, "native", draws=0), "draws"),
        (lambda s: s.diagnostics(leave_out="seed"), "leave_out"),
        (lambda s: s.diagnostics(level=0.0), "level"),
    ],
)
def test_bad_questions_name_the_field(prior: Surrogate, call, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InvalidInput, match=message):
        call(prior)


def test_no_target_is_an_error() -> None:
    with pytest.raises(InvalidInput, match="targets"):
        fit([], targets=())


def test_nothing_asked_nothing_answered(prior: Surrogate) -> None:
    assert prior.predict(GRID[np.array([], dtype=int)], "native").mean.shape == (0,)


def test_the_other_recipe_informs_less() -> None:
    """Pilots at ten times the learning rate say less about this recipe than pilots of this recipe."""
    same = [record(spec(rho=0.5, seed=s), lambda t: 0.3 + 0.5 * t) for s in range(4)]
    other = [record(spec(rho=0.5, seed=s, learning_rate=10.0), lambda t: 0.3 + 0.5 * t) for s in range(4)]
    at = Settings.build([(RUNGS.models[0], same[0].spec.recipe, same[0].spec.budget)])
    assert fit(same).predict(at, "native").sd[0] < fit(other).predict(at, "native").sd[0]


def test_diagnostics_count_cover_and_err() -> None:
    found = fit(pilots(9, Worlds.prior(1, seed=5)))
    by_run, by_model = found.diagnostics(), found.diagnostics(leave_out="model")
    assert len(by_run.checks) == len(found.runs)
    assert {c.model for c in by_model.checks} == {m.name for m in RUNGS.models}
    for report in (by_run, by_model):
        assert 0.5 <= report.coverage <= 1  # type: ignore[operator]
        assert 0 < report.rmse < 0.2  # type: ignore[operator]
    assert by_run.to_dict()["count"] == len(found.runs)
    assert fit([]).diagnostics().coverage is None


def test_prior_path_imports_neither_scipy_nor_scikit_learn_nor_torch() -> None:
    import subprocess
    import sys

    code = (
        "import sys\n"
        "from race.ladders import ladder\n"
        "from surrogate import Surrogate\n"
        "from surrogate.optimum import optimum\n"
        "rungs = ladder()\n"
        "optimum(Surrogate.fit([], ladder=rungs, recipe=rungs.recipe('prm')), budget=1e18)\n"
        "heavy = {'scipy', 'sklearn', 'torch', 'transformers', 'optuna', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
