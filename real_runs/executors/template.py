"""Command lines with places to fill in: ``python train.py {spec} --out {folder}``."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

from race.errors import InvalidInput
from real_runs.executors._base import Job
from real_runs.executors.folder import JobFolder

PLACES = {
    "spec": "file with the spec as JSON (without this place it also comes on stdin)",
    "record": "where to write the record as JSON (without it, the last JSON object on stdout is the record)",
    "progress": "file to append progress lines to",
    "folder": "folder of this pilot; the same when it is tried again",
    "id": "name of this pilot",
    "model": "spec.model",
    "reward": "spec.recipe.reward",
    "budget": "spec.budget, in FLOPs",
    "seed": "spec.seed",
    "slot": "number of the slot, from 0",
}
# Braces around anything else are the command's own: {1..8} of a shell, {a: 1} of Hydra.
_PLACE = re.compile(r"\{([A-Za-z_]+)\}")


def parse_command(command: str | Sequence[str]) -> tuple[str, ...]:
    """A command as separate words; text is split as a shell would, without running one.

    Raises
    ------
    InvalidInput
        It is empty, has an unclosed quote, or names a place that does not exist.
    """
    if isinstance(command, str):
        try:
            words = tuple(shlex.split(command))
        except ValueError as error:
            raise InvalidInput(f"command: {error} in {command!r}; close the quote") from None
    else:
        words = tuple(command)
    if not words or not all(isinstance(word, str) for word in words) or not words[0].strip():
        raise InvalidInput(
            f"command: found {command!r}; allowed is a command line such as 'python train.py {{spec}}'"
        )
    for word in words:
        for name in _PLACE.findall(word):
            if name not in PLACES:
                raise InvalidInput(
                    f"command: found {{{name}}} in {word!r}; allowed are "
                    + ", ".join(f"{{{place}}}" for place in PLACES)
                )
    return words


def filled(command: Sequence[str], job: Job, slot: int) -> list[str]:
    """The command for one job."""
    values = places(job, slot)
    return [_PLACE.sub(lambda match: values[match[1]], word) for word in command]


def places(job: Job, slot: int) -> Mapping[str, str]:
    """What goes where."""
    folder = JobFolder.of(job)
    return {
        "spec": str(folder.spec), "record": str(folder.result), "progress": str(folder.progress),
        "folder": str(folder.path), "id": job.id, "model": job.spec.model, "reward": job.spec.reward,
        "budget": str(job.spec.budget), "seed": str(job.spec.seed), "slot": str(slot),
    }  # fmt: skip


def reads_stdin(command: Sequence[str]) -> bool:
    """Whether the spec is to come on stdin."""
    return not any("{spec}" in word for word in command)
