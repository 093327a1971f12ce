"""tallystick.occurrences (NUMERICS 3.10): stretches, classes, refusals."""

from __future__ import annotations

import numpy as np
import pytest
from plain import evaluate as into_garbage
from plain import same
from reference.data import Gen
from reference.ops import REFERENCE

from tallystick import evaluate
from tallystick.errors import UsageError

OP = "tallystick.occurrences"


def counted(tokens: list[int], first: list[int], last: list[int], classes: int) -> list[list[int]]:
    got = evaluate(OP, *(np.array(x, np.int64) for x in (tokens, first, last)), classes=classes)
    assert isinstance(got, np.ndarray)
    found: list[list[int]] = got.tolist()
    return found


def test_both_ends_of_a_stretch_belong_to_it() -> None:
    tokens = [2, 0, 2, 1, 2]
    assert counted(tokens, [0, 2, 4], [4, 3, 4], 3) == [[1, 1, 3], [0, 1, 1], [0, 0, 1]]


def test_stretches_beyond_the_text_and_empty_ones() -> None:
    tokens = [1, 1, 0]
    ends = [-(2**63), 2**63 - 1]
    assert counted(tokens, [ends[0], -4, 3, 2, ends[1]], [ends[1], 0, 9, 1, ends[1]], 2) == [
        [1, 2], [0, 1], [0, 0], [0, 0], [0, 0],
    ]  # fmt: skip
    assert counted(tokens, [0], [ends[0]], 2) == [[0, 0]]
    assert counted([], [0, -1], [0, 1], 2) == [[0, 0], [0, 0]]


def test_tokens_outside_of_the_classes_are_counted_nowhere() -> None:
    assert counted([-1, 3, 2**63 - 1, -(2**63), 2], [0], [4], 3) == [[0, 0, 1]]
    assert counted([0, 1], [0], [1], 0) == [[]]


@pytest.mark.parametrize("length", [0, 1, 300])
@pytest.mark.parametrize("classes", [0, 1, 7])
def test_against_the_reference(length: int, classes: int) -> None:
    g = Gen(f"occurrences {length} {classes}")
    operands = [g.ints(-2, 9, length), g.ints(-5, 300, 6), g.ints(-5, 310, 6)]
    attrs = {"classes": classes}
    same(into_garbage(OP, attrs, *operands)[0], REFERENCE[OP](attrs, operands)[0])


_ROW = np.zeros(2, np.int64)


@pytest.mark.parametrize(
    ("operands", "attrs"),
    [
        ((_ROW, _ROW, _ROW[:1]), {"classes": 3}),
        ((_ROW, _ROW.reshape(1, 2), _ROW.reshape(1, 2)), {"classes": 3}),
        ((_ROW.reshape(1, 2), _ROW, _ROW), {"classes": 3}),
        ((_ROW, _ROW.astype(np.int32), _ROW), {"classes": 3}),
        ((_ROW.astype(np.float32), _ROW, _ROW), {"classes": 3}),
        ((_ROW, _ROW), {"classes": 3}),
        ((_ROW, _ROW, _ROW), {"classes": -1}),
        ((_ROW, _ROW, _ROW), {}),
    ],
)
def test_what_is_no_call(operands: tuple[np.ndarray, ...], attrs: dict[str, int]) -> None:
    with pytest.raises(UsageError, match=r"tallystick\.occurrences"):
        evaluate(OP, *operands, **attrs)
