"""Writes vectors/exact (see its README.md) from the plain reference, never from a kernel.

    PYTHONPATH=tests:tests/vectors python tests/vectors/make_exact_vectors.py

The calls are those of the dot class in vectors/kernels that are small enough for fractions, and
some with rounding ties, whole blocks of the largest integers, and several blocks or segments.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kernel_format as fmt
import numpy as np
from make_rounded_vectors import _Kinds, _terms
from reference.data import Gen
from reference.exact_blocks import LENGTH, outputs

ROOT = Path(__file__).resolve().parents[2] / "vectors" / "exact"
CONTRACTS = {f"b-{b}": f"exact/1-draft.1;b={b}" for b in LENGTH}
WIDTHS = {f"b-{b}": b for b in LENGTH}
MOST_TERMS = 4000
# The calls of vectors/kernels that are looked at, by group: those added later change nothing here.
GROUPS = {"dot": 64, "image": 124}
OPERATORS = ("aten.mm", "aten.bmm", "aten.addmm", "aten.convolution", "aten.convolution_backward")
F32 = np.float32
Call = tuple[str, dict[str, Any], list[Any]]


def _form(**changes: Any) -> dict[str, Any]:
    attrs: dict[str, Any] = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
    return {**attrs, "transposed": False, "output_padding": (0, 0), **changes}


def _own_calls(b: int) -> Iterator[Call]:
    gen, length = Gen(f"exact {b}"), LENGTH[b]
    below = np.nextafter(F32(1), F32(0))
    ties = F32([below, -below, *(np.arange(-5, 6) + 0.5) * 2.0 ** (1 - b)])
    for scale in (0, -140, 100):
        x = np.ldexp(ties, scale).astype(F32)
        yield "aten.mm", {}, [np.diag(x), np.eye(len(x), dtype=F32)]
        yield "aten.mm", {}, [x[None], x[:, None]]
    for k in (length - 1, length, length + 1, 2 * length + 7):
        yield "aten.mm", {}, [gen.wide(1, k), gen.floats(k, 2)]
    full = np.full((2, length), below)
    full[1] = -full[1]
    yield "aten.mm", {}, [full, np.ascontiguousarray(-full.T)]
    for alpha, beta in ((1.0, 1.0), (1.0, 0.0), (0.3, 0.7)):
        attrs = {"alpha": alpha, "beta": beta}
        yield "aten.addmm", attrs, [gen.mixed(3), gen.mixed(2, 40), gen.mixed(40, 3)]
    yield "aten.bmm", {}, [gen.tiny(2, 3, 20), gen.wide(2, 20, 2)]
    if b == 8:  # several segments: of channels, of output channels, of images; two blocks of one
        mask = {"output_mask": (True, True, True)}
        yield "aten.convolution", _form(), [gen.wide(1, 60, 2, 2), gen.floats(2, 60, 3, 3)]
        yield "aten.convolution_backward", _form(**mask), [
            gen.floats(1, 58, 2, 2), gen.wide(1, 2, 2, 2), gen.floats(58, 2, 3, 3),
        ]  # fmt: skip
        yield "aten.convolution_backward", _form(**mask), [
            gen.wide(66, 1, 2, 2), gen.wide(66, 1, 2, 2), gen.floats(1, 1, 3, 3),
        ]  # fmt: skip
        only = {"output_mask": (False, True, False)}
        yield "aten.convolution_backward", _form(padding=(0, 0), **only), [
            gen.wide(1, 1, 17, 17), gen.wide(1, 1, 17, 17), gen.floats(1, 1, 1, 1),
        ]  # fmt: skip


def calls(b: int) -> list[fmt.Case]:
    """The stored calls, outputs from the reference."""
    made: list[fmt.Case] = []
    with np.errstate(all="ignore"):
        for group, first in GROUPS.items():
            for case in fmt.load(group, _Kinds())[:first]:
                if case.op in OPERATORS and _terms(case) <= MOST_TERMS:
                    results = outputs(case.op, dict(case.attrs), case.inputs, b)
                    made.append(fmt.Case(case.op, case.attrs, case.inputs, tuple(results)))
        for op, attrs, inputs in _own_calls(b):
            results = outputs(op, attrs, inputs, b)
            made.append(fmt.Case(op, attrs, tuple(inputs), tuple(results)))
    return made


def files() -> dict[str, bytes]:
    """Every file of the folder but its README, by name."""
    made: dict[str, bytes] = {}
    for group, contract in CONTRACTS.items():
        text, data = fmt.encode(calls(WIDTHS[group]), group, contract)
        made |= {f"{group}.json": text.encode(), f"{group}.bin": data}
    return made


if __name__ == "__main__":
    ROOT.mkdir(parents=True, exist_ok=True)
    for name, data in files().items():
        (ROOT / name).write_bytes(data)
        print(name, len(data))
