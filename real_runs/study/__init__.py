"""Studies: many settings, designed before the first run, carried out by an executor and kept as records.

A study is one TOML file (`file`), unfolded into runs with names (`design`), whose learning rates may be tuned on seeds
of their own (`tuning`), priced run by run before anything is spent (`cost`), and carried out resumably (`conduct`).
"""

from real_runs.study.conduct import Conduct, conduct
from real_runs.study.cost import StudyCost, forecast
from real_runs.study.design import StudyRun, study_runs, tuning_runs
from real_runs.study.file import Stage, Study, Tuning, read_study
from real_runs.study.tuning import Rates, tuned_rates

__all__ = [
    "Conduct",
    "Rates",
    "Stage",
    "Study",
    "StudyCost",
    "StudyRun",
    "Tuning",
    "conduct",
    "forecast",
    "read_study",
    "study_runs",
    "tuned_rates",
    "tuning_runs",
]
