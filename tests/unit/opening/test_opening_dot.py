"""Opening rules of the dot class (NUMERICS 2)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from disputes import SparseSource, check_changed_operand, check_lies, sites
from harness import check_games, check_values
from reference.data import Gen

from tallystick.opening.quantity import Chain, Local, MissingElements, opening_rule
from tallystick.opening.values import WholeSource, chain_states, value_of
from tallystick.protocol.element import same_bits

F32 = np.float32
LENGTHS = [0, 1, 127, 128, 129, 256, 300, 1025]
MAKERS = ["floats", "wide", "mixed", "tiny"]


def _pair(maker: str, m: int, k: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    gen = Gen(f"opening dot {maker} {m} {k} {n}")
    return getattr(gen, maker)(m, k), getattr(gen, maker)(k, n)


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("k", LENGTHS)
def test_products(maker: str, k: int) -> None:
    a, b = _pair(maker, 3, k, 5)
    check_values("aten.mm", {}, (a, b))
    check_values("aten.bmm", {}, (np.stack([a, a[::-1]]), np.stack([b, -b])))


@pytest.mark.parametrize("shape", [(), (1,), (5,), (1, 1), (3, 1), (1, 5), (3, 5)])
@pytest.mark.parametrize(("alpha", "beta"), [(1, 1), (1, 0), (0.1, 1), (1, 0.3), (-2, 0), (3, 4)])
def test_addmm(shape: tuple[int, ...], alpha: float, beta: float) -> None:
    a, b = _pair("floats", 3, 130, 5)
    c = Gen("opening addmm").floats(*shape)
    attrs = {"alpha": float(alpha), "beta": float(beta)}
    check_values("aten.addmm", attrs, (c, a, b))


def test_factors_are_tested_in_binary64_and_c_is_not_read_at_beta_zero() -> None:
    a, b = _pair("mixed", 3, 40, 5)
    c = np.full((5,), np.nan, F32)
    check_values("aten.addmm", {"alpha": 1.0, "beta": -0.0}, (c, a, b))
    check_values("aten.addmm", {"alpha": 1 + 2.0**-40, "beta": 1e-60}, (c * 0, a, b))
    site, _ = sites("aten.addmm", {"alpha": 2.0, "beta": 0.0}, (c, a, b))[0]
    sparse, quantity = SparseSource((c, a, b)), opening_rule(site)
    assert isinstance(quantity, Local)
    quantity.compute(sparse, (F32(1),))
    assert sparse.elements == 0


def test_first_chunk_initialises_and_negative_zero_survives() -> None:
    """NUMERICS 2.2: a partial of -0 stays one; added to +0 it would not."""
    a, b = np.full((1, 3), -1e-30, F32), np.full((3, 1), 1e-30, F32)
    check_values("aten.mm", {}, (a, b))
    site, output = sites("aten.mm", {}, (a, b))[0]
    assert np.signbit(output[0, 0])
    assert same_bits(value_of(opening_rule(site), WholeSource((a, b))), F32(-0.0))


def test_states_do_not_depend_on_where_a_prover_stops() -> None:
    a, b = _pair("mixed", 1, 5 * 128 + 7, 1)
    for x, y in ((a, b), _pair("wide", 1, 5 * 128 + 7, 1)):
        chain = opening_rule(sites("aten.mm", {}, (x, y))[0][0])
        assert isinstance(chain, Chain)
        assert (chain.count, chain.stretch) == (6, 1)
        whole = WholeSource((x, y))
        step_by_step = chain_states(chain, whole, range(1, 7))
        for links in range(1, 7):
            assert same_bits(chain_states(chain, whole, [links])[0], step_by_step[links - 1])


def test_one_link_reads_one_chunk() -> None:
    a, b = _pair("floats", 3, 700, 5)
    chain = opening_rule(replace(sites("aten.mm", {}, (a, b))[0][0], element=7))
    assert isinstance(chain, Chain)
    sparse = SparseSource((a, b))
    with pytest.raises(MissingElements) as missing:
        chain.advance(sparse, (), F32(0), 5, 6)  # the last chunk, of 60 terms
    assert missing.value.flat.tolist() == list(range(700 + 640, 1400))


@pytest.mark.parametrize("k", [1, 128, 300, 128 * 300 + 1])
def test_games_about_products(k: int) -> None:
    a, b = _pair("floats", 2, k, 2)
    check_games("aten.mm", {}, (a, b), most=2)
    check_games("aten.addmm", {"alpha": 0.5, "beta": 1.0}, (a[0, :2] if k > 1 else a[0], a, b))


def test_a_lie_in_one_chunk_is_found_in_it() -> None:
    a, b = _pair("floats", 1, 128 * 600, 1)  # more links than one answer has states
    for chunk in (0, 1, 255, 256, 599):
        outcome = check_changed_operand(
            "aten.mm", {}, a, b, operand=0, positions=[128 * chunk + 5], value=1000.0
        )
        assert (outcome.quantity, outcome.clause) == ("dot", "6.5")
        assert outcome.claimed[0] != outcome.claimed[1]


def test_games_with_special_values() -> None:
    a, b = _pair("mixed", 2, 700, 2)
    a[0, 5] = b[5, 0] = np.inf
    a[0, 400] = -np.inf
    b[400, 0] = 1.0
    check_games("aten.mm", {}, (a, b), most=4)
    check_lies("aten.addmm", {"alpha": 2.0, "beta": 0.5}, b[:1, :2], a, b)


# --- convolution ----------------------------------------------------------------------------------
# input, weight, stride, padding, dilation, groups
GEOMETRIES: list[tuple[Any, ...]] = [
    ((2, 3, 5, 6), (4, 3, 3, 2), (1, 1), (0, 0), (1, 1), 1),
    ((2, 4, 7, 6), (6, 2, 3, 3), (2, 3), (1, 2), (1, 1), 2),
    ((1, 3, 6, 6), (3, 1, 2, 3), (1, 2), (3, 0), (2, 2), 3),
    ((1, 20, 4, 4), (2, 20, 3, 3), (1,), (1,), (1,), 1),
    ((3, 2, 12, 12), (2, 2, 1, 1), (1, 1), (0, 0), (1, 1), 1),
]


def _convolution(case: tuple[Any, ...], maker: str) -> tuple[dict[str, Any], Any, Any, Any]:
    image, weight, stride, padding, dilation, groups = case
    gen = Gen(f"opening convolution {case} {maker}")
    attrs = {
        "stride": stride,
        "padding": padding,
        "dilation": dilation,
        "transposed": False,
        "output_padding": (0, 0),
        "groups": groups,
    }
    make = getattr(gen, maker)
    x, w = make(*image), make(*weight)
    grad = make(*sites("aten.convolution", attrs, (x, w))[0][1].shape)
    return attrs, x, w, grad


@pytest.mark.parametrize("maker", ["floats", "mixed"])
@pytest.mark.parametrize("case", GEOMETRIES)
def test_convolution(case: tuple[Any, ...], maker: str) -> None:
    attrs, x, w, _ = _convolution(case, maker)
    check_values("aten.convolution", attrs, (x, w, None))
    check_values("aten.convolution", attrs, (x, w))
    check_values("aten.convolution", attrs, (x, w, Gen("bias").floats(w.shape[0])))


@pytest.mark.parametrize("maker", ["floats", "mixed"])
@pytest.mark.parametrize("case", GEOMETRIES)
def test_convolution_gradients(case: tuple[Any, ...], maker: str) -> None:
    attrs, x, w, grad = _convolution(case, maker)
    for mask in [(True, True, True), (False, True, True), (True, False, True), (False, False, 1)]:
        masked = {**attrs, "output_mask": tuple(map(bool, mask))}
        check_values("aten.convolution_backward", masked, (grad, x, w))


def test_taps_outside_are_multiplied() -> None:
    """NUMERICS 2.6: +0 times infinity is NaN, at the border only."""
    attrs, x, w, grad = _convolution(GEOMETRIES[3], "floats")
    w[:, :, 0, 0] = np.inf
    outputs = sites("aten.convolution", attrs, (x, w))[0][1]
    assert np.isnan(outputs[0, 0, 0, 0])
    check_values("aten.convolution", attrs, (x, w))
    check_values("aten.convolution_backward", {**attrs, "output_mask": (True,) * 3}, (grad, x, w))
    check_games("aten.convolution", attrs, (x, w), most=3)


@pytest.mark.parametrize("case", [GEOMETRIES[1], GEOMETRIES[3], GEOMETRIES[4]])
def test_games_about_convolution(case: tuple[Any, ...]) -> None:
    attrs, x, w, grad = _convolution(case, "floats")
    check_games("aten.convolution", attrs, (x, w, Gen("bias").floats(w.shape[0])))
    masked = {**attrs, "output_mask": (True, True, True)}
    verdicts = check_lies("aten.convolution_backward", masked, grad, x, w)
    assert {v.quantity for v in verdicts} == {"input gradient", "weight gradient", "bias gradient"}
    check_games("aten.convolution_backward", masked, (grad, x, w))
