from __future__ import annotations

import pytest

from race.records import PilotRecord
from real_runs.study import Study
from real_runs.study.results.evidence import StudyRecords
from tests.real_runs.study.results.made import made_records, made_study


@pytest.fixture(scope="session")
def study() -> Study:
    return made_study()


@pytest.fixture(scope="session")
def records(study: Study) -> list[PilotRecord]:
    return made_records(study)


@pytest.fixture(scope="session")
def evidence(study: Study, records: list[PilotRecord]) -> StudyRecords:
    return StudyRecords.sort(study, records)
