"""Stateless randomness: every draw is a function of (run seed, step, phase), never of what ran before.

This is what makes a resumed run equal to an undisturbed one: there is no generator state to save or lose.
"""

from __future__ import annotations

import hashlib


def seed_for(seed: int, step: int, phase: str) -> int:
    """A 63-bit seed for one phase of one step."""
    digest = hashlib.blake2b(f"{seed}/{step}/{phase}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
