"""A listener that changes the code of a loss, or what that calls, ends the run (PROGRAM 5.22 f)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import tallystick
from tallystick.errors import CallbackError
from tallystick.run.execute.listener import Silent

ROWS = list(torch.randn(24, 5, generator=torch.Generator().manual_seed(2)))


class Halved(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.layer = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)  # type: ignore[no-any-return]


def shape(x: Tensor) -> Tensor:
    return x


def half(x: Tensor) -> Tensor:
    return x * 0.5


def by_function(module: nn.Module, x: Tensor) -> Tensor:
    return shape(F.mse_loss(module(x), torch.ones(3).expand(len(x), 3)))


def by_environment(module: nn.Module, x: Tensor) -> Tensor:
    return module(x).pow(2).mean() * float(os.environ.get("SCALE_OF_A_TEST", "1"))  # type: ignore[no-any-return]


class Acts(Silent):
    def __init__(self, act: Any) -> None:
        self.act = act

    def step(self, step: int, loss: float, seconds: float) -> None:
        if step == 2:
            self.act()


def fit(out: Path, module: nn.Module, loss: Any, act: Any) -> Any:
    loader = torch.utils.data.DataLoader(ROWS, batch_size=4)  # type: ignore[arg-type]
    optimizer = torch.optim.SGD(module.parameters(), lr=0.02)
    return tallystick.fit(
        module, loss, loader, optimizer, out=out, steps=4, listener=Acts(act), progress=False
    )


def test_code_of_a_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def act() -> None:
        monkeypatch.setattr(shape, "__code__", half.__code__)

    with pytest.raises(CallbackError, match=r"Acts\.step changes the code of shape"):
        fit(tmp_path, Halved(), by_function, act)


def test_a_method_of_a_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def act() -> None:
        monkeypatch.setattr(Halved, "forward", lambda self, x: self.layer(x) * 0.5)

    with pytest.raises(CallbackError, match=r"Acts\.step changes .*code of forward"):
        fit(tmp_path, Halved(), by_function, act)


def test_a_function_of_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = F.mse_loss

    def act() -> None:
        monkeypatch.setattr(F, "mse_loss", lambda a, b: usual(a, b) * 0.5)

    with pytest.raises(CallbackError, match=r"Acts\.step changes F\.mse_loss"):
        fit(tmp_path, Halved(), by_function, act)


def test_a_function_of_torch_that_does_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = F.mse_loss

    def act() -> None:
        monkeypatch.setattr(F, "mse_loss", lambda *given, **named: usual(*given, **named))

    assert fit(tmp_path, Halved(), by_function, act).finished


def test_what_a_library_loads_is_no_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def loss(module: nn.Module, x: Tensor) -> Tensor:
        calls.append(1)
        if hasattr(F, "loaded_later") and F.loaded_later is None:
            raise AssertionError
        return module(x).pow(2).mean() * len(calls)

    def act() -> None:
        monkeypatch.setattr(F, "loaded_later", F.relu, raising=False)

    assert fit(tmp_path, Halved(), loss, act).finished


@pytest.mark.parametrize("name", ["SCALE_OF_A_TEST", "NAME_OF_A_TEST"])
def test_the_environment(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def act() -> None:
        monkeypatch.setenv(name, "0.5")

    if name.startswith("NAME"):  # no loss reads it
        assert fit(tmp_path, Halved(), by_environment, act).finished
        return
    with pytest.raises(CallbackError, match=r"Acts\.step changes os\.environ"):
        fit(tmp_path, Halved(), by_environment, act)


@pytest.mark.parametrize("name", ["register_hook", "register_post_accumulate_grad_hook"])
def test_a_hook_of_a_parameter(name: str, tmp_path: Path) -> None:
    module = Halved()

    def act() -> None:
        getattr(module.layer.weight, name)(lambda gradient: None)

    with pytest.raises(CallbackError, match=r"changes the hooks of the parameter layer\.weight"):
        fit(tmp_path, module, by_function, act)
