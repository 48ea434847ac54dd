"""A process that adds records to a store until it is killed; says each id once its record is on disk."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from store_records import record

from race.store import Store


def main() -> None:
    folder, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    store = Store(folder, create=True)
    for number in range(count):
        record_id = f"{name}-{number}"
        # Large enough for a kill to land inside a write now and then.
        store.add(record(record_id, points=200, filler="x" * 200_000))
        print(record_id, flush=True)


if __name__ == "__main__":
    main()
