"""Python's state beside a run and after it is that of a plain loop (PROGRAM 5.22 f, 5.25)."""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tallystick
from tallystick.errors import CallbackError, UsageError
from tallystick.run.execute.listener import Silent

ROWS = list(torch.randn(24, 5, generator=torch.Generator().manual_seed(2)))


def net() -> nn.Module:
    torch.manual_seed(4)
    return nn.Linear(5, 3)


class Kept:
    """What a loss keeps."""

    def __init__(self) -> None:
        self.calls, self.hidden, self.last = 0, None, deque([1.0], maxlen=3)
        self.log: list[Any] = []


def counts(kept: Kept) -> Any:
    def loss(module: nn.Module, x: Tensor) -> Tensor:
        kept.calls += 1
        return module(x).pow(2).mean() * (1 + 0.1 * kept.calls)

    return loss


def hands_on(kept: Kept) -> Any:
    def loss(module: nn.Module, x: Tensor) -> Tensor:
        out = module(x)
        if kept.hidden is not None:
            out = out + kept.hidden
        kept.hidden = out.detach().mean(0)
        return out.pow(2).mean()

    return loss


def fit(out: Path, module: nn.Module, loss: Any, listener: Any = None, steps: int = 6) -> Any:
    optimizer = torch.optim.SGD(module.parameters(), lr=0.02)
    loader = torch.utils.data.DataLoader(ROWS, batch_size=4)  # type: ignore[arg-type]
    return tallystick.fit(
        module, loss, loader, optimizer, out=out, steps=steps, listener=listener, progress=False
    )


class Acts(Silent):
    def __init__(self, act: Callable[[], Any]) -> None:
        self.act, self.heard = act, list[Any]()

    def step(self, step: int, loss: float, seconds: float) -> None:
        self.heard.append(self.act())


def fresh(kept: Kept) -> None:
    kept.hidden = torch.zeros(3)  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("make", "act", "words"),
    [
        (counts, lambda k: setattr(k, "calls", 0), r"kept\.calls.*\(1 → 0\)"),
        (hands_on, lambda k: setattr(k, "hidden", None), r"kept\.hidden"),
        (hands_on, lambda k: k.hidden.zero_(), r"kept\.hidden"),
        (hands_on, fresh, r"kept\.hidden"),
    ],
)
def test_a_listener_may_not_set_back_what_the_steps_move(
    make: Any, act: Callable[[Kept], Any], words: str, tmp_path: Path
) -> None:
    """Before the training the places held just that."""
    kept = Kept()
    with pytest.raises(CallbackError, match=rf"Acts\.step changes .*{words}.* at step 1"):
        fit(tmp_path, net(), make(kept), Acts(lambda: act(kept)))
    assert (kept.calls, kept.hidden) == (0, None)  # the same call goes on


def test_a_listener_reads_what_the_steps_move(tmp_path: Path) -> None:
    kept = Kept()
    listener = Acts(lambda: kept.calls)
    assert fit(tmp_path, net(), counts(kept), listener).finished
    assert listener.heard == [1, 2, 3, 4, 5, 6]


# -- tensors that do not move in a run -------------------------------------------------------------
class Buffered(nn.Module):
    hidden: Tensor

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.layer = nn.Linear(5, 3)
        self.register_buffer("hidden", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x) + self.hidden
        self.hidden.copy_(out.detach().mean(0))
        return out


def test_zeros_of_a_buffer_are_not_set_to_zero(tmp_path: Path) -> None:
    module = Buffered()
    with pytest.raises(CallbackError, match=r"changes the buffer hidden"):
        fit(
            tmp_path, module, lambda m, x: m(x).pow(2).mean(),
            Acts(lambda: module.hidden.zero_()),
        )  # fmt: skip


@pytest.mark.parametrize("replaces", [False, True])
def test_zeros_beside_the_module_are_not_set_to_zero(replaces: bool, tmp_path: Path) -> None:
    held = {"h": torch.zeros(3)}

    def loss(module: nn.Module, x: Tensor) -> Tensor:
        out: Tensor = module(x) + held["h"]
        held["h"] = out.detach().mean(0)
        return out.pow(2).mean()

    def act() -> None:
        if replaces:
            held["h"] = torch.zeros(3)
        else:
            held["h"].zero_()

    with pytest.raises(CallbackError, match=r"changes the tensor held\['h'\]"):
        fit(tmp_path, net(), loss, Acts(act))


# -- one training after another ------------------------------------------------------------------
def dice(kept: Kept) -> Any:
    own = random.Random(3)

    def loss(module: nn.Module, x: Tensor) -> Tensor:
        return module(x).pow(2).mean() * own.uniform(0.5, 1.5)

    return loss


def library_dice(kept: Kept) -> Any:
    def loss(module: nn.Module, x: Tensor) -> Tensor:
        return module(x).pow(2).mean() * random.uniform(0.5, 1.5)

    return loss


def iterator(kept: Kept) -> Any:
    numbers = itertools.count(1)

    def loss(module: nn.Module, x: Tensor) -> Tensor:
        return module(x).pow(2).mean() * (1 + 0.1 * next(numbers))

    return loss


def last_ones(kept: Kept) -> Any:
    def loss(module: nn.Module, x: Tensor) -> Tensor:
        kept.last.append(kept.last[-1] * 0.9 + 0.2 * kept.last[0])
        return module(x).pow(2).mean() * sum(kept.last)

    return loss


def both(kept: Kept) -> Any:
    one = hands_on(kept)

    def loss(module: nn.Module, x: Tensor) -> Tensor:
        kept.log.append(kept.calls)
        kept.calls += 1
        return one(module, x) * len(kept.log)  # type: ignore[no-any-return]

    return loss


@pytest.mark.sample(3)
@pytest.mark.parametrize("make", [counts, hands_on, dice, library_dice, iterator, last_ones, both])
def test_a_second_training_goes_on_from_the_first(make: Any, tmp_path: Path) -> None:
    random.seed(8)
    kept, module = Kept(), net()
    loss = make(kept)
    for number in range(2):
        fit(tmp_path / str(number), module, loss)
    random.seed(8)
    own, wanted = Kept(), net()
    plain = make(own)
    for _ in range(2):
        optimizer = torch.optim.SGD(wanted.parameters(), lr=0.02)
        for step in range(6):
            optimizer.zero_grad()
            plain(wanted, torch.stack(ROWS[4 * step : 4 * step + 4])).backward()
            optimizer.step()
    torch.testing.assert_close(module.weight, wanted.weight, rtol=1e-5, atol=1e-6)
    assert (kept.calls, kept.last, kept.log) == (own.calls, own.last, own.log)


def fades(kept: Kept) -> Any:
    """A tensor made of constants, each from the one before: no slot."""

    def loss(module: nn.Module, x: Tensor) -> Tensor:
        kept.hidden = torch.ones(1) if kept.hidden is None else kept.hidden * 0.9
        return module(x).pow(2).mean() * kept.hidden.squeeze()  # type: ignore[no-any-return, attr-defined]

    return loss


def logs(kept: Kept) -> Any:
    counting = counts(kept)

    def loss(module: nn.Module, x: Tensor) -> Tensor:
        found: Tensor = counting(module, x)
        kept.hidden = found.detach()  # type: ignore[assignment]
        kept.log.append(found.detach())
        return found

    return loss


def test_a_tensor_that_no_state_holds_is_refused_by_name(tmp_path: Path) -> None:
    kept, module = Kept(), net()
    loss = fades(kept)
    fit(tmp_path / "a", module, loss)
    with pytest.raises(UsageError, match=r"kept\.hidden.* is a tensor .*earlier training"):
        fit(tmp_path / "b", module, loss)
    kept.hidden = None
    assert fit(tmp_path / "b", module, loss).finished


def test_a_tensor_that_no_step_reads_is_as_before(tmp_path: Path) -> None:
    kept, module = Kept(), net()
    loss = logs(kept)
    fit(tmp_path / "a", module, loss)
    assert (kept.calls, kept.hidden, kept.log) == (6, None, [])
    assert fit(tmp_path / "b", module, loss).finished


# -- hooks of a LightningModule ------------------------------------------------------------------
class Lit(nn.Module):
    """Of the form of a LightningModule, whose step counts and hands on."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.layer = nn.Linear(5, 3)
        self.calls, self.hidden = 0, None
        self.kept: dict[str, Any] = {"calls": 0}

    def training_step(self, x: Tensor, batch_idx: int) -> Tensor:
        self.calls += 1
        self.kept["calls"] += 1
        out = self.layer(x)
        if self.hidden is not None:
            out = out + self.hidden
        self.hidden = out.detach().mean(0)
        return out.pow(2).mean() * (self.calls + self.kept["calls"])  # type: ignore[no-any-return]

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.01)


def fit_lit(out: Path, module: Lit) -> Any:
    loader = torch.utils.data.DataLoader(ROWS, batch_size=4)  # type: ignore[arg-type]
    return tallystick.fit_lightning(module, loader, out=out, max_epochs=2, progress=False)


def no_hidden(self: Lit) -> None:
    self.hidden = None


def no_calls(self: Lit) -> None:
    self.calls = 0


def none_kept(self: Lit) -> None:
    self.kept["calls"] = 0


def freezes_later(self: Lit) -> None:
    if self.calls > 3:
        self.layer.bias.requires_grad_(False)


@pytest.mark.sample(3)
@pytest.mark.parametrize("event", ["on_train_epoch_start", "on_train_epoch_end"])
@pytest.mark.parametrize(
    ("hook", "words"),
    [
        (no_hidden, r"does at step 6 .*attribute .*hidden"),
        (no_calls, r"does at step 6 .*attribute .*calls"),
        (none_kept, r"does at step 6 .*attribute .*kept"),
        (freezes_later, r"depends on what training_step keeps"),
    ],
)
def test_a_hook_may_not_set_back_what_the_steps_move(
    hook: Any, words: str, event: str, tmp_path: Path
) -> None:
    module = type("Hooked", (Lit,), {event: hook})()
    with pytest.raises(UsageError, match=words):
        fit_lit(tmp_path, module)
    assert (module.calls, module.hidden, module.kept) == (0, None, {"calls": 0})


def test_a_hook_beside_what_the_steps_move(tmp_path: Path) -> None:
    class Freezes(Lit):
        def on_train_epoch_start(self) -> None:
            print(self.calls)
            if self.current_epoch == 1:  # type: ignore[operator]
                self.layer.bias.requires_grad_(False)

    module = Freezes()
    assert fit_lit(tmp_path, module).finished
    assert (module.calls, module.kept) == (12, {"calls": 12})
    assert module.hidden is not None
