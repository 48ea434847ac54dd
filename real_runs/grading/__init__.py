"""Answer grading: three verdicts, killable processes, golds proved gradable before a run."""

from real_runs.grading.golds import GoldReport, validate_golds
from real_runs.grading.pool import Grader
from real_runs.grading.verdict import Outcome, Verdict, count_verdicts

__all__ = ["GoldReport", "Grader", "Outcome", "Verdict", "count_verdicts", "validate_golds"]
