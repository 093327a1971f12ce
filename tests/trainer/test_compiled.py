"""A model that `torch.compile` wrapped trains as the model inside, to the same root, and has the
final weights afterwards. Nothing is compiled: a trace looks through the wrapper (PROGRAM 5.11)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

pytest.importorskip("transformers", reason="transformers is not installed")

from test_loops import loader, loss, parts, real, stand_in
from trainer_parts import arguments, gpt2, padded, sentences

import tallystick
from tallystick.errors import UsageError

Wrap = Callable[[nn.Module], nn.Module]


def _below(module: nn.Module) -> nn.Module:
    module.first = torch.compile(module.first)
    return module


def _in_place(module: nn.Module) -> nn.Module:
    module.compile()
    return module


def _twice(module: nn.Module) -> nn.Module:
    compiled: nn.Module = torch.compile(_below(module))
    return compiled


def _trained(wrap: Wrap, out: Path) -> tuple[str, dict[str, Any]]:
    module, optimizer, scheduler = parts()
    done = tallystick.fit(
        wrap(module), loss, loader(), optimizer, out=out, steps=3, scheduler=scheduler,
        validation=loader(8, 2), best=True, progress=False,
    )  # fmt: skip
    values = [tensor.clone() for tensor in module.parameters()]
    return done.run_root.hex(), {str(i): value for i, value in enumerate(values)}


def _same(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("wrap", [torch.compile, _below, _in_place, _twice])
def test_fit_of_a_compiled_module(wrap: Wrap, tmp_path: Path) -> None:
    root, plain = _trained(lambda module: module, tmp_path / "plain")
    found, compiled = _trained(wrap, tmp_path / "compiled")
    assert found == root
    _same(plain, compiled)


@pytest.mark.parametrize("make", [stand_in, real])
def test_lightning_of_a_compiled_module(make: Callable[[], Any], tmp_path: Path) -> None:
    found = []
    for name, wrap in (("plain", lambda module: module), ("compiled", torch.compile)):
        module = make()
        done = tallystick.fit_lightning(
            wrap(module), loader(), loader(8, 2), out=tmp_path / name, max_steps=4, progress=False
        )
        found.append((done.run_root, dict(module.state_dict())))
    assert found[0][0] == found[1][0]
    _same(found[0][1], found[1][1])


def test_a_compiled_module_hides_no_hook(tmp_path: Path) -> None:
    """What a job would never call is refused, wrapped or not."""
    module = stand_in()
    type(module).manual_backward = lambda self: None
    for given in (module, torch.compile(module)):
        with pytest.raises(UsageError, match="overrides manual_backward"):
            tallystick.fit_lightning(given, loader(), out=tmp_path, max_steps=1)


def test_a_trainer_of_a_compiled_model(tmp_path: Path) -> None:
    found = []
    for name, wrap in (("plain", lambda model: model), ("compiled", torch.compile)):
        model = gpt2()
        trainer = tallystick.Trainer(
            wrap(model), arguments(tmp_path / name, max_steps=2), train_dataset=sentences(),
            data_collator=padded,
        )  # fmt: skip
        trainer.train()
        found.append((trainer.run.run_root, dict(model.state_dict())))
    assert found[0][0] == found[1][0]
    _same(found[0][1], found[1][1])
