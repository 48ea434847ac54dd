"""A surrogate fitted beforehand to a packed study, kept beside it: fitting hundreds of records takes seconds.

Only a cache: `Surrogate.fit` on the same records gives the same answers. It is used for nothing but the very content
it was fitted to (by checksum), and not at all once the simulator in it has changed.

    nano-study.jsonl.gz
    nano-study.surrogate/surrogate.json, arrays.npz     as `Surrogate.save` writes them
    nano-study.surrogate/fitted-to.json                 {"schema": "race.fitted-to/1", "sha256": ...}
"""

from __future__ import annotations

import json
from pathlib import Path

from race.errors import CannotDo, InvalidInput
from race.ladders import Ladder
from race.packed import Pack
from surrogate.model import Surrogate

FITTED_TO_SCHEMA = "race.fitted-to/1"
FITTED_TO = "fitted-to.json"
SEED = 0


def fit_pack(pack: Pack, ladder: Ladder, reward: str) -> Path:
    """Fit to all records of ``pack`` and keep the result beside it; returns the folder."""
    present = sorted({name for record in pack.records for name in record.curves})
    first = [name for name in present if name == "native"]
    targets = first or present[:1] or ["native"]
    fitted = Surrogate.fit(pack.records, ladder=ladder, recipe=ladder.recipe(reward), targets=targets, seed=SEED)
    folder = fitted.save(pack.fitted)
    said = json.dumps({"schema": FITTED_TO_SCHEMA, "sha256": pack.sha256}, indent=1) + "\n"
    try:
        (folder / FITTED_TO).write_text(said, encoding="utf-8")
    except OSError as error:
        raise CannotDo(f"surrogate: cannot write to {folder}: {error.strerror or error}") from None
    return folder


def fitted_to(pack: Pack, ladder: Ladder) -> tuple[Surrogate | None, str]:
    """The surrogate fitted to ``pack`` on ``ladder``, or ``None`` and why it does not serve (empty: there is none)."""
    said = pack.fitted / FITTED_TO
    if not said.is_file():
        return None, ""
    try:
        told = json.loads(said.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None, f"{said} cannot be read"
    if not isinstance(told, dict) or told != {"schema": FITTED_TO_SCHEMA, "sha256": pack.sha256}:
        return None, f"{pack.fitted} was fitted to other records"
    try:
        found = Surrogate.load(pack.fitted)
    except (InvalidInput, CannotDo) as error:
        return None, str(error)
    if found.ladder != ladder:
        return None, f"{pack.fitted} was fitted on another ladder"
    return found, ""
