import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from surrogate.link import LATENT_MAX, latent_sd, to_latent, to_value

UNIT = st.floats(0, 1)


@given(UNIT)
def test_round_trip(y: float) -> None:
    assert abs(float(to_value(to_latent(y))) - y) < 1e-12


@given(UNIT, UNIT)
def test_monotone_and_finite(a: float, b: float) -> None:
    low, high = to_latent(min(a, b)), to_latent(max(a, b))
    assert -LATENT_MAX - 1e-9 <= low <= high <= LATENT_MAX + 1e-9


@given(st.floats(-1e6, 1e6))
def test_values_stay_in_the_unit_interval(z: float) -> None:
    assert 0 <= to_value(z) <= 1


def test_close_to_a_logit_in_the_middle() -> None:
    y = np.linspace(0.2, 0.8, 13)
    assert np.abs(to_latent(y) - np.log(y / (1 - y))).max() < 0.06


@given(UNIT, st.floats(1e-4, 0.3))
def test_latent_sd_is_finite_and_grows_with_the_error(y: float, se: float) -> None:
    one, two = float(latent_sd(y, se)), float(latent_sd(y, 2 * se))
    assert 0 < one < two < 200


def test_latent_sd_matches_the_derivative_where_that_is_constant() -> None:
    step = 1e-5
    slope = (to_latent(0.5 + step) - to_latent(0.5 - step)) / (2 * step)
    assert np.isclose(latent_sd(0.5, 0.01), slope * 0.01, rtol=1e-2)


def test_an_exact_measurement_has_no_latent_error() -> None:
    assert np.all(latent_sd([0.0, 0.3, 1.0], 0.0) == 0)
