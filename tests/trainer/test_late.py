"""Hidden states that are None at first, in loops that are known (PROGRAM 5.20 g)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from grid.case import Case, Loop, Order
from grid.measure import compared
from hidden_states import (
    BATCH,
    EPOCHS,
    PER_EPOCH,
    RECORDS,
    STEPS,
    TOKENS,
    WIDTH,
    Make,
    Reader,
    signed,
    text,
    told,
)
from torch import Tensor, nn
from torch.utils.data import DataLoader

import tallystick
from tallystick.job.job_file import load_job
from tallystick.run.cheats.training import declared_cheat
from tallystick.run.execute.listener import Silent
from tallystick.run.execute.trainer import Options, train_job
from tallystick.run.store.unsigned import Declaration


def closure() -> Any:
    hidden: Any = None

    def loss(module: nn.Module, tokens: Tensor) -> Tensor:
        nonlocal hidden
        scores, found = module(tokens[:, :-1], hidden)
        hidden = tuple(h.detach() for h in found)
        return told(scores, tokens)

    return loss


def attribute_of_the_module() -> Any:
    def loss(module: Any, tokens: Tensor) -> Tensor:
        scores, found = module(tokens[:, :-1], module.__dict__.get("kept"))
        module.kept = tuple(h.detach() for h in found)
        return told(scores, tokens)

    return loss


def items_of_a_list() -> Any:
    kept: list[Any] = [None, None]

    def loss(module: nn.Module, tokens: Tensor) -> Tensor:
        hidden = None if kept[0] is None else (kept[0], kept[1])
        scores, (h, c) = module(tokens[:, :-1], hidden)
        kept[:] = [h.detach(), c.detach()]
        return told(scores, tokens)

    return loss


def absent_item_that_is_a_list() -> Any:
    kept: dict[str, Any] = {}

    def loss(module: nn.Module, tokens: Tensor) -> Tensor:
        scores, found = module(tokens[:, :-1], tuple(kept["state"]) if "state" in kept else None)
        kept["state"] = [h.detach() for h in found]
        return told(scores, tokens)

    return loss


def anew_in_each_epoch() -> Any:
    carried: dict[str, Any] = {"hidden": None, "batch": 0}

    def loss(module: nn.Module, tokens: Tensor) -> Tensor:
        if carried["batch"] % PER_EPOCH == 0:
            carried["hidden"] = None
        carried["batch"] += 1
        scores, found = module(tokens[:, :-1], carried["hidden"])
        carried["hidden"] = tuple(h.detach() for h in found)
        return told(scores, tokens)

    return loss


def emptied_after_an_epoch() -> Any:
    carried: dict[str, Any] = {"hidden": None, "batch": 0}

    def loss(module: nn.Module, tokens: Tensor) -> Tensor:
        scores, found = module(tokens[:, :-1], carried["hidden"])
        carried["batch"] += 1
        ends = carried["batch"] % PER_EPOCH == 0
        carried["hidden"] = None if ends else tuple(h.detach() for h in found)
        return told(scores, tokens)

    return loss


def attribute_of_a_class() -> Any:
    class Keeper:
        state: Any = None

    def loss(module: nn.Module, tokens: Tensor) -> Tensor:
        scores, found = module(tokens[:, :-1], Keeper.state)
        Keeper.state = tuple(h.detach() for h in found)
        return told(scores, tokens)

    return loss


def changed_in_place() -> Any:
    kept: dict[str, Any] = {"mean": None}

    def loss(module: nn.Module, tokens: Tensor) -> Tensor:
        scores, _ = module(tokens[:, :-1])
        mean = scores.detach().mean((0, 1))
        if kept["mean"] is None:
            kept["mean"] = mean
        else:
            kept["mean"].mul_(0.5).add_(mean)
        return told(scores - kept["mean"], tokens)

    return loss


def zeros_that_a_later_call_changes() -> Any:
    """The zeros depend on no batch: they would be made anew, without the change, at each step."""
    kept: dict[str, Any] = {"count": None}

    def loss(module: nn.Module, tokens: Tensor) -> Tensor:
        if kept["count"] is None:
            kept["count"] = torch.zeros(TOKENS)
        else:
            kept["count"].add_(torch.linspace(0.0, 1.0, TOKENS))
        return told(module(tokens[:, :-1])[0] * (1 + kept["count"]), tokens)

    return loss


def handler_around_the_read() -> Any:
    """A refusal within `try` is not the loss's own affair."""
    kept: dict[str, Any] = {"mean": None, "calls": 0}

    def loss(module: nn.Module, tokens: Tensor) -> Tensor:
        scores = module(tokens[:, :-1])[0]
        kept["calls"] += 1
        try:
            scores = scores + kept["mean"]
        except Exception:
            scores = 1.5 * scores
        kept["mean"] = scores.detach().mean((0, 1))
        return kept["calls"] * 0.1 * told(scores, tokens)

    return loss


def last_ones_in_a_deque() -> Any:
    kept: deque[Tensor] = deque(maxlen=3)

    def loss(module: nn.Module, tokens: Tensor) -> Tensor:
        scores = module(tokens[:, :-1])[0]
        for old in kept:
            scores = scores + 0.2 * old
        kept.append(scores.detach().mean((0, 1)))
        return told(scores, tokens)

    return loss


def last_batches() -> Any:
    """The batch before and the one before that."""
    kept: dict[str, Any] = {"one": None, "two": None}

    def loss(module: nn.Module, tokens: Tensor) -> Tensor:
        value = told(module(tokens[:, :-1])[0], tokens)
        for old in (kept["one"], kept["two"]):
            value = value if old is None else value + 0.5 * told(module(old[:, :-1])[0], old)
        kept["two"], kept["one"] = kept["one"], tokens
        return value

    return loss


def one_object_in_two_places() -> Any:
    kept: dict[str, Any] = {"hidden": None, "best": None, "calls": 0}

    def loss(module: nn.Module, tokens: Tensor) -> Tensor:
        scores = module(tokens[:, :-1])[0]
        kept["calls"] += 1
        if kept["hidden"] is not None:
            same = kept["hidden"] is kept["best"]
            scores = scores + (kept["hidden"] if same else 0.5 * kept["best"])
        kept["hidden"] = scores.detach().mean((0, 1))
        if kept["calls"] % 2:
            kept["best"] = kept["hidden"]
        return told(scores, tokens)

    return loss


def one_object_in_a_list() -> Any:
    kept: dict[str, Any] = {"hidden": None, "all": []}

    def loss(module: nn.Module, tokens: Tensor) -> Tensor:
        scores = module(tokens[:, :-1])[0]
        if kept["hidden"] is not None:
            scores = (
                scores
                + (2.0 if any(kept["hidden"] is a for a in kept["all"]) else 1.0) * (kept["hidden"])
            )
        kept["hidden"] = scores.detach().mean((0, 1))
        kept["all"] = [kept["hidden"]]
        return told(scores, tokens)

    return loss


def one_object_that_was_two() -> Any:
    """Both are there before the training: as two tensors, which the first call makes one."""
    kept = {"hidden": torch.ones(TOKENS), "best": torch.zeros(TOKENS)}

    def loss(module: nn.Module, tokens: Tensor) -> Tensor:
        scores = module(tokens[:, :-1])[0]
        factor = 0.3 if kept["hidden"] is kept["best"] else 1.0
        scores = scores + factor * kept["hidden"] - 0.1 * kept["best"]
        kept["hidden"] = kept["best"] = scores.detach().mean((0, 1))
        return told(scores, tokens)

    return loss


def two_that_nobody_compares() -> Any:
    kept = {"hidden": torch.ones(TOKENS), "best": torch.zeros(TOKENS)}

    def loss(module: nn.Module, tokens: Tensor) -> Tensor:
        scores = module(tokens[:, :-1])[0] + 0.5 * kept["hidden"] - 0.1 * kept["best"]
        kept["hidden"] = kept["best"] = scores.detach().mean((0, 1))
        return told(scores, tokens)

    return loss


def one_tensor_in_two_places() -> Any:
    kept: dict[str, Any] = {"a": None, "b": None}

    def loss(module: nn.Module, tokens: Tensor) -> Tensor:
        scores = module(tokens[:, :-1])[0]
        if kept["a"] is None:
            kept["a"] = kept["b"] = scores.detach().mean((0, 1))
        else:
            kept["a"].mul_(0.5)
        return told(scores + kept["b"], tokens)

    return loss


def zeros_that_change_places() -> Any:
    """The zeros of the first call depend on nothing: a slot gets them by a swap."""
    kept: dict[str, Any] = {"a": None, "b": None}

    def loss(module: nn.Module, tokens: Tensor) -> Tensor:
        scores = module(tokens[:, :-1])[0]
        if kept["a"] is None:
            kept["a"], kept["b"] = scores.detach().mean((0, 1)), torch.zeros(TOKENS)
        else:
            kept["a"], kept["b"] = kept["b"], kept["a"]
            scores = scores + kept["a"] + 0.1 * kept["b"]
        return told(scores, tokens)

    return loss


def loop_of(make: Make, accumulate: int = 1) -> Loop:
    def plain(module: nn.Module, batches: Iterator[Any]) -> Iterator[Any]:
        loss, optimizer = make(), torch.optim.SGD(module.parameters(), lr=0.5)
        while True:
            optimizer.zero_grad()
            for _ in range(accumulate):
                (loss(module, next(batches)) / accumulate).backward()
            optimizer.step()
            yield optimizer

    order, form = Order(True, RECORDS, BATCH, EPOCHS, False), torch.zeros(BATCH, 6).long()
    made = lambda out: signed(make, out, accumulate)  # noqa: E731
    return Loop(Reader(), made, plain, order, STEPS // accumulate, lambda: [form])


def programs(run: Any) -> int:
    return len(load_job(Path(run.directory) / "job").commitment.timetable.programs)


TRAINED = {
    closure: 2,
    attribute_of_the_module: 2,
    items_of_a_list: 2,
    absent_item_that_is_a_list: 2,
    anew_in_each_epoch: 2,
    emptied_after_an_epoch: 3,
    attribute_of_a_class: 2,
    changed_in_place: 2,
    zeros_that_a_later_call_changes: 2,
    handler_around_the_read: 2,
    last_ones_in_a_deque: 4,
    last_batches: 3,
    one_object_in_two_places: 3,
    one_object_in_a_list: 2,
    one_object_that_was_two: 2,
    two_that_nobody_compares: 1,
    one_tensor_in_two_places: 2,
    zeros_that_change_places: 2,
}


@pytest.mark.sample(5)
@pytest.mark.parametrize("make", TRAINED)
def test_each_step_is_that_of_the_plain_loop(make: Make, tmp_path: Path) -> None:
    run = loop_of(make).signed(tmp_path)
    found = compared(Case(make.__name__, "fit", (), lambda: loop_of(make)), run)
    assert (found.outcome, found.steps) == ("as written", STEPS), found
    assert programs(run) == TRAINED[make]
    assert tallystick.audit(tmp_path / "run", threads=1).accepted


@pytest.mark.sample(3)
@pytest.mark.parametrize("make", [closure, anew_in_each_epoch])
def test_batches_of_one_update_hand_it_on(make: Make, tmp_path: Path) -> None:
    run = loop_of(make, accumulate=2).signed(tmp_path)
    found = compared(Case(make.__name__, "fit", (), lambda: loop_of(make, 2)), run)
    assert (found.outcome, found.steps) == ("as written", STEPS // 2), found


def test_the_slots_begin_with_zeros_and_the_places_end_with_tensors(tmp_path: Path) -> None:
    module, kept = Reader(), {"hidden": None}

    def loss(module: nn.Module, tokens: Tensor) -> Tensor:
        scores, found = module(tokens[:, :-1], kept["hidden"])
        kept["hidden"] = tuple(h.detach() for h in found)
        return told(scores, tokens)

    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    tallystick.fit(
        module, loss, text(), optimizer, batch_size=BATCH, steps=4, out=tmp_path, progress=False
    )
    first = load_job(tmp_path / "job").genesis().slots
    names = sorted(name for name in first if "outside" in name)
    assert names == ["buffer.outside.kept.hidden.0", "buffer.outside.kept.hidden.1"]
    assert not any(first[name].any() for name in names)
    hidden: Any = kept["hidden"]
    assert isinstance(hidden, tuple) and [h.shape for h in hidden] == 2 * [(1, BATCH, WIDTH)]
    assert all(not h.is_meta and bool(h.abs().sum() > 0) for h in hidden)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run whose hidden state begins anew in each epoch, committed every 2 steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tallystick.job.parts.DEFAULT_INTERVAL", 2)
        return signed(anew_in_each_epoch, tmp_path_factory.mktemp("unbroken"))


def test_a_resumed_run_ends_at_the_same_bits(
    unbroken: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tallystick.job.parts.DEFAULT_INTERVAL", 2)

    class Breaks(Silent):
        def step(self, step: int, loss: float, seconds: float) -> None:
            if step == PER_EPOCH + 1:
                raise RuntimeError("the power goes out")

    with pytest.raises(RuntimeError, match="the power goes out"):
        signed(anew_in_each_epoch, tmp_path / "run", listener=Breaks())
    assert signed(anew_in_each_epoch, tmp_path / "run").run_root == unbroken.run_root


def test_a_lie_about_a_later_program_is_convicted(unbroken: Any, tmp_path: Path) -> None:
    job, step = load_job(Path(unbroken.directory) / "job"), PER_EPOCH + 1
    at = job.commitment.timetable.at
    assert at(step).program != at(0).program
    maker = declared_cheat(job, Declaration("lie-output", {"step": step}))
    train_job(job, tmp_path / "cheat", Options(maker=maker))
    found = tallystick.dispute(
        unbroken.directory, tmp_path / "cheat", job, as_attack=["B"], out=tmp_path / "evidence"
    )
    assert found.convicted == ("B",)
    assert found.verdict.place.step == step
    assert tallystick.judge(tmp_path / "evidence", job).verdict == found.verdict


class Buffered(nn.Module):
    hidden: Any

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.reader = Reader()
        self.register_buffer("hidden", None)

    def forward(self, tokens: Tensor) -> Tensor:
        scores = self.reader(tokens)[0]
        scores = scores if self.hidden is None else scores + self.hidden
        self.hidden = scores.detach().mean((0, 1))
        return scores  # type: ignore[no-any-return]


def test_a_buffer_that_is_none_at_first(tmp_path: Path) -> None:
    module, plain = Buffered(), Buffered()
    loss = lambda module, tokens: told(module(tokens[:, :-1]), tokens)  # noqa: E731
    tallystick.fit(
        module, loss, DataLoader(text(), BATCH), torch.optim.SGD(module.parameters(), lr=0.5),
        epochs=1, out=tmp_path, progress=False,
    )  # fmt: skip
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.5)
    for begin in range(0, RECORDS, BATCH):
        optimizer.zero_grad()
        loss(plain, torch.stack(text()[begin : begin + BATCH])).backward()
        optimizer.step()
    torch.testing.assert_close(module.state_dict(), plain.state_dict(), rtol=1e-5, atol=1e-5)
    assert "hidden" in plain.state_dict()


# -- refused by name -------------------------------------------------------------------------------
