"""Whether a run came out as it did before: equal to the last bit, or what differs.

Compared is everything that the setting decides. Left out is what every process has anew: names of machines and
processes, seconds, how often a run was interrupted, and the FLOPs of work that an interruption made it do again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from race.packed import portable

if TYPE_CHECKING:
    from race.packed import Pack
    from race.records import PilotRecord

# Of the provenance.
_OWN = ("run_id", "executor", "attempts", "processes", "executed_flops", "lost_flops", "study", "stages", "versions")


@dataclass(frozen=True)
class Comparison:
    """Records of here against those of a packed study, by id.

    Attributes
    ----------
    equal
        Ids whose records agree in every bit.
    different
        Id to what differs, one line each.
    unknown
        Ids that the packed study does not have.
    versions
        Library to (here, there), where they differ in any record that does: the likeliest reason.
    """

    equal: tuple[str, ...]
    different: Mapping[str, tuple[str, ...]]
    unknown: tuple[str, ...]
    versions: Mapping[str, tuple[str, str]]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "equal": list(self.equal),
            "different": {name: list(lines) for name, lines in self.different.items()},
            "unknown": list(self.unknown),
            "versions": {name: {"here": here, "there": there} for name, (here, there) in self.versions.items()},
        }


def compare(records: Mapping[str, PilotRecord], against: Pack) -> Comparison:
    """Compare each of ``records`` (by id) with the one of the same id in ``against``."""
    there = {record.id: record for record in against.records}
    equal, unknown, different, versions = [], [], {}, {}
    for name, record in sorted(records.items()):
        other = there.get(name)
        if other is None:
            unknown.append(name)
            continue
        lines = differences(record, other)
        if not lines:
            equal.append(name)
            continue
        different[name] = tuple(lines)
        mine, theirs = (dict(r.provenance.get("versions", {})) for r in (record, other))
        for library in sorted(set(mine) | set(theirs)):
            pair = str(mine.get(library, "none")), str(theirs.get(library, "none"))
            if pair[0] != pair[1]:
                versions[library] = pair
    return Comparison(tuple(equal), different, tuple(unknown), versions)


def differences(here: PilotRecord, there: PilotRecord) -> list[str]:
    """One line per value that differs: where, what it is here, what it was there."""
    one, other = (_decided(portable(record)) for record in (here, there))
    return [f"{where}: {_said(a)} here, {_said(b)} there" for where, a, b in _apart("", one, other)]


def _decided(record: PilotRecord) -> dict[str, Any]:
    data = record.to_dict()
    data["provenance"] = {k: v for k, v in data["provenance"].items() if k not in _OWN}
    return data


class _Nothing:
    def __repr__(self) -> str:
        return "nothing"


_NOTHING = _Nothing()


def _apart(where: str, one: Any, other: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in dict.fromkeys((*one, *other)):
            path = f"{where}.{key}" if where else str(key)
            yield from _apart(path, one.get(key, _NOTHING), other.get(key, _NOTHING))
    elif isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)) and len(one) == len(other):
        for i, (a, b) in enumerate(zip(one, other, strict=True)):
            yield from _apart(f"{where}[{i}]", a, b)
    elif one != other:
        yield where, one, other


def _said(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
