"""Opening rules of batch normalisation and max pooling (NUMERICS 6.12 - 6.16)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from disputes import check_changed_operand, check_lies, sites
from harness import check_games, check_values
from reference.data import Gen

from tallystick.kernels.evaluate import evaluate
from tallystick.opening.quantity import RefusedOperandsError, opening_rule
from tallystick.opening.values import WholeSource, value_of
from tallystick.protocol.element import resolve

TRAINING = "aten._native_batch_norm_legit_functional"
BACKWARD = "aten.native_batch_norm_backward"
BY_RUNNING = "aten._native_batch_norm_legit_no_training"
POOL = "aten.max_pool2d_with_indices"
ATTRS: dict[str, Any] = {"momentum": 0.1, "eps": 1e-5}
SHAPES = [(2, 3), (3, 2, 7), (4, 3, 5, 13), (1, 2, 1, 1), (300, 2)]


def _operands(shape: tuple[int, ...], maker: str = "floats") -> tuple[np.ndarray, ...]:
    """x, weight, bias, running mean and variance."""
    g, channels = Gen(f"opening image {shape} {maker}"), shape[1]
    x = getattr(g, maker)(*shape)
    return x, g.floats(channels), g.floats(channels), g.floats(channels), g.span(0.1, 2, channels)


@pytest.mark.sample(3)
@pytest.mark.parametrize("maker", ["floats", "mixed"])
@pytest.mark.parametrize("shape", SHAPES)
def test_batch_norm_values(shape: tuple[int, ...], maker: str) -> None:
    x, w, b, m, v = _operands(shape, maker)
    for weight, bias in ((w, b), (w, None), (None, b), (None, None)):
        check_values(TRAINING, ATTRS, (x, weight, bias, m, v))
        check_values(BY_RUNNING, {"eps": 0.5}, (x, weight, bias, m, v))
    check_values(TRAINING, ATTRS, (x,))
    g = x[::-1].copy()
    for train, pair in ((True, (None, None, m, v)), (False, (m, v, None, None))):
        for mask in ((True, True, True), (False, True, False), (True, False, True)):
            attrs = {"train": train, "eps": 1e-5, "output_mask": mask}
            check_values(BACKWARD, attrs, (g, x, w, *pair))
            check_values(BACKWARD, attrs, (g, x, None, *pair))


def test_lies_about_batch_norm() -> None:
    operands = _operands((4, 2, 9, 17))
    verdicts = check_lies(TRAINING, ATTRS, *operands, most=2)
    assert {v.quantity for v in verdicts} >= {
        "y", "mean", "rstd", "var", "u", "q", "m", "SUM64(x)", "running_mean", "running_var",
    }  # fmt: skip
    assert all(v.terms <= 256 for v in verdicts)
    check_games(TRAINING, ATTRS, operands)
    check_games(BY_RUNNING, {"eps": 1e-5}, operands)


def test_lies_about_batch_norm_gradients() -> None:
    x, w, _, m, v = _operands((4, 2, 9, 17))
    for train, pair in ((True, (None, None, m, v)), (False, (m, v, None, None))):
        attrs = {"train": train, "eps": 1e-5, "output_mask": (True, True, True)}
        operands = (x[::-1].copy(), x, w, *pair)
        verdicts = check_lies(BACKWARD, attrs, *operands, most=2)
        wanted = {"dx", "dw", "db"} | ({"s1", "s2"} if train else set())
        assert {v.quantity for v in verdicts} >= wanted
        check_games(BACKWARD, attrs, operands)


def test_a_false_pixel_is_found_in_a_large_channel() -> None:
    """Three levels of blocks; the block of the changed element alone is executed."""
    x, w, b, m, v = _operands((3, 2, 150, 150))
    changed: dict[str, Any] = {"operand": 0, "positions": [2 * 22500 + 40], "value": 9.0}
    outcome = check_changed_operand(TRAINING, ATTRS, x, w, b, m, v, **changed, out=3)
    assert (outcome.quantity, outcome.clause, outcome.terms) == ("SUM64(x)", "6.5", 256)
    attrs = {"train": True, "eps": 0.0, "output_mask": (True, True, True)}
    outcome = check_changed_operand(
        BACKWARD, attrs, x, x, w, None, None, m, v, operand=0, positions=[5], value=9.0
    )
    assert (outcome.quantity, outcome.clause, outcome.terms) == ("db", "6.5", 256)


def _window(kernel: int, stride: int, padding: int, dilation: int = 1) -> dict[str, Any]:
    named = {"kernel_size": kernel, "stride": stride, "padding": padding, "dilation": dilation}
    return {**{k: (v, v) for k, v in named.items()}, "ceil_mode": True}


WINDOWS = [_window(3, 2, 1), _window(2, 2, 0), _window(17, 5, 8), _window(2, 1, 1, 3)]


@pytest.mark.parametrize("maker", ["floats", "mixed"])
@pytest.mark.parametrize("attrs", WINDOWS)
def test_max_pool(attrs: dict[str, Any], maker: str) -> None:
    x = getattr(Gen(f"opening pool {maker}"), maker)(2, 3, 18, 19)
    check_values(POOL, attrs, (x,))
    check_games(POOL, attrs, (x,))
    check_lies(POOL, attrs, x, most=2)
    y, index = evaluate(POOL, x, **attrs)
    check_values(f"{POOL}_backward", attrs, (y, x, index))
    check_games(f"{POOL}_backward", attrs, (y, x, index))
    check_lies(f"{POOL}_backward", attrs, y, x, index, most=2)


def test_a_tie_is_the_first_taps() -> None:
    x = np.array([[[0.0, -0.0, 5, 5]]], np.float32)
    attrs = {**_window(2, 2, 0), "kernel_size": (1, 2), "stride": (1, 2)}
    check_values(POOL, attrs, (x,))
    (site, index) = sites(POOL, attrs, (x,))[1]
    assert index.reshape(-1).tolist() == [0, 2]
    rule = opening_rule(replace(site, element=1))
    assert value_of(rule, WholeSource((x,))) == 2


def test_taps_that_both_parties_made_up_ask_for_nothing_outside() -> None:
    x = Gen("made up taps").floats(1, 4, 4)
    site, output = sites(POOL, _window(2, 2, 0), (x,))[0]
    true = output.reshape(-1)[0]
    for tap in (-1, 4, 2**40):
        game = resolve(opening_rule(site), (true, np.float32(77)), WholeSource((x,)))
        ask = next(game)
        assert ask.dtypes == ("i64",)
        with pytest.raises(StopIteration) as end:
            game.send(((np.int64(tap),), (np.int64(tap),)))
        assert end.value.value.convicted[1]


def test_an_index_outside_is_refused() -> None:
    x, grad = np.zeros((1, 4, 4), np.float32), np.ones((1, 2, 2), np.float32)
    index = np.zeros((1, 2, 2), np.int64)
    attrs = _window(2, 2, 0)
    site, _ = sites(f"{POOL}_backward", attrs, (grad, x, index))[0]
    index[0, 1, 1] = 16
    with pytest.raises(RefusedOperandsError):
        value_of(opening_rule(site), WholeSource((grad, x, index)))
