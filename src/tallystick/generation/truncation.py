"""Top-k, top-p and min-p of the engine's rows (ANSWERS 3.5.5 to 3.5.7), without sorting them whole.

An answer's program puts all tokens in order. Only the first ones of it decide: what top-k cuts are
the tokens from place k on, and probabilities are not negative, so the sums before a token never
fall from place to place. Once they reach top_p, no later token is in the nucleus.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tallystick.answers.layout import Settings

# How many tokens are put in order at first, where top-k does not say.
_FIRST = 256
_MAGNITUDE, _INFINITY = np.int32(0x7FFFFFFF), np.int32(0x7F800000)
_INDEX = (1 << 32) - 1

Softmax = Callable[[np.ndarray], np.ndarray]  # of each row, by NUMERICS 6.1


def truncates(settings: Settings) -> bool:
    """Whether these settings cut any token."""
    found = settings.rounded
    return settings.top_k > 0 or found["top_p"] < 1 or found["min_p"] > 0


def truncated(y: np.ndarray, settings: Settings, softmax: Softmax) -> np.ndarray:
    """`y` f32[rows, V], divided by the temperature, with −∞ for what the settings cut."""
    found, k = settings.rounded, settings.top_k
    top_p, min_p = np.float32(found["top_p"]), np.float32(found["min_p"])
    firsts: list[np.ndarray | None] = [None] * len(y)
    if 0 < k < y.shape[1]:
        orders = [_first(row, k) for row in y]
        y = np.stack([_only(row, first) for row, first in zip(y, orders, strict=True)])
        firsts = [*orders]
    if top_p >= 1 and min_p <= 0:
        return y
    kept = []
    for row, p, first in zip(y, softmax(y), firsts, strict=True):
        if top_p < 1:
            # What top-k has cut stays so, in the nucleus or not.
            row = _only(row, _nucleus(row, p, top_p) if first is None else _below(first, p, top_p))
        if min_p > 0:
            with np.errstate(under="ignore"):
                floor = min_p * p.max()
            row = np.where(p >= floor, row, -np.float32(np.inf))
        kept.append(row)
    return np.stack(kept)


def _only(row: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """The row with −∞ for all but these tokens."""
    found = np.full_like(row, -np.inf)
    found[tokens] = row[tokens]
    return found


def _nucleus(row: np.ndarray, p: np.ndarray, top_p: np.float32) -> np.ndarray:
    """The tokens of the whole row before which the probabilities sum to below top_p."""
    count = _FIRST
    while True:
        first = _first(row, min(count, len(row)))
        found = _below(first, p, top_p)
        if len(found) < len(first) or count >= len(row):
            return found
        count *= 8


def _below(first: np.ndarray, p: np.ndarray, top_p: np.float32) -> np.ndarray:
    """Those of the first tokens before which the probabilities sum to below top_p: one after the
    other, each sum rounded (NUMERICS 3.8). The very first has no probability before it."""
    sums = np.add.accumulate(p[first[:-1]])
    return np.concatenate([first[:1], first[1:][sums < top_p]])


def _first(row: np.ndarray, count: int) -> np.ndarray:
    """The first tokens of a row's descending order, in this order (NUMERICS 3.9)."""
    # Integers in the numbers' order: of the same size for both zeros, and negative where they are.
    seen = row.view(np.int32)
    size, sign = seen & _MAGNITUDE, seen >> 31
    keys = (size ^ sign) - sign
    keys[size > _INFINITY] = _MAGNITUDE  # NaN before everything
    np.invert(keys, out=keys)
    tokens = np.arange(len(row))
    if count < len(row):
        tokens = np.flatnonzero(keys <= np.partition(keys, count - 1)[count - 1])
    # Of equal numbers the lower token is first: a key with its token below it is one number.
    packed = (keys[tokens].astype(np.int64) << 32) | tokens
    packed.sort()
    found: np.ndarray = packed[:count] & _INDEX
    return found
