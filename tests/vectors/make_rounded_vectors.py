"""Writes vectors/rounded (see its README.md) from the plain references, never from a kernel.

    PYTHONPATH=tests:tests/vectors python tests/vectors/make_rounded_vectors.py

The calls of the rounded operators are those of vectors/kernels that are small enough for sums in
fractions, and some whose sums lie on boundaries of the grid and beside them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kernel_format as fmt
import numpy as np
from reference import rounded_operators as reference
from reference.nasty import near_boundaries
from reference.ops import REFERENCE
from replay_cases import bounded_text, published_text

ROOT = Path(__file__).resolve().parents[2] / "vectors" / "rounded"
CONTRACTS = {"grid-27": "rounded/1-draft.1;b=27", "grid-32": "rounded/1-draft.1"}
BITS = {"grid-27": 27, "grid-32": 32}
# Terms of all elements together: each is a fraction.
MOST_TERMS = 1500
# The calls of vectors/kernels that are looked at, by group: those added later change nothing here.
GROUPS = {"dot": 64, "reduction": 203, "image": 124}
# Of the calls in vectors/kernels: kinds of attributes that are no JSON number or list of them.
KINDS = {"aten.addmm": {"alpha": "float", "beta": "float"}}
OPERATORS = (
    "aten.mm", "aten.bmm", "aten.addmm", "aten.convolution", "aten.convolution_backward",
    "aten.sum", "aten.sum.dim_IntList", "aten.mean", "aten.mean.dim",
)  # fmt: skip
Arrays = list[Any]


class _AnyKind(dict[str, str]):
    """Attributes are ints, bools and lists of them, where no operator says otherwise."""

    def __missing__(self, name: str) -> str:
        return "int"


class _Kinds(dict[str, Any]):
    def __missing__(self, op: str) -> _AnyKind:
        return _AnyKind(KINDS.get(op, {}))


def _reduced(op: str, attrs: dict[str, Any], x: np.ndarray, bits: int) -> np.ndarray:
    rank = max(1, x.ndim)
    wide = x.reshape(1) if x.ndim == 0 else x
    axes = tuple(sorted(d % rank for d in attrs.get("dim", ()))) or tuple(range(rank))
    made = reference.sums(wide, axes, bits, op.startswith("aten.mean"))
    if attrs.get("keepdim") and x.ndim:
        kept = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
        made = made.reshape(kept)
    return made.reshape(()) if x.ndim == 0 else made


def _form(attrs: dict[str, Any]) -> dict[str, Any]:
    def two(name: str) -> tuple[int, int]:
        values = attrs[name]
        return (values[0], values[-1])

    names = ("stride", "padding", "dilation")
    return {**{name: two(name) for name in names}, "groups": attrs["groups"]}


def outputs_of(op: str, attrs: dict[str, Any], inputs: Arrays, shape: Any, bits: int) -> Arrays:
    """The call's outputs by 13.3; `shape` is that of a convolution's output."""
    if inputs[0].dtype != np.float32:  # 13.1: on f32 only
        return REFERENCE[op](attrs, inputs)
    if op == "aten.mm":
        return [reference.mm(*inputs, bits)]
    if op == "aten.bmm":
        return [reference.bmm(*inputs, bits)]
    if op == "aten.addmm":
        return [reference.addmm(*inputs, bits, attrs["beta"], attrs["alpha"])]
    if op == "aten.convolution":
        x, w, bias = (*inputs, None)[:3]
        return [reference.convolution(x, w, bias, shape, bits, **_form(attrs))]
    if op == "aten.convolution_backward":
        grad, x, w = inputs
        form = _form(attrs)
        made = (
            lambda: reference.input_gradient(grad, x.shape, w, bits, **form),
            lambda: reference.weight_gradient(grad, x, w.shape, bits, **form),
            lambda: reference.bias_gradient(grad, bits),
        )
        return [make() for make, wanted in zip(made, attrs["output_mask"], strict=True) if wanted]
    return [_reduced(op, attrs, inputs[0], bits)]


def _terms(case: fmt.Case) -> int:
    """About how many terms the call's elements have."""
    sizes = [x.size for x in case.inputs if x is not None]
    if "convolution" in case.op:
        weight = case.inputs[-1 if case.op.endswith("backward") else 1]
        assert weight is not None
        per_place = weight[0].size if weight.size else 1
        return 3 * max(sizes[0], sizes[1], *(y.size for y in case.outputs)) * per_place
    if case.op in ("aten.mm", "aten.bmm", "aten.addmm"):
        a = case.inputs[-2]
        assert a is not None
        return case.outputs[0].size * a.shape[-1]
    return sizes[0]


def _boundary_calls(bits: int) -> Iterator[tuple[str, dict[str, Any], Arrays]]:
    for seed in range(3):
        a, b = near_boundaries(9, 21, 5, 100 * bits + seed, bits)
        yield "aten.mm", {}, [a, b]
        yield "aten.bmm", {}, [np.stack([a, -a]), np.stack([b, b])]
        for beta, alpha in ((1.0, 1.0), (0.0, 1.0), (2.0, 0.5), (1.0, 3.0)):
            c = np.resize(b[:, :5], (9, 5)).copy()
            yield "aten.addmm", {"alpha": alpha, "beta": beta}, [c, a, b]
        terms = a * np.resize(b[:, 1], 21)
        for keepdim in (False, True):
            yield "aten.sum.dim_IntList", {"dim": (1,), "keepdim": keepdim}, [terms]
            yield "aten.mean.dim", {"dim": (-1,), "keepdim": keepdim}, [terms]
        yield "aten.sum", {}, [terms[seed]]
        yield "aten.mean", {}, [terms[seed]]


def calls(bits: int) -> list[fmt.Case]:
    """The stored calls, outputs from the reference."""
    made: list[fmt.Case] = []
    with np.errstate(all="ignore"):
        for group, first in GROUPS.items():
            for case in fmt.load(group, _Kinds())[:first]:
                if case.op not in OPERATORS or _terms(case) > MOST_TERMS:
                    continue
                shape = case.outputs[0].shape if case.outputs else ()
                outputs = outputs_of(case.op, dict(case.attrs), list(case.inputs), shape, bits)
                made.append(fmt.Case(case.op, case.attrs, case.inputs, tuple(outputs)))
        for op, attrs, inputs in _boundary_calls(bits):
            outputs = outputs_of(op, attrs, inputs, (), bits)
            made.append(fmt.Case(op, attrs, tuple(inputs), tuple(outputs)))
    return made


def files() -> dict[str, bytes]:
    """Every file of the folder but its README, by name."""
    made: dict[str, bytes] = {}
    for group, contract in CONTRACTS.items():
        text, data = fmt.encode(calls(BITS[group]), group, contract)
        made |= {f"{group}.json": text.encode(), f"{group}.bin": data}
    made["bounded.json"] = bounded_text().encode()
    made["published.json"] = published_text().encode()
    return made


if __name__ == "__main__":
    ROOT.mkdir(parents=True, exist_ok=True)
    for name, data in files().items():
        (ROOT / name).write_bytes(data)
        print(name, len(data))
