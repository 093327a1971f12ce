"""What the code states of an element is what the text makes of it (OPENING 6 to 11).

Golden calls, and the same with infinities, NaNs, subnormals and large numbers in their operands:
every need of every quantity below an element, by the code and by the judge from the text alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import kernel_format as fmt
import numpy as np
import pytest
from evidence_operators import CONTRACTS
from operator_job import golden
from reference.judge.element import better
from reference.judge.quantities import Element, Q, RefusedError, block, decode, encode
from reference.judge.trees import quantity

from tallystick.numerics.contracts import find_contract
from tallystick.numerics.registry import all_ops
from tallystick.numerics.types import type_of
from tallystick.opening import quantity as ours
from tallystick.opening.values import WholeSource
from tallystick.opening.views import View, locate, view_values

NASTY = np.array(
    [0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1.2e-38, 3.4e38, -3.4e38, 0.5,
     16777217, 1e-20, -1e30, 88.7, -103.9, 7.5],
    np.float32,
)  # fmt: skip
# Attributes at their limits, besides those of the golden calls.
ODD: dict[str, Sequence[float]] = {
    "exponent": (np.inf, -np.inf, np.nan, 0.5, 2.0, -3.0, -0.0, 1e300),
    "correction": (0.0, 0.1, 2.5, 1e9, -3.3),
    "eps": (1e-40, 0.1, 1e10),
    "max_norm": (1e-40, 0.1, 1e10),
}
BLOCK = 256
FORMS = {**CONTRACTS, "exact": "exact/1;b=8", "exact-22": "exact/1"}


def finished(formula: Iterator[Any]) -> Any:
    """What a formula gives whose reads are all at hand."""
    try:
        next(formula)
    except StopIteration as end:
        return end.value
    raise AssertionError("a read that was not at hand")


def summed(dtype: str, values: list[Any]) -> Any:
    """Blocks of blocks (OPENING 2.7)."""
    while True:
        firsts = range(0, max(len(values), 1), BLOCK)
        values = [block(dtype, values[k : k + BLOCK]) for k in firsts]
        if len(values) == 1:
            return values[0]


class Whole:
    """Values of quantities over whole operands, by the text."""

    def __init__(self, operands: Sequence[np.ndarray | None]) -> None:
        self.operands, self.known = operands, {}  # type: ignore[var-annotated]

    def read(self, k: int, positions: Sequence[int]) -> Any:
        flat = self.operands[k].reshape(-1)  # type: ignore[union-attr]
        assert all(0 <= f < flat.size for f in positions)
        return flat[list(positions)]
        yield

    def bytes_of(self, q: Q) -> bytes:
        if id(q) not in self.known:
            with np.errstate(all="ignore"):
                self.known[id(q)] = (q, encode(q.dtype, self._value(q)))
        return self.known[id(q)][1]

    def _value(self, q: Q) -> Any:
        needs = [decode(n.dtype, self.bytes_of(n)) for n in q.needs]
        if q.kind == "local":
            return finished(q.f(self.read, *needs))
        if q.kind == "extremum":
            flat, at = self.operands[0].reshape(-1), 0  # type: ignore[union-attr]
            for i in range(1, q.count):
                at = i if better(q.word, flat[q.f(i)], flat[q.f(at)]) else at
            return at if q.word == "argmax" else flat[q.f(at)]
        if q.kind == "chain":
            state = q.start
            for k in range(0, q.count, q.stretch):
                made = finished(q.f(self.read, k, min(k + q.stretch, q.count), state, *needs))
                state = decode(q.dtype, encode(q.dtype, made))
            return state
        if q.kind == "tree":
            terms: list[Any] = []
            for k in range(0, q.count, BLOCK):
                numbers = range(k, min(k + BLOCK, q.count))
                terms += list(finished(q.f(self.read, numbers, *needs)))
            return summed(q.dtype, terms)
        assert q.kind == "terms"
        inner = [q.f(i) for i in range(q.count)]
        return summed(q.dtype, [decode(t.dtype, self.bytes_of(t)) for t in inner])


def below(q: Q, path: tuple[int, ...] = ()) -> Iterator[tuple[Q, tuple[int, ...]]]:
    """Every quantity that has needs, with its path; of terms the first, middle and last."""
    if q.needs:
        yield q, path
    for k, need in enumerate(q.needs):
        yield from below(need, (*path, k))
    if q.kind == "terms" and q.count:
        for i in sorted({0, q.count // 2, q.count - 1}):
            yield from below(q.f(i), (*path, len(q.needs) + i))


def nasty(case: fmt.Case, rng: np.random.Generator) -> fmt.Case:
    """The call with other operands and attributes of the same shapes and kinds."""
    inputs = []
    for x in case.inputs:
        if x is not None and x.dtype == np.float32 and x.size:
            flat = x.reshape(-1).copy()
            if rng.integers(2):
                with np.errstate(all="ignore"):
                    flat *= np.float32(10.0 ** rng.integers(-30, 30))
            some = rng.integers(0, x.size, 1 + x.size // int(rng.integers(1, 20)))
            flat[some] = rng.choice(NASTY, some.size)
            flat[np.isnan(flat)] = np.nan
            x = flat.reshape(x.shape)
        inputs.append(x)
    attrs = {k: float(rng.choice(ODD[k])) if k in ODD else v for k, v in case.attrs.items()}
    return replace(case, inputs=inputs, attrs=attrs)


def differences(
    case: fmt.Case, contract: str, rng: np.random.Generator | None
) -> Iterator[str | None]:
    """One for each value that was compared; None where it is the same. Without `rng` of every
    element."""
    operands = tuple(None if x is None else type_of(x) for x in case.inputs)
    types = tuple(type_of(y) for y in case.outputs)
    whole, source = Whole(case.inputs), WholeSource(case.inputs)
    given = [None if t is None else (t.dtype, t.shape) for t in operands]
    for out, y in enumerate(case.outputs):
        drawn = range(y.size) if rng is None else rng.integers(0, y.size, 2)
        for e in sorted({0, y.size - 1, *map(int, drawn)}):
            site = ours.Site(case.op, case.attrs, operands, types, out, e, contract)
            rule = ours.opening_rule(site)
            kind = (types[out].dtype, types[out].shape)
            tree = quantity(Element(case.op, dict(case.attrs), given, kind, out, e), contract)
            for q, path in below(tree):
                stated = view_values(locate(rule, path), View("needs"), source)
                for need, value in zip(q.needs, stated, strict=True):
                    mine, theirs = whole.bytes_of(need), np.asarray(value).tobytes()
                    what = f"{case.op}, output {out}, element {e}: {need.name} at {path}"
                    yield None if mine == theirs else f"{what}: {theirs.hex()}, not {mine.hex()}"


@pytest.mark.parametrize("form", FORMS)
def test_the_code_states_what_the_text_says(form: str) -> None:
    contract, rng = find_contract(FORMS[form]).text, np.random.default_rng(5)
    wrong: list[str] = []
    compared, ops = 0, set()
    defined = {name for name, spec in all_ops().items() if spec.is_under(contract)}
    for case in golden(4, 3000, defined):
        for call in (case, nasty(case, rng)):
            try:
                for found in differences(call, contract, rng):
                    compared += 1
                    ops.add(case.op)
                    wrong += [] if found is None else [found]
            except RefusedError:
                continue
    assert not wrong, f"{len(wrong)} of {compared}:\n" + "\n".join(wrong[:5])
    least = {"ordered": 18, "rounded": 23, "bounded": 23, "published": 80,
             "exact": 22, "exact-22": 22}  # fmt: skip
    assert len(ops) >= least[form], sorted(ops)


@pytest.mark.parametrize("exponent", [*ODD["exponent"], 2.5, 3.0, -2.0, -0.5, 1.0])
def test_powers_of_every_kind_of_number(exponent: float) -> None:
    """OPENING 10.9.2, line by line: every base with every kind of exponent."""
    call = fmt.Case("aten.pow.Tensor_Scalar", {"exponent": exponent}, (NASTY,), (NASTY,))
    found = [*differences(call, find_contract(CONTRACTS["published"]).text, None)]
    assert len(found) == NASTY.size
    assert not any(found), [f for f in found if f]
