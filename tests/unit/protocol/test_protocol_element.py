"""The resolver below an element: the liar and only the liar (PROTOCOL 6.3 to 6.9).

Quantities here are invented; the rules of operators are tested in tests/unit/opening.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tallystick import _core
from tallystick.numerics.contracts import find_contract
from tallystick.numerics.grid import Doubt, Grid, doubt
from tallystick.numerics.types import TensorType
from tallystick.opening.quantity import (
    BLOCK,
    Array,
    Chain,
    Extremum,
    Index,
    Local,
    Logged,
    MissingElements,
    Quantity,
    Scalar,
    Site,
    Source,
    TermsQuantity,
    TreeQuantity,
    opening_rule,
)
from tallystick.opening.values import WholeSource, value_of
from tallystick.opening.views import FAN_OUT, locate, view_values
from tallystick.protocol.element import Ask, ElementOutcome, examine, resolve, same_bits
from tallystick.protocol.phase3 import SparseSource

F32, F64, I64 = np.float32, np.float64, np.int64
ODD_NAN = np.array(0xFFC00001, np.uint32).view(F32)[()]
Answer = Callable[[Ask], Sequence[Any]]


class Sparse:
    """Elements opened so far of `operands`."""

    def __init__(self, operands: Sequence[np.ndarray]) -> None:
        self.whole, self.opened = WholeSource(operands), set[int]()

    def read(self, operand: int, flat: Index) -> Array:
        missing = set(flat.tolist()) - self.opened
        if missing:
            raise MissingElements(operand, np.array(sorted(missing)))
        return self.whole.read(operand, flat)


def game(
    q: Quantity, claims: tuple[Any, Any], answers: tuple[Answer, Answer], x: Array
) -> ElementOutcome:
    sparse, sent = Sparse([x]), None
    play, rounds = resolve(q, claims, sparse), 0
    while True:
        try:
            step = play.send(sent)
        except StopIteration as end:
            outcome: ElementOutcome = end.value
            assert outcome.terms <= 256
            return outcome
        if isinstance(step, Ask):
            rounds += 1
            assert rounds < 60 and len(step.dtypes) <= FAN_OUT
            sent = tuple(tuple(answer(step)) for answer in answers)
        else:
            assert not sparse.opened & set(step.flat.tolist())
            sparse.opened |= set(step.flat.tolist())
            sent = None


def against(q: Quantity, x: Array, lie: Any, liar: Answer | None = None) -> ElementOutcome:
    """An honest party and one who claims `lie`, in both seats: the liar alone is convicted."""
    whole = WholeSource([x])

    def honest(ask: Ask) -> Sequence[Scalar]:
        return view_values(locate(q, ask.path), ask.view, whole)

    value, other = value_of(q, whole), liar or honest
    assert not same_bits(value, lie)
    second = game(q, (value, lie), (honest, other), x)
    assert second.convicted == (False, True)
    first = game(q, (lie, value), (other, honest), x)
    assert first.convicted == (True, False)
    return first


def values(source: Source, _: Any, index: Index) -> Array:
    return source.read(0, index)


def chain(count: int, stretch: int, dtype: str = "f32") -> Chain:
    """Sum of elements, from -0 on, in order."""

    @np.errstate(all="ignore")
    def advance(source: Source, _: Any, state: Any, first: int, last: int) -> Any:
        added = np.append(state, source.read(0, np.arange(first, last))).astype(F32)
        return np.add.accumulate(added)[-1]

    return Chain("c", dtype, count, stretch, F32(-0.0), advance, weight=256 // stretch)


# --- chains (6.7) ---------------------------------------------------------------------------------
@pytest.mark.parametrize("stretch", [1, 2, 256])
@pytest.mark.parametrize("links", [0, 1, 2, 255, 256, 257, 513])
def test_every_false_state_of_a_chain_is_found(stretch: int, links: int) -> None:
    """Also one that is right again later, and a false claim after none."""
    rng = np.random.default_rng(links)
    for count in {links * stretch, max(links * stretch - 1, 0)}:
        q, x = chain(count, stretch), rng.standard_normal(count + 1).astype(F32)
        whole = WholeSource([x])
        states = view_states(q, whole)
        for wrong in {0, count // 2, max(count - 1, 0), *rng.integers(0, count + 1, 2).tolist()}:
            for until in (wrong + 1, count):

                def liar(ask: Ask, a: int = wrong, b: int = until, s: Array = states) -> Any:
                    view = ask.view
                    at = range(view.a + view.c, view.b, view.c)
                    return [F32(s[k] + (1000 if a <= k < b else 0)) for k in at]

                against(q, x, F32(5e5), liar)


def view_states(q: Chain, source: Source) -> Array:
    elements = source.read(0, np.arange(q.count))
    return np.add.accumulate(np.append(q.start, elements).astype(F32))


def test_a_chain_without_links_is_its_start() -> None:
    outcome = against(chain(0, 256), np.zeros(1, F32), F32(0))
    assert same_bits(outcome.value, F32(-0.0)) and outcome.terms == 0


def test_terms_of_a_chain_are_links_times_their_weight() -> None:
    x = np.ones(300, F32)
    assert against(chain(300, 1), x, F32(9)).terms == 256
    assert against(chain(300, 256), x, F32(9)).terms == 44
    assert against(chain(3, 2), x, F32(9)).terms == 128  # one link was left


# --- NaN and zeros (NUMERICS 1.5) -----------------------------------------------------------------
@pytest.mark.parametrize("lie", [F32(0), ODD_NAN, F32(np.inf)])
def test_a_nan_made_on_the_way_is_canonical_everywhere(lie: Any) -> None:
    """inf - inf has another sign on other processors: neither party may be convicted of that."""
    x = np.ones(70_000, F32)
    x[[3, 500]] = np.inf, -np.inf
    for q in (
        chain(1000, 1),
        chain(1000, 256),
        TreeQuantity("t", "f32", len(x), values),
        TermsQuantity(
            "t",
            "f32",
            600,
            lambda i: Local("l", "f32", lambda s, _: s.read(0, i + ZERO)[0]),
            values,
        ),
    ):
        against(q, x, lie)
    for stretch in (1, 2, 256):  # false from the NaN on, so that the referee makes it itself
        q, whole = chain(1000, stretch), WholeSource([x])

        def liar(ask: Ask, q: Chain = q, whole: WholeSource = whole) -> Sequence[Scalar]:
            states = view_values(q, ask.view, whole)
            return [lie if np.isnan(state) else state for state in states]

        assert against(q, x, lie, liar).terms == 256
    wide = TreeQuantity("t", "f64", len(x), lambda s, _, i: s.read(0, i).astype(F64))
    against(wide, x, F64(lie))
    odd = np.array(0xFFF8000000000000, np.uint64).view(F64)[()]
    against(wide, x, odd)


ZERO = np.zeros(1, I64)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_zero_of_the_wrong_sign_is_a_lie(sign: int) -> None:
    x = np.full(600, F32(0) * sign, F32)
    for q in (
        TreeQuantity("t", "f32", 600, values),
        TreeQuantity("t", "f32", 1, values),
        TreeQuantity("t", "f64", 600, lambda s, _, i: s.read(0, i).astype(F64)),
        chain(600, 1),
        Extremum("m", "f32", 600, "max", values),
    ):
        value = value_of(q, WholeSource([x]))
        assert np.signbit(value) == (sign < 0)
        against(q, x, -value)


# --- trees and terms (6.6, 6.9) -------------------------------------------------------------------
def test_empty_sums_are_positive_zero() -> None:
    nothing = np.zeros(0, F32)
    for q in (
        TreeQuantity("t", "f32", 0, values),
        TreeQuantity("t", "f64", 0, lambda s, _, i: s.read(0, i).astype(F64)),
        TermsQuantity("t", "f32", 0, lambda _: chain(0, 1), values),
    ):
        kind = F32 if q.dtype == "f32" else F64
        outcome = against(q, nothing, kind(-0.0))
        assert same_bits(outcome.value, kind(0)) and outcome.terms == 0
    against(TreeQuantity("t", "i64", 0, values), nothing, I64(1))


def test_integers_that_wrap() -> None:
    x = np.full(700, 2**62, I64)
    q = TreeQuantity("t", "i64", 700, values)
    assert against(q, x, I64(5)).clause == "6.6"  # honest parts cannot sum up to the lie


@pytest.mark.parametrize("count", [1, 255, 256, 257, 65_536, 65_537, 70_000])
def test_parts_that_sum_up_to_a_lie_lead_to_the_false_term(count: int) -> None:
    x = np.arange(count, dtype=I64)
    for at in {0, count // 2, count - 1}:
        false = x.copy()
        false[at] += 7
        q = TreeQuantity("t", "i64", count, values)

        def liar(ask: Ask, other: Array = false, q: TreeQuantity = q) -> Sequence[Scalar]:
            return view_values(q, ask.view, WholeSource([other]))

        outcome = against(q, x, value_of(q, WholeSource([false])), liar)
        assert outcome.terms == min(count - at // BLOCK * BLOCK, BLOCK)


def test_two_liars_who_both_contradict_themselves_are_both_convicted() -> None:
    q, x = TreeQuantity("t", "i64", 600, values), np.zeros(600, I64)
    says: Answer = lambda ask: [I64(1)] * len(ask.dtypes)  # noqa: E731
    assert game(q, (I64(1), I64(2)), (says, says), x).convicted == (True, True)


# --- extrema (6.8) --------------------------------------------------------------------------------
CASES = [[1, 3, 2, 3], [-0.0, 0.0, -0.0], [5, np.nan, 7, np.nan], [-np.inf, -np.inf], [0]]


@pytest.mark.parametrize("x", CASES)
@pytest.mark.parametrize("kind", ["max", "min"])
def test_an_extremum_with_every_false_witness(kind: str, x: list[float]) -> None:
    array = np.array(x, F32)
    q = Extremum("m", "f32", len(x), kind, values)
    true = value_of(q, WholeSource([array]))
    for lie in [*array, F32(100), F32(-100), F32(-0.0), F32(0), F32(np.nan), ODD_NAN]:
        for witness in (-(2**63), -1, *range(len(x)), len(x), 2**63 - 1):
            if not same_bits(lie, true):
                assert against(q, array, lie, lambda _, w=witness: [I64(w)]).clause == "6.8"


@pytest.mark.parametrize("x", CASES)
def test_every_false_argmax(x: list[float]) -> None:
    array = np.array(x, F32)
    q = Extremum("argmax", "i64", len(x), "argmax", values)
    true = int(value_of(q, WholeSource([array])))
    for lie in (-(2**63), -1, *range(len(x)), len(x), 2**63 - 1):
        if lie != true:
            against(q, array, I64(lie))


def test_integers_at_the_ends_of_their_range() -> None:
    x = np.array([2**63 - 1, -(2**63), 2**63 - 2, 2**53 + 1, 2**53], I64)
    for kind in ("max", "min"):
        q = Extremum("m", "i64", 5, kind, values)
        for k, lie in enumerate(x):
            if not same_bits(lie, value_of(q, WholeSource([x]))):
                against(q, x, lie, lambda _, w=k: [I64(w)])


# --- needs (6.3) ----------------------------------------------------------------------------------
def test_a_long_row_of_needs_is_no_recursion() -> None:
    """Only the resolver is asked here: values of all parts are given."""
    q = Local("0", "i64", lambda s, _: s.read(0, ZERO)[0])
    for k in range(1, 3000):
        q = Local(str(k), "i64", lambda _, needs: needs[0] + 1, (q,))
    sparse = Sparse([np.array([5], I64)])
    sparse.opened.add(0)
    play, step, asked = resolve(q, (I64(5 + 2999), I64(7 + 2999)), sparse), None, 0
    with pytest.raises(StopIteration) as end:
        while True:
            step = play.send(step and ((I64(5 + 2999 - asked),), (I64(7 + 2999 - asked),)))
            asked += 1
    assert end.value.value.convicted == (False, True)
    assert (end.value.value.quantity, asked) == ("0", 2999)


def test_agreed_needs_that_give_neither_claim_convict_both() -> None:
    need = Local("n", "f32", lambda s, _: s.read(0, ZERO)[0])
    q = Local("q", "f32", lambda _, needs: needs[0], (need,))
    same: Answer = lambda _: [F32(3)]  # noqa: E731
    assert game(q, (F32(1), F32(2)), (same, same), np.ones(1, F32)).convicted == (True, True)


def test_the_first_false_need_is_disputed() -> None:
    def part(k: int) -> Local:
        return Local(f"n{k}", "f32", lambda s, _: s.read(0, ZERO + k)[0])

    q = Local("q", "f32", lambda _, needs: needs[0] - needs[1], (part(0), part(1)))
    x = np.array([4, 4], F32)
    for k in range(2):
        stated = [F32(4), F32(4)]
        stated[k] = F32(9)
        outcome = against(q, x, stated[0] - stated[1], lambda _, s=stated: s)
        assert (outcome.quantity, outcome.path) == (f"n{k}", (k,))


# -- elements of a published log (6.11, NUMERICS 14.10) --------------------------------------------
def never(_ask: Ask) -> Sequence[Any]:
    raise AssertionError("an element without needs asks for nothing")


def by_reach(found: Doubt | None, entries: Any = (None, None)) -> ElementOutcome:
    """Two claims about an element whose true value is 1, the second far from it."""
    reach = None if found is None else found.reach
    q = Logged("output", "f32", lambda *_: F32(1), lambda *_: found, lambda *_: reach)
    play = resolve(q, (F32(1), F32(2)), SparseSource({}), (), entries, True)
    with pytest.raises(StopIteration) as end:
        next(play)
    outcome = end.value.value
    assert isinstance(outcome, ElementOutcome)
    return outcome


def test_a_value_outside_of_v_convicts_and_what_v_does_not_bound_does_not() -> None:
    one = doubt(Grid(32), 1 << 298, 2.0**-60)
    assert by_reach(one).convicted == (False, True)
    assert by_reach(one, (2, None)).convicted == (False, True)
    above = doubt(Grid(32), (1 << 298) + (1 << 200), 2.0**-110)
    assert by_reach(above, (2, None)).convicted == (True, True), "its entry says the one above"
    assert by_reach(above, (0, 0)).convicted == (False, True)
    assert by_reach(None).convicted == (False, False), "nothing bounds it"


HALF_UP, HALF_DOWN = np.nextafter(F32(0.5), F32(1)), np.nextafter(F32(0.5), F32(0))
EXACT = {
    "aten.add.Tensor": ({"alpha": 1.0}, F32(0.25), F32(0.25)),
    "aten.mm": ({}, np.full((1, 1), 0.5, F32), np.full((1, 1), 1, F32)),
}


def exact_half(op: str) -> tuple[Logged, WholeSource]:
    """The element of a published call whose true value is 0.5, a number of the grid."""
    attrs, a, b = EXACT[op]
    type_ = TensorType("f32", np.shape(a))
    contract = find_contract("replay/1;form=published").text
    q = opening_rule(Site(op, attrs, (type_, type_), (type_,), 0, 0, contract))
    assert isinstance(q, Logged)
    return q, WholeSource([np.asarray(a), np.asarray(b)])


def played(play: Any, q: Logged, source: WholeSource) -> ElementOutcome:
    """A game in which both state the true quantities and open everything."""
    sent = None
    while True:
        try:
            step = play.send(sent)
        except StopIteration as end:
            outcome: ElementOutcome = end.value
            return outcome
        assert isinstance(step, Ask)
        sent = (view_values(locate(q, step.path), step.view, source),) * 2


@pytest.mark.parametrize("op", EXACT)
@pytest.mark.parametrize(("lie", "entry"), [(HALF_DOWN, 0), (HALF_UP, 2)])
def test_an_entry_names_no_value_that_no_kernel_rounds_to(op: str, lie: Any, entry: int) -> None:
    """NUMERICS 14.10: kernels lie on both sides of an exactly representable result, and round to
    it. A liar states its neighbour with the entry that names it, whatever the other's entry is."""
    for honest in (None, 0, 1, 2):
        q, source = exact_half(op)
        second = played(resolve(q, (F32(0.5), lie), source, (), (honest, entry), True), q, source)
        assert second.convicted == (False, True)
        first = played(resolve(q, (lie, F32(0.5)), source, (), (entry, honest), True), q, source)
        assert first.convicted == (True, False)


@pytest.mark.parametrize("op", EXACT)
def test_a_value_on_which_two_liars_agree_needs_a_kernel_too(op: str) -> None:
    """6.13: neither's entry makes a value true that no kernel rounds to; entries of 0.5 are."""
    q, source = exact_half(op)
    false = played(examine(q, (0, None), HALF_DOWN, source, True), q, source)
    assert false.convicted == (True, True)
    assert "no kernel" in false.why[0] and "entry 1 says" in false.why[1]
    assert false.shown == ("entry 0", "entry 1")
    true = played(examine(q, (0, None), F32(0.5), source, True), q, source)
    assert true.convicted == (False, False)


def cancelling(k: int = 256, left: float = 1e-13) -> tuple[Array, Array]:
    """Factors f32[k] and f32[k] of terms of magnitude 1 whose exact sum is about `left`."""
    first, second = np.random.default_rng(5).standard_normal((2, k)).astype(F32)
    for at in range(k - 3, k):
        pairs = zip(first[:at].tolist(), second[:at].tolist(), strict=True)
        rest = sum((Fraction(a) * Fraction(b) for a, b in pairs), Fraction(0))
        first[at], second[at] = F32(float(Fraction(left) - rest)), 1
    return first, second


def entry_of(x: float, value: F32) -> int:
    """NUMERICS 14.9, with a threshold of 0."""
    return 1 if x == value else 2 if x < value else 0


def test_honest_parties_that_no_entry_brings_together_are_not_convicted() -> None:
    """NUMERICS 14.9.2: terms cancel, so binary64 sums in two orders are many neighbours apart."""
    first, second = cancelling()
    terms = first.astype(np.float64) * second
    sums = [float(np.cumsum(order)[-1]) for order in (terms, terms[::-1])]
    values = F32(sums[0]), F32(sums[1])
    apart = abs(int(values[0].view(np.int32)) - int(values[1].view(np.int32)))
    assert values[0] * values[1] > 0 and apart > 10, sums
    types = TensorType("f32", (1, len(terms))), TensorType("f32", (len(terms), 1))
    contract = find_contract("replay/1;form=published").text
    q = opening_rule(Site("aten.mm", {}, types, (TensorType("f32", (1, 1)),), 0, 0, contract))
    assert isinstance(q, Logged)
    source = WholeSource([first.reshape(1, -1), second.reshape(-1, 1)])
    own = entry_of(sums[0], values[0]), entry_of(sums[1], values[1])
    followed = np.empty(1, F32)  # the second party's value by the first one's entry
    _core.published_follow(np.array(sums[1:]), np.array([own[0]], np.uint8), 32, True, followed)
    for second, entry in ((values[1], own[1]), (followed[0], own[0])):
        claims, entries = (values[0], second), (own[0], entry)
        found = played(resolve(q, claims, source, (), entries, True), q, source)
        assert found.convicted == (False, False), entries
    lie = F32(values[0] * F32(1e3))
    false = played(resolve(q, (values[0], lie), source, (), (own[0], own[0]), True), q, source)
    assert false.convicted == (False, True)
