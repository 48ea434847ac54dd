from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from race.allocation import Allocation
from race.errors import InvalidInput
from race.hardware import (
    DEFAULT_GPU,
    PHASES,
    Gpu,
    Range,
    Utilisation,
    default_utilisation,
    find_gpu,
    gpu_names,
    hardware_cost,
)

RUN = Allocation(search=4 * 10**17, learning=6 * 10**17, reward=0)
flops = st.integers(0, 10**24)
shares = st.floats(1e-3, 1)
TABLE = json.loads(files("race.data").joinpath("hardware.json").read_text())


def test_the_formula_by_hand() -> None:
    """1 GPU of 100 TFLOP/s at 50 % does 1.8e17 FLOPs an hour."""
    gpu = Gpu("mine", peak_flops=1e14, watts=500, memory_gb=80, price=Range(1.0, 2.0, 4.0))
    cost = hardware_cost(
        Allocation(search=18 * 10**16, learning=36 * 10**16, reward=9 * 10**16),
        gpu,
        count=4,
        utilisation={"search": 0.1, "learning": 0.5, "reward": 0.25},
        draw=0.8,
        pue=1.25,
    )
    assert {p: h.point for p, h in cost.gpu_hours.items()} == pytest.approx(
        {"search": 5, "learning": 2, "reward": 1}
    )
    assert cost.total_gpu_hours.to_dict() == pytest.approx({"lo": 8, "point": 8, "hi": 8})
    assert cost.wall_hours.point == pytest.approx(2)
    assert cost.dollars is not None
    assert cost.dollars.to_dict() == pytest.approx({"lo": 8, "point": 16, "hi": 32})
    assert cost.kwh.point == pytest.approx(8 * 0.5 * 0.8 * 1.25)


def test_three_utilisations_not_one() -> None:
    """At equal FLOPs, search takes longer than learning: decoding is memory bound."""
    even = hardware_cost(Allocation(10**18, 10**18, 10**18))
    assert even.gpu_hours["search"].point > 3 * even.gpu_hours["learning"].point
    assert even.gpu_hours["reward"].point <= even.gpu_hours["search"].point
    assert (
        even.kwh.point / even.total_gpu_hours.point < 0.7 * 1.2
    )  # decoding draws less than the board's limit


@settings(deadline=None)
@given(flops, flops, flops, st.sampled_from(gpu_names()), st.integers(1, 512), shares, shares, shares)
def test_ranges_hold_the_point_and_everything_scales(
    s: int, u: int, r: int, gpu: str, count: int, a: float, b: float, c: float
) -> None:
    run = Allocation(s, u, r)
    cost = hardware_cost(run, gpu, count=count)
    for value in (cost.total_gpu_hours, cost.wall_hours, cost.kwh, *cost.gpu_hours.values()):
        assert 0 <= value.lo <= value.point <= value.hi
    assert (cost.dollars is None) == (find_gpu(gpu).price is None)
    assert hardware_cost(run * 3, gpu, count=count).kwh.hi == pytest.approx(3 * cost.kwh.hi)
    assert hardware_cost(run, gpu, count=2 * count).wall_hours.point == pytest.approx(
        cost.wall_hours.point / 2
    )
    assert hardware_cost(run, gpu, count=2 * count).total_gpu_hours == cost.total_gpu_hours
    sure = hardware_cost(run, gpu, utilisation=Utilisation(a, b, c))
    assert sure.total_gpu_hours.lo == sure.total_gpu_hours.hi
    # No GPU runs above its peak, so no run is faster than its FLOPs at the peak rate.
    assert sure.total_gpu_hours.point * 3600 * find_gpu(gpu).peak_flops >= run.total * (1 - 1e-9)
    json.dumps(cost.to_dict(), allow_nan=False)


def test_the_keys_that_stay() -> None:
    data = hardware_cost(RUN).to_dict()
    assert list(data) == [
        "gpu", "count", "gpu_hours", "gpu_hours_by_phase", "wall_hours", "dollars", "kwh", "assumptions",
    ]  # fmt: skip
    assert data["gpu"] == DEFAULT_GPU
    assert set(data["assumptions"]) == {
        "peak_flops",
        "utilisation",
        "price",
        "watts",
        "draw",
        "pue",
        "sources",
    }
    assert data["gpu_hours_by_phase"]["reward"] == {"lo": 0, "point": 0, "hi": 0}


def test_everything_can_be_overridden_and_says_so() -> None:
    cost = hardware_cost(
        RUN, "A100", price=1.0, watts=100, peak_flops=1e15, utilisation={"search": 1.0}, pue=1
    )
    assert cost.gpu.name == "A100-SXM-80GB"
    assert (cost.gpu.watts, cost.gpu.peak_flops, cost.gpu.price) == (100, 1e15, Range.exactly(1.0))
    assert cost.utilisation.of("search") == Range.exactly(1.0)
    assert cost.utilisation.of("learning") == default_utilisation().of("learning")
    assert cost.pue == Range.exactly(1.0)
    assert cost.to_dict()["assumptions"]["sources"][-1] == "given by the user: price, watts, peak_flops"
    assert hardware_cost(RUN, "H20").dollars is None
    assert hardware_cost(RUN, "H20", price=(0.5, 1.0, 2.0)).dollars is not None
    assert hardware_cost(RUN, "H100", price=0).dollars == Range.exactly(0.0)  # one's own machine


# --- the table ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("entry", TABLE["gpus"], ids=lambda e: e["name"])
def test_every_gpu_has_a_plausible_dense_peak_and_dated_sources(entry: dict[str, Any]) -> None:
    gpu = find_gpu(entry["name"])
    assert 5e13 <= gpu.peak_flops <= 3e15
    assert 50 <= gpu.watts <= 1500
    assert (
        0.1e12 <= gpu.peak_flops / gpu.watts <= 3e12
    )  # FLOP/s per watt of this decade's chips, sparse ones above
    assert any(source.startswith("peak: ") for source in gpu.sources)
    if gpu.price is not None:
        assert 0.1 <= gpu.price.lo <= gpu.price.hi <= 15
        assert entry["price"]["sources"]
        assert entry["price"]["date"]
    for alias in gpu.aliases:
        assert find_gpu(alias) == gpu


def test_aliases_are_not_shared() -> None:
    names = [n.lower() for e in TABLE["gpus"] for n in (e["name"], *e["aliases"])]
    assert len(names) == len(set(names))


def test_peaks_are_dense() -> None:
    """The figures on the front of the data sheets, with 2:4 sparsity, are twice these."""
    for name, sparse in {
        "H100-SXM": 1978.9e12,
        "A100": 624e12,
        "B200": 4500e12,
        "H100-PCIe": 1513e12,
    }.items():
        assert find_gpu(name).peak_flops == pytest.approx(sparse / 2, rel=1e-3)


@pytest.mark.parametrize("phase", PHASES)
def test_default_utilisations_are_documented_ranges(phase: str) -> None:
    entry = TABLE["utilisation"][phase]
    value = default_utilisation().of(phase)
    assert 0 < value.lo < value.point < value.hi <= 0.6
    assert entry["sources"]
    assert entry["why"]


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("h100", "H100-SXM"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM"),
        ("NVIDIA H100 PCIe", "H100-PCIe"),
        ("NVIDIA H100 NVL", "H100-NVL"),
        ("NVIDIA A100-SXM4-80GB", "A100-SXM-80GB"),
        ("NVIDIA A100-SXM4-40GB", "A100-SXM-40GB"),
        ("NVIDIA A100 80GB PCIe", "A100-PCIe-80GB"),
        ("NVIDIA H200", "H200-SXM"),
        ("nvidia_b200", "B200"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA GeForce RTX 4090", "RTX-4090"),
        ("NVIDIA RTX A6000", "RTX-A6000"),
        ("AMD Instinct MI300X", "MI300X"),
    ],
)
def test_names_as_drivers_print_them(spelling: str, name: str) -> None:
    assert find_gpu(spelling).name == name


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("H1000", "H100-SXM"),
        ("A100-SXM", None),
        ("mi300", "MI300X"),
        ("RTX4900", "RTX-4090"),
        ("L40", "L40S"),
    ],
)
def test_an_unknown_gpu_is_an_error_with_the_nearest_names(name: str, nearest: str | None) -> None:
    if nearest is None:
        assert find_gpu(name).name == "A100-SXM-80GB"
        return
    with pytest.raises(
        InvalidInput, match=rf"^gpu: found '{name}'; nearest are .*{nearest}.*; allowed are H100-SXM,"
    ) as e:
        find_gpu(name)
    assert "\n" not in str(e.value)


@pytest.mark.parametrize("name", ["", "   ", "toaster", None, 5, "V100"])
def test_nonsense_lists_the_table(name: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^gpu: found .*allowed are .*MI300X"):
        hardware_cost(RUN, name)


# --- bad input ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad",
    [
        0,
        -0.1,
        1.01,
        35,
        float("nan"),
        float("inf"),
        True,
        "0.3",
        None,
        (0.1, 0.2),
        (0.3, 0.2, 0.4),
        (0, 0.1, 0.2),
    ],
)
@pytest.mark.parametrize("phase", PHASES)
def test_utilisation_is_a_share_in_zero_one(phase: str, bad: Any) -> None:
    with pytest.raises(
        InvalidInput, match=rf"^utilisation\.{phase}: found .*allowed is (a share in \(0, 1\]|one number)"
    ):
        hardware_cost(RUN, utilisation={phase: bad})


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("count", [0, -1, 1.5, True, None, "8", 10**7]),
        ("price", [-1, float("nan"), float("inf"), "2.5", True]),
        ("watts", [0, -1, float("nan"), "700"]),
        ("peak_flops", [0, -1, float("nan"), float("inf"), "989e12", 1e21]),
        ("pue", [0.9, 0, -1, float("nan"), 11, "1.2"]),
        ("draw", [0, 1.1, -1, float("nan"), "1"]),
    ],
)
def test_every_override_is_checked_by_name(field: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(InvalidInput, match=rf"^{field}: found .*allowed is "):
            hardware_cost(RUN, **{field: value})


def test_unknown_phases_and_impossible_flops_are_named() -> None:
    with pytest.raises(
        InvalidInput, match=r"^utilisation: unknown phase 'decode'; allowed are search, learning, reward"
    ):
        hardware_cost(RUN, utilisation={"decode": 0.1})
    for bad in (-1, float("nan"), float("inf")):
        with pytest.raises(InvalidInput, match=r"^flops\.search: found"):
            hardware_cost(Allocation(bad, 0, 0))
