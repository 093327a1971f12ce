"""A listener of `fit` that changes what the job fixes ends the run, by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import tallystick
from tallystick.errors import CallbackError
from tallystick.run.execute.listener import Silent
from tallystick.trainer import watching

SCALE = torch.ones(3)


def loss(module: nn.Module, batch: list[Tensor]) -> Tensor:
    return (F.mse_loss(module(batch[0]), batch[1], reduction="none") * SCALE).mean()


class Meddles(Silent):
    def __init__(self, act: Callable[[], Any], at: int = 2) -> None:
        self.act, self.at, self.heard = act, at, 0

    def step(self, step: int, loss: float, seconds: float) -> None:
        self.heard += 1
        if step == self.at:
            self.act()


class Parts:
    """What one run is made of."""

    def __init__(self) -> None:
        torch.manual_seed(2)
        self.module = nn.Linear(4, 3)
        self.optimizer = torch.optim.SGD(self.module.parameters(), lr=0.1)

    def fit(self, out: Path, listener: Any) -> Any:
        generator = torch.Generator().manual_seed(1)
        x, y = torch.randn(16, 4, generator=generator), torch.randn(16, 3, generator=generator)
        return tallystick.fit(
            self.module, loss, list(zip(x, y, strict=True)), self.optimizer, out=out, steps=6,
            batch_size=4, listener=listener, progress=False,
        )  # fmt: skip


ACTS: dict[str, Callable[[Parts], Any]] = {
    r"optimizer\.param_groups\[0\]\['lr'\] \(0\.1 → 0\.01\)": lambda p: p.optimizer.param_groups[
        0
    ].update(lr=0.01),
    r"the parameter weight": lambda p: p.module.weight.data.mul_(0.5),
    r"requires_grad of bias \(True → False\)": lambda p: p.module.bias.requires_grad_(False),
    r"the tensor the global SCALE": lambda p: SCALE.mul_(2.0),
}


@pytest.mark.parametrize("words", ACTS)
def test_a_change_ends_the_run_by_name(words: str, tmp_path: Path) -> None:
    parts = Parts()
    try:
        with pytest.raises(CallbackError, match=rf"Meddles\.step changes {words} at step 3"):
            parts.fit(tmp_path, Meddles(lambda: ACTS[words](parts)))
    finally:
        SCALE.fill_(1.0)
    assert not (tmp_path / "run" / "commitment.json").exists()


def test_a_listener_that_changes_nothing_hears_every_step(tmp_path: Path) -> None:
    listener = Meddles(lambda: None)
    found = Parts().fit(tmp_path, listener)
    assert found.finished
    assert listener.heard == 6


def test_nothing_is_looked_at_without_a_listener(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(self: Any) -> dict[str, Any]:
        raise AssertionError("nobody could have changed anything")

    monkeypatch.setattr(watching.Watch, "look", look)
    assert Parts().fit(tmp_path / "none", None).finished
    assert Parts().fit(tmp_path / "own", Silent()).finished


# -- numbers of Python -------------------------------------------------------------------------
class Criterion:
    def __init__(self) -> None:
        self.alpha, self.calls, self.seen = 1.0, 0, [0.0]

    def __call__(self, module: nn.Module, batch: list[Tensor]) -> Tensor:
        self.calls += 1
        return F.mse_loss(module(batch[0]), batch[1]) * self.alpha


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.layer, self.drop, self.act = nn.Linear(4, 3), nn.Dropout(0.5), nn.Tanh()
        self.scale, self.noted = 1.0, 0

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.drop(self.layer(x)) * self.scale)  # type: ignore[no-any-return]


FACTOR = 1.0
COUNT = 0


def by_global(module: nn.Module, batch: list[Tensor]) -> Tensor:
    if COUNT % 5 == 4:
        print(COUNT)
    return F.mse_loss(module(batch[0]), batch[1]) * FACTOR


def fit(out: Path, module: nn.Module, loss: Any, listener: Any, **given: Any) -> Any:
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(16, 4, generator=generator), torch.randn(16, 3, generator=generator)
    rows = list(zip(x, y, strict=True))
    if given.pop("validates", False):
        given |= {"validation": rows[:8], "evaluate_every": 2}
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    return tallystick.fit(
        module, loss, rows, optimizer, out=out, steps=6, batch_size=4, listener=listener,
        progress=False, **given,
    )  # fmt: skip


def set_factor(parts: Any) -> None:
    global FACTOR
    FACTOR = 0.5


def hooked(parts: Any) -> None:
    parts.module.layer.register_forward_hook(lambda module, given, made: made * 2.0)


def patched(parts: Any) -> None:
    parts.module.forward = lambda x: parts.module.layer(x)


class Held:
    """A module and a loss for the acts below."""

    def __init__(self) -> None:
        self.module, self.criterion = Scaled(), Criterion()
        self.loss: Any = self.criterion


NUMBERS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "criterion": (lambda p: setattr(p.criterion, "alpha", 0.5), r"alpha.*1\.0 → 0\.5"),
    "attribute": (lambda p: setattr(p.module, "scale", 2.0), r"scale.*1\.0 → 2\.0"),
    "mode": (lambda p: p.module.eval(), r"training"),
    "mode of a layer": (lambda p: p.module.drop.eval(), r"drop\.training.*True → False"),
    "torch's own": (lambda p: setattr(p.module.drop, "p", 0.25), r"drop\.p.*0\.5 → 0\.25"),
    "another layer": (lambda p: setattr(p.module, "act", nn.ReLU()), r"act"),
    "a hook": (hooked, r"hook"),
    "a method": (patched, r"forward"),
    "a global": (set_factor, r"FACTOR.*1\.0 → 0\.5"),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_that_the_loss_reads_may_not_change(name: str, tmp_path: Path) -> None:
    global FACTOR
    held = Held()
    act, words = NUMBERS[name]
    loss = by_global if act is set_factor else held.loss
    try:
        with pytest.raises(CallbackError, match=rf"Meddles\.step changes .*{words}.* at step 3"):
            fit(tmp_path, held.module, loss, Meddles(lambda: act(held)))
    finally:
        FACTOR = 1.0
    assert not (tmp_path / "run" / "commitment.json").exists()


def test_a_number_that_validation_alone_reads_may_not_change(tmp_path: Path) -> None:
    held, weight = Held(), {"of": 1.0}

    def held_out(module: nn.Module, batch: list[Tensor]) -> Tensor:
        return F.mse_loss(module(batch[0]), batch[1]) * weight["of"]

    with pytest.raises(CallbackError, match=r"weight\['of'\]"):
        fit(
            tmp_path, held.module, held.loss, Meddles(lambda: weight.update(of=2.0)),
            validates=True, validation_loss=held_out,
        )  # fmt: skip


def test_after_a_refusal_the_same_call_goes_on(tmp_path: Path) -> None:
    whole = Held()
    wanted = fit(tmp_path / "whole", whole.module, whole.loss, None)
    held = Held()
    with pytest.raises(CallbackError):
        fit(
            tmp_path / "run", held.module, held.loss,
            Meddles(lambda: setattr(held.criterion, "alpha", 0.5)),
        )  # fmt: skip
    again = Held()
    assert fit(tmp_path / "run", again.module, again.loss, None).run_root == wanted.run_root


def counted(parts: Any) -> None:
    global COUNT
    COUNT += 1


class Book(Silent):
    """Its own bookkeeping: lists, counters, a file; and what others reach but do not read."""

    def __init__(self, parts: Any, out: Path) -> None:
        self.parts, self.out = parts, out
        self.losses: list[float] = []
        self.steps = 0

    def step(self, step: int, loss: float, seconds: float) -> None:
        self.losses.append(loss)
        self.steps += 1
        self.parts.criterion.seen.append(loss)
        self.parts.criterion.calls = 0
        self.parts.module.noted += 1
        counted(self.parts)
        self.parts.module.eval()
        self.parts.module.train()
        with self.out.open("a") as file:
            file.write(f"{step},{loss}\n")


@pytest.mark.parametrize("validates", [False, True])
def test_bookkeeping_is_no_change(validates: bool, tmp_path: Path) -> None:
    held = Held()
    book = Book(held, tmp_path / "losses.csv")
    assert fit(tmp_path / "run", held.module, held.loss, book, validates=validates).finished
    assert book.steps == len(book.losses) >= 6


def test_a_mode_that_decides_nothing(tmp_path: Path) -> None:
    held = Held()
    held.module.drop = nn.Dropout(0.0)
    listener = Meddles(lambda: held.module.act.eval())
    assert fit(tmp_path, held.module, by_global, listener).finished


def test_what_is_harmless_is_traced_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tallystick.trainer import python_watch

    traced: list[Any] = []
    usual = python_watch.trace

    def counting(*given: Any, **named: Any) -> Any:
        traced.append(1)
        return usual(*given, **named)

    monkeypatch.setattr(python_watch, "trace", counting)
    held = Held()
    assert fit(tmp_path / "run", held.module, held.loss, Book(held, tmp_path / "x.csv")).finished
    assert len(traced) <= 2


def test_steps_that_were_traced_one_by_one(tmp_path: Path) -> None:
    """What their state would be after a change is not known: none is taken, and none is refused."""

    def anneals(held: Held) -> Any:
        def loss(module: nn.Module, batch: list[Tensor]) -> Tensor:
            held.criterion.calls += 1
            return F.mse_loss(module(batch[0]), batch[1]) / held.criterion.calls

        return loss

    held = Held()
    assert fit(tmp_path / "one", held.module, anneals(held), Meddles(lambda: None)).finished
    held = Held()
    listener = Meddles(lambda: setattr(held.criterion, "alpha", 0.5))
    with pytest.raises(CallbackError, match=r"alpha.*traced one by one"):
        fit(tmp_path / "two", held.module, anneals(held), listener)
