"""Corners of single calls: what a fresh reading of the rules found to differ from torch's.

PROGRAM 5.2, 5.7: a call is honoured as torch means it, or refused by name. Each case here was once
captured with another meaning, hung, or was refused without a reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from calls import check  # noqa: E402
from torch import Tensor, nn  # noqa: E402

import tallystick  # noqa: E402
from tallystick.errors import UnsupportedOperatorError, UsageError  # noqa: E402
from tallystick.program.capture import capture_forward  # noqa: E402
from tallystick.program.executor import Executor  # noqa: E402

NAN, INF = math.nan, math.inf
BIG = 2**53 + 1  # the least positive integer that binary64 does not hold
MOST = 2**63 - 1
X = torch.tensor([[1.5, -2.0, 0.0], [3.0, -0.0, 2.5]])
WHOLE = torch.tensor([[1, -2, 0], [3, 4, -5]])
ODD = torch.tensor([0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, 2.5])
SCORES = torch.randn(5, 2, 4, generator=torch.Generator().manual_seed(1)).log_softmax(2)
LABELS = torch.tensor([[1, 2], [3, 3]])
LENGTHS = ((5, 5), (2, 2))

Call = tuple[Callable[..., Any], tuple[Tensor, ...]]


class _Function(nn.Module):
    def __init__(self, call: Callable[..., Any]) -> None:
        super().__init__()
        self.call = [call]

    def forward(self, **operands: Tensor) -> Tensor:
        result: Tensor = self.call[0](*(operands[name] for name in sorted(operands)))
        return result


def captured(call: Callable[..., Any], operands: tuple[Tensor, ...]) -> Tensor:
    batch = {f"x{i}": t for i, t in enumerate(operands)}
    program = capture_forward(_Function(call), batch)
    arrays = {k: v.numpy() for k, v in batch.items() if k in program.batch_types}
    return torch.from_numpy(np.array(Executor(program).run_step({}, arrays).outputs["logits"]))


VALUES: dict[str, Call] = {
    # Whole numbers beyond 2⁵³ were rounded to the next one that binary64 holds.
    "full": (lambda a: a + torch.full((3,), BIG, device=a.device), (WHOLE,)),
    "full of the most": (lambda a: torch.full_like(a, MOST) - a.abs(), (WHOLE,)),
    "new_full": (lambda a: a.new_full((2,), -BIG) + a[0, :2], (WHOLE,)),
    "fill": (lambda a: torch.fill(a, BIG), (WHOLE,)),
    "where": (lambda a: torch.where(a > 0, a, BIG), (WHOLE,)),
    "a number minus a tensor": (lambda a: BIG - a, (WHOLE,)),
    "scatter of a number": (lambda a: a.scatter(0, a.abs() % 2, BIG), (WHOLE,)),
    "index_fill": (lambda a: a.index_fill(0, torch.tensor([0]), BIG), (WHOLE,)),
    # A pool to nothing ended in an IndexError, a distance of points without coordinates too.
    "adaptive pool to nothing": (lambda a: F.adaptive_avg_pool2d(a, 0), (torch.zeros(1, 2, 4, 4),)),
    "pdist": (lambda a: F.pdist(a, p=INF), (torch.zeros(3, 0),)),
    # These were refused.
    "add of a number": (lambda a: a + BIG, (WHOLE,)),
    "comparison with a number": (lambda a: (a + 2**53) == BIG, (WHOLE,)),
    "masked_fill": (lambda a: a.masked_fill(a > 0, MOST), (WHOLE,)),
    # The sign of NaN and of −0 is +0 in torch.
    "sign": (torch.sign, (ODD,)),
    "sgn": (torch.sgn, (ODD,)),
    "sign of integers": (torch.sign, (WHOLE,)),
    "sign of truth values": (lambda a: torch.sign(a > 0), (X,)),
    # A row without two equal elements: torch's kernel has NaN first.
    "mode with NaN": (lambda a: a.mode()[0], (torch.tensor([[NAN, 2.0, 1.0], [NAN, 1.0, 1.0]]),)),
    "median of nothing": (lambda a: a.median(), (torch.zeros(0),)),
    "nanmedian of nothing": (lambda a: a.nanmedian(), (torch.zeros(0),)),
    # The reduction of torch.ctc_loss is a number: 1 and 2 were taken for "none".
    "torch.ctc_loss, mean": (lambda a: torch.ctc_loss(a, LABELS, *LENGTHS, 0, 1), (SCORES,)),
    "torch.ctc_loss, sum": (lambda a: torch.ctc_loss(a, LABELS, *LENGTHS, 0, 2), (SCORES,)),
    # torch.scalar_tensor makes float32 of an integer too.
    "scalar_tensor": (lambda a: (a * 0 + 7) / 2 + torch.scalar_tensor(3) // 2, (X,)),
    "dtype of scalar_tensor": (lambda a: a + torch.scalar_tensor(3), (WHOLE,)),
    # Promotion of operands, which was refused.
    "clamp of integers by a float": (lambda a: a.clamp(min=0.5, max=2.0), (WHOLE,)),
    "addcmul of integers": (lambda a, b: torch.addcmul(a, b, b, value=2), (X, WHOLE)),
    "addcdiv by integers": (lambda a, b: torch.addcdiv(a, a, b.abs() + 1), (X, WHOLE)),
    "logsumexp of integers": (lambda a: a.logsumexp(1), (WHOLE,)),
}


@pytest.mark.parametrize("name", VALUES)
def test_a_value_is_torchs(name: str) -> None:
    call, operands = VALUES[name]
    found, wanted = captured(call, operands), call(*operands)
    exact = not wanted.is_floating_point()
    rtol, atol = (0.0, 0.0) if exact else (1e-6, 1e-6)
    torch.testing.assert_close(found, wanted, rtol=rtol, atol=atol, equal_nan=True)
    if name.startswith("sign"):
        assert not exact or found.dtype == wanted.dtype
        assert found.numpy().tobytes() == wanted.numpy().tobytes()


GRADIENTS: dict[str, Call] = {
    # torch.tensor cuts the gradient off; torch.as_tensor keeps it.
    "torch.tensor of a tensor": (lambda a: torch.tensor(a * 2) * a, (X,)),
    "torch.tensor of a tensor by name": (lambda a: torch.tensor(data=a * 2) * a, (X,)),
    "new_tensor of a tensor": (lambda a: a.new_tensor(a * 2) * a, (X,)),
    "asarray without gradient": (lambda a: torch.asarray(a * 2, requires_grad=False) * a, (X,)),
    "as_tensor of a tensor": (lambda a: torch.as_tensor(a * 2) * a, (X,)),
    "abs at zero": (torch.abs, (X,)),
    "torch.ctc_loss": (lambda a: torch.ctc_loss(a, LABELS, *LENGTHS, 0, 1, True), (SCORES,)),
}


@pytest.mark.filterwarnings("ignore:To copy construct")
@pytest.mark.parametrize("name", GRADIENTS)
def test_a_gradient_is_torchs(name: str) -> None:
    call, operands = GRADIENTS[name]
    check(call, *operands, eager=False)


def test_asarray_copies_where_it_is_told_to() -> None:
    def changed(a: Tensor) -> Tensor:
        copy = torch.asarray(a, copy=True)
        copy.add_(1)
        return copy * a

    torch.testing.assert_close(captured(changed, (X,)), (X + 1) * X)


REFUSED: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...], str]] = {
    # The first one ran for ever.
    "a negative power of integers": (lambda a: a**-1, (WHOLE,), "negative power"),
    "a shift of truth values": (lambda a: (a > 0) << True, (X,), "integral dtype|Bits of bool"),
    "renorm of a list": (lambda a: torch.renorm(a, 2, 0, 1.0), (X[0],), "renorm"),
    "renorm to a negative norm": (lambda a: torch.renorm(a, 2, 0, -1.0), (X,), "maxnorm = -1"),
    "targets in another order": (
        lambda a: F.cross_entropy(a, torch.zeros(2, 4, 3, dtype=torch.int64, device=a.device)),
        (torch.zeros(2, 5, 3, 4),), r"targets of the shape \(2, 4, 3\)"),
    "a column of targets": (
        lambda a: F.cross_entropy(a, torch.zeros(2, 1, dtype=torch.int64, device=a.device)),
        (X,), r"targets of the shape \(2, 1\)"),
    "an unknown reduction of gaussian_nll_loss": (
        lambda a: F.gaussian_nll_loss(a, a, a, reduction="bogus"), (X.abs(),), "'bogus'"),
    "an unknown reduction of multi_margin_loss": (
        lambda a: F.multi_margin_loss(a, torch.tensor([0, 1]), reduction="bogus"), (X,), "'bogus'"),
    "an unknown reduction of ctc_loss": (
        lambda a: F.ctc_loss(a, LABELS, *LENGTHS, reduction="bogus"), (SCORES,), "'bogus'"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_torch_refuses_is_refused_by_name(name: str) -> None:
    call, operands, message = REFUSED[name]
    with pytest.raises((RuntimeError, ValueError)):
        call(*operands)
    with pytest.raises(UsageError, match=message) as caught:
        captured(call, operands)
    assert caught.value.next_action


def test_a_parameter_behind_a_dropout_of_all_is_trained() -> None:
    """torch's gradient there is zero and not absent: a weight decay still applies."""
    from tallystick.program.capture import capture
    from tallystick.program.optimizers import SGD

    module = nn.Sequential(nn.Linear(3, 3), nn.Dropout(1.0))
    step = capture(module, lambda m, b: m(b["x"]).sum(), {"x": X}, SGD(0.1, weight_decay=0.1))
    assert step.untrained == ()


def test_out_of_a_function_made_of_others() -> None:
    with tallystick.reproducible():
        place = torch.empty(3)
        assert torch.prod(X, 0, out=place) is place
    torch.testing.assert_close(place, X.prod(0))
    with tallystick.reproducible(), pytest.raises(UsageError, match="out= has the shape"):
        torch.cumprod(X, 0, out=torch.empty(5))


def test_a_fault_in_a_rule_of_ours_is_told_as_one(monkeypatch: Any) -> None:
    from tallystick.program.capture.lower import lowering

    def broken(*_: Any) -> Any:
        return (0, 1)[2]

    lowering.get("aten.exp")
    monkeypatch.setitem(lowering.table, "aten.exp", broken)
    with pytest.raises(
        UnsupportedOperatorError, match=r"rule of aten\.exp, .*IndexError"
    ) as caught:
        captured(torch.exp, (X,))
    assert "defect of Tallystick" in caught.value.next_action


def test_a_fault_in_a_composition_of_ours_is_no_missing_operator(monkeypatch: Any) -> None:
    """Only torch's decompositions may fail on a call and count as missing."""
    from tallystick.program.capture.decompose import composition

    def broken(x: Tensor) -> Tensor:
        return x.reshape(-1, 7, 11)

    composition.get("aten.sinc")
    monkeypatch.setitem(composition.table, "aten.sinc", broken)
    with pytest.raises(UnsupportedOperatorError, match=r"composition of aten\.sinc\.default fails"):
        captured(torch.sinc, (torch.zeros(13),))
