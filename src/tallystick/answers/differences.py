"""Where an execution says something else than stands beside a receipt (ANSWERS 8.5, 11.9)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tallystick.answers.encoded import Encoded
from tallystick.answers.spoken import Spoken
from tallystick.commit.tensor import Array


@dataclass(frozen=True)
class TokenDifference:
    """The first row of an answer (ANSWERS 1.2) where the model says something else (8.5).

    Where the tokens are equal, the log-probabilities differ: those that stand beside the receipt,
    which are the signed ones only where the report has no finding of 8.4."""

    row: int
    claimed: int
    drawn: int
    claimed_logprob: float
    computed_logprob: float

    @property
    def is_of_tokens(self) -> bool:
        return self.claimed != self.drawn

    @property
    def sentence(self) -> str:
        if self.is_of_tokens:
            return (
                f"Token number {self.row} of the answer, the first being number 0, is "
                f"{self.claimed} in the receipt; the model draws {self.drawn} there."
            )
        return (
            f"Token number {self.row} of the answer, the first being number 0, has the "
            f"log-probability {self.claimed_logprob!r} beside the receipt; the model gives "
            f"{self.computed_logprob!r}."
        )

    @property
    def facts(self) -> dict[str, object]:
        """For JSON; documented keys."""
        return {
            "row": self.row,
            "claimed": self.claimed,
            "drawn": self.drawn,
            "claimed_logprob": self.claimed_logprob,
            "computed_logprob": self.computed_logprob,
            "sentence": self.sentence,
        }


@dataclass(frozen=True)
class ValueDifference:
    """The first value of an encoding that the model does not give. The claimed one stands beside
    the receipt, and is the signed one only where the report has no finding of 8.4."""

    row: int
    claimed: float
    computed: float

    @property
    def is_of_tokens(self) -> bool:
        return False

    @property
    def sentence(self) -> str:
        return (
            f"Value number {self.row} of the encoding, the first being number 0, is "
            f"{self.claimed!r} beside the receipt; the model gives {self.computed!r}."
        )

    @property
    def facts(self) -> dict[str, object]:
        """For JSON; documented keys."""
        return {
            "row": self.row,
            "claimed": self.claimed,
            "computed": self.computed,
            "sentence": self.sentence,
        }


Difference = TokenDifference | ValueDifference


def token_difference(spoken: Spoken, drawn: Array, logs: Array) -> TokenDifference | None:
    """The first row where tokens or the bits of log-probabilities differ."""
    count = len(spoken.tokens)
    said = np.asarray(spoken.tokens, np.int64) != drawn[:count]
    at = _first(said | (_bits(spoken.logprobs) != _bits(logs[:count])))
    if at is None:
        return None
    return TokenDifference(
        at, spoken.tokens[at], int(drawn[at]), float(spoken.logprobs[at]), float(logs[at])
    )


def value_difference(encoded: Encoded, values: Array) -> ValueDifference | None:
    """The first value whose bits differ."""
    at = _first(_bits(encoded.values) != _bits(values))
    if at is None:
        return None
    return ValueDifference(at, float(encoded.values[at]), float(values[at]))


def _bits(x: Array) -> Array:
    return np.ascontiguousarray(x).view("<u4")


def _first(differ: Array) -> int | None:
    rows = np.flatnonzero(differ)
    return int(rows[0]) if rows.size else None
