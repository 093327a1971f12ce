"""The calls of the golden vectors: what the programs of answers need (NUMERICS 3.10, 8.8)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from kernel_cases import Call
from reference.data import Gen

I64 = np.int64
# A block of draw 0 under the key (0, 0), by a word that is in it: of all 2^32 blocks the first that
# has the word, but for the one word that stands for those that are clamped.
WORDS_AT = {0: 1498094372, 1: 2900052861, 2**31: 648093868, 2**32 - 187: 2330056,
            2**32 - 1: 1538303059}  # fmt: skip


def noise() -> Iterator[Call]:
    """NUMERICS 8.8: rows beside each other and far apart, classes that no block divides, the ends
    of the key, and the words at which v is least, largest and a half."""
    g = Gen("noise")
    op = "tallystick.gumbel"
    big = np.array([2**63 - 1, 2**32 - 1], I64)
    for n, key in enumerate((np.array([0, 0], I64), np.array([1234567890123, 77], I64), big)):
        draw = (0, 3, 2**32 - 1)[n]
        for classes in (1, 3, 4, 5, 67, 130, 259):
            yield op, {"classes": classes, "draw": draw}, [key, np.array([n, 0, 5], I64)]
        ends = np.array([2**32 - 1, 2**31, 2**32 - 1], I64)
        yield op, {"classes": 9, "draw": draw}, [key, ends]
        yield op, {"classes": 33, "draw": draw}, [key, g.ints(0, 2**32, 4)]
    zero = np.array([0, 0], I64)
    yield op, {"classes": 0, "draw": 0}, [zero, np.array([1, 2], I64)]
    yield op, {"classes": 5, "draw": 0}, [zero, np.zeros(0, I64)]
    yield op, {"classes": 4, "draw": 0}, [zero, np.array(sorted(WORDS_AT.values()), I64)]


def occurrences() -> Iterator[Call]:
    """NUMERICS 3.10: lengths around a block, stretches beyond both ends, empty and turned round,
    tokens that are no class."""
    g = Gen("occurrences")
    op = "tallystick.occurrences"
    for n in (1, 2, 255, 256, 257, 600):
        first, last = np.array([0, n // 3, n - 1], I64), np.array([n - 1, n // 2, n - 1], I64)
        yield op, {"classes": 5}, [g.ints(0, 5, n), first, last]
    tokens = np.array([3, 0, 3, -1, 2, 7, 4, 3, -(2**63), 2**63 - 1, 0, 3], I64)
    first = np.array([0, -5, 2**63 - 1, -(2**63), 4, 12, 7], I64)
    last = np.array([11, 2, 2**63 - 1, 2**63 - 1, 3, 99, 7], I64)
    yield op, {"classes": 4}, [tokens, first, last]
    yield op, {"classes": 1}, [tokens, first, last]
    yield op, {"classes": 0}, [tokens, first, last]
    yield op, {"classes": 3}, [tokens, np.zeros(0, I64), np.zeros(0, I64)]
    yield op, {"classes": 3}, [np.zeros(0, I64), np.array([0, -1], I64), np.array([0, 1], I64)]
    yield op, {"classes": 130}, [g.ints(0, 140, 300), g.ints(-9, 300, 3), g.ints(-9, 309, 3)]
