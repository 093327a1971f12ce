"""Programs of a loss that reads the number of the step: paths, tables, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from math import cos
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import tallystick
from tallystick.errors import UsageError
from tallystick.program.capture.api import prepare
from tallystick.program.capture.by_step import StepPrograms, captured_by_step
from tallystick.program.capture.known import KnownSteps
from tallystick.program.tables import Told
from tallystick.program.update import Clip

COUNT, UPDATES = 20, 5
BATCH = {"x": torch.randn(5, 4, generator=torch.Generator().manual_seed(1)),
         "y": torch.tensor([0, 1, 2, 0, 1])}  # fmt: skip
LIST = [0.1 * i for i in range(COUNT)]
ARRAY = np.linspace(0.0, 1.0, COUNT)
TENSOR = torch.linspace(0.0, 1.0, COUNT)
# By training step: the arguments of a loss.
Loss = Callable[[Tensor, Tensor, Any, nn.Module, dict[str, Tensor]], Tensor]


class Line(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.line = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.line(x)
        return found


def known(count: int = COUNT) -> KnownSteps:
    return KnownSteps(
        count,
        {
            "step": range(count),
            "epoch": [t // UPDATES for t in range(count)],
            "batch": [t % UPDATES for t in range(count)],
        },
        {"steps": count},
    )


def programs(loss: Loss, steps: KnownSteps | None = None, most: int = 64) -> StepPrograms:
    def run(module: nn.Module, batch: dict[str, Tensor], at: Any) -> Tensor:
        ce = F.cross_entropy(module(batch["x"]), batch["y"])
        return loss(ce, module.line.weight.square().sum(), at, module, batch)

    prepared = prepare(Line().train(), run, BATCH, tallystick.SGD(lr=0.1), clip=Clip())
    return captured_by_step([prepared], steps or known(), most=most)


def tables(found: StepPrograms) -> list[tuple[float, ...]]:
    """The tables of all programs, by name."""
    each = {k: v for p in found.programs for k, v in p.scalars.items() if isinstance(v, Told)}
    return [each[name].numbers for name in sorted(each)]


def same(name: str, ours: float, true: float) -> None:
    assert ours == pytest.approx(true, rel=1e-6, abs=1e-6), name


ONE_TABLE: dict[str, tuple[Loss, Callable[[int], float]]] = {
    "arithmetic": (lambda ce, kl, at, m, b: ce * (1 + at.step), lambda t: 1.0 + t),
    "min": (lambda ce, kl, at, m, b: ce + min(1, at.step / 10) * kl, lambda t: min(1, t / 10)),
    "cosine": (
        lambda ce, kl, at, m, b: ce + 0.5 * (1 + math.cos(math.pi * at.step / at.steps)) * kl,
        lambda t: 0.5 * (1 + math.cos(math.pi * t / COUNT)),
    ),
    "a function by a name of its own": (
        lambda ce, kl, at, m, b: ce + cos(at.step) * kl, math.cos
    ),
    "a power of the epoch": (
        lambda ce, kl, at, m, b: ce + 0.9**at.epoch * kl, lambda t: 0.9 ** (t // UPDATES)
    ),
    "conversions": (
        lambda ce, kl, at, m, b: ce + float(at.step) / int(at.epoch + 1) * kl,
        lambda t: t / (t // UPDATES + 1),
    ),
    "numpy": (
        lambda ce, kl, at, m, b: ce + np.clip(np.float32(0.5) * at.step, 0, 3) * kl,
        lambda t: min(max(t / 2, 0), 3),
    ),
    "a list": (lambda ce, kl, at, m, b: ce + LIST[at.step] * kl, lambda t: LIST[t]),
    "an array": (lambda ce, kl, at, m, b: ce + ARRAY[at.step] * kl, lambda t: float(ARRAY[t])),
    "a tensor": (lambda ce, kl, at, m, b: ce + TENSOR[at.step] * kl, lambda t: float(TENSOR[t])),
    "a new tensor": (
        lambda ce, kl, at, m, b: ce + torch.tensor(0.1 * at.step) * kl, lambda t: 0.1 * t
    ),
    "a filled tensor": (
        lambda ce, kl, at, m, b: ce + torch.full((3,), 0.1 * at.step).sum() * kl,
        lambda t: 0.1 * t,
    ),
    "alpha": (lambda ce, kl, at, m, b: torch.add(ce, kl, alpha=0.1 * at.step), lambda t: 0.1 * t),
    "a bound": (lambda ce, kl, at, m, b: ce + kl.clamp(0.0, at.step * 0.1), lambda t: t * 0.1),
    "an exponent": (lambda ce, kl, at, m, b: ce ** (1 + 0.1 * at.step), lambda t: 1 + 0.1 * t),
    "a mask of integers": (
        lambda ce, kl, at, m, b: ce
        + ((torch.arange(4) < at.step)[None].float() * b["x"]).sum() * kl,
        lambda t: float(t),
    ),
    "a temperature": (
        lambda ce, kl, at, m, b: F.gumbel_softmax(
            m(b["x"]), tau=max(0.5, 1 - 0.05 * at.step)
        ).square().sum(),
        lambda t: max(0.5, 1 - 0.05 * t),
    ),
    "piecewise": (
        lambda ce, kl, at, m, b: ce + (0.1 if at.step < 7 else 0.5) * kl,
        lambda t: 0.1 if t < 7 else 0.5,
    ),
    "a ramp by a branch": (
        lambda ce, kl, at, m, b: ce + (at.step / 7 if at.step < 7 else 1.0) * kl,
        lambda t: min(1.0, t / 7),
    ),
    "a sum of so many terms": (
        lambda ce, kl, at, m, b: ce + sum(0.5**i for i in range(at.epoch)) * kl,
        lambda t: sum(0.5**i for i in range(t // UPDATES)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ONE_TABLE)
def test_numbers_that_reach_tensors_are_tables(name: str) -> None:
    loss, true = ONE_TABLE[name]
    found = programs(loss)
    assert found.of_steps == (0,) * COUNT
    (table,) = tables(found)
    for t in range(COUNT):
        same(name, table[t], true(t))


STRUCTURES: dict[str, tuple[Loss, Callable[[int], int]]] = {
    "from an epoch on": (
        lambda ce, kl, at, m, b: ce + kl if at.epoch >= 2 else ce, lambda t: int(t >= 10)
    ),
    "now and then": (
        lambda ce, kl, at, m, b: ce + kl if at.step % 5 == 0 else ce, lambda t: int(t % 5 > 0)
    ),
    "truth": (lambda ce, kl, at, m, b: ce + kl if at.step else ce, lambda t: int(t > 0)),
    "a length by epoch": (
        lambda ce, kl, at, m, b: ce + b["x"][:, : at.epoch + 1].square().mean() * kl,
        lambda t: t // 5,
    ),
    "an attribute of an operator": (
        lambda ce, kl, at, m, b: F.cross_entropy(
            m(b["x"]), b["y"], label_smoothing=0.01 * at.epoch
        ),
        lambda t: t // 5,
    ),
    "a branch that only prints": (
        lambda ce, kl, at, m, b: (repr(at.step) if at.step % 10 == 0 else None, ce)[1],
        lambda t: 0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STRUCTURES)
def test_branches_and_shapes_are_programs(name: str) -> None:
    loss, true = STRUCTURES[name]
    found = programs(loss)
    assert found.of_steps == tuple(true(t) for t in range(COUNT))
    assert tables(found) == []
    texts = {program.program.text() for program in found.programs}
    assert len(texts) == len(found.programs)


def test_two_programs_share_a_table() -> None:
    found = programs(lambda ce, kl, at, m, b: ce * at.step + (kl if at.epoch == 1 else 0))
    assert found.of_steps == (0,) * 5 + (1,) * 5 + (0,) * 10
    (table,) = tables(found)
    assert table == tuple(map(float, range(COUNT)))


def test_a_table_is_zero_where_its_program_is_not_executed() -> None:
    """There the number may not exist at all."""
    found = programs(lambda ce, kl, at, m, b: ce + kl.exp() / at.step if at.step else ce)
    (table,) = tables(found)
    assert table == (0.0, *map(float, range(1, COUNT)))


def test_more_programs_than_a_job_has_are_refused_by_name() -> None:
    def loss(ce: Tensor, kl: Tensor, at: Any, *_: Any) -> Tensor:
        for _ in range(at.step):
            kl = kl.sin()
        return ce + kl

    assert len(programs(loss, most=COUNT).programs) == COUNT
    with pytest.raises(UsageError, match=r"more than 6 programs.*test_numbers_of_steps.py:\d+"):
        programs(loss, most=6)


def test_a_number_that_cannot_be_computed_is_refused() -> None:
    with pytest.raises(UsageError, match=r"in step 5: .*division by zero"):
        programs(lambda ce, kl, at, m, b: ce + kl / (1.0 / (at.step - 5)))
    with pytest.raises(UsageError, match=f"{1 << 25} in step 1"):
        programs(lambda ce, kl, at, m, b: ce + (b["y"] * (at.step << 25)).sum() * kl)
    with pytest.raises(UsageError, match="inf in step 0"):
        programs(lambda ce, kl, at, m, b: ce + kl * (1e308 * (10 - at.step)))


def test_a_source_without_one_value_is_refused_where_it_is_used() -> None:
    steps = KnownSteps(4, {"step": range(4), "batch": range(4)}, {}, {"batch": "has several"})
    assert programs(lambda ce, kl, at, m, b: (at.batch + at.step, ce)[1], steps).programs
    for use in (
        lambda ce, kl, at, m, b: ce * at.batch,
        lambda ce, kl, at, m, b: ce * (at.step + at.batch),
        lambda ce, kl, at, m, b: ce if at.batch == 0 else kl,
        lambda ce, kl, at, m, b: ce + b["x"][at.batch].sum() * kl,
    ):
        with pytest.raises(UsageError, match=r"number of the batch \(.*:\d+\), and has several"):
            programs(use, steps)


def test_what_a_trace_put_in_place_is_put_back() -> None:
    before = math.cos, min, globals()["cos"], globals()["LIST"], globals()["ARRAY"]
    programs(lambda ce, kl, at, m, b: ce + (cos(at.step) + LIST[at.step] + float(at.step)) * kl)
    assert (math.cos, min, globals()["cos"], globals()["LIST"], globals()["ARRAY"]) == before
    assert "float" not in globals() and type(LIST) is list


@pytest.mark.parametrize(
    ("optimizer", "refused"),
    [(tallystick.AdamW(lr=0.1), True), (tallystick.SGD(lr=0.1, momentum=0.9), False)],
)
def test_programs_that_train_different_parameters(optimizer: Any, refused: bool) -> None:
    """Adam counts updates: torch's those of each parameter, a job's those of all."""

    def loss(module: nn.Module, batch: dict[str, Tensor], at: Any) -> Tensor:
        if at.epoch < 1:
            return module.line.weight.square().sum()
        return F.cross_entropy(module(batch["x"]), batch["y"])

    prepared = prepare(Line().train(), loss, BATCH, optimizer, clip=Clip())
    if not refused:
        assert len(captured_by_step([prepared], known(), most=64).programs) == 2
        return
    with pytest.raises(UsageError, match=r"line\.bias in step 5, and not in step 0"):
        captured_by_step([prepared], known(), most=64)
