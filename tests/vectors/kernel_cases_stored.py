"""The calls of the golden vectors: weights of bf16 and f16, moved and widened (NUMERICS 1.14)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from kernel_cases import Call
from language_values import SPECIAL
from reference.data import Gen
from reference.move import DTYPES

I64 = np.int64


def stored() -> Iterator[Call]:
    """Zeros, subnormals, infinities and every kind of NaN; no axes, none of a size, strided."""
    g = Gen("stored")
    for dtype in ("bf16", "f16"):
        drawn = g.ints(0, 1 << 16, 105)
        bits = np.concatenate([np.array(SPECIAL[dtype], I64), drawn]).astype("<u2")
        x = bits.view(DTYPES[dtype])
        cube = x[:120].reshape(4, 5, 6)
        yield "aten._to_copy", {"dtype": "f32"}, [x]
        yield "aten._to_copy", {"dtype": "f32"}, [cube]
        yield "aten._to_copy", {"dtype": "f32"}, [x[3:4].reshape(())]
        yield "aten._to_copy", {"dtype": "f32"}, [x[:0].reshape(3, 0)]
        yield "aten.view", {"size": (8, 15)}, [cube]
        yield "aten.permute", {"dims": (2, 0, 1)}, [cube]
        yield "aten.slice", {"dim": 1, "start": 1, "end": 5, "step": 2}, [cube]
        rows = np.array([3, 0, 3, 1], I64)
        yield "aten.index_select", {"dim": 0}, [cube, rows]
        yield "aten.index_select", {"dim": 2}, [cube, rows]
