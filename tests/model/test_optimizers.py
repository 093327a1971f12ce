"""Every optimizer, option and clipping over fifty steps beside torch's own (PROGRAM 8)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from optimizer_runs import BATCH, STEPS, Run, assert_beside, loss, net, ours, torchs
from torch import Tensor, nn, optim
from transformers.optimization import Adafactor as TheirAdafactor

from tallystick.errors import UsageError
from tallystick.program.capture import capture
from tallystick.program.optimizers import (
    LAMB,
    SGD,
    Adafactor,
    Adagrad,
    Adam,
    AdamW,
    Lion,
    Muon,
    ParameterGroup,
    ParameterGroups,
    RMSprop,
    TransformersAdafactor,
)
from tallystick.program.update import EMA

Make = Callable[[Any], torch.optim.Optimizer]


def stock(make: Make) -> Callable[[nn.Module], Callable[[], None]]:
    def stepper(module: nn.Module) -> Callable[[], None]:
        optimizer = make(module.parameters())
        return lambda: optimizer.step() and None

    return stepper


def beside(
    make: Make, optimizer: Any = None, learns: bool = True, **options: Any
) -> tuple[float, float]:
    """The instance read from torch, or `optimizer`, beside torch's own."""
    module = net()
    step = capture(module, loss, BATCH, optimizer or make(module.parameters()), **options)
    runs = [torchs(stock(make), dtype) for dtype in (torch.float64, torch.float32)]
    return assert_beside(ours(step), *runs, learns=learns)


# -- torch's and transformers' own, as instances ---------------------------------------------------

INSTANCES: dict[str, Make] = {
    "sgd": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "sgd, a tensor as rate": lambda p: optim.SGD(p, lr=torch.tensor(0.1)),
    "adam": lambda p: optim.Adam(p, lr=0.01, weight_decay=0.01),
    "adam, decoupled": lambda p: optim.Adam(
        p, lr=0.01, weight_decay=0.1, decoupled_weight_decay=True
    ),
    "adamw": lambda p: optim.AdamW(p, lr=0.01, betas=(0.8, 0.95), eps=1e-6),
    "adamw, foreach": lambda p: optim.AdamW(p, lr=0.01, foreach=True),
    "rmsprop": lambda p: optim.RMSprop(p, lr=0.005),
    "rmsprop, all": lambda p: optim.RMSprop(
        p, lr=0.002, alpha=0.9, eps=1e-6, weight_decay=0.02, momentum=0.8, centered=True
    ),
    "rmsprop, momentum": lambda p: optim.RMSprop(p, lr=0.002, momentum=0.9),
    "rmsprop, centered": lambda p: optim.RMSprop(p, lr=0.002, centered=True),
    "adagrad": lambda p: optim.Adagrad(p, lr=0.05),
    "adagrad, all": lambda p: optim.Adagrad(
        p, lr=0.1, lr_decay=0.05, weight_decay=0.01, initial_accumulator_value=0.1, eps=1e-7
    ),
    "adafactor": lambda p: optim.Adafactor(p, lr=0.05),
    "adafactor, all": lambda p: optim.Adafactor(
        p, lr=0.3, beta2_decay=-0.6, eps=(1e-6, 0.01), d=1.5, weight_decay=0.05
    ),
    "transformers": lambda p: TheirAdafactor(p),
    "transformers, warmup": lambda p: TheirAdafactor(
        p, warmup_init=True, scale_parameter=False, weight_decay=0.1
    ),
    "transformers, own rate": lambda p: TheirAdafactor(
        p, lr=0.02, relative_step=False, scale_parameter=False, clip_threshold=2.0
    ),
    "transformers, scaled": lambda p: TheirAdafactor(
        p, lr=0.1, relative_step=False, weight_decay=0.1, decay_rate=-0.7, eps=(1e-20, 0.01)
    ),
    "transformers, moment": lambda p: TheirAdafactor(
        p, lr=0.1, relative_step=False, beta1=0.9, weight_decay=0.1
    ),
}  # fmt: skip
# Its rate begins with a millionth.
SLOW = {"transformers, warmup"}


@pytest.mark.parametrize("what", INSTANCES)
def test_torchs_instances_over_fifty_steps(what: str) -> None:
    beside(INSTANCES[what], learns=what not in SLOW)


# -- rules that torch has not, in float64 as their papers write them ---------------------
class Reference(torch.optim.Optimizer):
    """`rule(p, g, state, t)` changes p; t counts from 1."""

    def __init__(self, parameters: Any, rule: Callable[..., None]) -> None:
        super().__init__(parameters, {})
        self.rule = rule

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                state["t"] = state.get("t", 0) + 1
                self.rule(p, p.grad, state, state["t"])


def lion(lr: float, b1: float, b2: float, decay: float) -> Callable[..., None]:
    def rule(p: Tensor, g: Tensor, state: dict[str, Any], t: int) -> None:
        m = state.setdefault("m", torch.zeros_like(p))
        p.mul_(1 - lr * decay)
        p.add_(torch.sign(b1 * m + (1 - b1) * g), alpha=-lr)
        m.mul_(b2).add_(g, alpha=1 - b2)

    return rule


def lamb(
    lr: float, decay: float, corrected: bool, most: float, always: bool
) -> Callable[..., None]:
    def rule(p: Tensor, g: Tensor, state: dict[str, Any], t: int) -> None:
        m = state.setdefault("m", torch.zeros_like(p))
        v = state.setdefault("v", torch.zeros_like(p))
        m.lerp_(g, 1 - 0.9)
        v.mul_(0.999).addcmul_(g, g, value=1 - 0.999)
        first, second = (1 - 0.9**t, 1 - 0.999**t) if corrected else (1.0, 1.0)
        r = (m / first) / ((v / second).sqrt() + 1e-6) + decay * p
        ratio = (p.norm() / r.norm()).item() if p.norm() > 0 and r.norm() > 0 else 1.0
        ratio = min(ratio, most) if decay or always else 1.0
        p.sub_(lr * ratio * r)

    return rule


def muon(lr: float, nesterov: bool, adjust: str) -> Callable[..., None]:
    def rule(p: Tensor, g: Tensor, state: dict[str, Any], t: int) -> None:
        buffer = state.setdefault("b", torch.zeros_like(p))
        buffer.lerp_(g, 1 - 0.95)
        x = g.lerp(buffer, 0.95) if nesterov else buffer.clone()
        tall = x.size(0) > x.size(1)
        x = x.T if tall else x
        x = x / x.norm().clamp(min=1e-7)
        for _ in range(5):
            gram = x @ x.T
            x = 3.4445 * x + (-4.775 * gram + 2.0315 * (gram @ gram)) @ x
        x = x.T if tall else x
        rows, columns = p.shape
        ratio = math.sqrt(max(1, rows / columns))
        ratio = 0.2 * math.sqrt(max(rows, columns)) if adjust == "match_rms_adamw" else ratio
        p.mul_(1 - lr * 0.1).sub_(lr * ratio * x)

    return rule


PAPERS: dict[str, tuple[Any, Callable[..., None]]] = {
    "lion": (Lion(3e-3), lion(3e-3, 0.9, 0.99, 0.0)),
    "lion, all": (Lion(2e-3, (0.8, 0.95), weight_decay=0.5), lion(2e-3, 0.8, 0.95, 0.5)),
    "lamb": (LAMB(0.01), lamb(0.01, 0.01, True, math.inf, True)),
    "lamb, uncorrected": (
        LAMB(0.02, weight_decay=0.1, bias_correction=False, max_trust=0.5),
        lamb(0.02, 0.1, False, 0.5, True),
    ),
    "lamb, without decay": (
        LAMB(0.01, weight_decay=0.0, always_adapt=False),
        lamb(0.01, 0.0, True, math.inf, False),
    ),
    "lamb, adapted": (LAMB(0.01, weight_decay=0.0), lamb(0.01, 0.0, True, math.inf, True)),
}


@pytest.mark.parametrize("what", PAPERS)
def test_published_rules_over_fifty_steps(what: str) -> None:
    optimizer, rule = PAPERS[what]
    beside(lambda p: Reference(p, rule), optimizer)


# -- Muon for matrices, AdamW for the rest, in one step --------------------------------------------
def _matrices(name: str, shape: tuple[int, ...]) -> bool:
    return len(shape) == 2


def _muon_and_adamw(rule: Callable[..., None]) -> Callable[[nn.Module], Callable[[], None]]:
    def stepper(module: nn.Module) -> Callable[[], None]:
        two = [p for p in module.parameters() if p.ndim == 2]
        rest = [p for p in module.parameters() if p.ndim != 2]
        made = [Reference(two, rule), optim.AdamW(rest, lr=0.01)]
        return lambda: [o.step() for o in made] and None

    return stepper


@pytest.mark.parametrize(
    "options",
    [{}, {"nesterov": False}, {"adjust_lr": "match_rms_adamw"}],
    ids=["muon", "no nesterov", "adjusted"],
)
def test_muon_beside_float64(options: dict[str, Any]) -> None:
    rest = ParameterGroup(AdamW(0.01))
    groups = ParameterGroups({"m": ParameterGroup(Muon(0.02, **options), _matrices), "r": rest})
    step = capture(net(), loss, BATCH, groups)
    assert set(step.scalars) == {"lr.m", "lr.r"}
    rule = muon(0.02, options.get("nesterov", True), options.get("adjust_lr", "original"))
    runs = [torchs(_muon_and_adamw(rule), dtype) for dtype in (torch.float64, torch.float32)]
    assert_beside(ours(step), *runs)


def test_torchs_muon_is_read_and_near() -> None:
    """torch's own is bfloat16 inside: the losses agree to its precision, not to float32's."""
    torch.manual_seed(2)
    matrices = nn.Sequential(nn.Linear(12, 24, bias=False), nn.Tanh(), nn.Linear(24, 5, bias=False))
    given = optim.Muon(matrices.parameters(), lr=0.02, momentum=0.9, adjust_lr_fn="match_rms_adamw")
    step = capture(matrices, loss, BATCH, given)
    found = ours(step)
    run = torchs(lambda module: lambda: given.step() and None, torch.float32, matrices)
    assert max(abs(a - b) for a, b in zip(found.losses, run.losses, strict=True)) < 0.05
    assert found.losses[-1] < found.losses[0]


# -- parameter groups ------------------------------------------------------------------------------
def _groups(module: nn.Module) -> Any:
    weights = [p for n, p in module.named_parameters() if p.ndim > 1]
    others = [p for n, p in module.named_parameters() if p.ndim <= 1]
    return optim.AdamW(
        [
            {"params": weights, "lr": 0.01, "weight_decay": 0.2, "betas": (0.8, 0.9)},
            {"params": others, "lr": 0.003, "weight_decay": 0.0},
        ]
    )


def test_groups_have_rates_and_options_of_their_own() -> None:
    module = net()
    step = capture(module, loss, BATCH, _groups(module), clip_norm=0.5)
    assert step.scalars == {"lr.0": 0.01, "lr.1": 0.003}
    assert "opt.beta1_power.1" in step.program.state_types

    def stepper(module: nn.Module) -> Callable[[], None]:
        optimizer = _groups(module)

        def after() -> None:
            nn.utils.clip_grad_norm_(module.parameters(), 0.5)
            optimizer.step()

        return after

    runs = [torchs(stepper, dtype) for dtype in (torch.float64, torch.float32)]
    assert_beside(ours(step), *runs)


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        (lambda: {}, "no group"),
        (lambda: {"a b": ParameterGroup(SGD(0.1))}, "cannot name"),
        (
            lambda: {"a": ParameterGroup(SGD(0.1)), "b": ParameterGroup(SGD(0.1))},
            "more than one group takes",
        ),
        (lambda: {"a": ParameterGroup(SGD(0.1), "up")}, "a single string"),
        (lambda: {"a": SGD(0.1)}, "not a ParameterGroup"),
    ],
)
def test_groups_that_are_none(groups: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        ParameterGroups(groups())


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ({"a": ParameterGroup(SGD(0.1), ("up", "down"))}, "is in no group"),
        (
            {"a": ParameterGroup(SGD(0.1)), "b": ParameterGroup(SGD(0.1), ("wrong",))},
            "The group 'b' contains no parameter",
        ),
        (
            {
                "a": ParameterGroup(SGD(0.1), _matrices),
                "b": ParameterGroup(SGD(0.1), ("up.weight",)),
                "c": ParameterGroup(SGD(0.1)),
            },
            "up.weight is in several groups",
        ),
        ({"a": ParameterGroup(Muon(0.1))}, "needs two axes, but the parameter .* has 1"),
    ],
)
def test_groups_that_do_not_fit_the_module(groups: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        capture(net(), loss, BATCH, ParameterGroups(groups))


# -- clipping and the gradients' norm --------------------------------------------------------------
@pytest.mark.parametrize(
    ("value", "norm"), [(0.01, None), (None, 0.1), (0.02, 0.05)], ids=["value", "norm", "both"]
)
def test_clipping_over_fifty_steps(value: float | None, norm: float | None) -> None:
    """RMSprop's composition reads the coefficient as a node of its own; by value goes first."""

    def make(module: nn.Module) -> Callable[[], None]:
        optimizer = optim.RMSprop(module.parameters(), lr=0.003)

        def after() -> None:
            if value is not None:
                nn.utils.clip_grad_value_(module.parameters(), value)
            if norm is not None:
                nn.utils.clip_grad_norm_(module.parameters(), norm)
            optimizer.step()

        return after

    module = net()
    given = optim.RMSprop(module.parameters(), lr=0.003)
    step = capture(module, loss, BATCH, given, clip_norm=norm, clip_value=value)
    runs = [torchs(make, dtype) for dtype in (torch.float64, torch.float32)]
    assert_beside(ours(step), *runs)


def test_the_norm_is_reported_without_clipping() -> None:
    plain = capture(net(), loss, BATCH, SGD(0.1))
    reported = capture(net(), loss, BATCH, SGD(0.1), grad_norm=True)
    norms: list[float] = []

    def make(module: nn.Module) -> Callable[[], None]:
        optimizer = optim.SGD(module.parameters(), lr=0.1)

        def after() -> None:
            norms.append(float(nn.utils.get_total_norm(p.grad for p in module.parameters())))
            optimizer.step()

        return after

    torchs(make, torch.float64)
    found = ours(reported)
    np.testing.assert_allclose(found.norms, norms, rtol=1e-5)
    same = ours(plain)
    assert not same.norms and same.losses == found.losses
    for name, array in same.final.items():
        assert array.tobytes() == found.final[name].tobytes()


# -- averages of parameters ------------------------------------------------------------------------
def test_averages_over_fifty_steps() -> None:
    """torch's AveragedModel begins with the first step's parameters: a decay of 0 there."""
    multi = torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)

    def averaged(dtype: torch.dtype) -> Run:
        made: list[Any] = []

        def stepper(module: nn.Module) -> Callable[[], None]:
            optimizer = optim.AdamW(module.parameters(), lr=0.01)
            made.append(torch.optim.swa_utils.AveragedModel(module, multi_avg_fn=multi))

            def after() -> None:
                optimizer.step()
                made[0].update_parameters(module)

            return after

        run = torchs(stepper, dtype)
        run.final = {
            f"ema.{n}": p.detach().double().numpy() for n, p in made[0].module.named_parameters()
        }
        return run

    step = capture(net(), loss, BATCH, AdamW(0.01), ema=EMA("decay"))
    found = ours(step, {"decay": [0.0] + [0.9] * (STEPS - 1)})
    assert_beside(found, averaged(torch.float64), averaged(torch.float32))
    assert not np.array_equal(found.final["ema.up.weight"], found.final["param.up.weight"])


def test_averages_begin_with_the_initial_parameters() -> None:
    step = capture(net(), loss, BATCH, SGD(0.1), ema=EMA(0.9))
    assert step.initial_state is not None
    for name, array in step.initial_state.items():
        if name.startswith("ema."):
            assert np.array_equal(array, step.initial_state["param." + name[4:]])
    exact = {n: a.astype(np.float64) for n, a in step.initial_state.items() if n[:4] == "ema."}
    plain = ours(capture(net(), loss, BATCH, SGD(0.1)))
    found = ours(step)
    assert plain.losses == found.losses
    assert set(exact) == {n for n in found.final if n.startswith("ema.")}


@pytest.mark.parametrize("decay", [-0.1, 1.5, ""])
def test_averages_that_are_none(decay: Any) -> None:
    with pytest.raises(UsageError, match="EMA"):
        EMA(decay)


# -- options that are refused by name --------------------------------------------------------------
def _stepped(p: Any) -> Any:
    given = optim.Adam(p, lr=0.1)
    for group in given.param_groups:
        for parameter in group["params"]:
            parameter.grad = torch.zeros_like(parameter)
    given.step()
    return given


def _hooked(p: Any) -> Any:
    given = optim.Adam(p, lr=0.1)
    given.register_step_pre_hook(lambda *_: None)
    return given


class Mine(optim.Adam):
    pass


REFUSED: dict[str, tuple[Make, str]] = {
    "amsgrad": (lambda p: optim.Adam(p, amsgrad=True), "amsgrad=True"),
    "maximize": (lambda p: optim.AdamW(p, maximize=True), "maximize=True"),
    "differentiable": (lambda p: optim.RMSprop(p, differentiable=True), "differentiable=True"),
    "maximize of Adagrad": (lambda p: optim.Adagrad(p, maximize=True), "maximize=True"),
    "maximize of Adafactor": (lambda p: optim.Adafactor(p, maximize=True), "maximize=True"),
    "dampening": (lambda p: optim.SGD(p, 0.1, momentum=0.9, dampening=0.5), "dampening"),
    "another": (lambda p: optim.Adadelta(p), r"adadelta\.Adadelta"),
    "a subclass": (lambda p: Mine(p), "Mine"),
    "steps made": (_stepped, "has already made steps"),
    "hooks": (_hooked, "hooks around its step"),
    "strangers": (lambda p: optim.SGD([*p, torch.zeros(2, requires_grad=True)]), "does not have"),
    "forgotten": (lambda p: optim.SGD([*p][:3]), "no group of the optimizer contains"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_options_that_are_refused(what: str) -> None:
    make, words = REFUSED[what]
    module = net()
    with pytest.raises(UsageError, match=words) as caught:
        capture(module, loss, BATCH, make(module.parameters()))
    assert caught.value.next_action


@pytest.mark.parametrize(
    "make",
    [
        lambda: RMSprop(alpha=1.0),
        lambda: RMSprop(eps=-1.0),
        lambda: Adagrad(lr_decay=-1.0),
        lambda: Lion(betas=(0.9, 1.0)),
        lambda: LAMB(max_trust=math.nan),
        lambda: Adafactor(beta2_decay=0.5),
        lambda: Adafactor(d=0.0),
        lambda: TransformersAdafactor(lr=0.1),
        lambda: TransformersAdafactor(relative_step=False),
        lambda: TransformersAdafactor(lr=0.1, relative_step=False, warmup_init=True),
        lambda: Muon(momentum=1.0),
        lambda: Muon(ns_steps=0),
        lambda: Muon(adjust_lr="other"),
        lambda: Muon(ns_coefficients=(1.0, 2.0)),  # type: ignore[arg-type]
    ],
)
def test_arguments_that_are_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(UsageError):
        make()


def test_a_frozen_parameter_of_an_instance_is_passed_through() -> None:
    module = net()
    module.up.weight.requires_grad_(False)  # type: ignore[union-attr]
    step = capture(module, loss, BATCH, optim.Adam(module.parameters(), lr=0.1))
    assert "opt.m.up.weight" not in step.program.state_types


def test_adam_is_as_before() -> None:
    """An instance is the description: one text."""
    module = net()
    texts = {
        capture(module, loss, BATCH, given, clip_norm=1.0).program.text()
        for given in (Adam(0.01), optim.Adam(module.parameters(), lr=0.01, fused=True))
    }
    assert len(texts) == 1
