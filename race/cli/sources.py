"""Where the records behind an answer come from: folders, packed files, and studies that ship with the package.

A path that exists wins over the name of a packaged study; a study's folder stands for the records in it. Ladders with a
packaged study of their own are answered from it unless something else is said; ``none`` is the prior alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from race.cli.output import note
from race.errors import CannotDo, InvalidInput

if TYPE_CHECKING:
    from race.ladders import Ladder
    from race.packed import Pack
    from race.records import PilotRecord
    from surrogate import Surrogate

NONE = "none"
# Built-in ladder to the packaged study that is about it.
DEFAULTS = {"nano": "nano-study"}

EvidenceOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--evidence",
        "--store",
        help="Folder of records, packed study, or nano-study; repeatable. Default: nano-study on the nano ladder, "
        "else none (the prior alone).",
        show_default=False,
    ),
]
StoresArgument = Annotated[
    list[Path], typer.Argument(help="Folders of records, packed studies, or nano-study.", show_default=False)
]


@dataclass(frozen=True)
class Evidence:
    """Records, and where they came from.

    Attributes
    ----------
    records, problems
        What was read, and in words every file that had to be skipped.
    packs
        The packed studies among the sources.
    alone
        Whether there is nothing but one packed study.
    default
        Whether nobody asked for it.
    """

    records: list[PilotRecord] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    packs: list[Pack] = field(default_factory=list)
    alone: bool = False
    default: bool = False

    def to_dict(self) -> dict[str, Any]:
        """What ``--json`` says of packed studies."""
        return {
            "packed": [{"name": p.name, "records": len(p.records), "sha256": p.sha256} for p in self.packs],
            "default": self.default,
        }

    @property
    def words(self) -> str:
        """``397 runs of the packaged nano study``, or nothing."""
        from race.packed import packaged

        known = packaged().values()
        said = [
            f"{len(p.records)} {_kinds(p)} runs of the "
            + (f"packaged {p.name.replace('-', ' ')}" if p.path in known else f"packed study {p.name}")
            for p in self.packs
        ]
        return ", ".join(said) + (f"; --evidence {NONE} for the prior alone" if self.default else "")

    def fitted(self, ladder: Ladder, targets: Sequence[str], seed: int) -> Surrogate | None:
        """The surrogate that was fitted to exactly this beforehand, where there is one that can answer."""
        if not self.alone:
            return None
        from surrogate.evidence import resolve_target
        from surrogate.prefitted import SEED, fitted_to

        if seed != SEED:
            return None
        found, why = fitted_to(self.packs[0], ladder)
        if why:
            note(f"{why}; fitting anew, which takes seconds")
        if found is None or any(resolve_target(name, found.targets) not in found.targets for name in targets):
            return None
        return found


def _kinds(pack: Pack) -> str:
    return " and ".join(sorted({record.evidence for record in pack.records}))


def gather_evidence(given: Sequence[Path] | None, ladder: str = "") -> Evidence:
    """Read what ``given`` names; nothing given is the packaged study of ``ladder``, if it has one.

    Raises
    ------
    InvalidInput
        ``none`` beside something else, or a source that is not what it should be.
    CannotDo
        Nothing is there, neither as a path nor as the name of a packaged study.
    """
    if not given:
        if ladder not in DEFAULTS:
            return Evidence()
        from race.packed import packaged_study

        # Not by path: what lies in the folder somebody happens to be in is not what they left out.
        pack = packaged_study(DEFAULTS[ladder])
        return Evidence(list(pack.records), packs=[pack], alone=True, default=True)
    sources = list(given or ())
    if Path(NONE) in sources and not Path(NONE).exists():
        if len(sources) > 1:
            raise InvalidInput(f"evidence: found {NONE} beside {len(sources) - 1} other(s); drop one or the other")
        return Evidence()
    records: list[PilotRecord] = []
    problems: list[str] = []
    packs: list[Pack] = []
    for path in sources:
        if not path.exists() or (path.is_file() and path.suffix == ".gz"):
            pack = find_pack(path)
            packs.append(pack)
            records.extend(pack.records)
            continue
        from race.store import MARKER, Store

        # A study's folder keeps its store in records/.
        study = (path / "records" / MARKER).is_file() and not (path / MARKER).exists()
        loaded = Store(path / "records" if study else path).records()
        records.extend(loaded.require())
        problems.extend(str(problem) for problem in loaded.problems)
    return Evidence(records, problems, packs, alone=len(packs) == len(sources) == 1)


def find_pack(path: Path) -> Pack:
    """The packed file at ``path``, or the packaged study of that name.

    Raises
    ------
    CannotDo
        There is nothing of that name.
    """
    from race.packed import packaged, read_pack

    if path.exists():
        return read_pack(path)
    known = packaged()
    if str(path) in known:
        return read_pack(known[str(path)])
    raise CannotDo(
        f"store: there is nothing at {path}; make one with race import, race simulate or race run, or name a packaged "
        f"study: {', '.join(known)}"
    )


def surrogate_of(
    saved: Path | None,
    sources: list[Path] | None,
    ladder: str | None,
    reward: str | None,
    target: str | None,
    seed: int,
) -> tuple[Surrogate, Evidence]:
    """The surrogate to ask: ``saved``, or one fitted to evidence, which is then given too.

    Raises
    ------
    InvalidInput
        A saved surrogate beside other evidence, or nothing to answer from.
    """
    from planner.reporting import ladder_of, reward_of
    from race.cli.options import split_targets
    from race.ladders import ladder as choose_ladder
    from race.packed import packaged
    from surrogate import Surrogate

    if saved is not None and not saved.exists() and str(saved) in packaged():
        sources, saved = [saved, *(sources or [])], None
    if saved is not None:
        for name, given in (("evidence", sources), ("ladder", ladder)):
            if given:
                raise InvalidInput(f"{name}: given beside the saved surrogate {saved}, which keeps its own; drop one")
        return Surrogate.load(saved), Evidence()
    if not sources and ladder is None:
        raise InvalidInput(
            "surrogate: missing; give the folder that race fit wrote, --evidence with records, or --ladder"
        )
    rungs = None if ladder is None else choose_ladder(ladder)
    found = gather_evidence(sources, "" if rungs is None else rungs.name)
    rungs = rungs or ladder_of(found.records)
    targets = split_targets(target) if target is not None else ["native"]
    ready = found.fitted(rungs, targets, seed)
    if ready is not None:
        return ready, found
    used = reward or (reward_of(found.records) if found.records else None)
    if used is None:
        raise InvalidInput("reward: missing; give --reward where there are no records to take it from")
    template = rungs.recipe(used)
    return Surrogate.fit(found.records, ladder=rungs, recipe=template, targets=targets, seed=seed), found
