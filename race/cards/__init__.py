"""Allocation-aware compute reports of other people's runs.

``card_of(log, model)`` prices a `RunLog` (see `race.importers.read_runs`) row by row and says what it had to assume.
"""

from race.cards.assumption import Assumption
from race.cards.card import Card, card_of
from race.cards.runlog import FIELDS, Known, RunLog

__all__ = ["FIELDS", "Assumption", "Card", "Known", "RunLog", "card_of"]
