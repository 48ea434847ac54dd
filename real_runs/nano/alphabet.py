"""The nano ladder's tokeniser: one character, one token.

There is no padding token. ``$`` ends a completion and also fills a batch (pad = EOS, told apart by the attention
mask), so every token a policy can sample is one it may say, and no logit has to be masked out of sampling.
"""

from __future__ import annotations

from collections.abc import Sequence

from race.errors import InvalidInput

DIGITS = "0123456789"
KINDS = "+-*><|"
LABELS = "ABCDEFGH"
END_OF_PROMPT = "="
ANSWER = "#"
EOS = "$"
ALPHABET = DIGITS + KINDS + LABELS + END_OF_PROMPT + ANSWER + EOS

TOKEN_OF = {character: index for index, character in enumerate(ALPHABET)}
VOCAB = len(ALPHABET)
EOS_ID = TOKEN_OF[EOS]
PAD_ID = EOS_ID


def encode(text: str) -> tuple[int, ...]:
    """Token ids of ``text``; a character outside the alphabet is `InvalidInput`."""
    try:
        return tuple(TOKEN_OF[character] for character in text)
    except KeyError as missing:
        raise InvalidInput(f"text: found {missing.args[0]!r}; allowed are the characters {ALPHABET}") from None


def decode(token_ids: Sequence[int]) -> str:
    """Text of ``token_ids`` with the end token dropped; an id outside the vocabulary is `InvalidInput`."""
    for token in token_ids:
        if not 0 <= token < VOCAB:
            raise InvalidInput(f"token_ids: found {token}; allowed are ids from 0 to {VOCAB - 1}")
    return "".join(ALPHABET[token] for token in token_ids if token != EOS_ID)
