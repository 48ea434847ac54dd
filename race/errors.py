"""Errors that users meet.

Two kinds only, because the command line has two failing exit codes. Both carry one line of text: which
field, what was found, what is allowed, what to do. Anything else that escapes is a bug in RACE.
"""

from __future__ import annotations


class RaceError(Exception):
    """Base of every error RACE raises on purpose. ``exit_code`` is what the command line returns."""

    exit_code = 1


class InvalidInput(RaceError, ValueError):
    """The question itself is wrong: an unknown name, a value out of range, a malformed file (exit 2)."""

    exit_code = 2


class CannotDo(RaceError):
    """The question is fine, but it cannot be answered here: an empty store, a missing extra (exit 1)."""

    exit_code = 1
