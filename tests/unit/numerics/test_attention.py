"""Attention's declarations: who has it, and what its types refuse (NUMERICS 18.1, 18.2)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from reference.data import Gen
from vectors.kernel_format import same_bits

from tallystick import _core, evaluate
from tallystick.devices.context import ExecutionContext
from tallystick.errors import UnsupportedOperatorError, UsageError
from tallystick.numerics.registry import all_ops, lookup
from tallystick.numerics.types import TensorType

NAMES = tuple(f"tallystick.attention_{n}" for n in ("scores", "weights", "values"))
SEEN: dict[str, Any] = {"causal": True, "first": 0, "window": 0}
SCORES: dict[str, Any] = {**SEEN, "scale": 1.0, "softcap": 0.0}


def f32(*shape: int) -> TensorType:
    return TensorType("f32", shape)


@pytest.mark.parametrize("name", NAMES)
def test_the_contracts_that_have_it(name: str) -> None:
    """18.1."""
    for contract in ("ordered/1", "ordered/1-draft.1", "rounded/1-draft.1;b=28"):
        assert lookup(name, contract).name == name
    for contract in ("replay/1-draft.1;b=28;form=bounded", "exact/1-draft.1;b=22"):
        with pytest.raises(UnsupportedOperatorError, match=name.replace(".", r"\.")) as found:
            lookup(name, contract)
        assert found.value.next_action == "Use ordered/1 or rounded/1."
    with pytest.raises(UnsupportedOperatorError, match="attention"):
        evaluate(name, np.zeros((1, 1, 1, 1), np.float32), contract="exact/1")


def test_every_other_operator_is_every_contracts() -> None:
    assert {name for name, spec in all_ops().items() if spec.only_under} == {
        *NAMES,
        "tallystick.dequantize",
    }


def test_rounded_has_the_bits_of_ordered() -> None:
    """18.1."""
    g = Gen("attention rounded")
    q, k, p = g.floats(1, 2, 5, 300), g.floats(1, 1, 7, 300), g.span(0, 1, 1, 2, 5, 7)
    for name, operands, attrs in (
        (NAMES[0], (q, k), {"scale": 0.1}), (NAMES[1], (p,), {}), (NAMES[2], (p, k), {}),
    ):  # fmt: skip
        one, other = (evaluate(name, *operands, contract=c, **attrs)
                      for c in ("ordered/1", "rounded/1"))  # fmt: skip
        assert same_bits(np.asarray(one), np.asarray(other))


@pytest.mark.parametrize(
    ("name", "types", "attrs", "why"),
    [
        (NAMES[0], (f32(1, 4, 2, 8), f32(1, 3, 3, 8)), SCORES, "do not share"),
        (NAMES[0], (f32(1, 4, 2, 8), f32(1, 0, 3, 8)), SCORES, "do not share"),
        (NAMES[0], (f32(1, 4, 2, 8), f32(2, 2, 3, 8)), SCORES, "do not share"),
        (NAMES[0], (f32(1, 4, 2, 8), f32(1, 2, 3, 7)), SCORES, "different lengths"),
        (NAMES[0], (f32(1, 4, 2, 8), f32(1, 2, 0, 8)), SCORES, "none of 0 keys"),
        (NAMES[0], (f32(1, 4, 2, 8), f32(1, 2, 3, 8), f32(2)), SCORES, "slopes"),
        (NAMES[0], (f32(4, 2, 8), f32(1, 2, 3, 8)), SCORES, "4 axes"),
        (NAMES[1], (f32(1, 4, 2, 3), f32(3)), SEEN, "sinks"),
        (NAMES[1], (f32(1, 4, 2, 3),), {**SEEN, "first": -1}, "first and window"),
        (NAMES[1], (f32(1, 4, 2, 3),), {**SEEN, "first": 2**31}, "first and window"),
        (NAMES[1], (f32(1, 4, 2, 3),), {**SEEN, "window": -1}, "first and window"),
        (NAMES[1], (f32(1, 4, 2, 3),), {**SEEN, "causal": False, "window": 1}, "only a causal"),
        (NAMES[1], (f32(1, 4, 2, 3),), {**SEEN, "window": 1, "first": 2}, "none of 3 keys"),
        (NAMES[2], (f32(1, 4, 2, 3), f32(1, 2, 4, 8)), SEEN, "numbers of keys"),
        (NAMES[2], (TensorType("i64", (1, 4, 2, 3)), f32(1, 2, 3, 8)), SEEN, "is defined on"),
    ],
)
def test_what_the_types_refuse(
    name: str, types: tuple[TensorType, ...], attrs: dict[str, Any], why: str
) -> None:
    with pytest.raises(UsageError, match=why):
        lookup(name).infer(attrs, types)


def test_the_last_calls_that_fit() -> None:
    """18.2."""
    lookup(NAMES[1]).infer({**SEEN, "window": 1, "first": 1}, (f32(1, 4, 2, 3),))
    lookup(NAMES[1]).infer({**SEEN, "window": 2**31 - 1, "first": 2**31 - 1}, (f32(1, 4, 2, 3),))


def test_one_query_at_a_time_has_the_bits_of_all() -> None:
    """18.6: neither the number of queries nor what stands behind the last key changes a bit."""
    g = Gen("one by one")
    q, k, v = g.floats(1, 4, 40, 16), g.floats(1, 2, 40, 16), g.mixed(1, 2, 40, 5)
    for window in (0, 7):
        whole: Any = attended(q, k, v, 0, window)
        for place in range(40):
            until = place + 1
            one = attended(q[:, :, place:until], k[:, :, :until], v[:, :, :until], place, window)
            assert same_bits(one, np.ascontiguousarray(whole[:, :, place:until]))


@pytest.mark.parametrize("isa", _core.supported_isas())
@pytest.mark.parametrize("threads", [1, 3])
def test_all_three_at_once_have_their_bits(isa: str, threads: int) -> None:
    """What a plan calls where nobody reads scores and weights (program/fused.py)."""
    for heads, groups, depth, width, queries, keys, first, causal, window in (
        (9, 3, 64, 64, 70, 70, 0, True, 0), (4, 1, 130, 35, 33, 200, 150, True, 40),
        (2, 2, 5, 7, 300, 300, 0, True, 140), (7, 1, 16, 80, 20, 17, 3, True, 0),
        (5, 5, 8, 9, 19, 40, 0, False, 0), (8, 2, 257, 96, 50, 400, 350, True, 129),
        (1, 1, 1, 1, 1, 1, 0, True, 1), (3, 1, 4, 4, 0, 5, 0, True, 0),
    ):  # fmt: skip
        for nasty in (False, True):
            g = Gen(f"at once {heads} {keys} {nasty}")
            make = g.wide if nasty else g.floats
            q, k = make(2, heads, queries, depth), make(2, groups, keys, depth)
            v = g.mixed(2, groups, keys, width)
            slopes, sinks = (g.floats(heads) if nasty else None for _ in range(2))
            seen: dict[str, Any] = {"causal": causal, "first": first, "window": window}
            attrs: dict[str, Any] = {"scale": 0.25, "softcap": 30.0 * nasty, **seen}
            s: Any = evaluate(NAMES[0], q, k, slopes, **attrs)
            p: Any = evaluate(NAMES[1], s, sinks, **seen)
            out = np.full((2, heads, queries, width), 7, np.float32)
            with ExecutionContext(threads=threads, isa=isa).entered():
                _core.attention(q, k, v, slopes, sinks, out, *attrs.values())
            assert same_bits(out, np.asarray(evaluate(NAMES[2], p, v, **seen)))


def attended(q: Any, k: Any, v: Any, first: int, window: int) -> Any:
    seen: dict[str, Any] = {"first": first, "window": window}
    q, k, v = (np.ascontiguousarray(x) for x in (q, k, v))
    scores: Any = evaluate(NAMES[0], q, k, scale=0.25, **seen)
    weights: Any = evaluate(NAMES[1], scores, **seen)
    return evaluate(NAMES[2], weights, v, **seen)
