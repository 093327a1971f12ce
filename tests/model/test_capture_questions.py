"""A model's questions about values while it is traced (PROGRAM 5.14), without any library."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tallystick.errors import UsageError
from tallystick.program.capture import capture
from tallystick.program.capture.questions import check_answer
from tallystick.program.executor import Executor
from tallystick.program.optimizers import SGD

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))


class Asks(nn.Module):
    """A linear layer, and a function that looks at its output."""

    def __init__(self, look: Any) -> None:
        super().__init__()
        self.linear, self.look = nn.Linear(4, 4), look

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.look(self.linear(x))
        return found


def loss(module: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    found: Tensor = module(batch["x"]).square().sum()
    return found


def captured_and_eager(module: nn.Module) -> tuple[float, float]:
    step = capture(module, loss, {"x": X}, SGD(0.1))
    assert step.initial_state is not None
    state = {k: np.array(v) for k, v in step.initial_state.items()}
    result = Executor(step.program).run_step(state, {"x": X.numpy()}, {"lr": 0.1}, (3, 0))
    assert result.loss is not None
    return float(result.loss), float(loss(module, {"x": X}).detach())


def by_a_table(y: Tensor) -> Tensor:
    assert 3 in torch.arange(4, device=y.device) and 4 not in torch.arange(4, device=y.device)
    rates = torch.linspace(0.0, 0.5, 4, device=y.device)
    for i, rate in enumerate(rates.tolist()):
        if torch.arange(4, device=y.device)[i] % 2 == 0:
            y = y * (1.0 + rate)
    return y * int(torch.full((), 3, device=y.device)) * torch.ones(2, device=y.device).sum().item()


def with_checks(y: Tensor) -> Tensor:
    assert torch.isfinite(y).all(), "not finite"
    if not torch.isfinite(y).all():
        raise ValueError("not finite")
    if y.shape[0] > 100 or (y.abs() > 1e6).any():
        raise ValueError("too large")
    return y


def with_checks_of_numbers(y: Tensor) -> Tensor:
    assert y.abs().max().item() + 1 <= 1e6 and y.sum().item() == y.sum().item()
    if y.max().item() > 1e6:
        raise ValueError("too large")
    return y


def with_an_index(y: Tensor) -> Tensor:
    """As DeBERTa and Falcon index."""
    width = torch.tensor(min(y.shape[-1], 3))
    return y[..., [-2]] * y[..., [0, 1]] + y[..., 4 - width : 4 - width + 2]


@torch.jit.script
def scripted_width(y: Tensor, most: int) -> Tensor:
    return torch.tensor(min(y.size(-1), most))


def with_a_script(y: Tensor) -> Tensor:
    """As DeBERTa's spans: torch.jit's own code would make a tensor without content."""
    return y[..., : scripted_width(y, 3)]


def with_two_kinds_of_bounds(y: Tensor) -> Tensor:
    return torch.clamp(y, 0, torch.tensor(min(y.shape[-1], 1)) * 2 - 1.5).clip(max=y[:, :1])


def by_a_number(y: Tensor) -> Tensor:
    assert keeps(y.max().item()) < 1e6
    return y


def keeps(number: float) -> float:
    return number


def by_value(y: Tensor) -> Tensor:
    if (y > 0).all():
        return y
    return -y


@pytest.mark.parametrize(
    "look",
    [
        by_a_table,
        with_checks,
        with_checks_of_numbers,
        with_an_index,
        with_a_script,
        with_two_kinds_of_bounds,
    ],
)
def test_a_question_with_one_answer_is_answered(look: Any) -> None:
    ours, eager = captured_and_eager(Asks(look))
    assert ours == pytest.approx(eager, rel=1e-5)


@pytest.mark.parametrize("look", [by_value, by_a_number])
def test_a_branch_on_values_is_refused(look: Any) -> None:
    with pytest.raises(UsageError, match="looks at the values"):
        captured_and_eager(Asks(look))


def test_a_number_of_an_input_is_refused() -> None:
    with pytest.raises(UsageError, match="looks at the values"):
        captured_and_eager(Asks(lambda y: y * y.max().item()))


def examples(a: Any, b: Any, c: Any) -> None:
    assert a and b
    assert not (a or b)
    if not a:
        raise ValueError
    if a and (b or c):
        raise ValueError
    if a and not b:
        raise ValueError
    if a:
        c.warning("told")
    if a:
        c.add(a)
    if a:
        raise ValueError
    else:
        c.add(a)


def test_which_answer_lets_a_check_pass() -> None:
    """A check whose operands need different answers has none."""
    first = examples.__code__.co_firstlineno
    wanted = {1: True, 2: False, 3: True, 5: False, 7: None, 9: False, 11: None, 13: None}
    found = {line: check_answer(__file__, first + line) for line in wanted}
    assert found == wanted


class Shared(nn.Module):
    """One embedding under three names, and a head tied to it, as encoder-decoders have it."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(7, 4)
        self.encoder, self.decoder = nn.Module(), nn.Module()
        self.encoder.words = self.decoder.words = self.words
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.words.weight

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(self.decoder.words(x) + self.encoder.words(x))  # type: ignore[operator]
        return found


def test_a_submodule_under_several_names_keeps_its_weights() -> None:
    """torch.func.functional_call left the trace's meta tensor in such a module (PROGRAM 5.1)."""
    module = Shared()
    before = module.words.weight
    ids = torch.tensor([[1, 2, 3]])
    step = capture(module, loss, {"x": ids}, SGD(0.1))
    assert list(step.program.state_types) == ["param.words.weight"]
    assert module.words.weight is module.head.weight is before
    assert not before.is_meta
    assert step.first_step is not None and step.initial_state is not None
    compared = step.first_step.compare(
        step.program.contract, step.initial_state, {"x": ids.numpy()}, {"lr": 0.1}, (3, 0)
    )
    assert compared is None
    assert module.words.weight is module.head.weight is before


class Masked(nn.Module):
    """Attention whose second row of queries sees nothing in one record."""

    def __init__(self, as_float: bool) -> None:
        super().__init__()
        self.linear, self.as_float = nn.Linear(4, 12), as_float

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.linear(x).view(1, 3, 3, 4).unbind(2)
        seen = torch.ones(3, 3, dtype=torch.bool, device=x.device).tril(-1)[None]
        mask: Tensor = seen
        if self.as_float:
            mask = torch.zeros(1, 3, 3, device=x.device).masked_fill(~seen, float("-inf"))
        return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)


@pytest.mark.parametrize("as_float", [False, True])
def test_a_query_that_sees_nothing_gets_zero_and_no_nan(as_float: bool) -> None:
    """PROGRAM 5.3: as torch's attention. Padding on the left, or a window, has such queries."""
    torch.manual_seed(4)
    module = Masked(as_float)
    step = capture(module, loss, {"x": X}, SGD(0.1), outputs_grads=True)
    assert step.initial_state is not None
    state = {k: np.array(v) for k, v in step.initial_state.items()}
    result = Executor(step.program).run_step(state, {"x": X.numpy()}, {"lr": 0.1}, (3, 0))
    eager = loss(module, {"x": X})
    eager.backward()  # type: ignore[no-untyped-call]
    assert result.loss is not None
    assert float(result.loss) == pytest.approx(float(eager.detach()), rel=1e-5)
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None
        np.testing.assert_allclose(
            result.outputs[f"grad.{name}"], parameter.grad.numpy(), rtol=1e-4, atol=1e-6
        )
