"""Groups that are cut into ranges of elements: which, where, and that no bit changes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.devices.context import ExecutionContext
from tallystick.devices.cpu import CPU
from tallystick.numerics.contracts import find_contract
from tallystick.numerics.operators.reduction import FOLD
from tallystick.numerics.registry import lookup
from tallystick.numerics.types import TensorType
from tallystick.program.build import Builder
from tallystick.program.canonical import canonicalize
from tallystick.program.cutting import ELEMENTWISE, LEAST_BYTES, SUM_SQUARES, UNIT, ranges
from tallystick.program.expand import numbering
from tallystick.program.ir import Program
from tallystick.program.owners import Owners
from tallystick.program.tail import Tail

N = LEAST_BYTES // 4 * 2  # elements that are enough for two workers
ODD = np.array([-0.0, 0.0, np.inf, -np.inf, np.nan, 1e-45, -3e38, 1.0, -1.0], np.float32)
_ADAM = {"beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "weight_decay": 0.1}
_SGD = {"momentum": 0.9, "dampening": 0.5, "weight_decay": 0.1, "nesterov": False}
_PLAIN = {"momentum": 0.0, "dampening": 0.0, "weight_decay": 0.0, "nesterov": False}
# Of each admitted operator: attributes, and operands: x a tensor, s f32[], d f64[], - absent.
CALLS: list[tuple[str, dict[str, Any], str]] = [
    *((f"aten.{n}", {}, "x") for n in ("abs", "neg", "reciprocal", "rsqrt", "sqrt", "square")),
    *((f"aten.{n}.Tensor", {}, of) for n in ("mul", "div") for of in ("xx", "xs", "sx")),
    *((f"aten.{n}.Tensor", {"alpha": a}, of) for n in ("add", "sub") for of in ("xx", "xs")
      for a in (1.0, 0.3)),
    *((f"aten.{n}.Scalar", {"other": 0.7}, "x") for n in ("mul", "div")),
    *((f"aten.{n}.Scalar", {"other": 0.7, "alpha": 1.5}, "x") for n in ("add", "sub")),
    *((f"aten.{n}", {}, "xx") for n in ("maximum", "minimum")),
    *(("aten.clamp", a, "x") for a in ({"min": -0.5}, {"max": 0.5}, {"min": -1.0, "max": 1.0})),
    *((f"tallystick.{n}_step", _ADAM, f"xxxxddd{c}") for n in ("adam", "adamw") for c in ("", "s")),
    *(("tallystick.sgd_step", _SGD | {"nesterov": nesterov, "dampening": 0.0}, "xxxds")
      for nesterov in (True, False)),
    ("tallystick.sgd_step", _SGD, "xxxd"), ("tallystick.sgd_step", _PLAIN, "xx-ds"),
    (FOLD, {"mean": False}, "xxx"), (FOLD, {"mean": True, "count": 7}, "x"),
]  # fmt: skip


def test_the_list_is_complete() -> None:
    assert {op for op, _, _ in CALLS} == set(ELEMENTWISE)
    assert {op: lookup(op).clause for op in ELEMENTWISE} == ELEMENTWISE


def operands(pattern: str, n: int, rng: np.random.Generator) -> list[np.ndarray | None]:
    found: list[np.ndarray | None] = []
    for at, kind in enumerate(pattern):
        x = (rng.standard_normal(n) * 10.0 ** rng.integers(-6, 6, n)).astype(np.float32)
        x[rng.integers(0, n, 9)] = ODD
        scalar = np.float64(rng.uniform(0.01, 0.9))
        found.append({"x": x, "s": np.array(np.float32(scalar)), "d": np.array(scalar)}.get(kind))
        if at == 3 and "d" in pattern and kind == "x":  # a second moment
            np.abs(x, out=x)
    return found


@pytest.mark.parametrize("contract", ["ordered/1", "rounded/1", "exact/1"])
@given(st.sampled_from(CALLS), st.integers(2, 5), st.integers(1, 4000), st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_ranges_get_the_bits_of_the_whole(
    contract: str, call: tuple[str, dict[str, Any], str], workers: int, n: int, seed: int
) -> None:
    """Of a tensor of two axes, by the kernels that the executor calls."""
    op, attrs, pattern = call
    n = 2 * n
    given_ = operands(pattern, n, np.random.default_rng(seed))
    run = CPU.kernels(find_contract(contract))[op].run

    def outputs(arrays: list[np.ndarray | None]) -> list[np.ndarray]:
        types = [None if a is None else TensorType(
            "f64" if a.dtype == np.float64 else "f32", a.shape) for a in arrays]  # fmt: skip
        made = [np.empty(t.shape, np.float32) for t in lookup(op).infer(attrs, tuple(types))]
        run(attrs, arrays, made)
        return made

    def of(arrays: list[np.ndarray | None], part: Any) -> list[np.ndarray | None]:
        return [a if a is None or not a.ndim else a[part] for a in arrays]

    with ExecutionContext(1).entered():
        square = [a.reshape(2, -1) if a is not None and a.ndim else a for a in given_]
        whole = [y.reshape(-1) for y in outputs(square)]
        for own in ranges(n, workers):
            part = slice(own.start, own.stop)
            if own:
                for y, expected in zip(outputs(of(given_, part)), whole, strict=True):
                    assert y.tobytes() == expected[part].tobytes()


@given(st.integers(0, 10**7), st.integers(1, 300))
def test_ranges_are_consecutive_balanced_and_begin_between_leaves(n: int, workers: int) -> None:
    found = ranges(n, workers)
    assert len(found) == workers and found[0].start == 0 and found[-1].stop == n
    assert all(a.stop == b.start for a, b in itertools.pairwise(found))
    assert all(r.start % UNIT == 0 or not r for r in found)
    assert max(map(len, found)) - min(map(len, found)) < 2 * UNIT


def embedding(n: int = N, middle: str = "", first: str = "") -> Program:
    """A large parameter with a buffer and an average, and a small one; clipped by their norm.

    `middle` is an operator on the large one's gradient before the norm; `first` another thing."""
    f32 = lambda *shape: TensorType("f32", shape)  # noqa: E731
    b = Builder("ordered/1-draft.1")
    large, small = b.state("param.large", f32(2, n // 2)), b.state("param.small", f32(4))
    moments = [b.state("opt.large", f32(2, n // 2)), b.state("opt.small", f32(4))]
    average = b.state("ema.large", f32(2, n // 2))
    x, lr = b.batch("x", f32()), b.scalar("lr")
    slopes = [b.one("aten.mul.Tensor", [x, p]) for p in (large, small)]
    loss = b.one("aten.mean", [slopes[1]])
    b.end_section()
    folded = [b.one(FOLD, [s], mean=True) for s in slopes]
    ended = b.one(FOLD, [loss], mean=True)
    if middle == "clamp":
        folded[0] = b.one("aten.clamp", [folded[0]], min=-1.0, max=1.0)
    elif middle == "exp":
        folded[0] = b.one("aten.exp", [folded[0]])
    elif middle == "full":
        ones = b.one("aten.full", [], size=(2, n // 2), value=1.0, dtype="f32")
        folded[0] = b.one("aten.add.Tensor", [folded[0], ones], alpha=1.0)
    squares = [b.one(SUM_SQUARES, [g]) for g in folded]
    coefficient, norm = b.emit("tallystick.clip_coef", squares, max_norm=0.5)
    after = {"ema.large": average}
    both = zip(("large", "small"), (large, small), folded, moments, strict=True)
    for name, p, g, m in both:
        after[f"param.{name}"], after[f"opt.{name}"] = b.emit(
            "tallystick.sgd_step", [p, g, m, lr, coefficient],
            momentum=0.9, dampening=0.0, weight_decay=0.0, nesterov=False,
        )  # fmt: skip
    change = b.one("aten.sub.Tensor", [after["param.large"], average], alpha=1.0)
    after["ema.large"] = b.one("aten.add.Tensor", [average, change], alpha=0.1)
    b.commit(after)
    return canonicalize(b.finish(after | {"loss": ended, "metric.norm": norm}))


def test_a_large_group_is_cut_and_a_small_one_is_not() -> None:
    owners = Owners((embedding(),), 2)
    assert owners.cut_slots == {"param.large", "opt.large", "ema.large"}
    assert owners.slots.keys() == {"param.small", "opt.small"}
    assert owners.parts("opt.large") == [(0, range(N // 2)), (1, range(N // 2, N))]
    held = owners.held_by(1)
    assert held["param.large"].shape == (2, N // 2)  # micro-batches read it
    assert held["opt.large"].shape == held["ema.large"].shape == (N // 2,)


@pytest.mark.parametrize(
    ("program", "workers", "cuts"),
    [
        (embedding(), 1, True),
        (embedding(), 3, True),  # its ranges would be too small
        (embedding(), 2, False),
        (embedding(N - 2), 2, True),
        (embedding(middle="exp"), 2, True),  # not in the list
        (embedding(middle="full"), 2, True),  # a tensor that every worker makes whole
    ],
)
def test_what_stays_whole(program: Program, workers: int, cuts: bool) -> None:
    owners = Owners((program,), workers, cuts=cuts)
    assert not owners.cut_slots and len(owners.slots) == 5


@pytest.mark.parametrize("extra", [frozenset(), frozenset({"ema.large"})])
def test_a_slot_that_all_read_is_held_whole_and_cut_all_the_same(extra: frozenset[str]) -> None:
    owners = Owners((embedding(),), 2, extra)
    assert ("ema.large" in owners.held) == bool(extra) and "ema.large" in owners.cut_slots
    assert owners.held_by(0)["ema.large"].shape == ((2, N // 2) if extra else (N // 2,))


@pytest.mark.parametrize("middle", ["", "clamp"])
def test_pieces_of_a_cut_tail(middle: str) -> None:
    """Both workers execute the large group; blocks of its norm are exchanged after the first
    phase, and an operand that is no fold is kept for them."""
    program = embedding(middle=middle)
    owners = Owners((program,), 2)
    for rank in (0, 1):
        first, last = Tail(owners, 0, rank, numbering(program, 2)).phases
        ((square, operand),) = first.squares
        assert program.nodes[square.node].op == SUM_SQUARES and not last.squares
        assert [owner for _, owner in first.exchanged] == [owners.slots["param.small"]]
        assert first.kept == ((operand,) if middle else ())
        assert {n.op for n in first.program.nodes} <= {"aten.clamp", SUM_SQUARES}
        shapes = {n: t.shape for n, t in last.program.state_types.items()}
        assert shapes["param.large"] == shapes["ema.large"] == (N // 2,)
        steps = [n for n in last.program.nodes if n.op == "tallystick.sgd_step"]
        assert len(steps) == (2 if rank == owners.slots["param.small"] else 1)
        assert (N // 2,) in {n.out_types[0].shape for n in steps}
