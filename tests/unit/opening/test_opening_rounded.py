"""Opening rules of the rounded operators under `rounded/1` and `replay/1` (NUMERICS 13, 14)."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from disputes import check_changed_operand, check_lies, sites
from harness import check_games, check_values
from reference.data import Gen

from tallystick.contracts.rounded.opening import (
    EMPTY,
    accumulator_of,
    add_products,
    add_terms,
    number_and_flags,
    rounded,
)
from tallystick.numerics.grid import Grid
from tallystick.opening.quantity import Chain, Local, Logged, TreeQuantity, opening_rule
from tallystick.opening.values import WholeSource, chain_states, needs_of, value_of
from tallystick.protocol.element import same_bits

F32 = np.float32
ROUNDED, COARSE = "rounded/1-draft.1", "rounded/1-draft.1;b=21"
REPLAY = "replay/1-draft.1;b=26;form=bounded"
MAKERS = ["floats", "wide", "mixed", "tiny"]


# --- accumulators (13.4, 13.5) --------------------------------------------------------------------
def _plain(terms: list[float]) -> tuple[Fraction, int]:
    """The finite terms' sum and the flags, one by one."""
    total, flags = Fraction(0), 0
    for term in terms:
        if np.isnan(term):
            flags |= 1
        elif np.isinf(term):
            flags |= 2 if term > 0 else 4
        else:
            total += Fraction(term)
    return total, flags


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("count", [0, 1, 7, 300])
def test_records_against_fractions(maker: str, count: int) -> None:
    a, b = (getattr(Gen(f"records {maker} {count} {k}"), maker)(count) for k in (0, 1))
    with np.errstate(all="ignore"):
        products = [float(x) * float(y) for x, y in zip(a, b, strict=True)]
    for given, terms in (
        (add_products(EMPTY, a, b), products),
        (add_terms(EMPTY, a), [float(x) for x in a]),
        (add_terms(add_products(EMPTY, a[:3], b[:3]), b), [*products[:3], *map(float, b)]),
    ):
        number, flags = number_and_flags(given)
        assert (Fraction(number, 2**298), flags) == _plain(terms)
        assert given.tobytes()[:-1] == (number % 2**632).to_bytes(79, "little")


def test_extremes_of_records() -> None:
    big, small = F32(3.4028235e38), F32(1e-45)
    many = np.full(1 << 16, big)
    number, _ = number_and_flags(add_products(EMPTY, many, -many))
    assert number == -(1 << 16) * int(big) ** 2 * 2**298
    assert number_and_flags(add_products(EMPTY, many[:1] * 0 + small, many[:1] * 0 + small))[0] == 1
    assert number_and_flags(accumulator_of(-1, 5)) == (-1, 5)
    every = np.array([np.inf, -np.inf, np.nan, 1], F32)
    assert number_and_flags(add_terms(EMPTY, every))[1] == 7
    zero_inf = add_products(EMPTY, np.array([0], F32), np.array([np.inf], F32))
    assert number_and_flags(zero_inf) == (0, 1)


@pytest.mark.parametrize(
    ("flags", "bits"),
    [(1, 0x7FC00000), (2, 0x7F800000), (4, 0xFF800000), (6, 0x7FC00000), (7, 0x7FC00000)],
)
def test_flags_decide(flags: int, bits: int) -> None:
    """NUMERICS 13.4, whatever S is."""
    assert int(rounded(accumulator_of(12345, flags), 28).view(np.uint32)) == bits
    assert int(rounded(accumulator_of(12345, flags | 0xF8), 28).view(np.uint32)) == bits


def test_an_empty_sum_and_an_exact_zero_are_plus_zero() -> None:
    assert same_bits(rounded(EMPTY, 32), F32(0))
    a = np.array([1.5, -1.5], F32)
    assert same_bits(rounded(add_terms(EMPTY, a), 32), F32(0))
    assert same_bits(rounded(add_terms(EMPTY, F32([-0.0])), 32), F32(0))


# --- every rounded operator -----------------------------------------------------------------------
def _geometry(**changes: Any) -> dict[str, Any]:
    attrs: dict[str, Any] = {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 1)}
    return {**attrs, "transposed": False, "output_padding": (0, 0), "groups": 2, **changes}


def _cases(maker: str, k: int = 150) -> list[tuple[str, dict[str, Any], tuple[Any, ...]]]:
    gen = Gen(f"rounded {maker} {k}")
    make = getattr(gen, maker)
    a, b, c = make(3, k), make(k, 4), make(4)
    x, w, bias = make(2, 4, 7, 6), make(6, 2, 3, 3), make(6)
    masked = {**_geometry(), "output_mask": (True, True, True)}
    grad = make(*sites("aten.convolution", _geometry(), (x, w))[0][1].shape)
    row: dict[str, Any] = {"dim": (0, 2), "keepdim": False}
    sums = make(5, 3, k)
    return [
        ("aten.mm", {}, (a, b)),
        ("aten.bmm", {}, (np.stack([a, -a]), np.stack([b, b]))),
        *(
            ("aten.addmm", {"alpha": float(p), "beta": float(q)}, (c, a, b))
            for p, q in ((1, 1), (1, 0), (0.3, 1), (1, 0.7), (-2, 0))
        ),
        ("aten.convolution", _geometry(), (x, w, None)),
        ("aten.convolution", _geometry(), (x, w, bias)),
        ("aten.convolution_backward", masked, (grad, x, w)),
        ("aten.sum", {}, (sums,)),
        ("aten.mean", {}, (sums,)),
        ("aten.sum.dim_IntList", row, (sums,)),
        ("aten.mean.dim", row, (sums,)),
    ]


def test_the_shapes_of_the_rules() -> None:
    for contract, kind in ((ROUNDED, Local), (REPLAY, Logged)):
        for op, attrs, operands in _cases("floats"):
            for site, _ in sites(op, attrs, operands):
                quantity = opening_rule(replace(site, contract=contract))
                assert isinstance(quantity, kind)
                chain = quantity.needs[0]
                assert isinstance(chain, Chain)
                assert (chain.dtype, chain.stretch, chain.weight) == ("acc", 1, 128)
    integers = np.arange(6)
    site, _ = sites("aten.sum", {}, (integers,))[0]
    for contract in (ROUNDED, REPLAY):  # sums of integers stay ordered/1's
        quantity = opening_rule(replace(site, contract=contract))
        assert isinstance(quantity, TreeQuantity) and quantity.dtype == "i64"


def test_states_do_not_depend_on_where_a_prover_stops() -> None:
    for op, attrs, operands in _cases("wide", 700):
        for site, _ in sites(op, attrs, operands):
            quantity = opening_rule(replace(site, contract=ROUNDED))
            chain, whole = quantity.needs[0], WholeSource(operands)
            assert isinstance(chain, Chain)
            each = chain_states(chain, whole, range(1, chain.count + 1))
            for links in {1, chain.count // 2 or 1, chain.count}:
                assert same_bits(chain_states(chain, whole, [links])[0], each[links - 1])


@pytest.mark.sample(3)
@pytest.mark.parametrize("contract", [ROUNDED, COARSE])
@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("k", [0, 1, 128, 150])
def test_values(maker: str, contract: str, k: int) -> None:
    """Every element of every rounded operator is the kernel's, bit for bit."""
    for op, attrs, operands in _cases(maker, k):
        check_values(op, attrs, operands, contract)


@pytest.mark.parametrize("contract", [ROUNDED, COARSE])
@pytest.mark.parametrize("maker", ["floats", "mixed"])
def test_games_of_rounded(maker: str, contract: str) -> None:
    """A lie at each level, and inventors: the liar alone is convicted by at most 256 terms."""
    for op, attrs, operands in _cases(maker):
        check_lies(op, attrs, *operands, most=2, contract=contract)
        check_games(op, attrs, operands, contract=contract)


def test_a_lie_in_one_chunk_is_found_in_it() -> None:
    gen = Gen("rounded chunks")
    a, b = gen.floats(1, 128 * 600), gen.floats(128 * 600, 1)  # more links than one answer has
    for chunk in (0, 1, 255, 256, 599):
        outcome = check_changed_operand(
            "aten.mm", {}, a, b, operand=0, positions=[128 * chunk + 5], value=1000.0,
            contract=ROUNDED,
        )  # fmt: skip
        assert (outcome.quantity, outcome.clause, outcome.terms) == ("exact sum", "6.5", 128)


def test_the_last_term_is_in_the_sum() -> None:
    """13.3: a bias or C decides what cancellation leaves, and a false one is found."""
    a, b = F32([[1, 1e30, -1e30]]), F32([[1], [1], [1]])
    c = F32([2.0**-30])
    attrs = {"alpha": 1.0, "beta": 1.0}
    site, _ = sites("aten.addmm", attrs, (c, a, b))[0]
    value = value_of(opening_rule(replace(site, contract=ROUNDED)), WholeSource((c, a, b)))
    assert value == 1  # 1 + 2^-30 rounds to 1
    outcome = check_changed_operand(
        "aten.addmm", attrs, c, a, b, operand=0, positions=[0], value=0.5, contract=ROUNDED
    )
    assert outcome.quantity == "exact sum"


# --- what a log may choose (14.4, 14.5) -----------------------------------------------------------
def test_a_logged_element_by_fractions() -> None:
    """E and V of an element with and without a last term, from the quantities alone."""
    grid = Grid(26)
    for op, attrs, operands in _cases("floats"):
        for site, _ in sites(op, attrs, operands):
            quantity = opening_rule(replace(site, contract=REPLAY))
            assert isinstance(quantity, Logged)
            whole = WholeSource(operands)
            needs = needs_of(quantity, whole)
            found = quantity.doubtful(whole, needs)
            assert found is not None
            assert found.nearest == grid.nearest(number_and_flags(needs[0])[0])
            assert found.bound > 0
            for entry in (None, 0, 1):
                if not found.open:
                    value = quantity.compute(whole, needs, entry)
                    assert same_bits(value, quantity.compute(whole, needs, None))
            assert same_bits(value_of(quantity, whole), quantity.compute(whole, needs, None))


def test_an_entry_names_the_value_where_v_has_two() -> None:
    """A tie on the grid, by an error bound that is not zero: both neighbours are in V."""
    a, b = F32([[1, 2.0**-18]]), F32([[1], [1]])  # b = 26: neighbours of 1 are 2^-17 apart
    site, _ = sites("aten.mm", {}, (a, b))[0]
    quantity, whole = opening_rule(replace(site, contract=REPLAY)), WholeSource((a, b))
    assert isinstance(quantity, Logged)
    needs = needs_of(quantity, whole)
    values = [float(quantity.compute(whole, needs, entry)) for entry in (None, 0, 1)]
    assert values == [1.0, 1.0, 1 + 2.0**-17]
    c = F32([3.0])
    attrs = {"alpha": 0.5, "beta": 2.0}  # steps after R follow the entry
    site, _ = sites("aten.addmm", attrs, (c, a, b))[0]
    quantity, whole = opening_rule(replace(site, contract=REPLAY)), WholeSource((c, a, b))
    assert isinstance(quantity, Logged)
    needs = needs_of(quantity, whole)
    values = [float(quantity.compute(whole, needs, entry)) for entry in (None, 0, 1)]
    assert values == [6.5, 6.5, 6.5 + 2.0**-18]


def test_what_two_liars_agreed_on_is_no_fault_of_the_rule() -> None:
    a, b = F32([[1, 2]]), F32([[1], [1]])
    site, _ = sites("aten.mm", {}, (a, b))[0]
    quantity, whole = opening_rule(replace(site, contract=REPLAY)), WholeSource((a, b))
    assert isinstance(quantity, Logged)
    true = needs_of(quantity, whole)
    for number in (np.nan, -1.0, np.inf):
        found = quantity.doubtful(whole, (true[0], np.float64(number), true[2]))
        assert found is not None and not found.open
        assert not found.forged(0) and not found.forged(1)
