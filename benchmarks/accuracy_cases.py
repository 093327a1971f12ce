"""The operators that benchmarks/accuracy.py measures.

Each has torch's own name for the same mathematical function. Its inputs have the shapes of GPT-2's,
only smaller. Functions take tensors of either precision: with binary64 tensors they give the true
values, with binary32 tensors the yardstick.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as fn

Inputs = list[Any]
Rng = np.random.Generator
ATEN = torch.ops.aten
ROWS, WIDTH, HEAD, VOCABULARY = 64, 768, 64, 5003
SCALAR_DRAWS = 10


@dataclass(frozen=True)
class Case:
    """`op` with `attrs` on `make(rng)`, against `torch_fn` on the same tensors.

    `label` tells several cases of one operator apart. A scalar output gives one error a draw, so
    its case takes more `draws` of each seed.
    """

    op: str
    make: Callable[[Rng], Inputs]
    torch_fn: Callable[..., Any]
    attrs: dict[str, Any] = field(default_factory=dict)
    label: str = ""
    outputs: tuple[str, ...] = ("",)
    draws: int = 1

    def row_name(self, output: str) -> str:
        """accuracy/OP[:label][.output]/rmse_ratio"""
        label = f":{self.label}" if self.label else ""
        return f"accuracy/{self.op}{label}{'.' + output if output else ''}/rmse_ratio"


def normal(rng: Rng, *shape: int, scale: float = 1.0) -> np.ndarray:
    return (rng.standard_normal(shape) * scale).astype(np.float32)


def many(count: int, *shape: int, scale: float = 1.0) -> Callable[[Rng], Inputs]:
    return lambda rng: [normal(rng, *shape, scale=scale) for _ in range(count)]


def positive(*shape: int, scale: float = 1.0) -> Callable[[Rng], Inputs]:
    return lambda rng: [np.abs(normal(rng, *shape, scale=scale)) + np.float32(1e-3)]


def _elementwise() -> list[Case]:
    one, two = many(1, ROWS, WIDTH), many(2, ROWS, WIDTH)

    def apart(r: Rng) -> Inputs:
        return [normal(r, ROWS, WIDTH), *positive(ROWS, WIDTH)(r)]

    cases = [
        Case("aten.add.Tensor", two, lambda a, b: torch.add(a, b, alpha=0.75), {"alpha": 0.75}),
        Case("aten.sub.Tensor", two, torch.sub, {"alpha": 1.0}),
        Case("aten.mul.Tensor", two, torch.mul),
        Case("aten.div.Tensor", apart, torch.div),
        Case("aten.add.Scalar", one, lambda a: a + 0.375, {"other": 0.375, "alpha": 1.0}),
        Case("aten.sub.Scalar", one, lambda a: a - 0.375, {"other": 0.375, "alpha": 1.0}),
        Case("aten.mul.Scalar", one, lambda a: a * 0.71875, {"other": 0.71875}),
        Case("aten.div.Scalar", one, lambda a: a / 3.0, {"other": 3.0}),
        Case(
            "tallystick.fold",
            many(8, ROWS, WIDTH),
            lambda *x: torch.stack(x).mean(0),
            {"mean": True},
        ),
        Case("aten.silu", one, fn.silu),
        Case("aten.silu_backward", two, ATEN.silu_backward),
        Case(
            "aten.tanh_backward",
            lambda r: [normal(r, ROWS, WIDTH), np.tanh(normal(r, ROWS, WIDTH))],
            ATEN.tanh_backward,
        ),
        Case(
            "aten.sigmoid_backward",
            lambda r: [normal(r, ROWS, WIDTH), _unit(r)],
            ATEN.sigmoid_backward,
        ),
        Case("aten.leaky_relu", one, lambda x: fn.leaky_relu(x, 0.01), {"negative_slope": 0.01}),
        Case(
            "tallystick.mask_scale",
            lambda r: [normal(r, ROWS, WIDTH), _unit(r) > 0.1],
            lambda x, m: torch.where(m.bool(), x * (1 / 0.9), torch.zeros_like(x)),
            {"scale": 1 / 0.9},
        ),
    ]
    for reduction, code in (("mean", 1), ("sum", 2)):
        attrs = {"reduction": reduction}
        cases += [
            Case(
                "aten.mse_loss",
                two,
                lambda a, b, c=code: ATEN.mse_loss(a, b, c),
                attrs,
                reduction,
                draws=SCALAR_DRAWS,
            ),
            Case(
                "aten.mse_loss_backward",
                lambda r: [np.float32(0.7).reshape(()), *two(r)],
                lambda g, a, b, c=code: ATEN.mse_loss_backward(g, a, b, c),
                attrs,
                reduction,
            ),
        ]
    for name in ("cos", "erf", "exp", "exp2", "expm1", "sigmoid", "sin", "tanh", "square"):
        cases.append(Case(f"aten.{name}", many(1, ROWS, WIDTH, scale=2.0), getattr(torch, name)))
    for name in ("log", "log1p", "log2", "rsqrt", "sqrt", "reciprocal"):
        cases.append(Case(f"aten.{name}", positive(ROWS, WIDTH, scale=3.0), getattr(torch, name)))
    for e in (-1.0, -0.5, 0.5, 2.0, 3.0, 1.75):
        cases.append(
            Case(
                "aten.pow.Tensor_Scalar",
                positive(ROWS, WIDTH, scale=3.0),
                lambda x, e=e: torch.pow(x, e),
                {"exponent": e},
                f"{e:g}",
            )
        )
    for approximate in ("none", "tanh"):
        attrs = {"approximate": approximate}
        cases += [
            Case(
                "aten.gelu",
                one,
                lambda x, a=approximate: fn.gelu(x, approximate=a),
                attrs,
                approximate,
            ),
            Case(
                "aten.gelu_backward",
                two,
                lambda g, x, a=approximate: ATEN.gelu_backward(g, x, approximate=a),
                attrs,
                approximate,
            ),
        ]
    return cases


def _unit(rng: Rng) -> np.ndarray:
    return rng.random((ROWS, WIDTH), dtype=np.float32)


def _reductions() -> list[Case]:
    cases = []
    for shape, label in (((ROWS, WIDTH), "rows"), ((3000, ROWS), "columns"), ((100_000,), "flat")):
        dim = (0,) if label == "columns" else (len(shape) - 1,)
        attrs = {"dim": dim, "keepdim": False}
        draws = SCALAR_DRAWS if label == "flat" else 1
        make = many(1, *shape)
        cases += [
            Case(
                "aten.sum.dim_IntList",
                make,
                lambda x, d=dim: torch.sum(x, d),
                attrs,
                label,
                draws=draws,
            ),
            Case(
                "aten.mean.dim", make, lambda x, d=dim: torch.mean(x, d), attrs, label, draws=draws
            ),
            Case(
                "aten.var_mean.correction",
                make,
                lambda x, d=dim: torch.var_mean(x, d, correction=1),
                {**attrs, "correction": 1.0},
                label,
                ("var", "mean"),
                draws,
            ),
        ]
    whole = many(1, 200, WIDTH)
    cases += [
        Case("aten.sum", whole, torch.sum, draws=SCALAR_DRAWS),
        Case("aten.mean", whole, torch.mean, draws=SCALAR_DRAWS),
        Case("tallystick.sum_squares", whole, lambda x: (x * x).sum(), draws=SCALAR_DRAWS),
    ]
    return cases


def _dot() -> list[Case]:
    """Products as in one block of GPT-2, and a small convolution as in ResNet."""
    conv = {
        "stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "transposed": False,
        "output_padding": (0, 0), "groups": 1,
    }  # fmt: skip

    def image(r: Rng) -> Inputs:
        return [normal(r, 2, 32, 14, 14), normal(r, 32, 32, 3, 3), normal(r, 32)]

    def convolve(x: Any, w: Any, b: Any) -> Any:
        return fn.conv2d(x, w, b, padding=1)

    def convolve_back(g: Any, x: Any, w: Any) -> Any:
        return ATEN.convolution_backward(
            g, x, w, [32], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True] * 3
        )

    def operands(k: int, *added: int) -> Callable[[Rng], Inputs]:
        shapes = [*((width,) for width in added), (ROWS, k), (k, 192)]
        return lambda rng: [normal(rng, *shape) for shape in shapes]

    cases = []
    for k in (WIDTH, 4 * WIDTH):
        cases += [
            Case(
                "aten.mm",
                operands(k),
                torch.mm,
                label=str(k),
            ),
            Case(
                "aten.addmm",
                operands(k, 192),
                torch.addmm,
                {"beta": 1.0, "alpha": 1.0},
                str(k),
            ),
        ]
    return [
        *cases,
        Case(
            "aten.bmm", lambda r: [normal(r, 24, ROWS, HEAD), normal(r, 24, HEAD, ROWS)], torch.bmm
        ),
        Case("aten.convolution", image, convolve, conv),
        Case(
            "aten.convolution_backward",
            lambda r: [normal(r, 2, 32, 14, 14), *image(r)[:2]],
            convolve_back,
            {**conv, "output_mask": (True, True, True)},
            "",
            ("input", "weight", "bias"),
        ),
    ]


# Operators without a rounding to compare, and the reasons.
EXCLUDED = {
    "moves bits or selects values": (
        "_to_copy abs amax amin arange argmax cat clamp embedding expand full gather index_select "
        "masked_fill max maximum min minimum neg permute relu scatter.src slice slice_scatter "
        "threshold_backward tril triu view where"
    ),
    "gives integers": (
        "bitwise_left_shift.Tensor bitwise_right_shift.Tensor bitwise_xor.Tensor floor_divide"
    ),
    "gives bool": (
        "bitwise_and.Tensor bitwise_not bitwise_or.Tensor eq.Scalar eq.Tensor ge.Scalar ge.Tensor "
        "gt.Scalar gt.Tensor le.Scalar le.Tensor logical_and logical_not logical_or lt.Scalar "
        "lt.Tensor ne.Scalar ne.Tensor"
    ),
    # Its RMSE is 16 times that of torch on rows of WIDTH elements.
    "adds in binary32 by its clause, where torch's CPU kernel adds in binary64": "cumsum",
}
# Our own generator, binary64 or places: torch has no counterpart.
EXCLUDED_OWN = ("beta_power", "commit", "dequantize", "dropout_mask", "gumbel", "normal",
                "occurrences", "rank", "uniform")  # fmt: skip


def excluded() -> set[str]:
    own = {f"tallystick.{n}" for n in EXCLUDED_OWN}
    return own | {f"aten.{n}" for names in EXCLUDED.values() for n in names.split()}


def basic_cases() -> list[Case]:
    """Elementwise operators, reductions, products."""
    return [*_elementwise(), *_reductions(), *_dot()]
