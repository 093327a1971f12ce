"""Golden vectors of every operator, on every instruction set and thread count (NUMERICS 1.8)."""

from __future__ import annotations

import kernel_format as fmt
import make_kernel_vectors as maker
import numpy as np
import pytest
from reference.move import MOVE
from reference.ops import REFERENCE

from tallystick import _core
from tallystick.kernels.evaluate import evaluate
from tallystick.numerics.registry import all_ops

OPS = all_ops()
KINDS = {name: {k: a.kind for k, a in spec.attrs.items()} for name, spec in OPS.items()}
PATHS = [(isa, threads) for isa in _core.supported_isas() for threads in (1, 2, 3)]


def test_every_operator_has_a_reference_and_vectors() -> None:
    stored = {case.op for group in fmt.groups() for case in fmt.load(group, KINDS)}
    assert set(REFERENCE) == set(OPS)
    assert stored == set(OPS)
    assert fmt.groups() == sorted(maker.GROUPS)


def outputs_of(case: fmt.Case) -> tuple[np.ndarray, ...]:
    got = evaluate(case.op, *case.inputs, **dict(case.attrs))
    return got if isinstance(got, tuple) else (got,)


def difference(case: fmt.Case, got: tuple[np.ndarray, ...]) -> str:
    """What is wrong with `got`; empty if nothing is."""
    if len(got) != len(case.outputs):
        return f"{len(got)} outputs instead of {len(case.outputs)}"
    for i, (a, b) in enumerate(zip(got, case.outputs, strict=True)):
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"output {i} is {a.dtype}{a.shape}, not {b.dtype}{b.shape}"
        if not fmt.same_bits(a, b):
            unsigned = {1: np.uint8, 4: np.uint32, 8: np.uint64}[a.itemsize]
            bits_a, bits_b = (np.atleast_1d(x).view(unsigned).reshape(-1) for x in (a, b))
            at = int(np.flatnonzero(bits_a != bits_b)[0])
            return f"output {i}, element {at}: {bits_a[at]:#x}, expected {bits_b[at]:#x}"
    return ""


@pytest.mark.parametrize("group", fmt.groups())
def test_vectors(group: str) -> None:
    wrong = []
    for ordinal, case in enumerate(fmt.load(group, KINDS)):
        for isa, threads in PATHS:
            _core.set_isa(isa)
            _core.set_threads(threads)
            found = difference(case, outputs_of(case))
            if found:
                attrs = dict(case.attrs)
                wrong.append(f"{group}[{ordinal}] {case.op} {attrs} {isa}/{threads}: {found}")
    assert not wrong, "\n".join(wrong[:20])


def foreign_nans(x: np.ndarray | None) -> np.ndarray | None:
    """x with its NaNs signalling or negative, with payloads."""
    if x is None or x.dtype != np.float32:
        return x
    bits = x.copy().reshape(-1).view(np.uint32)
    at = np.flatnonzero(np.isnan(x.reshape(-1)))
    bits[at] = np.where(at % 2, 0x7FA12345, 0xFFC00001)
    return bits.view(np.float32).reshape(x.shape)


@pytest.mark.parametrize("group", fmt.groups())
def test_every_output_nan_is_canonical(group: str) -> None:
    """NUMERICS 1.5: whatever NaN comes in; operators that move data are excepted."""
    cases = [case for case in fmt.load(group, KINDS) if case.op not in MOVE]
    for case in cases:
        changed = tuple(map(foreign_nans, case.inputs))
        other = fmt.Case(case.op, case.attrs, changed, case.outputs)
        for isa in _core.supported_isas():
            _core.set_isa(isa)
            assert difference(case, outputs_of(other)) == "", (case.op, dict(case.attrs), isa)


def test_comparison_sees_one_bit() -> None:
    case = next(c for c in fmt.load("dot", KINDS) if c.outputs[0].size)
    spoilt = case.outputs[0].copy()
    spoilt.view(np.uint32).reshape(-1)[-1] ^= 1
    assert difference(case, case.outputs) == ""
    assert "expected" in difference(case, (spoilt,))


@pytest.mark.parametrize("group", sorted(maker.GROUPS))
def test_stored_vectors_are_the_reference(group: str) -> None:
    index, data = maker.build(group)
    assert (fmt.ROOT / f"{group}.json").read_text() == index
    assert (fmt.ROOT / f"{group}.bin").read_bytes() == data
