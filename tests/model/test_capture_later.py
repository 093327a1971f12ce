"""Captures whose loss keeps Python state that decides: a job of so many steps has what each of its
calls computes (PROGRAM 5.25)."""

from __future__ import annotations

import copy
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
from tallystick.errors import MovingStateError, UsageError

X = torch.randn(30, 5, generator=torch.Generator().manual_seed(2))
DATA = {"x": X, "y": (X[:, 0] > 0).long()}
SIZE, STEPS = 6, 12


def batch_of(size: int = SIZE) -> dict[str, Tensor]:
    return {name: t[:size] for name, t in DATA.items()}


def net() -> nn.Module:
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Dropout(0.1), nn.Linear(8, 2))


class Counting:
    """A loss with a penalty in each third call, and a weight that grows with the calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, module: nn.Module, batch: dict[str, Tensor]) -> Any:
        self.calls += 1
        out = module(batch["x"])
        loss = F.cross_entropy(out, batch["y"]) + self.calls / 40 * out.pow(2).mean()
        if self.calls % 3 == 0:
            loss = loss + sum(p.pow(2).sum() for p in module.parameters())
        return loss, {"size": out.abs().mean()}


def loop_of(micro: int | None = None, begun: int = 0, **options: Any) -> Loop:
    """`begun` calls were made between the capture and the job."""

    def signed(out: Path) -> Any:
        module, loss = net(), Counting()
        captured = tallystick.capture(
            module, loss, batch_of(), tallystick.AdamW(lr=2e-2), micro_batches=micro, clip_norm=1.0
        )
        assert loss.calls == 0
        loss.calls = begun
        captured.save_job(out / "job", DATA, steps=STEPS, **options)
        assert loss.calls == begun
        return tallystick.train(out / "job", out / "run", progress=False)

    def plain(module: nn.Module, batches: Iterator[Any]) -> Iterator[Any]:
        loss, optimizer = Counting(), torch.optim.AdamW(module.parameters(), lr=2e-2)
        loss.calls = begun
        for _ in range(STEPS):
            optimizer.zero_grad()
            for _ in range(micro or 1):
                (loss(module, next(batches))[0] / (micro or 1)).backward()
            nn.utils.clip_grad_norm_(module.parameters(), 1.0)
            optimizer.step()
            yield optimizer

    return Loop(net(), signed, plain, Order(True, 30, SIZE // (micro or 1), 4, True), STEPS)


@pytest.mark.parametrize(("micro", "begun"), [(None, 7), (3, 0)])
def test_each_step_is_that_of_the_plain_loop(micro: int | None, begun: int, tmp_path: Path) -> None:
    case = Case("counting", "capture", (), lambda: loop_of(micro, begun))
    run = case.make().signed(tmp_path)
    found = compared(case, run)
    assert (found.outcome, found.steps) == ("as written", STEPS), found
    assert tallystick.audit(tmp_path / "run", threads=1).accepted


def test_another_count_of_calls_is_another_loop(tmp_path: Path) -> None:
    case = Case("counting", "capture", (), loop_of)
    run = case.make().signed(tmp_path)
    found = compared(case, run)
    assert (found.outcome, found.steps) == ("as written", STEPS), found
    late = Case("late", "capture", (), lambda: loop_of(begun=1))
    assert compared(late, run).outcome == "different"


def test_an_epoch_may_end_with_a_short_batch(tmp_path: Path) -> None:
    module, loss, size = net(), Counting(), 8
    rule = tallystick.SGD(0.1)
    whole = tallystick.capture(module, loss, batch_of(size), rule)
    short = tallystick.capture(module, loss, batch_of(30 % size), rule)
    given: dict[str, Any] = {"steps": 12, "epoch_end": "short"}
    with pytest.raises(UsageError, match="no step is given for it"):
        whole.save_job(tmp_path / "job", DATA, **given)
    with pytest.raises(UsageError, match="No batch of an epoch is short"):
        whole.save_job(tmp_path / "job", DATA, steps=12, short=short)
    other = tallystick.capture(module, Counting(), batch_of(30 % size), rule)
    with pytest.raises(UsageError, match="another loss"):
        whole.save_job(tmp_path / "job", DATA, short=other, **given)
    job = whole.save_job(tmp_path / "job", DATA, short=short, **given)
    assert len(job.commitment.timetable.programs) == 4  # of two sizes, with the penalty and without
    tables = [t for name, t in job.scalars.items() if name.startswith("at.")]
    weights = [max(row) for row in zip(*tables, strict=True)]  # each program has one of its own
    # The short batch with the penalty comes once: its number stands in its program.
    assert weights == pytest.approx([*((n + 1) / 40 for n in range(11)), 0.0])
    assert tallystick.train(tmp_path / "job", tmp_path / "run", progress=False).steps == 12


def test_what_needs_one_program_says_why_there_is_none(tmp_path: Path) -> None:
    module, loss, rule = net(), Counting(), tallystick.SGD(0.1)
    captured = tallystick.capture(module, loss, batch_of(), rule)
    words = r"The attribute calls changes at every forward, from 1 to 2.*\.py:\d+"
    for use in (
        lambda: captured.program,
        lambda: captured.step,
        lambda: captured.evaluation,
        lambda: captured.save_job(
            tmp_path / "job", DATA, steps=4, validation=DATA, evaluate_every=2
        ),
        lambda: tallystick.save_job(tmp_path / "job", DATA, programs={"one": captured}, steps=4),
        lambda: tallystick.capture(module, loss, batch_of(), rule, forward=lambda m, b: m(b["x"])),
    ):
        with pytest.raises(MovingStateError, match=words):
            use()
    assert not (tmp_path / "job").exists() and loss.calls == 0


def test_too_many_steps_are_refused_at_once(tmp_path: Path) -> None:
    captured = tallystick.capture(net(), Counting(), batch_of(), tallystick.SGD(0.1))
    with pytest.raises(UsageError, match=r"calls changes .* 10000000000 steps are too many"):
        captured.save_job(tmp_path / "job", DATA, steps=10**10)


def test_a_file_that_is_read_is_no_function_of_the_calls(tmp_path: Path) -> None:
    """Both walks would begin where the traces of the capture have left it: behind the flip."""
    path, loss = tmp_path / "calls", Counting()
    path.write_text("")

    def flipping(module: nn.Module, batch: dict[str, Tensor]) -> Any:
        calls = len(path.read_text())
        path.write_text("x" * (calls + 1))
        found, _ = loss(module, batch)
        return found if calls < 3 else 0.5 * found

    with pytest.raises(UsageError, match=r"reads a file \(\S*test_capture_later\.py:\d+\)"):
        tallystick.capture(net(), flipping, batch_of(), tallystick.SGD(0.1)).save_job(
            tmp_path / "job", DATA, steps=8
        )
    assert not (tmp_path / "job").exists()


def test_a_file_that_only_the_first_call_reads(tmp_path: Path) -> None:
    """The traces of the capture have made the file: both walks find it then."""
    marker = tmp_path / "marker"
    kept = {"calls": 0, "scale": 1.0}

    def loss(module: nn.Module, batch: dict[str, Tensor]) -> Any:
        kept["calls"] += 1
        if kept["calls"] == 1:
            kept["scale"] = 2.0 if marker.exists() else 1.0
            marker.touch()
        return kept["scale"] * kept["calls"] * F.cross_entropy(module(batch["x"]), batch["y"])

    captured = tallystick.capture(net(), loss, batch_of(), tallystick.SGD(0.1))
    with pytest.raises(UsageError, match=r"reads a file \(\S*test_capture_later\.py:\d+\)"):
        captured.save_job(tmp_path / "job", DATA, steps=8)


def test_the_batch_before_is_kept(tmp_path: Path) -> None:
    kept: dict[str, Any] = {"batch": None}

    def loss(module: nn.Module, batch: dict[str, Tensor]) -> Any:
        found = F.cross_entropy(module(batch["x"]), batch["y"])
        if (old := kept["batch"]) is not None:
            found = found + 0.5 * F.cross_entropy(module(old["x"]), old["y"])
        kept["batch"] = batch
        return found

    captured = tallystick.capture(net(), loss, batch_of(), tallystick.SGD(0.1))
    job = captured.save_job(tmp_path / "job", DATA, steps=4)
    assert len(job.commitment.timetable.programs) == 2


def test_a_module_that_was_changed_in_between_is_refused(tmp_path: Path) -> None:
    for change in (nn.Module.eval, lambda m: nn.init.zeros_(m[0].weight)):
        module = net()
        captured = tallystick.capture(module, Counting(), batch_of(), tallystick.SGD(0.1))
        change(module)
        with pytest.raises(UsageError, match="has changed since its capture"):
            captured.save_job(tmp_path / "job", DATA, steps=4)


def test_an_average_that_would_stand_still_is_refused(tmp_path: Path) -> None:
    calls = 0

    def loss(module: Any, batch: dict[str, Tensor]) -> Tensor:
        nonlocal calls
        calls += 1
        hidden = module[1](module[0](batch["x"]))
        return F.cross_entropy(module[3](hidden if calls % 2 else hidden.detach()), batch["y"])

    rule, module = tallystick.SGD(0.1), net()
    captured = tallystick.capture(module, loss, batch_of(), rule, ema=0.9)
    with pytest.raises(UsageError, match="average would not change"):
        captured.save_job(tmp_path / "job", DATA, steps=4)
    assert tallystick.capture(module, loss, batch_of(), rule).save_job(
        tmp_path / "job", DATA, steps=4
    )


# -- step functions --------------------------------------------------------------------------------
class Nets(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.one, self.two = nn.Linear(5, 2), nn.Linear(5, 2)


def by_turns(every: int, parts: bool = False) -> Callable[..., Tensor]:
    """The second net is updated in each `every`-th step; with `parts` its bias in some only."""
    calls = 0

    def step(nets: Any, batch: dict[str, Tensor], update: Any) -> Tensor:
        nonlocal calls
        calls += 1
        loss = F.cross_entropy(nets.one(batch["x"]), batch["y"])
        update("one", loss)
        if calls % every == 0:
            bias = nets.two.bias if not parts or calls % 2 else nets.two.bias.detach()
            out = F.linear(batch["x"], nets.two.weight, bias)
            update("two", F.cross_entropy(out + nets.one(batch["x"]), batch["y"]))
        return loss

    return step


def refused(rule: Any, step: Any, words: str, where: Path) -> None:
    rules = {"one": tallystick.SGD(0.1), "two": rule}
    captured = tallystick.capture(Nets(), step, batch_of(), rules)
    with pytest.raises(UsageError, match=words):
        captured.save_job(where / "job", DATA, steps=6)


def test_a_group_that_rests_is_counted_as_torch_counts_it(tmp_path: Path) -> None:
    """Adam's powers move with its own updates; a rate that falls with the steps would not."""

    def signed(out: Path) -> Any:
        rules = {"one": tallystick.SGD(0.1), "two": tallystick.Adam(lr=1e-2)}
        captured = tallystick.capture(Nets(), by_turns(3), batch_of(), rules)
        captured.save_job(out / "job", DATA, steps=STEPS)
        return tallystick.train(out / "job", out / "run", progress=False)

    def plain(nets: Any, batches: Iterator[Any]) -> Iterator[Any]:
        step = by_turns(3)
        of = {
            "one": torch.optim.SGD(nets.one.parameters(), lr=0.1),
            "two": torch.optim.Adam(nets.two.parameters(), lr=1e-2),
        }

        def update(name: str, loss: Tensor) -> None:
            of[name].zero_grad()
            loss.backward()
            of[name].step()

        for _ in range(STEPS):
            step(nets, next(batches), update)
            yield list(of.values())

    def made() -> Loop:
        return Loop(Nets(), signed, plain, Order(True, 30, SIZE, 4, True), STEPS)

    found = compared(Case("by turns", "capture", (), made), signed(tmp_path))
    assert (found.outcome, found.steps) == ("as written", STEPS), found


def test_other_counts_are_refused(tmp_path: Path) -> None:
    falling = tallystick.Adagrad(lr=0.1, lr_decay=0.1)
    refused(falling, by_turns(2), "follows the number of the step", tmp_path)
    refused(tallystick.Adam(lr=0.1), by_turns(1, True), "reaches the parameter two.bias", tmp_path)
    refused(tallystick.Adam(lr=0.1), by_turns(50), "never updates two", tmp_path)


# -- parameters that no group of the optimizer has -------------------------------------------------
class Agent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.q = nn.Linear(5, 2)
        self.target = copy.deepcopy(self.q)


def followed(agent: Any, batch: dict[str, Tensor]) -> Tensor:
    with torch.no_grad():
        for one, other in zip(agent.target.parameters(), agent.q.parameters(), strict=True):
            one.lerp_(other, 0.25)
        wanted = agent.target(batch["x"])
    return F.cross_entropy(agent.q(batch["x"]), batch["y"]) + F.mse_loss(
        agent.q(batch["x"]), wanted
    )


def test_a_parameter_without_a_group_is_state_where_it_gets_no_gradient(tmp_path: Path) -> None:
    def signed(out: Path) -> Any:
        agent = Agent()
        optimizer = torch.optim.Adam(agent.q.parameters(), lr=1e-2)
        captured = tallystick.capture(agent, followed, batch_of(), optimizer, clip_norm=0.5)
        assert not [n for n in captured.program.state_types if n.startswith("opt.m.target")]
        captured.save_job(out / "job", DATA, steps=STEPS)
        return tallystick.train(out / "job", out / "run", progress=False)

    def plain(agent: Any, batches: Iterator[Any]) -> Iterator[Any]:
        optimizer = torch.optim.Adam(agent.q.parameters(), lr=1e-2)
        for _ in range(STEPS):
            optimizer.zero_grad()
            followed(agent, next(batches)).backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
            yield optimizer

    def made() -> Loop:
        return Loop(Agent(), signed, plain, Order(True, 30, SIZE, 4, True), STEPS)

    found = compared(Case("target", "capture", (), made), signed(tmp_path))
    assert (found.outcome, found.steps) == ("as written", STEPS), found


def test_with_a_gradient_it_is_refused() -> None:
    """The norm of all gradients, by which they are clipped, would have it."""

    def loss(agent: Any, batch: dict[str, Tensor]) -> Tensor:
        return followed(agent, batch) + 0.0 * agent.target(batch["x"]).sum()

    agent = Agent()
    optimizer = torch.optim.Adam(agent.q.parameters(), lr=1e-2)
    with pytest.raises(UsageError, match=r"target\.\w+ requires a gradient, but no group"):
        tallystick.capture(agent, loss, batch_of(), optimizer)
