"""`save_job` compares the state after the first step with torch's optimizers (PROGRAM 5.9)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from capture_models import CASES, Case, classify
from test_first_step import saved
from test_updates import BATCH, OPTIMIZERS, RECORDS, Gan, gan_step
from torch import Tensor, nn

import tallystick
from tallystick.errors import UsageError
from tallystick.program import update as rules
from tallystick.program.capture import CapturedStep, capture
from tallystick.program.capture.functions import Lowering
from tallystick.program.capture.recurrent import CELLS
from tallystick.program.optimizers import (
    LAMB,
    SGD,
    Adafactor,
    Adagrad,
    Adam,
    AdamW,
    Lion,
    Muon,
    Optimizer,
    ParameterGroup,
    ParameterGroups,
    RMSprop,
    TransformersAdafactor,
)
from tallystick.program.update import EMA
from tallystick.program.update_base import Given

CASE = CASES["mlp"]


def captured(optimizer: Any, **options: Any) -> CapturedStep:
    torch.manual_seed(3)
    return capture(CASE.build(), CASE.loss, CASE.schema(), optimizer, **options)


# -- wrong rules -----------------------------------------------------------------------------------
def _attrs(**wrong: float) -> Callable[..., dict[str, float]]:
    right = rules.adam_attrs
    return lambda *args: {**right(*args), **wrong}


def _sgd(change: Callable[[SGD], SGD]) -> Callable[..., Any]:
    right = rules.sgd_update
    return lambda optimizer, *rest: right(change(optimizer), *rest)


NESTEROV = SGD(0.1, momentum=0.9, nesterov=True)
MUON = ParameterGroups(
    {
        "m": ParameterGroup(Muon(0.02), lambda name, shape: len(shape) == 2),
        "rest": ParameterGroup(Lion(0.01)),
    }
)


def _two(name: str, shape: tuple[int, ...]) -> bool:
    return len(shape) == 2


def _given(**wrong: Any) -> Callable[..., Any]:
    """The rules with other numbers inside: a method of `Given` that changes one."""
    ((name, change),) = wrong.items()
    right = getattr(Given, name)
    return lambda self, *args, **more: right(self, *change(*args), **more)


def _doubled(a: Any, number: float) -> tuple[Any, float]:
    return a, number * (1 + 1e-3)


WRONG: dict[str, tuple[Optimizer, str, Callable[[], Any], str]] = {
    "no decay": (AdamW(0.01), "adam_attrs", lambda: _attrs(weight_decay=0.0), "param"),
    "decay": (Adam(0.01), "adam_attrs", lambda: _attrs(weight_decay=0.01), "opt.m"),
    "beta1": (Adam(0.01), "adam_attrs", lambda: _attrs(beta1=0.99), "opt.m"),
    "beta2": (AdamW(0.01), "adam_attrs", lambda: _attrs(beta2=0.99), "opt.v"),
    "eps": (AdamW(0.01), "adam_attrs", lambda: _attrs(eps=1e-3), "param"),
    "no nesterov": (
        NESTEROV, "sgd_update", lambda: _sgd(lambda o: replace(o, nesterov=False)), "param",
    ),
    "dampening": (
        SGD(0.1, momentum=0.9), "sgd_update", lambda: _sgd(lambda o: replace(o, dampening=0.1)),
        "opt.buf",
    ),
    "decay of SGD": (
        SGD(0.1, weight_decay=0.1), "sgd_update",
        lambda: _sgd(lambda o: replace(o, weight_decay=0.0)), "param",
    ),
}  # fmt: skip


# Optimizer, the method of `Given` with another number, and the slot where that shows.
WRONG_PARTS: dict[str, tuple[Any, str, str]] = {
    "rmsprop": (RMSprop(0.1), "times", "opt.v"),
    "centered": (RMSprop(0.1, centered=True), "times", "opt.v"),
    "lion": (Lion(0.1), "times", "opt.m"),
    "muon": (ParameterGroups({"m": ParameterGroup(Muon(0.1), _two), "r": ParameterGroup(SGD(0.1))}),
             "times", "param"),
    "transformers": (TransformersAdafactor(0.1, beta1=0.9, relative_step=False), "times", "opt.m"),
    "adafactor": (Adafactor(0.1), "over", "param"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG_PARTS)
def test_a_wrong_composition_is_named(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    optimizer, method, slot = WRONG_PARTS[what]
    monkeypatch.setattr(Given, method, _given(**{method: _doubled}))
    with pytest.raises(UsageError, match=rf"{slot}\.[^:]*: (torch's|the published rule of) "):
        saved(captured(optimizer), CASE, tmp_path)


def test_a_wrong_trust_ratio_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = Given.norm
    monkeypatch.setattr(Given, "norm", lambda self, a: self.times(right(self, a), 1.0))
    assert "first step" not in saved(captured(LAMB(0.1)), CASE, tmp_path).about
    monkeypatch.setattr(Given, "norm", lambda self, a: self.b.one("tallystick.sum_squares", [a]))
    with pytest.raises(UsageError, match="the published rule of LAMB"):
        saved(captured(LAMB(0.1)), CASE, tmp_path / "wrong")


def test_a_wrong_average_is_named(tmp_path: Path) -> None:
    step = captured(SGD(0.1), ema=EMA(0.9))
    assert step.first_step is not None
    right = step.first_step.gradients()
    nodes = tuple(
        replace(n, op="aten.add.Tensor") if n.op == "aten.sub.Tensor" else n for n in right.nodes
    )
    assert nodes != right.nodes
    wrong = replace(step.first_step, gradients=lambda: replace(right, nodes=nodes))
    with pytest.raises(UsageError, match=r"ema\..*the average in float64 differs"):
        saved(replace(step, first_step=wrong), CASE, tmp_path)


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_rule_is_named_with_slot_and_module(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    optimizer, function, wrong, slot = WRONG[what]
    monkeypatch.setattr(rules, function, wrong())
    step = captured(optimizer)
    kind = type(optimizer).__name__
    message = rf"{slot}\.[^:]*: torch's {kind} in float64 .*the update of .*, module "
    with pytest.raises(UsageError, match=message) as caught:
        saved(step, CASE, tmp_path)
    assert caught.value.next_action
    assert "first step" in saved(step, CASE, tmp_path, compare_first_step=False).about


def test_a_step_that_is_not_clipped_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = rules.clip_coefficient
    monkeypatch.setattr(rules, "clip_coefficient", lambda b, g, n: right(b, g, 2.0 * n))
    with pytest.raises(UsageError, match=r"torch's SGD in float64 differs"):
        saved(captured(SGD(0.1), clip_norm=0.01), CASE, tmp_path)


def test_a_second_optimizers_wrong_rule_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = rules.adam_attrs

    def wrong(optimizer: Adam, name: str, shape: tuple[int, ...]) -> dict[str, float]:
        found = right(optimizer, name, shape)
        return found if isinstance(optimizer, AdamW) else {**found, "beta1": 0.7}

    monkeypatch.setattr(rules, "adam_attrs", wrong)
    step = tallystick.capture(Gan(), gan_step, BATCH, OPTIMIZERS)
    with pytest.raises(UsageError, match=r"opt\.m\.generator\.0\.weight: torch's Adam .*module ge"):
        step.save_job(tmp_path / "job", {"x": RECORDS.reshape(-1, 4)}, steps=5)


def test_wrong_powers_are_named(tmp_path: Path) -> None:
    """Bias correction: the powers in the next state belong to the betas."""
    step = captured(Adam(0.01))
    changed = step.program
    assert step.first_step is not None
    right = step.first_step.gradients()
    nodes = tuple(
        replace(n, attrs={**n.attrs, "beta": 0.5}) if n.op == "tallystick.beta_power" else n
        for n in right.nodes
    )
    wrong = replace(step.first_step, gradients=lambda: replace(right, nodes=nodes))
    assert changed is step.program
    with pytest.raises(UsageError, match=r"param\.|opt\.beta1_power"):
        saved(replace(step, first_step=wrong), CASE, tmp_path)


class Norm(nn.Module):
    """Its running statistics have another rate on real values than in a trace."""

    def __init__(self, real: float) -> None:
        super().__init__()
        self.norm, self.real = nn.BatchNorm1d(33), real

    def forward(self, x: Tensor) -> Tensor:
        n = self.norm
        rate = 0.1 if x.is_meta else self.real
        n.num_batches_tracked.add_(1 if x.is_meta or self.real < 0.5 else 2)
        return F.batch_norm(x, n.running_mean, n.running_var, n.weight, n.bias, True, rate, n.eps)


def _normed(real: float) -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(20, 33), Norm(real), nn.ReLU(), nn.Linear(33, 10))


@pytest.mark.parametrize(
    ("rate", "message"),
    [(0.101, r"buffer 1\.norm\.running_(mean|var)"), (0.9, r"buffer 1\.norm\.num_batches_tracked")],
)
def test_running_statistics_of_another_rate_are_named(
    rate: float, message: str, tmp_path: Path
) -> None:
    step = capture(_normed(rate), classify, CASE.schema(), SGD(0.1))
    with pytest.raises(UsageError, match=f"the {message} differs.*module 1.norm"):
        saved(step, CASE, tmp_path)


def test_running_statistics_agree(tmp_path: Path) -> None:
    step = capture(_normed(0.1), classify, CASE.schema(), SGD(0.1))
    assert "first step" not in saved(step, CASE, tmp_path).about


# -- ours against torch's own attention and cells --------------------------------------------------
class Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(6)
        self.into, self.out = nn.Linear(5, 24), nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.into(x.reshape(-1, 4, 5)).chunk(3, -1)
        y: Tensor = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        found: Tensor = self.out(y.mean(1))
        return found


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.cells, self.out = kind(5, 8, 2, batch_first=True), nn.Linear(8, 10)  # type: ignore[call-arg]

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.out(self.cells(x.reshape(-1, 4, 5))[0][:, -1])
        return found


@pytest.mark.parametrize(
    "build", [Attending, lambda: Recurrent(nn.LSTM), lambda: Recurrent(nn.GRU)]
)
def test_attention_and_recurrent_layers_agree_with_torchs(
    build: Callable[[], nn.Module], tmp_path: Path
) -> None:
    step = capture(build(), classify, CASE.schema(), SGD(0.1))
    assert "first step" not in saved(step, CASE, tmp_path).about


class Blind(Attending):
    """A query that sees nothing by a mask of the least number: equal weights, as transformers 4.50
    has for padding on the left. The gradient of torch's CPU kernel takes 1 for each of them."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.into(x.reshape(-1, 4, 5)).chunk(3, -1)
        mask = torch.zeros(4, 4, device=x.device)
        mask[0] = torch.finfo(x.dtype).min
        found: Tensor = self.out(F.scaled_dot_product_attention(q, k, v, mask).mean(1))
        return found


def test_a_query_that_sees_nothing_is_honest(tmp_path: Path) -> None:
    step = capture(Blind(), classify, CASE.schema(), SGD(0.1))
    assert "first step" not in saved(step, CASE, tmp_path).about


def test_a_fault_of_our_attention_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault that would be on both sides of the comparison, were torch's not the other."""
    right = Lowering.attention

    def wrong(self: Lowering, q: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return right(self, q * 1.5, *args, **kwargs)

    monkeypatch.setattr(Lowering, "attention", wrong)
    step = capture(Attending(), classify, CASE.schema(), SGD(0.1))
    with pytest.raises(UsageError, match="is not the module's"):
        saved(step, CASE, tmp_path)


def test_a_fault_of_our_cells_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = CELLS[torch.gru]

    def wrong(x: Tensor, state: Any, w: Any, bias: bool) -> Any:
        return tuple(s * 1.01 for s in right(x, state, w, bias))

    monkeypatch.setitem(CELLS, torch.gru, wrong)
    step = capture(Recurrent(nn.GRU), classify, CASE.schema(), SGD(0.1))
    with pytest.raises(UsageError, match="is not the module's"):
        saved(step, CASE, tmp_path)


# -- honest steps ----------------------------------------------------------------------------------
HONEST: dict[str, tuple[Any, dict[str, Any]]] = {
    "sgd": (SGD(0.1), {}),
    "all of sgd": (SGD(0.1, momentum=0.9, weight_decay=0.1, nesterov=True), {}),
    "dampened": (SGD(0.1, momentum=0.9, dampening=0.5), {}),
    "adam": (Adam(1e-3, weight_decay=0.1), {}),
    "adamw, clipped": (AdamW(1e-3, no_decay=("bias",)), {"clip_norm": 0.01}),
    "small steps": (AdamW(1e-12), {}),
    "large steps": (Adam(1e3), {}),
    "no betas": (Adam(0.1, betas=(0.0, 0.0)), {}),
    "no eps": (Adam(0.1, eps=0.0), {}),
    "rmsprop": (RMSprop(0.01, momentum=0.9, centered=True, weight_decay=0.1), {"clip_norm": 0.1}),
    "adagrad": (Adagrad(0.1, lr_decay=0.1, weight_decay=0.1), {"clip_value": 0.01}),
    "lion": (Lion(0.01, weight_decay=0.1), {"ema": EMA(0.9)}),
    "lamb": (LAMB(0.01), {"clip_norm": 0.1}),
    "lamb, uncorrected": (LAMB(0.01, bias_correction=False, max_trust=0.1), {}),
    "adafactor": (Adafactor(0.1, weight_decay=0.1), {"clip_norm": 0.1}),
    "transformers": (TransformersAdafactor(), {}),
    "transformers, all": (
        TransformersAdafactor(0.1, beta1=0.9, weight_decay=0.1, relative_step=False),
        {},
    ),
    "muon and lion": (MUON, {"clip_norm": 0.1, "clip_value": 0.1, "ema": EMA("decay")}),
    "muon, few bits": (MUON, {"contract": "rounded/1;b=20"}),
    "muon, exact": (MUON, {"contract": "exact/1;b=8"}),
    "lamb, log": (LAMB(0.01), {"contract": "replay/1"}),
    "few bits": (AdamW(1e-3), {"contract": "rounded/1;b=20"}),
    "log": (AdamW(1e-3), {"contract": "replay/1"}),
}


@pytest.mark.parametrize("what", HONEST)
def test_honest_steps_agree(what: str, tmp_path: Path) -> None:
    optimizer, options = HONEST[what]
    schedules = {"decay": [0.0, 0.9]} if options.get("ema") == EMA("decay") else None
    step = captured(optimizer, **options)
    assert "first step" not in saved(step, CASE, tmp_path, schedules=schedules).about


class Vanishing(nn.Module):
    """Biases before a normalisation: their true gradients are 0, ours and torch's are noise.

    Adam makes a step of lr of each, in a direction that the noise decides.
    """

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(8)
        self.first, self.norm, self.last = nn.Linear(20, 33), nn.BatchNorm1d(33), nn.Linear(33, 10)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.last(self.norm(self.first(x)).relu())
        return found


@pytest.mark.parametrize("scale", [1.0, 1e-15, 1e-25])
def test_gradients_that_are_noise_or_underflow_are_honest(scale: float, tmp_path: Path) -> None:
    def loss(module: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        return F.cross_entropy(module(batch["x"]), batch["y"]) * scale

    step = capture(Vanishing(), loss, CASE.schema(), Adam(0.1, eps=1e-30))
    assert "first step" not in saved(step, CASE, tmp_path).about


def test_a_state_in_the_middle_of_training_is_honest(tmp_path: Path) -> None:
    """Moments and powers of a hundred steps; torch's optimizers get them."""
    for optimizer in (
        AdamW(1e-3),
        SGD(0.1, momentum=0.9, dampening=0.3),
        RMSprop(0.01, momentum=0.9),
        Adagrad(0.1),
        Lion(1e-2),
        LAMB(0.01),
        Adafactor(0.1),
        TransformersAdafactor(0.1, beta1=0.9, relative_step=False),
    ):
        step = captured(optimizer)
        assert step.initial_state is not None
        state = dict(step.initial_state)
        drawn = np.random.default_rng(1)
        for name, array in state.items():
            if name.startswith("opt.beta"):
                beta = 0.9 if "beta1" in name else 0.999
                state[name] = np.array(beta**100)
            elif name.startswith("opt."):
                state[name] = drawn.random(array.shape, np.float32) * np.float32(1e-4)
        where = tmp_path / type(optimizer).__name__
        assert "first step" not in saved(step, CASE, where, initial_state=state).about


def test_powers_of_no_step_are_noted(tmp_path: Path) -> None:
    step = captured(AdamW(1e-3))
    assert step.initial_state is not None
    state = {**step.initial_state, "opt.beta1_power": np.array(0.85)}
    about = saved(step, CASE, tmp_path, initial_state=state).about
    assert "no number of steps" in about["first step"]


def test_a_frozen_parameter_keeps_its_bits(tmp_path: Path) -> None:
    torch.manual_seed(9)
    module = Case(CASE.build, CASE.loss, CASE.batch).build()
    next(iter(module.parameters())).requires_grad_(False)
    step = capture(module, CASE.loss, CASE.schema(), AdamW(1e-3))
    assert "first step" not in saved(step, CASE, tmp_path).about


def test_numbers_that_torch_takes_in_no_float32_are_not_compared(tmp_path: Path) -> None:
    """lr·weight_decay is beyond float32: torch stops there, and the contract does not."""
    step = captured(AdamW(1e38, weight_decay=1e30))
    job = saved(step, CASE, tmp_path)
    assert "torch's optimizer stops at" in job.about["first step"]
