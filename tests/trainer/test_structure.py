"""What code changes of modules is seen: their hooks, and what is frozen (PROGRAM 5.19)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import tallystick
from tallystick.errors import UsageError

STEPS, SIZE = 4, 4
Loss = Callable[[Any, Any], Tensor]


def rows(count: int = STEPS * SIZE) -> list[Any]:
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(count, 4, generator=generator), torch.randn(count, 3, generator=generator)
    return list(zip(x, y, strict=True))


def net() -> nn.Linear:
    torch.manual_seed(3)
    return nn.Linear(4, 3)


def mse(m: Any, b: Any) -> Tensor:
    return F.mse_loss(m(b[0]), b[1])


def loader(records: list[Any]) -> Any:
    return torch.utils.data.DataLoader(records, batch_size=SIZE)


def fit(out: Path, loss: Loss, module: nn.Module, **given: Any) -> Any:
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    return tallystick.fit(
        module, loss, loader(rows()), optimizer, out=out, steps=STEPS, progress=False, **given
    )


def double(*given: Any) -> Any:
    return given[-1] * 2


# -- the training loss -------------------------------------------------------------------------
def hook_where_none_is() -> Loss:
    def loss(m: Any, b: Any) -> Tensor:
        if not m._forward_hooks:
            m.register_forward_hook(double)
        return mse(m, b)

    return loss


def hook_in_the_second_step() -> Loss:
    calls = 0

    def loss(m: Any, b: Any) -> Tensor:
        nonlocal calls
        calls += 1
        if calls == 2:
            m.register_forward_hook(double)
        return mse(m, b)

    return loss


def hooks_that_pile_up() -> Loss:
    def loss(m: Any, b: Any) -> Tensor:
        m.weight.register_hook(lambda g: g * 0.5)
        return mse(m, b)

    return loss


def hook_of_the_first_step() -> Loss:
    handles: list[Any] = []

    def loss(m: Any, b: Any) -> Tensor:
        if not handles:
            handles.append(m.weight.register_hook(lambda g: g * 0.5))
        else:
            handles[0].remove()
        return mse(m, b)

    return loss


TRAINED = [
    hook_where_none_is, hook_in_the_second_step, hooks_that_pile_up, hook_of_the_first_step
]  # fmt: skip


@pytest.mark.parametrize("made", TRAINED, ids=lambda f: f.__name__)
def test_hooks_of_a_loss_train_as_written(made: Callable[[], Loss], tmp_path: Path) -> None:
    module, wanted = net(), net()
    assert fit(tmp_path, made(), module).finished
    loss, optimizer = made(), torch.optim.SGD(wanted.parameters(), lr=0.1)
    for b in loader(rows()):
        optimizer.zero_grad()
        loss(wanted, b).backward()
        optimizer.step()
    for one, two in zip(module.parameters(), wanted.parameters(), strict=True):
        torch.testing.assert_close(one, two)


# -- the validation loss -----------------------------------------------------------------------
def freezes(m: Any, b: Any) -> Tensor:
    m.bias.requires_grad_(False)
    return mse(m, b)


def freezes_by_attribute(m: Any, b: Any) -> Tensor:
    m.bias.requires_grad = False
    return mse(m, b)


def adds_a_hook(m: Any, b: Any) -> Tensor:
    m.register_forward_hook(double)
    return F.mse_loss(F.linear(b[0], m.weight, m.bias), b[1])


def clears_hooks(m: Any, b: Any) -> Tensor:
    m._forward_hooks.clear()
    return mse(m, b)


def stops_a_gradient(m: Any, b: Any) -> Tensor:
    if not m.weight._backward_hooks:
        m.weight.register_hook(lambda g: g * 0)
    return mse(m, b)


def validate(out: Path, validation_loss: Loss) -> Any:
    module = net()
    module.register_forward_hook(double)
    given: dict[str, Any] = {"validation": loader(rows(8)), "evaluate_every": 2}
    return fit(out, mse, module, validation_loss=validation_loss, **given)


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        (freezes, r"bias\.requires_grad is changed by the pass of validation, from True to False"),
        (freezes_by_attribute, r"bias\.requires_grad is changed by the pass of validation"),
        (adds_a_hook, "hooks of the module is changed by the pass of validation"),
        (clears_hooks, "hooks of the module is changed by the pass of validation"),
        (stops_a_gradient, "hooks of weight is changed by the pass of validation"),
    ],
)
def test_validation_that_changes_the_module(loss: Loss, said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=said):
        validate(tmp_path, loss)


def puts_back(m: Any, b: Any) -> Tensor:
    handle = m.register_forward_hook(double)
    m.requires_grad_(False)
    try:
        return mse(m, b)
    finally:
        m.requires_grad_(True)
        handle.remove()


def watches(m: Any, b: Any) -> Tensor:
    m.register_forward_hook(lambda *given: None)
    return mse(m, b)


@pytest.mark.parametrize("loss", [puts_back, watches])
def test_harmless_changes_pass(loss: Loss, tmp_path: Path) -> None:
    assert validate(tmp_path, loss).finished


def test_validation_sees_what_is_trained(tmp_path: Path) -> None:
    """A loss may add the decay of what requires a gradient."""
    asked: list[bool] = []

    def held_out(m: Any, b: Any) -> Tensor:
        asked.append(m.weight.requires_grad)
        return mse(m, b)

    assert validate(tmp_path, held_out).finished
    assert all(asked)
