"""Opening rules of optimizer steps (NUMERICS 11)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from disputes import SparseSource, check_changed_operand, sites
from harness import check_games, check_values, play
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reference.data import Gen

from tallystick.opening.quantity import MissingElements, opening_rule
from tallystick.opening.values import value_of

F32 = np.float32
CLIP = "tallystick.clip_coef"
few = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
kinds = st.sampled_from(("floats", "mixed", "tiny", "wide", "bits"))
shapes = st.lists(st.sampled_from((1, 2, 5)), max_size=3).map(tuple)
seeds = st.integers(0, 1 << 20)
coefficients = st.sampled_from((None, 1.0, 0.25, float("nan"), float("inf"), 1e-45))


def _tensors(kind: str, shape: tuple[int, ...], seed: int, count: int) -> list[np.ndarray]:
    made = getattr(Gen(f"opening optimizer {kind} {shape} {seed}"), kind)(count, *shape)
    return [made[k].copy() for k in range(count)]


def _adam(
    kind: str, shape: tuple[int, ...], seed: int, c: float | None, lr: float = 6e-4
) -> list[np.ndarray | None]:
    p, g, m, v = _tensors(kind, shape, seed, 4)
    scalars = [np.array(x) for x in (lr, 0.9**3, 0.95**3)]
    return [p, g, m, np.abs(v), *scalars, *([] if c is None else [np.array(F32(c))])]


def _attrs(weight_decay: float) -> dict[str, Any]:
    return {"beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": weight_decay}


@pytest.mark.parametrize("op", ["tallystick.adamw_step", "tallystick.adam_step"])
@few
@given(kinds, shapes, seeds, coefficients, st.sampled_from((0.0, 0.1)))
def test_adam(
    op: str, kind: str, shape: tuple[int, ...], seed: int, c: float | None, decay: float
) -> None:
    operands = _adam(kind, shape, seed, c)
    check_values(op, _attrs(decay), operands)
    if c is None:
        check_values(op, _attrs(decay), [*operands, None])  # absent, not left out


def _sgd(momentum: float, decay: float, nesterov: bool, dampening: float = 0.0) -> dict[str, Any]:
    return {
        "momentum": momentum,
        "dampening": dampening,
        "weight_decay": decay,
        "nesterov": nesterov,
    }


SGD = [_sgd(0.0, 0.0, False), _sgd(0.0, 0.1, False), _sgd(0.9, 0.0, False, 0.3),
       _sgd(0.9, 0.01, True)]  # fmt: skip


@few
@given(kinds, shapes, seeds, coefficients, st.sampled_from(SGD))
def test_sgd(
    kind: str, shape: tuple[int, ...], seed: int, c: float | None, attrs: dict[str, Any]
) -> None:
    p, g, buffer = _tensors(kind, shape, seed, 3)
    operands = [p, g, buffer if attrs["momentum"] else None, np.array(0.1)]
    operands += [] if c is None else [np.array(F32(c))]
    check_values("tallystick.sgd_step", attrs, operands)


@pytest.mark.parametrize("power", [1.0, 0.999**7, 1e-310, 0.0, -0.0, np.inf, np.nan])
def test_powers(power: float) -> None:
    for beta in (0.9, 0.1, -0.0, float("inf")):
        check_values("tallystick.beta_power", {"beta": beta}, (np.array(power),))


def test_games_about_steps() -> None:
    for op in ("tallystick.adamw_step", "tallystick.adam_step"):
        for verdict in check_games(op, _attrs(0.1), _adam("floats", (4, 3), 1, 0.5), most=3):
            assert (verdict.clause, verdict.terms) == ("6.5", 1)
    p, g, buffer = _tensors("mixed", (7,), 2, 3)
    check_games("tallystick.sgd_step", SGD[0], [p, g, None, np.array(0.1)])
    check_games("tallystick.sgd_step", SGD[3], [p, g, buffer, np.array(0.1)])
    check_games("tallystick.beta_power", {"beta": 0.9}, [np.array(0.81)])


def test_a_step_reads_one_element_of_each_operand() -> None:
    operands = _adam("floats", (5,), 1, 0.5)
    site, _ = sites("tallystick.adamw_step", _attrs(0.1), operands)[0]
    sparse = SparseSource(operands)
    with pytest.raises(MissingElements):
        value_of(opening_rule(site), sparse)
    for k in range(8):
        sparse.open(k, np.array([0]))
    value_of(opening_rule(site), sparse)
    assert sparse.elements == 8


# --- clip_coef (11.6) -----------------------------------------------------------------------------
def _squares(kind: str, count: int, seed: int) -> list[np.ndarray]:
    return [np.array(x) for x in np.abs(_tensors(kind, (count,), seed, 1)[0])]


@few
@given(kinds, st.sampled_from((1, 2, 31, 148)), seeds, st.floats(width=64))
def test_clip_values(kind: str, count: int, seed: int, limit: float) -> None:
    for max_norm in (limit, 1.0, 0.0):
        check_values(CLIP, {"max_norm": max_norm}, _squares(kind, count, seed))


@pytest.mark.parametrize("count", [255, 256, 257, 700])
def test_clip_values_of_several_blocks(count: int) -> None:
    check_values(CLIP, {"max_norm": 1.0}, _squares("floats", count, 3))


@pytest.mark.parametrize("first", [np.nan, np.inf, 0.0, -0.0, -1.0, 1e-45, 3e38])
def test_clip_at_the_ends(first: float) -> None:
    operands = [np.array(F32(first)), np.array(F32(first))]
    check_values(CLIP, {"max_norm": 1.0}, operands)
    check_values(CLIP, {"max_norm": float("inf")}, operands[:1])
    check_games(CLIP, {"max_norm": 1.0}, operands)


@pytest.mark.sample(5)
@pytest.mark.parametrize("count", [1, 148, 300, 700])
@pytest.mark.parametrize("seed", range(4))
def test_games_about_clipping(count: int, seed: int) -> None:
    operands = _squares("wide", count, seed)
    check_games(CLIP, {"max_norm": 1.0}, operands, seed)
    for out in (0, 1):
        for verdict in play(CLIP, {"max_norm": 1.0}, operands, out, 0, "deep", seed + 9):
            assert verdict.terms <= 1


def test_one_false_sum_of_squares_is_found_by_opening_it_alone() -> None:
    operands = _squares("floats", 300, 5)
    verdict = check_changed_operand(
        CLIP, {"max_norm": 1.0}, *operands, operand=280, positions=[0], value=50.0
    )
    assert (verdict.quantity, verdict.clause, verdict.terms) == ("s[280]", "6.5", 1)
    assert verdict.path == (0, 0, 280)
