"""The fold over micro-batches: its order, its levels, its refusals (NUMERICS 10.12)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.ops import REFERENCE

from tallystick.contracts.ordered.cpu import kernel
from tallystick.contracts.replay.sections import is_logged
from tallystick.errors import UsageError
from tallystick.kernels.evaluate import evaluate
from tallystick.numerics.contracts import find_contract
from tallystick.numerics.registry import lookup
from tallystick.numerics.types import TensorType
from tallystick.program.ir import Node, Value

FOLD = "tallystick.fold"


def values(count: int, *shape: int, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [(rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 4)).astype(np.float32)
            for _ in range(count)]  # fmt: skip


def plain(xs: list[np.ndarray], mean: bool) -> np.ndarray:
    """10.12 over any number of operands."""
    return np.asarray(REFERENCE[FOLD]({"mean": mean}, xs)[0])


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 256), st.booleans(), st.sampled_from([(), (1,), (7,), (3, 5), (0, 2)]))
def test_the_kernel_is_the_split(count: int, mean: bool, shape: tuple[int, ...]) -> None:
    xs = values(count, *shape, seed=count)
    assert evaluate(FOLD, *xs, mean=mean).tobytes() == plain(xs, mean).tobytes()


@pytest.mark.parametrize("count", [257, 300, 512, 1000, 2 * 256 + 1, 65536])
def test_levels_of_256_are_the_whole_split(count: int) -> None:
    """PROGRAM 6.7: aligned blocks of 256 are subtrees of the split."""
    xs = values(count, 2, seed=count)
    level = xs
    while len(level) > 256:
        level = [np.asarray(evaluate(FOLD, *level[i : i + 256], mean=False))
                 for i in range(0, len(level), 256)]  # fmt: skip
    found = evaluate(FOLD, *level, mean=True, count=count)
    assert np.asarray(found).tobytes() == plain(xs, True).tobytes()


def test_two_at_a_time_is_the_split() -> None:
    """What an executor does: it holds one partial sum of each power of two."""
    for count in range(1, 40):
        held: dict[int, np.ndarray] = {}
        for number, x in enumerate(values(count, 3, seed=count)):
            level, one = 0, x
            while number >> level & 1:
                one = np.asarray(evaluate(FOLD, held.pop(level), one, mean=False))
                level += 1
            held[level] = one
        total: np.ndarray | None = None
        for _, part in sorted(held.items()):
            total = part if total is None else np.asarray(evaluate(FOLD, part, total, mean=False))
        assert total is not None
        assert total.tobytes() == plain(values(count, 3, seed=count), False).tobytes()


@pytest.mark.parametrize("count", [1, 2, 3, 9])
def test_the_result_may_be_the_first_operands_memory(count: int) -> None:
    xs = values(count, 5, 70000 // 5, seed=3)  # more than a stretch
    expected = plain(xs, True)
    kernel[FOLD].run({"mean": True}, xs, [xs[0]])
    assert xs[0].tobytes() == expected.tobytes()


def test_operands_of_any_strides() -> None:
    for count in (1, 2, 5):
        xs = [x.T for x in values(count, 6, 4)]
        out = np.empty((4, 6), np.float32)
        kernel[FOLD].run({"mean": False}, xs, [out])
        assert out.tobytes() == plain([np.ascontiguousarray(x) for x in xs], False).tobytes()


def test_no_log_covers_it() -> None:
    """NUMERICS 10.12, 14.9: its bits are the same under every contract."""
    node = Node(FOLD, (Value(0, 0),), {"mean": True}, (TensorType("f32", (2,)),))
    other = Node("aten.neg", (Value(0, 0),), {}, (TensorType("f32", (2,)),))
    published = find_contract("replay/1;b=27;form=published")
    assert is_logged(other, 0, published) and not is_logged(node, 0, published)


@pytest.mark.parametrize(
    ("types", "attrs", "reason"),
    [
        ([], {}, "1 to 256 operands"),
        ([TensorType("f32", (2,))] * 257, {}, "1 to 256 operands"),
        ([TensorType("f32", (2,)), TensorType("f32", (1,))], {}, "not of one type"),
        ([TensorType("i64", (2,))], {}, "i64"),
        ([TensorType("f32", ())], {"count": 3}, "of a mean only"),
        ([TensorType("f32", ())], {"count": 0, "mean": True}, "between 1 and 65536"),
        ([TensorType("f32", ())], {"count": 65537, "mean": True}, "between 1 and 65536"),
    ],
)
def test_refused(types: list[TensorType], attrs: dict[str, int], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        lookup(FOLD).infer({"mean": False, **attrs}, tuple(types))
