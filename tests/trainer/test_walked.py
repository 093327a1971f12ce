"""Losses that keep Python state, in loops that are known (PROGRAM 5.25)."""

from __future__ import annotations

import datetime
import random
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from grid.case import Case, Loop, Order
from grid.measure import compared
from torch import Tensor, nn
from torch.nn import functional as F

import tallystick
from tallystick.errors import UsageError
from tallystick.job.job_file import load_job
from tallystick.run.execute.listener import Silent

RECORDS, BATCH, EPOCHS, STEPS = 24, 4, 2, 12
Made = Callable[[], Callable[[nn.Module, Any], Tensor]]


def rows() -> list[tuple[Tensor, Tensor]]:
    x = torch.randn(RECORDS, 5, generator=torch.Generator().manual_seed(2))
    return list(zip(x, (x[:, 0] > 0).long(), strict=True))


def net() -> nn.Module:
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 2))


def annealed() -> Any:
    calls = 0

    def loss(module: nn.Module, batch: Any) -> Tensor:
        nonlocal calls
        weight = min(1.0, calls / 7)
        calls += 1
        out = module(batch[0])
        return F.cross_entropy(out, batch[1]) + weight * out.pow(2).mean()

    return loss


def every_fifth() -> Any:
    held = {"calls": 0}

    def loss(module: nn.Module, batch: Any) -> Tensor:
        held["calls"] += 1
        found = F.cross_entropy(module(batch[0]), batch[1])
        if held["calls"] % 5 == 0:
            found = found + sum(p.pow(2).sum() for p in module.parameters())
        return found

    return loss


def generator_of_ones_own() -> Any:
    dice = random.Random(11)

    def loss(module: nn.Module, batch: Any) -> Tensor:
        return dice.uniform(0.5, 1.5) * F.cross_entropy(module(batch[0]), batch[1])

    return loss


def rising_decay() -> Any:
    state: dict[str, Any] = {"rate": 0.5, "mean": torch.zeros(2)}

    def loss(module: nn.Module, batch: Any) -> Tensor:
        out = module(batch[0])
        with torch.no_grad():
            state["mean"] = state["rate"] * state["mean"] + (1 - state["rate"]) * out.mean(0)
        state["rate"] = min(0.95, state["rate"] + 0.04)
        return F.cross_entropy(out - state["mean"], batch[1])

    return loss


def loop_of(make: Made, accumulate: int = 1) -> Loop:
    def signed(out: Path) -> Any:
        module = net()
        return tallystick.fit(
            module, make(), rows(), torch.optim.AdamW(module.parameters(), lr=2e-2),
            batch_size=BATCH, epochs=EPOCHS, out=out, progress=False, accumulate=accumulate,
        )  # fmt: skip

    def plain(module: nn.Module, batches: Iterator[Any]) -> Iterator[Any]:
        loss, optimizer = make(), torch.optim.AdamW(module.parameters(), lr=2e-2)
        while True:
            optimizer.zero_grad()
            for _ in range(accumulate):
                (loss(module, next(batches)) / accumulate).backward()
            optimizer.step()
            yield optimizer

    order = Order(True, RECORDS, BATCH, EPOCHS, False)
    form = [torch.zeros(BATCH, 5), torch.zeros(BATCH, dtype=torch.int64)]
    return Loop(net(), signed, plain, order, STEPS // accumulate, lambda: [form])


def set_once() -> Any:
    held = {"alpha": 1.0}

    def loss(module: nn.Module, batch: Any, at: Any = None) -> Tensor:
        if at is not None and at.epoch == 1 and at.batch == 0:
            held["alpha"] = 0.25
        return held["alpha"] * F.cross_entropy(module(batch[0]), batch[1])

    return loss


def test_what_one_step_sets_holds_in_those_after_it(tmp_path: Path) -> None:
    """Each path alone would have the flag in its own step only."""
    module = net()
    run = tallystick.fit(
        module, set_once(), rows(), torch.optim.SGD(module.parameters(), lr=0.1),
        batch_size=BATCH, epochs=EPOCHS, out=tmp_path, progress=False,
    )  # fmt: skip
    job = load_job(tmp_path / "job")
    tables = [t for name, t in job.scalars.items() if name.startswith("at.")]
    per_epoch = RECORDS // BATCH
    assert tables == [[1.0] * per_epoch + [0.25] * (STEPS - per_epoch)]
    assert run.steps == STEPS


def test_a_loss_that_writes_into_the_optimizer_is_refused(tmp_path: Path) -> None:
    module = net()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)

    def loss(module: nn.Module, batch: Any, at: Any) -> Tensor:
        if at.epoch == 1:
            optimizer.param_groups[0]["lr"] = 0.01
        return F.cross_entropy(module(batch[0]), batch[1])

    with pytest.raises(UsageError, match="changes the optimizer's groups"):
        tallystick.fit(
            module, loss, rows(), optimizer, batch_size=BATCH, epochs=EPOCHS, out=tmp_path,
            progress=False,
        )  # fmt: skip


@pytest.mark.sample(3)
@pytest.mark.parametrize("make", [annealed, every_fifth, rising_decay, generator_of_ones_own])
def test_each_step_is_that_of_the_plain_loop(make: Made, tmp_path: Path) -> None:
    run = loop_of(make).signed(tmp_path)
    found = compared(Case(make.__name__, "fit", (), lambda: loop_of(make)), run)
    assert (found.outcome, found.steps) == ("as written", STEPS), found
    assert tallystick.audit(tmp_path / "run", threads=1).accepted


def test_a_resumed_call_makes_the_same_job(tmp_path: Path) -> None:
    """A call that fails leaves the state as it was, so that the same call goes on; one that ends
    leaves it as after the last step."""

    class Stops(Silent):
        def step(self, step: int, loss: float, seconds: float) -> None:
            raise KeyboardInterrupt

    module, loss = net(), annealed()
    optimizer = torch.optim.AdamW(module.parameters(), lr=2e-2)
    given: dict[str, Any] = {"batch_size": BATCH, "steps": STEPS, "progress": False}
    first = tallystick.fit(module, annealed(), rows(), optimizer, out=tmp_path / "a", **given)
    again = net()
    optimizer = torch.optim.AdamW(again.parameters(), lr=2e-2)
    with pytest.raises(KeyboardInterrupt):
        tallystick.fit(
            again, loss, rows(), optimizer, out=tmp_path / "b", listener=Stops(), **given
        )
    optimizer = torch.optim.AdamW(again.parameters(), lr=2e-2)
    second = tallystick.fit(again, loss, rows(), optimizer, out=tmp_path / "b", **given)
    assert second.run_root == first.run_root
    with pytest.raises(UsageError, match=r"another job.*state that the loss keeps"):
        tallystick.fit(again, loss, rows(), optimizer, out=tmp_path / "b", **given)


def by_the_clock() -> Any:
    def loss(module: nn.Module, batch: Any) -> Tensor:
        return time.monotonic() * F.cross_entropy(module(batch[0]), batch[1])

    return loss


def by_a_file(path: Path) -> Any:
    def loss(module: nn.Module, batch: Any) -> Tensor:
        calls = len(path.read_text()) if path.exists() else 0
        path.write_text("x" * (calls + 1))
        return (1 + calls) * F.cross_entropy(module(batch[0]), batch[1])

    return loss


def by_a_marker(path: Path) -> Any:
    """The first call of all leaves a file: both walks find it, and the plain loop does not."""
    held = {"calls": 0}

    def loss(module: nn.Module, batch: Any) -> Tensor:
        held["calls"] += 1
        scale = 3.0 if path.exists() else 1.0
        path.touch()
        return scale * held["calls"] * F.cross_entropy(module(batch[0]), batch[1])

    return loss


def test_what_the_traces_before_the_walk_leave_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"first call is repeated.*a file"):
        loop_of(lambda: by_a_marker(tmp_path / "marker")).signed(tmp_path / "out")
    assert not (tmp_path / "out" / "job").exists()


def writes_a_log(path: Path, every: int) -> Any:
    held = {"calls": 0}

    def loss(module: nn.Module, batch: Any) -> Tensor:
        held["calls"] += 1
        if held["calls"] > 1_000_000:  # in no step of this loop
            with open(path, "a") as file:
                file.write(f"{time.time()}\n")
        found = F.cross_entropy(module(batch[0]), batch[1])
        weight = min(held["calls"], 7)
        return found + 0.1 * module(batch[0]).abs().sum() if weight % every else weight * found

    return loss


@pytest.mark.parametrize("every", [1, 2])
def test_the_job_says_what_was_not_followed(every: int, tmp_path: Path) -> None:
    """In a job of one program, and in one of two."""
    loop_of(lambda: writes_a_log(tmp_path / "log", every)).signed(tmp_path / "out")
    job = load_job(tmp_path / "out" / "job")
    assert len(job.commitment.timetable.programs) == every
    told = job.about["not followed"]
    assert re.fullmatch(r"loss \(.*test_walked\.py:\d+\), which names a file, the clock", told)


def test_a_job_of_which_all_was_followed_says_nothing(tmp_path: Path) -> None:
    loop_of(annealed).signed(tmp_path)
    assert "not followed" not in load_job(tmp_path / "job").about


def test_what_is_no_function_of_the_calls_is_refused(tmp_path: Path) -> None:
    for make in (by_the_clock, lambda: by_a_file(tmp_path / "calls")):
        with pytest.raises(UsageError, match=r"reads the clock \(\w.*py|[Aa] file"):
            loop_of(make).signed(tmp_path / "out")
        assert not (tmp_path / "out" / "job").exists()


def timed() -> Any:
    held: dict[str, Any] = {"calls": 0, "seconds": 0.0, "log": []}

    def loss(module: nn.Module, batch: Any) -> Tensor:
        begun = time.time()
        held["calls"] += 1
        found = (1 + 0.1 * held["calls"]) * F.cross_entropy(module(batch[0]), batch[1])
        held["seconds"] += time.time() - begun
        now = datetime.datetime.now()
        held["log"].append(f"{time.strftime('%H:%M')} {now:%H:%M} {isinstance(now, datetime.date)}")
        return found

    return loss


def test_a_clock_that_is_only_told_passes(tmp_path: Path) -> None:
    run = loop_of(timed).signed(tmp_path)
    found = compared(Case("timed", "fit", (), lambda: loop_of(timed)), run)
    assert (found.outcome, found.steps) == ("as written", STEPS), found
    assert "the clock" in load_job(tmp_path / "job").about["not followed"]
    assert type(time).__name__ == "module" and time.time() == pytest.approx(begun(), abs=3600)


def begun() -> float:
    return datetime.datetime.now().timestamp()


def far_deadline() -> Any:
    held = {"calls": 0}
    end = time.time() + 365 * 24 * 3600

    def loss(module: nn.Module, batch: Any) -> Tensor:
        held["calls"] += 1
        found = held["calls"] * F.cross_entropy(module(batch[0]), batch[1])
        return found if time.time() < end else 0.5 * found

    return loss


def far_deadline_of_a_date() -> Any:
    held: dict[str, Any] = {"calls": 0, "begun": None}

    def loss(module: nn.Module, batch: Any) -> Tensor:
        held["calls"] += 1
        held["begun"] = held["begun"] or datetime.datetime.now()
        found = held["calls"] * F.cross_entropy(module(batch[0]), batch[1])
        gone = (datetime.datetime.now() - held["begun"]).total_seconds()
        return found if gone < 7 * 24 * 3600 else 0.5 * found

    return loss


def clock_of_another_name() -> Any:
    held = {"calls": 0}

    def loss(module: nn.Module, batch: Any) -> Tensor:
        from time import monotonic

        held["calls"] += 1
        late = monotonic() > 1e12
        return held["calls"] * F.cross_entropy(module(batch[0]), batch[1]) * (0.5 if late else 1)

    return loss


@pytest.mark.parametrize("make", [far_deadline, far_deadline_of_a_date, clock_of_another_name])
def test_a_clock_that_may_decide_is_refused(make: Made, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"reads the clock \(\w.*test_walked\.py:\d+\)"):
        loop_of(make).signed(tmp_path)
    assert not (tmp_path / "job").exists()


@pytest.mark.parametrize("make", [annealed, every_fifth])
def test_batches_of_one_update_may_differ(make: Made, tmp_path: Path) -> None:
    """Each is computed by itself then, in one text without micro-batches."""
    run = loop_of(make, accumulate=2).signed(tmp_path)
    found = compared(Case(make.__name__, "fit", (), lambda: loop_of(make, 2)), run)
    assert (found.outcome, found.steps) == ("as written", STEPS // 2), found


def test_committed_validation_calls_the_loss_too(tmp_path: Path) -> None:
    module = net()
    with pytest.raises(UsageError, match="calls"):
        tallystick.fit(
            module, annealed(), rows(), torch.optim.AdamW(module.parameters(), lr=2e-2),
            batch_size=BATCH, epochs=EPOCHS, out=tmp_path, progress=False, validation=rows()[:8],
        )  # fmt: skip
