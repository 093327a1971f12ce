"""Losses and activations of torch.nn as compositions (PROGRAM 5.2, NUMERICS 7)."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from lowering_cases import Case, assert_same_values, check  # noqa: E402
from torch import Tensor, nn  # noqa: E402

X = torch.linspace(-2.6, 2.9, 20, dtype=torch.float64).float().reshape(4, 5)[:, [3, 0, 4, 2, 1]]
Y = X.flip(0) * 0.7 + 0.05
CLASSES = torch.tensor([3, 0, 4, 2])
IGNORED = torch.tensor([3, -100, 4, -100])
WEIGHTS = torch.tensor([0.5, 1.5, 2.0, 0.25, 1.0])
IMAGES = torch.stack([X, Y, X * Y, X - 0.5]).unsqueeze(0)
PIXELS = torch.tensor([0, 3, 1, 2, 3] * 4).reshape(1, 4, 5)
REDUCTIONS = ("none", "mean", "sum")

# What the functions below read beside their operands: a batch holds them, as a user's would.
CONSTANTS = {
    "classes": CLASSES,
    "ignored": IGNORED,
    "weights": WEIGHTS,
    "pixels": PIXELS,
    "several": torch.tensor(
        [[3, 0, -1, 1, 2], [-1, 0, 0, 0, 0], [4, 3, 2, 1, 0], [1, -1, 1, 1, 1]]
    ),
}
K: dict[str, Tensor] = {}


def with_constants(
    function: Any, trained: tuple[Tensor, ...], fixed: Any = (), **more: Any
) -> Case:
    def run(*operands: Tensor) -> Any:
        count = len(operands) - len(CONSTANTS)
        K.update(zip(CONSTANTS, operands[count:], strict=True))
        try:
            return function(*operands[:count])
        finally:
            K.clear()  # a tensor that stays there would be state of the next call

    return Case(run, trained, (*fixed, *CONSTANTS.values()), **more)


def sides(x: Tensor) -> Tensor:
    """1 or −1 for each row."""
    return torch.where(K["classes"][:, None] > 2, 1.0, -1.0).to(x.dtype)


ACTIVATIONS: dict[str, nn.Module] = {
    "hardshrink": nn.Hardshrink(),
    "softshrink": nn.Softshrink(),
    "rrelu in evaluation": nn.RReLU().eval(),
    "threshold": nn.Threshold(0.3, -1.5),
    "hardtanh": nn.Hardtanh(-1.5, 0.75),
    "relu6": nn.ReLU6(),
    "elu": nn.ELU(0.7),
    "selu": nn.SELU(),
    "celu": nn.CELU(0.7),
    "gelu": nn.GELU(),
    "gelu tanh": nn.GELU("tanh"),
    "silu": nn.SiLU(),
    "mish": nn.Mish(),
    "softplus": nn.Softplus(2.0, 3.0),
    "logsigmoid": nn.LogSigmoid(),
    "softsign": nn.Softsign(),
    "tanhshrink": nn.Tanhshrink(),
    "glu": nn.GLU(0),
    "softmin": nn.Softmin(1),
    "hardswish": nn.Hardswish(),
    "hardsigmoid": nn.Hardsigmoid(),
    "leaky relu": nn.LeakyReLU(0.2),
}
# Where a slope changes, and points beside it.
KINKS = torch.tensor([0.0, -0.0, 0.5, -0.5, 0.3, -1.5, 0.75, 6.0, 3.0, -3.0, 1e-3, -1e-3, 30.0])


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_activations_and_their_gradients(name: str) -> None:
    check(with_constants(ACTIVATIONS[name], (X,)))


@pytest.mark.parametrize("name", sorted(set(ACTIVATIONS) - {"glu", "softmin"}))
def test_the_slopes_at_the_kinks_are_torchs(name: str) -> None:
    def slope(x: Tensor) -> Any:
        x = x.clone().requires_grad_()
        return torch.autograd.grad(ACTIVATIONS[name](x).sum(), x)[0]

    assert_same_values(slope, KINKS, rtol=2e-6, atol=1e-7)


def test_prelu_and_the_gradient_of_its_slopes() -> None:
    check(Case(F.prelu, (X, WEIGHTS)))


def test_softmax2d() -> None:
    check(with_constants(nn.Softmax2d(), (IMAGES,)))


PAIRED: dict[str, Any] = {
    "l1": F.l1_loss,
    "smooth_l1": lambda x, y, reduction: F.smooth_l1_loss(x, y, reduction=reduction, beta=0.5),
    "huber": lambda x, y, reduction: F.huber_loss(x, y, reduction=reduction, delta=0.7),
    "mse": F.mse_loss,
    "bce": lambda x, y, reduction: F.binary_cross_entropy(
        x.sigmoid(), y.sigmoid(), K["weights"], reduction=reduction
    ),
    "bce with logits": lambda x, y, reduction: F.binary_cross_entropy_with_logits(
        x, y.sigmoid(), K["weights"], pos_weight=K["weights"], reduction=reduction
    ),
    "kl_div": lambda x, y, reduction: F.kl_div(x, y.softmax(1), reduction=reduction),
    "kl_div of logarithms": lambda x, y, reduction: F.kl_div(
        x, y, log_target=True, reduction=reduction
    ),
    "poisson": lambda x, y, reduction: F.poisson_nll_loss(
        x, y.exp(), full=True, reduction=reduction
    ),
    "gaussian": lambda x, y, reduction: F.gaussian_nll_loss(
        x, y, (x * y).exp(), full=True, reduction=reduction
    ),
    "hinge embedding": lambda x, y, reduction: F.hinge_embedding_loss(
        x, sides(x), reduction=reduction
    ),
    "margin ranking": lambda x, y, reduction: F.margin_ranking_loss(
        x, y, sides(x), 0.3, reduction=reduction
    ),
    "soft margin": lambda x, y, reduction: F.soft_margin_loss(
        x, sides(x), reduction=reduction
    ),
    "multilabel soft margin": lambda x, y, reduction: F.multilabel_soft_margin_loss(
        x, y.sigmoid(), K["weights"], reduction=reduction
    ),
    "triplet": lambda x, y, reduction: F.triplet_margin_loss(
        x, y, x * 0.5 + y * 0.3, swap=True, reduction=reduction
    ),
    "cosine embedding": lambda x, y, reduction: F.cosine_embedding_loss(
        x, y, torch.where(K["classes"] > 2, 1, -1), 0.1, reduction=reduction
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(PAIRED))
def test_losses_of_two_tensors(name: str) -> None:
    """The three reductions in one program."""

    def every(x: Tensor, y: Tensor) -> list[Tensor]:
        return [PAIRED[name](x, y, reduction=how) for how in REDUCTIONS]

    check(with_constants(every, (X, Y)))


CLASSED: dict[str, Any] = {
    "weights": lambda x, how: F.cross_entropy(x, K["ignored"], K["weights"], reduction=how),
    "smoothing": lambda x, how: F.cross_entropy(
        x, K["ignored"], label_smoothing=0.1, reduction=how
    ),
    "smoothing and weights": lambda x, how: F.cross_entropy(
        x, K["ignored"], K["weights"], label_smoothing=0.1, reduction=how
    ),
    "probabilities": lambda x, how: F.cross_entropy(
        x, (x.detach() * 0.3).softmax(1), K["weights"], label_smoothing=0.2, reduction=how
    ),
    "nll": lambda x, how: F.nll_loss(x.log_softmax(1), K["ignored"], reduction=how),
    "weighted nll": lambda x, how: F.nll_loss(
        x.log_softmax(1), K["ignored"], K["weights"], reduction=how
    ),
    "multi margin": lambda x, how: F.multi_margin_loss(
        x, K["classes"], 2, 0.6, K["weights"], reduction=how
    ),
    "multilabel margin": lambda x, how: F.multilabel_margin_loss(
        x, K["several"], reduction=how
    ),
}  # fmt: skip
# The gradient of gather is a scatter-add, which the contract gets with its own clause.
_GATHERS = ("multi margin", "multilabel margin")


@pytest.mark.parametrize("name", sorted(CLASSED))
def test_losses_of_classes(name: str) -> None:
    if name in _GATHERS:
        _needs_scatter_add()
    check(with_constants(lambda x: [CLASSED[name](x, how) for how in REDUCTIONS], (X,)))


def _needs_scatter_add() -> None:
    from tallystick.numerics.registry import all_ops
    from tallystick.program.capture.lower import lowering

    if "aten.scatter_add" not in all_ops() and "aten.scatter_add" not in lowering.load():
        pytest.skip("the contract has no scatter_add yet")


def test_losses_of_one_row() -> None:
    def every(x: Tensor) -> list[Tensor]:
        logs = x[0].log_softmax(0)
        return [F.nll_loss(logs, K["classes"][3]), F.cross_entropy(x[1], K["classes"][0])]

    check(with_constants(every, (X,)))


@pytest.mark.parametrize("weighted", [False, True])
def test_losses_of_pixels(weighted: bool) -> None:
    def every(x: Tensor) -> list[Tensor]:
        given = K["weights"][:4] if weighted else None
        logs = x.log_softmax(1)
        return [
            F.nll_loss(logs, K["pixels"], given, ignore_index=3, reduction=how)
            for how in REDUCTIONS
        ] + [F.cross_entropy(x, K["pixels"], given, label_smoothing=0.1)]

    check(with_constants(every, (IMAGES,)))


def test_a_plain_cross_entropy_stays_one_node() -> None:
    """NUMERICS 7.1: the programs of models captured before keep their digests."""

    def one(program: Any) -> None:
        ops = [node.op for node in program.nodes]
        assert ops.count("tallystick.cross_entropy") == 1
        assert ops.count("tallystick.cross_entropy_backward") == 1
        assert "aten._log_softmax" not in ops

    check(with_constants(lambda x: F.cross_entropy(x, K["ignored"]), (X,)), one)


SIGNALS = torch.linspace(-2, 2, 72, dtype=torch.float64).float().reshape(6, 3, 4).flip(2) ** 3
LABELS = torch.tensor([[1, 1, 2], [3, 2, 0], [2, 0, 0]])
REACH, LENGTHS = torch.tensor([6, 5, 6]), torch.tensor([3, 2, 0])


@pytest.mark.parametrize("how", REDUCTIONS)
def test_ctc_of_padded_targets_with_lengths_in_the_batch(how: str) -> None:
    """Repeated labels, a row without labels, a row shorter than the others."""
    _needs_scatter_add()

    def loss(x: Tensor, labels: Tensor, reach: Tensor, lengths: Tensor) -> Tensor:
        return F.ctc_loss(x.log_softmax(2), labels, reach, lengths, reduction=how)

    check(with_constants(loss, (SIGNALS,), (LABELS, REACH, LENGTHS)))


def test_ctc_of_concatenated_targets_and_of_lengths_as_numbers() -> None:
    _needs_scatter_add()
    flat = torch.tensor([1, 1, 2, 3, 2])

    def both(x: Tensor, flat: Tensor, reach: Tensor, lengths: Tensor) -> list[Tensor]:
        logs = x.log_softmax(2)
        return [
            F.ctc_loss(logs, flat, reach, lengths, reduction="none"),
            F.ctc_loss(logs, flat, (6, 5, 6), (3, 2, 0), reduction="sum"),
        ]

    check(with_constants(both, (SIGNALS,), (flat, REACH, LENGTHS)))


def test_an_alignment_that_cannot_be_is_infinite_or_zero() -> None:
    """Six labels do not fit into four times."""
    logs = SIGNALS[:4].log_softmax(2)
    labels = torch.tensor([[1, 1, 2, 2, 3, 3]] * 3)
    lengths = torch.tensor([6, 1, 2])
    for zero in (False, True):
        assert_same_values(
            lambda x, zero=zero: F.ctc_loss(
                x, labels, torch.tensor([4, 4, 4]), lengths, reduction="none", zero_infinity=zero
            ),
            logs,
            rtol=2e-6,
        )


NORMS = {
    "rms_norm": lambda x: F.rms_norm(x, (5,), K["weights"], 1e-5),
    "group_norm": lambda x: F.group_norm(x, 2, K["weights"][:4], K["weights"][:4]),
    "instance_norm": F.instance_norm,
}


@pytest.mark.parametrize("name", sorted(NORMS))
def test_normalisations(name: str) -> None:
    check(with_constants(NORMS[name], (IMAGES,), rtol=4e-6))
