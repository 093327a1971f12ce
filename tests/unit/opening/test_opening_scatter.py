"""Opening rules of the scatter class (NUMERICS 4)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from disputes import check_changed_operand, check_lies, sites
from harness import check_games, check_values
from reference.data import Gen

from tallystick.opening.quantity import Chain, RefusedOperandsError, opening_rule
from tallystick.opening.values import WholeSource, chain_states, value_of
from tallystick.protocol.element import same_bits

F32 = np.float32
EMBEDDING, ADD = "aten.embedding_dense_backward", "aten.index_add"


def _embedding(
    sources: tuple[int, ...], rows: int, width: int, maker: str = "floats", padding: int = -1
) -> tuple[dict[str, Any], tuple[np.ndarray, np.ndarray]]:
    gen = Gen(f"opening embedding {sources} {rows} {width} {maker}")
    attrs = {"num_weights": rows, "padding_idx": padding, "scale_grad_by_freq": False}
    return attrs, (getattr(gen, maker)(*sources, width), gen.ints(0, rows, *sources))


@pytest.mark.parametrize("maker", ["floats", "wide", "mixed", "tiny"])
@pytest.mark.parametrize("sources", [(0,), (1,), (255,), (256,), (3, 100), (513,)])
def test_embedding_gradient(sources: tuple[int, ...], maker: str) -> None:
    for padding in (-1, 0, 2):
        attrs, operands = _embedding(sources, 4, 3, maker, padding)
        check_values(EMBEDDING, attrs, operands)


def test_a_sum_of_negative_zeros_begins_with_zero() -> None:
    """NUMERICS 4.1: +0 + -0 is +0."""
    attrs, (grad, index) = _embedding((5,), 2, 1)
    grad[:] = -0.0
    check_values(EMBEDDING, attrs, (grad, index))
    x = np.full((2,), -0.0, F32)
    check_values(ADD, {"dim": 0}, (x, index, grad[:, 0]))  # 4.3: -0 + -0 is -0


def test_states_do_not_depend_on_where_a_prover_stops() -> None:
    attrs, operands = _embedding((900,), 2, 1, "wide")
    chain = opening_rule(sites(EMBEDDING, attrs, operands)[0][0])
    assert isinstance(chain, Chain)
    assert (chain.count, chain.stretch) == (900, 256)
    whole = WholeSource(operands)
    each = chain_states(chain, whole, range(1, 901))
    for links in (1, 2, 255, 256, 257, 512, 899, 900):
        assert same_bits(chain_states(chain, whole, [links])[0], each[links - 1])


def test_games_about_embedding_gradient() -> None:
    for sources in ((3,), (256,), (257,), (700,), (256 * 260,)):
        attrs, operands = _embedding(sources, 3, 2)
        check_games(EMBEDDING, attrs, operands)
    attrs, operands = _embedding((700,), 3, 2, "mixed")
    check_lies(EMBEDDING, attrs, *operands, most=6)


def test_lies_about_the_padding_row() -> None:
    attrs, operands = _embedding((300,), 2, 2, padding=0)
    verdicts = check_games(EMBEDDING, attrs, operands, most=4)
    assert {v.terms for v in verdicts if v.value == 0} == {0}


def test_one_false_source_is_found() -> None:
    attrs, (grad, index) = _embedding((256 * 300,), 2, 1)
    at = np.flatnonzero(index == 0)
    for k in (0, len(at) // 2, -1):
        outcome = check_changed_operand(
            EMBEDDING, attrs, grad, index, operand=0, positions=[at[k]], value=1e6
        )
        assert (outcome.quantity, outcome.clause) == ("d", "6.5")
        assert outcome.terms <= 256
    swapped = check_changed_operand(
        EMBEDDING, attrs, grad, index, operand=1, positions=[at[7]], value=1
    )
    assert swapped.clause == "6.5"


ADDS: list[tuple[tuple[int, ...], int, int]] = [
    ((3,), 0, 7),
    ((4, 5), 0, 300),
    ((4, 5), 1, 300),
    ((2, 3, 4), -2, 20),
    ((2, 3, 4), 1, 0),
    ((3,), 0, 256),
]


def _index_add(
    shape: tuple[int, ...], dim: int, count: int, maker: str
) -> tuple[dict[str, Any], tuple[np.ndarray, np.ndarray, np.ndarray]]:
    gen, axis = Gen(f"opening index_add {shape} {dim} {count} {maker}"), dim % len(shape)
    make = getattr(gen, maker)
    source = make(*shape[:axis], count, *shape[axis + 1 :])
    return {"dim": dim}, (make(*shape), gen.ints(0, shape[axis], count), source)


@pytest.mark.parametrize("maker", ["floats", "wide", "mixed"])
@pytest.mark.parametrize("case", ADDS)
def test_index_add(case: tuple[tuple[int, ...], int, int], maker: str) -> None:
    attrs, operands = _index_add(*case, maker)
    check_values(ADD, attrs, operands)
    check_games(ADD, attrs, operands)


def test_a_false_beginning_of_index_add_is_found() -> None:
    attrs, (x, index, source) = _index_add((2,), 0, 1000, "floats")
    outcome = check_changed_operand(
        ADD, attrs, x, index, source, operand=0, positions=[0], value=50.0
    )
    assert outcome.terms == 256


@pytest.mark.parametrize("bad", [-1, 3])
def test_an_index_outside_is_refused(bad: int) -> None:
    """Its kernel stops there: no honest run has it (NUMERICS 4.2, PROTOCOL 6.5)."""
    attrs, (grad, index) = _embedding((20,), 3, 2)
    wrong = index.copy()
    wrong[11] = bad
    site, _ = sites(EMBEDDING, attrs, (grad, index))[0]
    with pytest.raises(RefusedOperandsError, match=f"index {bad} is outside"):
        value_of(opening_rule(replace(site, element=1)), WholeSource((grad, wrong)))
    attrs, (x, index, source) = _index_add((3,), 0, 7, "floats")
    site, _ = sites(ADD, attrs, (x, index, source))[0]
    index = np.full_like(index, bad)
    with pytest.raises(RefusedOperandsError, match=f"index {bad} is outside"):
        value_of(opening_rule(site), WholeSource((x, index, source)))
