from __future__ import annotations

import pytest

from race.ladders import Ladder, ladder
from race.simulator import Worlds


@pytest.fixture(scope="session")
def sizes() -> Ladder:
    return ladder()


@pytest.fixture(scope="session")
def central() -> Worlds:
    return Worlds.central()


@pytest.fixture(scope="session")
def ensemble() -> Worlds:
    return Worlds.prior(160, seed=11)
