"""Schedulers of torch and transformers as tables of a job (PROGRAM 8.2)."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from optimizer_runs import BATCH, STEPS, assert_beside, loss, net, ours, torchs
from torch import nn, optim
from torch.optim import lr_scheduler as S
from transformers import get_scheduler
from transformers.optimization import Adafactor as TheirAdafactor
from transformers.optimization import AdafactorSchedule

from tallystick.errors import UsageError
from tallystick.job.scalars import scalar_tables
from tallystick.program.capture import capture
from tallystick.program.capture.stock_schedules import rates_of
from tallystick.program.optimizers import (
    SGD,
    Adafactor,
    Adagrad,
    AdamW,
    ParameterGroup,
    ParameterGroups,
    TransformersAdafactor,
)
from tallystick.program.update import EMA

Make = Callable[[Any], Any]
SCHEDULERS: dict[str, Make] = {
    "lambda": lambda o: S.LambdaLR(o, lambda t: 0.95**t),
    "multiplicative": lambda o: S.MultiplicativeLR(o, lambda t: 0.97),
    "step": lambda o: S.StepLR(o, 10, 0.5),
    "milestones": lambda o: S.MultiStepLR(o, [5, 20], 0.3),
    "constant": lambda o: S.ConstantLR(o, 0.3, 7),
    "linear": lambda o: S.LinearLR(o, 0.1, 1.0, 20),
    "exponential": lambda o: S.ExponentialLR(o, 0.96),
    "polynomial": lambda o: S.PolynomialLR(o, 30, 2.0),
    "cosine": lambda o: S.CosineAnnealingLR(o, STEPS, 1e-4),
    "restarts": lambda o: S.CosineAnnealingWarmRestarts(o, 7, 2),
    "cyclic": lambda o: S.CyclicLR(o, 1e-3, 0.1, 8, mode="triangular2", cycle_momentum=False),
    "one cycle": lambda o: S.OneCycleLR(o, 0.1, STEPS, cycle_momentum=False),
    "swa": lambda o: optim.swa_utils.SWALR(o, 0.01, 5),
    "sequential": lambda o: S.SequentialLR(
        o, [S.LinearLR(o, 0.1, 1.0, 10), S.CosineAnnealingLR(o, 40)], [10]
    ),
    "chained": lambda o: S.ChainedScheduler([S.ConstantLR(o, 0.1, 5), S.ExponentialLR(o, 0.95)]),
    **{
        f"transformers, {name}": lambda o, name=name: get_scheduler(
            name, o, num_warmup_steps=6, num_training_steps=STEPS
        )
        for name in ("linear", "cosine", "cosine_with_restarts", "polynomial", "constant",
                     "constant_with_warmup", "inverse_sqrt")
    },
    "transformers, stable": lambda o: get_scheduler(
        "warmup_stable_decay", o, num_warmup_steps=5, num_training_steps=STEPS,
        scheduler_specific_kwargs={"num_decay_steps": 20},
    ),
}  # fmt: skip


def two_groups() -> Any:
    one, other = (nn.Parameter(torch.zeros(2)) for _ in range(2))
    return optim.SGD([{"params": [one]}, {"params": [other], "lr": 0.01}], lr=0.1)


def stepped(scheduler: Any, every: int = 1) -> list[list[float]]:
    """The rates as a user's own loop sees them."""
    optimizer, tables = scheduler.optimizer, []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step in range(STEPS):
            if step and step % every == 0:
                scheduler.step()
            tables.append([float(g["lr"]) for g in optimizer.param_groups])
            optimizer.step()
    return [list(table) for table in zip(*tables, strict=True)]


@pytest.mark.parametrize("name", SCHEDULERS)
def test_the_table_has_the_schedulers_own_numbers(name: str) -> None:
    scheduler = SCHEDULERS[name](two_groups())
    before = copy.deepcopy(scheduler.optimizer.state_dict())
    found = rates_of(scheduler, STEPS)
    assert scheduler.optimizer.state_dict() == before, "the user's own optimizer was changed"
    assert found == stepped(SCHEDULERS[name](two_groups()))
    assert found == rates_of(scheduler, STEPS)
    assert len({len(set(table)) for table in found}) >= 1 and len(found) == 2


def test_a_scheduler_by_epochs() -> None:
    found = rates_of(S.StepLR(two_groups(), 2, 0.5), STEPS, every=8)
    assert found == stepped(S.StepLR(two_groups(), 2, 0.5), 8)


def test_a_scheduler_goes_on_from_where_it_is() -> None:
    scheduler = S.ExponentialLR(two_groups(), 0.9)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(3):
            scheduler.step()
    assert rates_of(scheduler, 4)[0][0] == scheduler.get_last_lr()[0]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda o: S.ReduceLROnPlateau(o), "depends on a validation loss"),
        (lambda o: get_scheduler("reduce_lr_on_plateau", o), "depends on a validation loss"),
        (lambda o: S.OneCycleLR(o, 0.1, 10, cycle_momentum=False), "stops before step"),
        (lambda o: S.LambdaLR(o, lambda t: math.inf if t == 3 else 1.0), "not finite"),
        (lambda o: "cosine", "builtins.str"),
    ],
)
def test_schedulers_that_are_refused(make: Make, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        rates_of(make(two_groups()), STEPS)
    assert caught.value.next_action


def test_a_scheduler_that_moves_another_option_is_refused() -> None:
    given = optim.SGD([nn.Parameter(torch.zeros(2))], lr=0.1, momentum=0.9)
    with pytest.raises(UsageError, match="changes momentum at step 1"):
        rates_of(S.OneCycleLR(given, 0.1, STEPS), STEPS)
    adam = optim.Adam([nn.Parameter(torch.zeros(2))], lr=0.1)
    with pytest.raises(UsageError, match="changes betas"):
        rates_of(S.OneCycleLR(adam, 0.1, STEPS), STEPS)


def test_adafactors_own_schedule_is_left_out() -> None:
    given = TheirAdafactor([nn.Parameter(torch.zeros(2))])
    with pytest.raises(UsageError, match="Leave it out"):
        rates_of(AdafactorSchedule(given), STEPS)


# -- in a job --------------------------------------------------------------------------------------
def _trained(make: Callable[[Any], Any], schedule: Make) -> Callable[[Any], Any]:
    def stepper(module: nn.Module) -> Callable[[], None]:
        optimizer = make(module)
        scheduler = schedule(optimizer)

        def after() -> None:
            optimizer.step()
            scheduler.step()

        return after

    return stepper


def _groups(module: nn.Module) -> Any:
    weights = [p for p in module.parameters() if p.ndim > 1]
    others = [p for p in module.parameters() if p.ndim <= 1]
    return optim.AdamW([{"params": weights}, {"params": others, "lr": 0.002}], lr=0.01)


@pytest.mark.parametrize("name", ["sequential", "transformers, cosine", "one cycle"])
def test_two_groups_with_a_scheduler_over_fifty_steps(name: str) -> None:
    module = net()
    given = _groups(module)
    scheduler = SCHEDULERS[name](given)
    step = capture(module, loss, BATCH, given)
    assert step.scalars == {"lr.0": "lr.0", "lr.1": "lr.1"}
    runs = [
        torchs(_trained(_groups, SCHEDULERS[name]), dtype)
        for dtype in (torch.float64, torch.float32)
    ]
    assert_beside(ours(step, scheduler), *runs)


@pytest.mark.parametrize(
    "make",
    [
        lambda m: optim.Adagrad(m.parameters(), lr=0.1, lr_decay=0.1),
        lambda m: optim.Adafactor(m.parameters(), lr=0.5, weight_decay=0.01),
        lambda m: TheirAdafactor(m.parameters(), lr=0.1, relative_step=False),
    ],
    ids=["adagrad", "adafactor", "transformers"],
)
def test_rules_that_derive_tables_follow_a_scheduler(make: Any) -> None:
    module = net()
    given = make(module)
    scheduler = SCHEDULERS["linear"](given)
    step = capture(module, loss, BATCH, given)
    runs = [
        torchs(_trained(make, SCHEDULERS["linear"]), dtype)
        for dtype in (torch.float64, torch.float32)
    ]
    assert_beside(ours(step, scheduler), *runs)


def test_a_schedule_is_a_list_a_function_a_number_or_a_scheduler() -> None:
    one = optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
    for schedule, table in (
        ([0.1, 0.2, 0.3], [0.1, 0.2, 0.3]),
        (torch.tensor([0.5, 0.25, 0.125]), [0.5, 0.25, 0.125]),
        (lambda t: 0.1 * t, [0.0, 0.1, 0.2]),
        (0.5, 0.5),
        (S.ExponentialLR(one, 0.5), [0.1, 0.05, 0.025]),
    ):
        assert scalar_tables({"lr": "rate"}, {"rate": schedule}, 3) == {
            "lr": pytest.approx(table, rel=1e-15)
        }
    assert scalar_tables({"lr": "rate"}, S.ExponentialLR(one, 0.5), 2) == {"lr": [0.1, 0.05]}


@pytest.mark.parametrize(
    ("scalars", "schedules", "words"),
    [
        ({"lr": "rate"}, None, "'rate', which was not given"),
        ({"lr": "rate"}, {"rate": [0.1]}, "1 numbers, but the job has 3 steps"),
        ({"lr": "rate"}, {"rate": [0.1] * 3, "lr": 0.1}, "Nothing uses the schedule 'lr'"),
        ({"lr": 0.1}, {"lr": [0.1] * 3}, "The optimizer names no table"),
        ({"lr": "rate"}, {"rate": [0.1, math.nan, 0.1]}, "nan in step 1"),
        ({"lr": "rate"}, {"rate": lambda t: math.inf}, "inf in step 0"),
        ({"lr": "a", "lr.1": "b"}, lambda: S.ConstantLR(two_groups()), "the optimizers name"),
        ({"lr": 0.1}, lambda: S.ConstantLR(two_groups()), "the optimizers name no table"),
        ({"lr": "a"}, lambda: {"a": S.ConstantLR(two_groups())}, "rates for 2 groups"),
    ],
)
def test_schedules_that_do_not_fit(scalars: Any, schedules: Any, words: str) -> None:
    given = schedules() if callable(schedules) else schedules
    with pytest.raises(UsageError, match=words) as caught:
        scalar_tables(scalars, given, 3)
    assert caught.value.next_action


# -- derived tables --------------------------------------------------------------------------------
def scalars_of(optimizer: Any, ema: EMA | None = None) -> Any:
    return capture(net(), loss, BATCH, optimizer, ema=ema).scalars


def test_derived_tables_are_their_formulas() -> None:
    tables = scalar_tables(scalars_of(Adagrad(0.1, lr_decay=0.5)), None, 4)
    assert tables == {"lr": [0.1, 0.1 / 1.5, 0.1 / 2.0, 0.1 / 2.5]}
    tables = scalar_tables(scalars_of(Adafactor(0.6, weight_decay=0.1)), None, 4)
    assert tables["lr"] == 0.6 and tables["rate"] == [0.6, 0.6, 1 / math.sqrt(3), 0.5]
    assert tables["part"] == pytest.approx([t**-0.8 for t in (1, 2, 3, 4)], rel=2**-52)
    tables = scalar_tables(scalars_of(TransformersAdafactor(warmup_init=True)), None, 3)
    assert tables["lr"] == [1e-6, 2e-6, 3e-6]
    tables = scalar_tables(scalars_of(TransformersAdafactor()), None, 3)
    assert tables["lr"] == 0.01
    tables = scalar_tables(scalars_of(SGD(0.1), EMA("d")), {"d": [0.0, 0.75]}, 2)
    assert tables == {"lr": 0.1, "ema": [1.0, 0.25]}


def test_a_job_that_goes_on_counts_from_there() -> None:
    named = scalars_of(Adafactor(0.6, weight_decay=0.1), EMA("d"))
    schedules = {"d": lambda t: 1.0 / (t + 1)}
    whole = scalar_tables(named, schedules, 5)
    rest = scalar_tables(named, schedules, 3, first=2)
    for name in ("part", "rate", "ema"):
        assert rest[name] == whole[name][2:]  # type: ignore[index]


def test_powers_are_those_of_the_real_numbers() -> None:
    """40 digits, rounded once: no C library's pow is part of a job."""
    from decimal import Decimal, localcontext

    from tallystick.program.tables import power

    with localcontext() as context:
        context.prec = 80
        for step in (1, 2, 3, 7, 10, 99, 1000, 123_457, 10**9):
            for exponent in (-0.8, -0.5, -1.0, -0.123):
                real = (Decimal(step).ln() * Decimal(exponent)).exp()
                nearest = min(
                    (math.nextafter(float(real), 0.0), float(real), math.nextafter(float(real), 9)),
                    key=lambda v, real=real: abs(Decimal(v) - real),
                )
                assert power(step, exponent) == nearest


def test_named_groups_take_named_schedules() -> None:
    groups = ParameterGroups(
        {
            "decayed": ParameterGroup(AdamW("fast"), lambda name, shape: len(shape) > 1),
            "rest": ParameterGroup(AdamW("slow", weight_decay=0.0)),
        }
    )
    step = capture(net(), loss, BATCH, groups)
    given = {"fast": lambda t: 0.01, "slow": [0.001] * STEPS}
    tables = scalar_tables(step.scalars, given, STEPS)
    assert tables == {"lr.decayed": [0.01] * STEPS, "lr.rest": [0.001] * STEPS}
