"""Data for real runs: files and hub data sets to problems with validated answers."""

from real_runs.data.build import text_task
from real_runs.data.chat import INSTRUCTION, Chat
from real_runs.data.hub import NAMED, load_rows
from real_runs.data.rows import Row, Rows, read_rows, rows_of
from real_runs.data.task import DataReport, TextTask, grade_completions

__all__ = [
    "INSTRUCTION",
    "NAMED",
    "Chat",
    "DataReport",
    "Row",
    "Rows",
    "TextTask",
    "grade_completions",
    "load_rows",
    "read_rows",
    "rows_of",
    "text_task",
]
