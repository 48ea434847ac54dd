# ruff: noqa: E501  (table rows of the page cannot be wrapped)
"""Write ``docs/log-formats.md`` from the key tables in ``race/importers/keys``.

    python docs/log_formats.py            rewrite the page
    python docs/log_formats.py --check    exit 1 if the page is not what the tables say

Every key that an importer reads is in a table, and every entry of a table is on the page, so the page cannot fall
behind the code.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from race.cards import FIELDS
from race.importers import key_tables
from race.importers._keys import Field, Key, KeyTable
from race.importers._open import MAX_LINE, MAX_WHOLE

PAGE = Path(__file__).with_name("log-formats.md")

INTRO = f"""# Log formats

What `race card` and `race import` read, trainer by trainer. This page is written by `python docs/log_formats.py` from the
key tables that the importers use (`race/importers/keys/*.json`); a test compares the two.

A log is recognised by content: first the container, then the trainer whose keys are most numerous in it. `--format` names
the trainer where the keys leave a doubt. A folder may be given instead of a file: a checkpoint, an output folder with
checkpoints (the newest holds the history of all), a folder of TensorBoard events, or one with `metrics.jsonl`.

| container | what it is | limits |
| --- | --- | --- |
| `trainer_state.json` | transformers' state, `log_history` inside | {MAX_WHOLE >> 20} MiB; a damaged one names the place, `--salvage` reads the complete entries before it |
| JSON lines | one flat object a line, or verl's `{{"step": n, "data": {{...}}}}` | streamed, lines up to {MAX_LINE >> 20} MiB; a last line cut off by a crash is left out and noted |
| JSON list of rows | a Weights & Biases history export | {MAX_WHOLE >> 20} MiB |
| JSON of tags by step | `{{tag: {{step: value}}}}`, as NeMo-RL's converter writes | {MAX_WHOLE >> 20} MiB |
| CSV export | a Weights & Biases history (`_step` and a column per key) or chart (`Step`, `run - key`, bounds left out) | {MAX_WHOLE >> 20} MiB |
| console lines | verl's `step:3 - key:value`, OpenRLHF's `Global step 3: {{...}}`, TRL's `{{'loss': ...}}`, among other output | streamed |
| TensorBoard events | one file or a folder; needs `pip install 'race-rl[logs]'` | {MAX_WHOLE >> 20} MiB |

Archives and compressed files are refused unopened, and so are pickles (`training_args.bin`). Printed dicts are read as
literals, never evaluated. `NaN`, `"NaN"`, `null` and infinities are gaps, and noted. Rows of one step are merged; a step
that is logged again is a step done again: going back inside the run is a resume (both are charged, the repeated part is
listed as waste), going back to the first step is another run, and `--run N` has to choose. Keys that a table does not
have are listed and not used. Logs of other kinds of run (SFT, DPO, KTO, PPO, reward models) are refused by name.

No trainer logs the group size, and most do not log how many samples there were. Put the run's own config beside the log,
or name it with `--config`; what is still missing then is given by options or stays open as a range
([reporting compute](reporting-compute.md)).
"""


def releases(key: Key) -> str:
    """``0.17 or later``, ``0.16 or earlier``, ``0.5 to 0.6``; all that were checked when undated."""
    if key.since and key.until:
        return f"{key.since} to {key.until}"
    return f"{key.since} or later" if key.since else f"{key.until} or earlier" if key.until else "all"


def cell(text: str) -> str:
    """Text that cannot break a table."""
    return text.replace("|", "\\|")


def field_rows(field: Field) -> list[str]:
    """One row per spelling; what it is and how it is used stand in the first."""
    rows = []
    for at, key in enumerate(field.keys):
        what = f"{field.name}: {FIELDS[field.name]}" if at == 0 else ""
        rows.append(f"| `{cell(key.key)}` | {releases(key)} | {cell(what)} | {cell(field.note) if at == 0 else ''} |")
    return rows


def section(table: KeyTable) -> list[str]:
    """A trainer's part of the page."""
    lines = [f"## {table.title}", "", f"`--format {table.trainer}`; keys of {table.checked}."]
    if table.prefixes:
        shown = ", ".join(f"`{p}`" for p in table.prefixes)
        lines.append(f"The prefix {shown} that monitors put in front is taken off.")
    lines.append(
        "Values are means over the steps since the entry before."
        if table.averaged
        else "Values are those of the logged step; steps between two entries are taken to be like the later one."
    )
    lines += ["", "| key | releases | read as | used for |", "| --- | --- | --- | --- |"]
    for field in table.fields:
        lines += field_rows(field)
    if table.rewards:
        keys = ", ".join(f"`{key.key}`" for key in table.rewards)
        lines += ["", f"Components of the reward, listed by name in the record: {keys}."]
    if table.inserts:
        keys = ", ".join(f"`{key.key}`" for key in table.inserts)
        lines += ["", f"Not 0 means that tokens were inserted which no length counts; noted on the card: {keys}."]
    steps = ", ".join(f"`{name}`" for name in table.steps)
    lines += ["", f"Step counter: {steps}, else the container's own."]
    files = ", ".join(f"`{name}`" for name in table.beside)
    lines += ["", f"Beside the log, or with `--config`: {files}.", "", "| settles | config entry |", "| --- | --- |"]
    lines += [f"| {name.replace('_', ' ')} | {', '.join(f'`{p}`' for p in paths)} |" for name, paths in table.config]
    known = ", ".join(f"`{key.key}`" for key in table.known)
    lines += ["", f"Known and not used: {known}.", "", "Traps:", "", *(f"- {trap}" for trap in table.traps), ""]
    return lines


def page() -> str:
    """The whole page."""
    parts = [INTRO]
    for table in key_tables().values():
        parts.append("\n".join(section(table)))
    return "\n".join(parts).rstrip() + "\n"


def main() -> int:
    """Rewrite or check the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing, exit 1 on a difference")
    if parser.parse_args().check:
        same = PAGE.exists() and PAGE.read_text(encoding="utf-8") == page()
        print("up to date" if same else f"{PAGE.name} is stale: python docs/log_formats.py")
        return 0 if same else 1
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
