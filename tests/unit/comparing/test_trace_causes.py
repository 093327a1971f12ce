"""Traces whose first difference has a near cause and a far one: the near one is named."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")

import torch
from torch import Tensor, nn
from torch.nn import functional
from traced_loops import BASE, Loop

import tallystick
from tallystick.comparing.found import Comparison


def kinds(found: Comparison) -> list[str]:
    return [cause.kind for cause in found.causes]


# -- generators outside of torch -------------------------------------------------------------------
def of_two(tmp_path: Path, run: Callable[[Path, int], None]) -> Comparison:
    """The comparison of `run` for 0 and for 1, each with its own state of numpy's generator and of
    Python's."""
    for number, name in enumerate(("a", "b")):
        torch.manual_seed(0)
        np.random.seed(number)
        random.seed(number)
        run(tmp_path / name, number)
    return tallystick.diff(tmp_path / "a", tmp_path / "b")


@pytest.mark.parametrize(
    ("loop", "cause"), [(Loop(shift=0.5), "data"), (Loop(weights=8), "weights")]
)
def test_a_generator_that_nobody_draws_from_is_no_cause(
    loop: Loop, cause: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = replace(BASE, weights=loop.weights and 7)
    monkeypatch.setattr(np.random, "seed", lambda _: None)
    np.random.standard_normal(1)
    first = base.run(tmp_path / "a")
    np.random.standard_normal(1)
    found = tallystick.diff(first, loop.run(tmp_path / "b"))
    assert kinds(found) == [cause], found.causes


def test_a_generator_that_the_loop_draws_from_stands_beside(tmp_path: Path) -> None:
    def run(place: Path, number: int) -> None:
        net = nn.Linear(4, 2)
        with tallystick.trace(place):
            for _ in range(2):
                noise = np.random.standard_normal((8, 4)).astype(np.float32)
                net(torch.from_numpy(noise)).sum().backward()

    found = of_two(tmp_path, run)
    assert kinds(found) == ["data", "seed"], found.causes
    assert "Numpy's generator" in found.causes[1].sentence
    assert "Python" not in str(found.causes)


# -- numbers of a loop -----------------------------------------------------------------------------
def noisy(x: Tensor, number: float) -> Tensor:
    return x + number * torch.randn_like(x)


def clipped(net: nn.Module, number: float) -> None:
    nn.utils.clip_grad_norm_(net.parameters(), number)


def clamped(net: nn.Module, number: float) -> None:
    nn.utils.clip_grad_value_(net.parameters(), number)


def halved(net: nn.Module, number: float) -> None:
    for parameter in net.parameters():
        assert parameter.grad is not None
        parameter.grad.mul_(number)


def decayed(net: nn.Module, number: float) -> None:
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(number)


def stepped(net: nn.Module, number: float) -> None:
    with torch.no_grad():
        for parameter in net.parameters():
            assert parameter.grad is not None
            parameter.sub_(parameter.grad, alpha=number)


def given(x: Tensor, number: float) -> Tensor:
    return x


def left_alone(net: nn.Module, number: float) -> None:
    return None


# What a number does to the records, the results, the loss and the gradients; and what it is.
NUMBERS: dict[str, tuple[Any, Any, Any, Any, str, str]] = {
    "loss weight": (given, given, torch.mul, left_alone, "program", "Another number: aten.mul"),
    "temperature": (given, torch.div, given, left_alone, "program", "Another number: aten.div"),
    "input scale": (torch.mul, given, given, left_alone, "program", "Another number: aten.mul"),
    "noise": (noisy, given, given, left_alone, "program", "Another number: aten.mul"),
    "accumulation": (given, given, torch.div, left_alone, "program", "Another number: aten.div"),
    "clipping": (given, given, given, clipped, "program", "by a different number: "),
    "clamping": (given, given, given, clamped, "program", "by a different number: "),
    "gradients": (given, given, given, halved, "program", "by a different number: "),
    "weights": (given, given, given, decayed, "program", "Another number: aten.mul_"),
    "update": (given, given, given, stepped, "rate", "update of the weights has another number"),
}


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("optimizer", [True, False])
def test_a_number_is_a_rate_only_in_an_update(name: str, optimizer: bool, tmp_path: Path) -> None:
    records, results, loss, gradients, kind, said = NUMBERS[name]

    def run(place: Path, number: int) -> None:
        net = nn.Linear(12, 5)
        rule = torch.optim.SGD(net.parameters(), 0.1)
        x, y = torch.randn(16, 12), torch.arange(16) % 5
        value = (0.01, 0.005)[number] if name != "weights" else (1.0, 0.5)[number]
        with tallystick.trace(place) as block:
            for _ in range(2):
                net.zero_grad()
                made = functional.cross_entropy(results(net(records(x, value)), value), y)
                loss(made, value).backward()
                gradients(net, value)
                if optimizer:
                    rule.step()
                else:
                    stepped(net, 0.1)
                    block.next_step()

    found = of_two(tmp_path, run)
    assert found.cause is not None and found.cause.kind == kind, (found.causes, found.first)
    assert said in found.cause.sentence, found.causes


# -- steps out of line -----------------------------------------------------------------------------
class Detached(nn.Module):
    def __init__(self, really: bool) -> None:
        super().__init__()
        self.really = really

    def forward(self, x: Tensor) -> Tensor:
        return x.detach() if self.really else x


def stepping(
    place: Path,
    skip: int = -1,
    twice: int = -1,
    detached: bool = False,
    frozen: bool = False,
    left: bool = False,
    late: int = -1,
) -> Path:
    """A loop whose steps may stand out of line."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(6, 8), Detached(detached), nn.GELU(), nn.Dropout(0.2), nn.Linear(8, 3)
    )
    net[0].requires_grad_(not frozen)
    rule = torch.optim.AdamW(net[4:].parameters() if left else net.parameters(), lr=0.01)
    x, y = torch.randn(5, 12, 6), torch.arange(12) % 3
    with tallystick.trace(place):
        for step in range(5):
            rule.zero_grad()
            net.train(late < 0 or step < late)
            functional.cross_entropy(net(x[step]), y).backward()
            for _ in range((step != skip) + (step == twice)):
                rule.step()
    return place


OUT_OF_LINE: dict[str, tuple[dict[str, Any], str, str]] = {
    "skipped": ({"skip": 2}, "program", "Calls of a model in step 2: 1 in A and 2 in B."),
    "twice": ({"twice": 2}, "program", "Calls of a model in step 3: 1 in A and 0 in B."),
    "detached": (
        {"detached": True}, "program", "Only B calls aten.detach.default in 1 (Detached)."
    ),
    "frozen": ({"frozen": True}, "program", "In step 0 only A updates 0.weight, 0.bias:"),
    "left out": ({"left": True}, "program", "In step 0 only A updates 0.weight, 0.bias:"),
    "evaluation from step 3": (
        {"late": 3}, "dropout", "In step 3 only A applies dropout: aten.bernoulli_.float"
    ),
    "evaluation": ({"late": 0}, "dropout", "Only A applies dropout: aten.bernoulli_.float"),
}  # fmt: skip


@pytest.mark.parametrize("name", OUT_OF_LINE)
def test_what_only_one_loop_has_is_true_of_the_other(name: str, tmp_path: Path) -> None:
    asked, kind, said = OUT_OF_LINE[name]
    found = tallystick.diff(stepping(tmp_path / "a"), stepping(tmp_path / "b", **asked))
    assert found.cause is not None and found.cause.kind == kind, (found.causes, found.first)
    assert found.cause.sentence.startswith(said), (found.causes, found.programs)


# -- what the values say ---------------------------------------------------------------------------
def swapped(x: Tensor, y: Tensor, net: Any, step: int) -> None:
    if step < 0:
        for data in (x, y):
            data[1, 3], data[3, 5] = data[3, 5].clone(), data[1, 3].clone()


def relabelled(x: Tensor, y: Tensor, net: Any, step: int) -> None:
    if step < 0:
        y[1, 2] = 3


def noisy_memory(x: Tensor, y: Tensor, net: Any, step: int) -> None:
    if step == 2:
        x.numpy()[2] *= 1.01


def scaled_weight(x: Tensor, y: Tensor, net: Any, step: int) -> None:
    if step == 2:
        net[0].weight.detach().numpy()[:] *= 1.001


def lowest_bit(x: Tensor, y: Tensor, net: Any, step: int) -> None:
    if step == 2:
        net[0].weight.detach().numpy().view(np.int32)[2, 1] ^= 1


def drawn(x: Tensor, y: Tensor, net: Any, step: int) -> None:
    if step == 2:
        torch.rand(1)


def momentum(x: Tensor, y: Tensor, net: Any, step: int) -> None:
    net[1].momentum = 0.2


def alike_mask(x: Tensor, y: Tensor, net: Any, step: int) -> None:
    net[3].p = 0.2 + 1e-12


def printed(x: Tensor, y: Tensor, net: Any, step: int) -> None:
    if step == 2:
        float(net[0].weight.sum())


def untouched(x: Tensor, y: Tensor, net: Any, step: int) -> None:
    return None


def valued(place: Path, change: Any, **options: Any) -> Path:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(6, 8), nn.BatchNorm1d(8), nn.GELU(), nn.Dropout(0.2), nn.Linear(8, 4)
    )
    rule = torch.optim.AdamW(net.parameters(), lr=0.01, **options)
    x, y = torch.randn(5, 8, 6), torch.arange(40).reshape(5, 8) % 3
    change(x, y, net, -1)
    with tallystick.trace(place):
        for step in range(5):
            rule.zero_grad()
            records, labels = x[step], y[step]
            change(x, y, net, step)
            functional.cross_entropy(net(records), labels).backward()
            rule.step()
    return place


VALUED: dict[str, tuple[Any, dict[str, Any], str, str]] = {
    "amsgrad": (untouched, {"amsgrad": True}, "setting", "amsgrad of AdamW is False"),
    "numpy on the records": (noisy_memory, {}, "outside", "no recorded operator has done it: 48"),
    "numpy on a weight": (scaled_weight, {}, "outside", "no recorded operator has done it: 48"),
    "the lowest bit": (lowest_bit, {}, "outside", "no recorded operator has done it: 1 of 48"),
    "an extra draw": (drawn, {}, "program", "Only B calls aten.rand.default."),
    "momentum of batch norm": (momentum, {}, "program", "aten.native_batch_norm.default in 1"),
    "equal masks": (alike_mask, {}, "dropout", "Every tensor that both have is equal. aten.bern"),
    "printed": (printed, {}, "program", "Every tensor that both have is equal. Only B calls aten"),
}


@pytest.mark.parametrize("name", VALUED)
def test_values_say_no_more_than_they_show(name: str, tmp_path: Path) -> None:
    change, options, kind, said = VALUED[name]
    ours = valued(tmp_path / "a", untouched)
    found = tallystick.diff(ours, valued(tmp_path / "b", change, **options))
    assert found.cause is not None and found.cause.kind == kind, (found.causes, found.first)
    assert said in found.cause.sentence, found.causes


@pytest.mark.parametrize(("change", "kind"), [(swapped, "data order"), (relabelled, "data")])
def test_records_are_compared_over_the_whole_loop(change: Any, kind: str, tmp_path: Path) -> None:
    def run(name: str, changed: Any) -> Path:
        torch.manual_seed(0)
        net = nn.Linear(6, 4)
        x, y = torch.randn(5, 8, 6), torch.arange(40).reshape(5, 8) % 3
        changed(x, y, net, -1)
        batches = [(x[n].clone(), y[n].clone()) for n in range(5)]
        with tallystick.trace(tmp_path / name) as block:
            for records, labels in batches:
                functional.cross_entropy(net(records), labels).backward()
                block.next_step()
        return tmp_path / name

    found = tallystick.diff(run("a", untouched), run("b", change))
    assert found.cause is not None and found.cause.kind == kind, (found.causes, found.first)
    assert found.first is not None and found.first.step == 1
    assert "does not" not in found.cause.sentence
