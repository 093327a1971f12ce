"""Traces whose cause has a name of its own: a mode, a function, a clipping, a fresh optimizer."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")

import torch
from torch import Tensor, nn
from torch.nn import functional
from traced_loops import copied

import tallystick
from tallystick.commit.encoding import canonical_json
from tallystick.comparing.found import Comparison
from tallystick.comparing.operator_words import arguments_apart, parts_of

STEPS = 4


class Normed(nn.Module):
    """A layer norm by hand."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(size)), nn.Parameter(torch.zeros(size))

    def forward(self, x: Tensor) -> Tensor:
        apart = x - x.mean(-1, keepdim=True)
        made = apart * torch.rsqrt(apart.square().mean(-1, keepdim=True) + 1e-5)
        return made * self.weight + self.bias


class Quick(nn.Module):
    """SiLU by hand."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(x)


def left(net: nn.Module, step: int) -> None:
    return None


def scaled(net: nn.Module, step: int) -> None:
    for parameter in net.parameters():
        assert parameter.grad is not None
        parameter.grad.div_(3)


def halved_norm(net: nn.Module, step: int) -> None:
    nn.utils.clip_grad_norm_(net.parameters(), 0.25)


def clamped(net: nn.Module, step: int) -> None:
    nn.utils.clip_grad_value_(net.parameters(), 0.01)


@dataclass(frozen=True)
class Given:
    """A small loop in which a test changes one thing."""

    middle: Callable[[], nn.Module] = nn.SiLU
    more: bool = False
    parts: int = 1
    order: bool = False  # the parts are taken in another order
    gradients: Callable[[nn.Module, int], None] = left
    smoothing: float = 0.0
    zeroed: bool = True
    renewed: int = -1
    kind: str = "Adam"
    rate: float = 0.01
    second_rate: float = 0.01
    schedule: int = -1  # the step in which the rate is halved
    frozen: bool = False
    evaluated: bool = True
    half: bool = False
    dropped: float = 0.1
    flip: bool = False

    def run(self, place: Path) -> Path:
        torch.manual_seed(0)
        x, y = torch.randn(STEPS, 12, 6), torch.arange(12) % 3
        net = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), self.middle(), nn.Linear(8, 3))
        if self.more:
            torch.manual_seed(5)
            net.append(nn.Sequential(nn.Tanh(), nn.Linear(3, 3)))
        net[0].requires_grad_(not self.frozen)
        torch.manual_seed(3)
        optimizers = [self.optimizer(net)] * STEPS
        with tallystick.trace(place):
            for step in range(STEPS):
                if step == self.renewed:
                    optimizers[step:] = [self.optimizer(net)] * (STEPS - step)
                rule = optimizers[step]
                if step == self.schedule:
                    rule.param_groups[0]["lr"] /= 2
                if self.zeroed:
                    rule.zero_grad()
                self.evaluate(net, x[0])
                batches = list(zip(x[step].chunk(self.parts), y.chunk(self.parts), strict=True))
                for records, labels in reversed(batches) if self.order else batches:
                    self.loss(net, records, labels).backward()  # type: ignore[no-untyped-call]
                self.gradients(net, step)
                rule.step()
                if self.flip and step == 1:
                    state = next(iter(rule.state.values()))
                    buffer = next(v for v in state.values() if isinstance(v, Tensor) and v.ndim)
                    buffer.numpy().view(np.int32)[1, 2] ^= 1 << 20
        return place

    def optimizer(self, net: nn.Module) -> Any:
        options = {"momentum": 0.9} if self.kind == "SGD" else {}
        groups = [{"params": net[0].parameters(), "lr": self.rate},
                  {"params": net[1:].parameters(), "lr": self.second_rate}]  # type: ignore[index]  # fmt: skip
        return getattr(torch.optim, self.kind)(groups, **options)

    def evaluate(self, net: nn.Module, x: Tensor) -> None:
        net.train(not self.evaluated)
        with torch.no_grad():
            net(x)
        net.train()

    def loss(self, net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=self.half):
            made = functional.dropout(net(x), self.dropped)
        loss = functional.cross_entropy(made.float(), y, label_smoothing=self.smoothing)
        return loss / self.parts


BASE = Given()
NAMED: dict[str, tuple[Given, Given, str, str]] = {
    "norm by hand": (
        Given(middle=lambda: nn.LayerNorm(8)), Given(middle=lambda: Normed(8)), "rounding",
        "A calls aten.native_layer_norm in 2 (LayerNorm); B computes it by aten.mean, aten.sub,",
    ),
    "activation by hand": (
        BASE, Given(middle=Quick), "rounding",
        "A calls aten.silu in 2 (SiLU); B computes it by aten.sigmoid, aten.mul in 2 (Quick).",
    ),
    "activation": (
        BASE, Given(middle=nn.Mish), "program",
        "A calls aten.silu in 2 (SiLU); B calls aten.mish in 2 (Mish).",
    ),
    "more modules": (
        BASE, Given(more=True), "program", "Only B has the modules 4.0 (Tanh) and 4.1 (Linear).",
    ),
    "micro-batches": (
        BASE, Given(parts=3), "program",
        "B splits the 12 records of step 0 into 3 micro-batches of 4.",
    ),
    "other micro-batches": (
        Given(parts=2), Given(parts=3), "program",
        "The 12 records of step 0 are split into 2 micro-batches of 6 in A and 3 micro-batches of",
    ),
    "norm of the gradients": (
        BASE, Given(gradients=halved_norm), "program",
        "Only B clips the gradients by their norm, to at most 0.25, between",
    ),
    "clamped gradients": (
        BASE, Given(gradients=clamped), "program", "Only B clamps the gradients (-0.01, 0.01) betw",
    ),
    "scaled gradients": (
        BASE, Given(gradients=scaled), "program", "Only B changes the gradients, by aten.div_",
    ),
    "smoothing": (
        Given(smoothing=0.25), BASE, "program",
        "The labels of the cross entropy are smoothed by 0.25 in A and 0 in B.",
    ),
    "other smoothing": (
        Given(smoothing=0.25), Given(smoothing=0.3), "program",
        "The labels of the cross entropy are smoothed by 0.25 in A and 0.3 in B.",
    ),
    "gradients of before": (
        BASE, Given(zeroed=False), "program",
        "In step 1 B adds to the gradients of the step before; A starts from none.",
    ),
    "a fresh Adam": (
        BASE, Given(renewed=2), "program",
        "B's Adam starts anew in step 2: it has counted 0 steps, A's 2.",
    ),
    "a fresh SGD": (
        Given(kind="SGD", renewed=2), Given(kind="SGD"), "program",
        "A's SGD starts anew in step 2: it has no state there, and B's goes on.",
    ),
    "rate of a group": (
        BASE, Given(second_rate=0.02), "rate",
        "lr of parameter group 1 of Adam is 0.01 in A and 0.02 in B.",
    ),
    "rate from a step on": (
        BASE, Given(schedule=2), "rate",
        "lr of parameter group 0 of Adam is 0.01 in A and 0.005 in B, from step 2 on; A still has "
        "the rate of step 1.",
    ),
    "frozen": (BASE, Given(frozen=True), "program", "In step 0 only A updates 0.weight, 0.bias:"),
    "forgotten evaluation": (
        BASE, Given(evaluated=False), "program",
        "1 (BatchNorm1d) is in evaluation mode in A and in training mode in B.",
    ),
    "autocast": (
        BASE, Given(half=True), "precision",
        "B computes in bfloat16 where A computes in float32, first in 0 (Linear).",
    ),
    "dropout": (
        BASE, Given(dropped=0.3), "dropout",
        "The dropout of aten.bernoulli_.float has the rate 0.1 in A and 0.3 in B.",
    ),
    "a flipped bit of a state": (
        Given(kind="SGD"), Given(kind="SGD", flip=True), "flipped bit",
        "One element of 48 in momentum_buffer of 0.weight, which aten.mul_.Tensor reads, differs",
    ),
}  # fmt: skip


def compared(ours: Given, theirs: Given, tmp_path: Path) -> Comparison:
    made = copied(BASE.run, "named", tmp_path) if ours == BASE else ours.run(tmp_path / "a")
    return tallystick.diff(made, theirs.run(tmp_path / "b"))


def as_before(place: Path) -> Path:
    """A trace as it was recorded before it said more than its operators."""
    log = place / "operators.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    kept = []
    for line in lines:
        if line[0] in ("schema", "module"):
            continue
        if line[0] in ("call", "set"):
            line = line[:3]
        if line[0] == "op":
            for operand in line[4]:
                if operand[2] == "state":
                    operand[2:4] = ["data", ""]
        kept.append(line)
    log.write_bytes(b"".join(canonical_json(line) + b"\n" for line in kept))
    return place


# What an older trace does not know: there the words are those of the operators alone.
UNKNOWN_BEFORE = ("a flipped bit of a state", "forgotten evaluation")


@pytest.mark.parametrize("name", NAMED)
def test_a_cause_is_named(name: str, tmp_path: Path) -> None:
    ours, theirs, kind, said = NAMED[name]
    found = compared(ours, theirs, tmp_path)
    assert found.cause is not None and found.cause.kind == kind, (found.causes, found.first)
    assert found.cause.sentence.startswith(said), (found.causes, found.programs)
    before = tallystick.diff(as_before(tmp_path / "a"), as_before(tmp_path / "b"))
    assert before.cause is not None and before.cause.kind == kind, (before.causes, before.first)
    if name not in UNKNOWN_BEFORE:
        assert before.cause.sentence.startswith(said), before.causes


def test_parts_of_other_records_are_another_batch_size(tmp_path: Path) -> None:
    found = compared(BASE, Given(parts=2, order=True), tmp_path)
    assert found.cause is not None and found.cause.kind == "batch size", found.causes


def test_a_schedule_is_named_once(tmp_path: Path) -> None:
    def run(name: str, rate: float) -> Path:
        torch.manual_seed(0)
        net = nn.Linear(3, 2)
        rule = torch.optim.SGD(net.parameters(), rate)
        schedule = torch.optim.lr_scheduler.StepLR(rule, 2)
        with tallystick.trace(tmp_path / name):
            for _ in range(2):
                net(torch.ones(4, 3)).sum().backward()
                rule.step()
                schedule.step()
        return tmp_path / name

    found = tallystick.diff(run("a", 0.1), run("b", 0.2))
    assert [cause.sentence for cause in found.causes] == ["lr of SGD is 0.1 in A and 0.2 in B."]


def test_one_of_two_optimizers_is_named(tmp_path: Path) -> None:
    def run(name: str, rate: float) -> Path:
        torch.manual_seed(0)
        nets = nn.Linear(3, 2), nn.Linear(2, 5)
        rules = torch.optim.Adam(nets[0].parameters()), torch.optim.Adam(nets[1].parameters(), rate)
        with tallystick.trace(tmp_path / name):
            for _ in range(2):
                nets[1](nets[0](torch.ones(4, 3))).square().sum().backward()
                for rule in rules:
                    rule.step()
        return tmp_path / name

    found = tallystick.diff(run("a", 0.001), run("b", 0.002))
    assert found.cause is not None and found.cause.kind == "rate"
    said = (
        "lr of Adam (number 2 of 2 by their first steps; it updates weight f32[5,2], bias f32[5])"
    )
    assert found.cause.sentence == f"{said} is 0.001 in A and 0.002 in B.", found.causes


def test_arguments_are_named(tmp_path: Path) -> None:
    def run(name: str, reduction: str) -> Path:
        torch.manual_seed(0)
        with tallystick.trace(tmp_path / name):
            functional.mse_loss(torch.randn(8), torch.randn(8), reduction=reduction)
        return tmp_path / name

    found = tallystick.diff(run("a", "mean"), run("b", "sum"))
    assert found.cause is not None
    assert found.cause.sentence == "aten.mse_loss.default has reduction mean in A and sum in B."


def test_arguments_are_read_from_their_text() -> None:
    assert parts_of("_, [3, (4, 5)], out=[_ x 2]") == ["_", "[3, (4, 5)]", "out=[_ x 2]"]
    assert parts_of("") == []
    schema = (("self", ""), ("dim", "[]"), ("keep", "False"))
    apart = list(arguments_apart(("_, [1]", "_, [1], keep=True"), schema))
    assert apart == [("keep", "False", "True")]


def test_a_trace_of_before_is_compared_with_one_of_now(tmp_path: Path) -> None:
    ours, theirs = BASE.run(tmp_path / "a"), as_before(BASE.run(tmp_path / "b"))
    assert tallystick.diff(ours, theirs).equal and tallystick.diff(theirs, ours).equal
    other = as_before(replace(BASE, second_rate=0.02).run(tmp_path / "c"))
    found = tallystick.diff(ours, other)
    assert found.cause is not None and found.cause.kind == "rate", found.causes


# -- weights at the start --------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (torch.bfloat16, " Every value of B fits in 8 significant bits (bfloat16)."),
        (torch.float16, " Every value of B fits in 11 significant bits (TF32 or float16)."),
        (None, ""),  # ones fit in every type
    ],
)  # fmt: skip
def test_rounded_weights_at_the_start_are_named(kind: Any, said: str, tmp_path: Path) -> None:
    def run(name: str) -> Path:
        torch.manual_seed(0)
        net = nn.Linear(6, 8)
        if name == "b":
            with torch.no_grad():
                weight = net.weight
                weight.copy_(torch.ones_like(weight) if kind is None else weight.to(kind).float())
        with tallystick.trace(tmp_path / name):
            net(torch.ones(4, 6))
        return tmp_path / name

    found = tallystick.diff(run("a"), run("b"))
    assert [cause.sentence for cause in found.causes] == [
        f"The loops begin with different values of weight.{said}"
    ]


# -- gradients -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "options", [{}, {"momentum": 0.9}, {"weight_decay": 0.1}, {"kind": "Adam"}, {"scaled": True}]
)
def test_a_flipped_gradient_is_no_state(options: dict[str, Any], tmp_path: Path) -> None:
    asked = dict(options)
    kind, is_scaled = asked.pop("kind", "SGD"), asked.pop("scaled", False)

    def run(name: str) -> Path:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 3))
        rule = getattr(torch.optim, kind)(net.parameters(), 0.1, **asked)
        with tallystick.trace(tmp_path / name):
            for step in range(3):
                rule.zero_grad()
                net(torch.ones(4, 6)).square().sum().backward()
                if is_scaled:
                    scaled(net, step)
                gradient = net[1].weight.grad
                assert isinstance(gradient, Tensor)
                gradient.numpy().view(np.int32)[1, 2] ^= (1 << 20) * (step == 1 and name == "b")
                rule.step()
        return tmp_path / name

    found = tallystick.diff(run("a"), run("b"))
    assert found.cause is not None and found.cause.kind == "flipped bit", found.causes
    said = "One element of 24 in the gradient of 1.weight, which aten."
    assert found.cause.sentence.startswith(said), found.causes


# -- parameter groups ------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["SGD", "AdamW"])
def test_parameter_groups_are_no_optimizers(kind: str, tmp_path: Path) -> None:
    def run(name: str, is_split: bool) -> Path:
        torch.manual_seed(0)
        net = nn.Linear(6, 8)
        nn.init.ones_(net.bias)
        groups: list[Any] = [{"params": [net.weight]}, {"params": [net.bias], "weight_decay": 0.0}]
        given = groups if is_split else [{"params": [net.weight, net.bias]}]
        rule = getattr(torch.optim, kind)(given, 0.1, weight_decay=0.5)
        with tallystick.trace(tmp_path / name):
            for _ in range(2):
                rule.zero_grad()
                net(torch.ones(4, 6)).square().sum().backward()
                rule.step()
        return tmp_path / name

    found = tallystick.diff(run("a", True), run("b", False))
    said = (
        f"{kind} has 2 parameter groups in A and 1 in B; weight_decay is 0.5 and 0.0 in A and 0.5"
    )
    assert [cause.sentence for cause in found.causes] == [f"{said} in B."], found.causes
    before = tallystick.diff(as_before(tmp_path / "a"), as_before(tmp_path / "b"))
    assert before.causes == found.causes


def test_other_optimizers_are_named(tmp_path: Path) -> None:
    found = compared(BASE, Given(kind="SGD"), tmp_path)
    said = "The optimizers are Adam in A and SGD in B."
    assert [cause.sentence for cause in found.causes] == [said]


# -- operators that both loops call ----------------------------------------------------------------
class Ordered(nn.Module):
    """A block that calls its norm, or ReLU, before its layers or after them."""

    def __init__(self, is_first: bool, is_function: bool) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(6)
        self.layer = nn.Sequential(nn.Linear(6, 6), nn.SiLU(), nn.Linear(6, 6))
        self.is_first, self.is_function = is_first, is_function

    def forward(self, x: Tensor) -> Tensor:
        moved = torch.relu if self.is_function else self.norm
        x = self.layer(moved(x) if self.is_first else x)
        return (x if self.is_first else moved(x)) + 1


@pytest.mark.parametrize(
    ("is_function", "said", "operator"),
    [
        (
            False,
            "top.norm (LayerNorm) is called at another place: before top.layer.0 (Linear) in A and "
            "after it in B.",
            "aten.native_layer_norm.default in top.norm (LayerNorm), which reads top.norm.weight",
        ),
        (
            True,
            "A calls aten.relu.default in top (Ordered) before top.layer.0 (Linear); B calls it "
            "after top.layer.0 (Linear).",
            "aten.relu.default in top (Ordered)",
        ),
    ],
)
def test_what_both_loops_call_is_not_said_of_one(
    is_function: bool, said: str, operator: str, tmp_path: Path
) -> None:
    def run(name: str) -> Path:
        torch.manual_seed(0)
        net = nn.Sequential(OrderedDict(top=Ordered(name == "a", is_function)))
        x = torch.randn(4, 6)
        with tallystick.trace(tmp_path / name):
            net(x).sum()
        return tmp_path / name

    found = tallystick.diff(run("a"), run("b"))
    assert [cause.sentence for cause in found.causes] == [f"In step 0 {said}"], found.causes
    assert found.programs == (
        f"step 0: operator 0 of A, {operator}: B calls it at another place",
        f"step 0: operator 5 of B, {operator}: A calls it at another place",
    )


def test_an_operator_that_one_loop_calls_more_often_is_counted(tmp_path: Path) -> None:
    def run(name: str, is_detached: bool) -> Path:
        torch.manual_seed(0)
        net, x = nn.Linear(6, 1), torch.randn(2, 4, 6)
        with tallystick.trace(tmp_path / name):
            target = net(x[1])
            target = target.detach() if is_detached else target
            functional.smooth_l1_loss(net(x[0]), target).backward()
            torch.zeros(1).add(net.weight.grad)
        return tmp_path / name

    found = tallystick.diff(run("a", True), run("b", False))
    times = "1 time in A and 2 times in B in backward, SmoothL1LossBackward0."
    said = f"In step 0 aten.smooth_l1_loss_backward.default is called {times}"
    assert [cause.sentence for cause in found.causes] == [said]
    lines = [line for line in found.programs if "smooth_l1_loss_backward" in line]
    assert len(lines) == 1 and lines[0].endswith(
        " of B, aten.smooth_l1_loss_backward.default in backward, SmoothL1LossBackward0: A calls "
        "it 1 time and B 2 times"
    )
