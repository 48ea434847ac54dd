"""``python -m race``: the ``race`` command of exactly this interpreter, whatever is on the PATH."""

from __future__ import annotations

from race.cli import main

if __name__ == "__main__":
    main()
