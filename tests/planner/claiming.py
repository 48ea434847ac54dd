"""A process that claims pilots until there is nothing left, for tests with several of them at once.

    python claiming.py STORAGE NAME PILOTS LOCKS     LOCKS: locked, or unlocked to take the storage's lock away
"""

from __future__ import annotations

import contextlib
import json
import sys

import optuna

from planner import NoProposal
from planner.leases import Owner
from planner.memory import StudyMemory
from planner.proposer import Proposer
from planner.space import PilotSpace
from planner.storage import Storage, open_storage
from race.ladders import ladder


def proposer(pilots: int) -> Proposer:
    """A space of one pilot size, so that the budget is a number of pilots; the opening grid is all there is."""
    budget = 10**19
    space = PilotSpace.build(
        ladder("qwen2.5"), budget=budget, reward="sparse", pilot_budget=budget // 10, sizes=[budget // 10 // pilots]
    )
    return Proposer(space, start=10**6)


def main() -> None:
    storage, name, pilots, locks = sys.argv[1:]
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    if locks == "unlocked":
        Storage.exclusive = lambda self: contextlib.nullcontext()  # type: ignore[assignment,misc,return-value]
    memory = StudyMemory.open(proposer(int(pilots)), storage=open_storage(storage), name=name)
    owner = Owner.here()
    print("ready", flush=True)
    sys.stdin.readline()
    claims = []
    while True:
        try:
            claim = memory.claim(owner)
        except NoProposal:
            break
        claims.append({"number": claim.number, "job": claim.job, "spec": claim.spec.to_dict()})
    print(json.dumps(claims), flush=True)


if __name__ == "__main__":
    main()
