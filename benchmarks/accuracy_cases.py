"""The operators that benchmarks/accuracy.py measures, each with torch's own name for the same
mathematical function, on inputs shaped as GPT-2's, smaller. Functions take tensors of either
precision: with binary64 tensors they are the truth, with binary32 tensors the yardstick."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as fn
from torch.optim.adam import adam as torch_adam
from torch.optim.adamw import adamw as torch_adamw
from torch.optim.sgd import sgd as torch_sgd

Inputs = list[Any]
Rng = np.random.Generator
ATEN = torch.ops.aten
ROWS, WIDTH, HEAD, VOCABULARY = 64, 768, 64, 5003
SCALAR_DRAWS = 10


@dataclass(frozen=True)
class Case:
    """`op` with `attrs` on `make(rng)`, against `torch_fn` on the same tensors. `label` tells
    several cases of one operator apart. A scalar output gives one error a draw: those take more
    `draws` of each seed."""

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

    cases = []
    for k in (WIDTH, 4 * WIDTH):
        cases += [
            Case(
                "aten.mm",
                lambda r, k=k: [normal(r, ROWS, k), normal(r, k, 192)],
                torch.mm,
                label=str(k),
            ),
            Case(
                "aten.addmm",
                lambda r, k=k: [normal(r, 192), normal(r, ROWS, k), normal(r, k, 192)],
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


def _softmax(x: np.ndarray) -> np.ndarray:
    return torch.softmax(torch.from_numpy(x), -1).numpy()


def _normalisation() -> list[Case]:
    dim, norm = {"dim": 2}, {"normalized_shape": (WIDTH,)}
    head = many(1, 24, ROWS, HEAD)

    def back(logarithm: bool) -> Callable[[Rng], Inputs]:
        def make(r: Rng) -> Inputs:
            y = _softmax(normal(r, 24, ROWS, HEAD))
            return [normal(r, 24, ROWS, HEAD), np.log(y) if logarithm else y]

        return make

    def affine(r: Rng) -> Inputs:
        return [
            normal(r, 256, WIDTH) + np.float32(0.3),
            1 + normal(r, WIDTH, scale=0.1),
            normal(r, WIDTH),
        ]

    def layer_norm(x: Any, w: Any, b: Any) -> Any:
        return ATEN.native_layer_norm(x, [WIDTH], w, b, 1e-5)

    def affine_back(r: Rng) -> Inputs:
        x, w, b = affine(r)
        mean, rstd = layer_norm(*(torch.from_numpy(a) for a in (x, w, b)))[1:]
        return [normal(r, 256, WIDTH), x, mean.numpy(), rstd.numpy(), w, b]

    def layer_norm_back(g: Any, x: Any, mean: Any, rstd: Any, w: Any, b: Any) -> Any:
        return ATEN.native_layer_norm_backward(g, x, [WIDTH], mean, rstd, w, b, [True] * 3)

    return [
        Case("aten._softmax", head, lambda x: torch.softmax(x, -1), dim),
        Case(
            "aten._softmax",
            many(1, 8, VOCABULARY),
            lambda x: torch.softmax(x, -1),
            {"dim": 1},
            "vocabulary",
        ),
        Case("aten._log_softmax", head, lambda x: torch.log_softmax(x, -1), dim),
        Case(
            "aten._softmax_backward_data",
            back(False),
            lambda g, y: ATEN._softmax_backward_data(g, y, -1, y.dtype),
            dim,
        ),
        Case(
            "aten._log_softmax_backward_data",
            back(True),
            lambda g, y: ATEN._log_softmax_backward_data(g, y, -1, y.dtype),
            dim,
        ),
        Case(
            "aten.native_layer_norm",
            affine,
            layer_norm,
            {**norm, "eps": 1e-5},
            "",
            ("y", "mean", "rstd"),
        ),
        Case(
            "aten.native_layer_norm_backward",
            affine_back,
            layer_norm_back,
            {**norm, "output_mask": (True, True, True)},
            "",
            ("input", "weight", "bias"),
        ),
    ]


def _losses() -> list[Case]:
    def labelled(r: Rng) -> Inputs:
        return [normal(r, ROWS, 1003), r.integers(0, 1003, ROWS)]

    def likelihood(r: Rng) -> Inputs:
        x, t = labelled(r)
        return [torch.log_softmax(torch.from_numpy(x), -1).numpy(), t]

    cases = []
    for reduction, code in (("mean", 1), ("sum", 2)):
        attrs = {"ignore_index": -100, "reduction": reduction}
        cases += [
            Case(
                "tallystick.cross_entropy",
                labelled,
                lambda x, t, n=reduction: fn.cross_entropy(x, t, reduction=n),
                attrs,
                reduction,
                draws=SCALAR_DRAWS,
            ),
            Case(
                "aten.nll_loss_forward",
                likelihood,
                lambda x, t, c=code: ATEN.nll_loss_forward(x, t, None, c, -100)[0],
                attrs,
                reduction,
                draws=SCALAR_DRAWS,
            ),
            Case(
                "aten.nll_loss_backward",
                lambda r: [
                    np.float32(0.7).reshape(()),
                    *likelihood(r),
                    np.float32(ROWS).reshape(()),
                ],
                lambda g, x, t, w, c=code: ATEN.nll_loss_backward(g, x, t, None, c, -100, w),
                attrs,
                reduction,
            ),
        ]

    def gradient(g: Any, x: Any, t: Any, *_: Any) -> Any:
        x = x.detach().requires_grad_()
        return torch.autograd.grad(fn.cross_entropy(x, t), x, g)[0]

    # m and s are ours: the whole backward is compared, with torch's own saved values on its side.
    cases.append(
        Case(
            "tallystick.cross_entropy_backward",
            lambda r: [np.float32(0.7).reshape(()), *labelled(r)],
            gradient,
            {"ignore_index": -100, "reduction": "mean"},
        )
    )
    return cases


def _scatter() -> list[Case]:
    def gradients(r: Rng) -> Inputs:
        return [normal(r, 1024, 96), np.minimum(r.zipf(1.3, 1024) - 1, 299).astype(np.int64)]

    return [
        Case(
            "aten.embedding_dense_backward",
            gradients,
            lambda g, i: ATEN.embedding_dense_backward(g, i, 300, -1, False),
            {"num_weights": 300, "padding_idx": -1, "scale_grad_by_freq": False},
        ),
        Case(
            "aten.index_add",
            lambda r: [normal(r, 300, 96), *gradients(r)[::-1]],
            lambda x, i, s: torch.index_add(x, 0, i, s),
            {"dim": 0},
        ),
    ]


STEP, BETA1, BETA2 = 5, 0.9, 0.95


def _optimizers() -> list[Case]:
    def state(r: Rng) -> Inputs:
        return [
            normal(r, 50_000, scale=0.02),
            normal(r, 50_000, scale=0.01),
            normal(r, 50_000, scale=0.005),
            np.square(normal(r, 50_000, scale=0.01)),
        ]

    def adam_state(r: Rng) -> Inputs:
        return [*state(r), np.array(3e-4), np.array(BETA1**STEP), np.array(BETA2**STEP)]

    def adam(step: Callable[..., None], **extra: Any) -> Callable[..., Any]:
        def run(p: Any, g: Any, m: Any, v: Any, lr: Any, *_: Any) -> Any:
            own = [x.clone() for x in (p, m, v)]
            steps = [torch.tensor(float(STEP - 1))]
            step(
                [own[0]],
                [g],
                [own[1]],
                [own[2]],
                [],
                steps,
                foreach=False,
                capturable=False,
                differentiable=False,
                fused=False,
                grad_scale=None,
                found_inf=None,
                has_complex=False,
                amsgrad=False,
                beta1=BETA1,
                beta2=BETA2,
                lr=float(lr),
                eps=1e-8,
                weight_decay=0.1,
                maximize=False,
                **extra,
            )
            return own

        return run

    def sgd(nesterov: bool) -> Callable[..., Any]:
        def run(p: Any, g: Any, buf: Any, lr: Any) -> Any:
            own = [p.clone(), buf.clone()]
            torch_sgd(
                [own[0]],
                [g],
                [own[1]],
                weight_decay=0.01,
                momentum=0.9,
                lr=float(lr),
                dampening=0.0,
                nesterov=nesterov,
                maximize=False,
                foreach=False,
                fused=False,
            )
            return own

        return run

    attrs = {"beta1": BETA1, "beta2": BETA2, "eps": 1e-8, "weight_decay": 0.1}
    names = ("p", "m", "v")
    cases = [
        Case("tallystick.adamw_step", adam_state, adam(torch_adamw), attrs, "", names),
        Case("tallystick.adam_step", adam_state, adam(torch_adam), attrs, "", names),
        Case(
            "tallystick.clip_coef",
            lambda r: [np.float32(x).reshape(()) for x in np.abs(r.standard_normal(148))],
            lambda *s: (lambda n: (torch.clamp(1 / (n + 1e-6), max=1.0), n))(
                torch.sqrt(torch.stack(s).sum())
            ),
            {"max_norm": 1.0},
            "",
            ("coefficient", "norm"),
            3 * SCALAR_DRAWS,
        ),
    ]
    for nesterov in (False, True):
        cases.append(
            Case(
                "tallystick.sgd_step",
                lambda r: [*state(r)[:3], np.array(0.1)],
                sgd(nesterov),
                {"momentum": 0.9, "dampening": 0.0, "weight_decay": 0.01, "nesterov": nesterov},
                "nesterov" if nesterov else "momentum",
                ("p", "buf"),
            )
        )
    return cases


# Operators without a rounding to compare, and why.
EXCLUDED = {
    "moves bits or selects values": (
        "_to_copy abs amax amin arange argmax cat clamp embedding expand full gather index_select "
        "masked_fill max maximum min minimum neg permute relu slice slice_scatter "
        "threshold_backward tril triu view where"
    ),
    "gives bool": (
        "bitwise_and.Tensor bitwise_not bitwise_or.Tensor eq.Scalar eq.Tensor ge.Scalar ge.Tensor "
        "gt.Scalar gt.Tensor le.Scalar le.Tensor logical_and logical_not logical_or lt.Scalar "
        "lt.Tensor ne.Scalar ne.Tensor"
    ),
}
# Our own generator or binary64: torch has no counterpart.
EXCLUDED_OWN = ("beta_power", "commit", "dropout_mask", "normal", "uniform")


def excluded() -> set[str]:
    own = {f"tallystick.{n}" for n in EXCLUDED_OWN}
    return own | {f"aten.{n}" for names in EXCLUDED.values() for n in names.split()}


def all_cases() -> Sequence[Case]:
    families = (
        _elementwise, _reductions, _dot, _normalisation, _losses, _scatter, _optimizers,
    )  # fmt: skip
    return [case for family in families for case in family()]
