"""Opening rules of `exact/1` (NUMERICS 17, OPENING 12)."""

from __future__ import annotations

import math
import struct
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from disputes import check_changed_operand, check_lies, sites
from harness import check_games, check_values
from reference.data import Gen
from reference.exact_blocks import integer

from tallystick.contracts.exact import BLOCK_LENGTHS
from tallystick.contracts.exact.opening import START, ExactRecord, integers_in_group
from tallystick.opening.dot import Products
from tallystick.opening.parts import summed
from tallystick.opening.quantity import LIMIT, Chain, Local, Site, TreeQuantity, opening_rule
from tallystick.opening.values import WholeSource, chain_states, value_of
from tallystick.protocol.element import same_bits

F32 = np.float32
CONTRACTS = {b: f"exact/1-draft.1;b={b}" for b in BLOCK_LENGTHS}
MAKERS = ["floats", "wide", "mixed", "tiny"]


def _geometry(**changes: Any) -> dict[str, Any]:
    attrs: dict[str, Any] = {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 1)}
    return {**attrs, "transposed": False, "output_padding": (0, 0), "groups": 2, **changes}


def _cases(maker: str, k: int = 150) -> list[tuple[str, dict[str, Any], tuple[Any, ...]]]:
    gen = Gen(f"exact opening {maker} {k}")
    make = getattr(gen, maker)
    a, b, c = make(2, k), make(k, 3), make(3)
    x, w, bias = make(2, 4, 5, 4), make(6, 2, 3, 2), make(6)
    masked = _geometry(output_mask=(True, True, True))
    return [
        ("aten.mm", {}, (a, b)),
        ("aten.bmm", {}, (np.stack([a, -a]), np.stack([b, b]))),
        *(
            ("aten.addmm", {"alpha": float(p), "beta": float(q)}, (c, a, b))
            for p, q in ((1, 1), (1, 0), (0.3, 0.7))
        ),
        *(
            ("aten.addmm", {"alpha": 1.0, "beta": 1.0}, (make(*shape), a, b))
            for shape in ((), (1,), (2, 1))
        ),
        ("aten.convolution", _geometry(), (x, w, None)),
        ("aten.convolution", _geometry(), (x, w, bias)),
        ("aten.convolution_backward", masked, (make(2, 6, 3, 7), x, w)),
    ]


@pytest.mark.sample(3)
@pytest.mark.parametrize("width", CONTRACTS)
@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("k", [0, 1, 150])
def test_values(maker: str, width: int, k: int) -> None:
    """Every element is the kernel's, bit for bit, elements that are not finite too (mixed)."""
    for op, attrs, operands in _cases(maker, k):
        check_values(op, attrs, operands, CONTRACTS[width])


@pytest.mark.parametrize("width", CONTRACTS)
def test_values_of_several_segments(width: int) -> None:
    """17.2: blocks that end inside of a chain, at its end, and after one link."""
    length = BLOCK_LENGTHS[width]
    for k in (length, length + 1, 2 * length + 130):
        gen = Gen(f"exact segments {k}")
        check_values("aten.mm", {}, (gen.wide(2, k), gen.wide(k, 2)), CONTRACTS[width])


def test_values_of_convolutions_of_several_segments() -> None:
    gen, form = Gen("exact images"), _geometry(stride=(1, 1), padding=(1, 1), groups=1)
    check_values(
        "aten.convolution", form, (gen.wide(1, 60, 3, 3), gen.wide(2, 60, 3, 3)), CONTRACTS[8]
    )
    back = {**form, "output_mask": (True, True, False)}
    operands = gen.wide(1, 58, 3, 3), gen.wide(1, 2, 3, 3), gen.wide(58, 2, 3, 3)
    check_values("aten.convolution_backward", back, operands, CONTRACTS[8])
    operands = gen.wide(30, 2, 3, 3), gen.wide(30, 1, 3, 3), gen.wide(2, 1, 3, 3)
    check_values("aten.convolution_backward", back, operands, CONTRACTS[8])
    operands = gen.wide(2, 1, 20, 20), gen.wide(2, 1, 20, 20), gen.wide(1, 1, 3, 3)
    for operand in operands[:2]:
        operand[1] *= F32(2.0**-12)  # an image longer than a block is a segment of its own
    check_values(
        "aten.convolution_backward", {**back, "output_mask": (False, True, False)}, operands,
        CONTRACTS[8],
    )  # fmt: skip


def test_the_shapes_of_the_rules() -> None:
    """12.1; the bias gradient stays ordered/1's tree."""
    for op, attrs, operands in _cases("floats"):
        for site, _ in sites(op, attrs, operands):
            quantity = opening_rule(replace(site, contract=CONTRACTS[15]))
            if site.out == 2:
                assert isinstance(quantity, TreeQuantity)
                continue
            assert isinstance(quantity, Local)
            chain, dot = quantity.needs
            assert isinstance(chain, Chain) and isinstance(dot, Chain)
            assert (chain.dtype, chain.stretch, chain.weight) == ("blk", 1, 128)
            assert chain.stretch * chain.weight <= LIMIT
    site, _ = sites("aten.sum", {}, (np.ones(6, F32),))[0]
    assert isinstance(opening_rule(replace(site, contract=CONTRACTS[8])), TreeQuantity)


def test_planes_of_no_places() -> None:
    """A group without members has no links and the magnitude 0 (17.4)."""
    x, w = np.zeros((2, 4, 0, 1), F32), Gen("no places").floats(6, 2, 1, 1)
    form = _geometry(stride=(1, 1), padding=(1, 1))
    for odd in (1.0, math.inf):
        w[3, 1] = odd
        check_values("aten.convolution", form, (x, w, None), CONTRACTS[8])
        grad, mask = np.full((2, 6, 2, 3), odd, F32), (True, True, True)
        check_values(
            "aten.convolution_backward", {**form, "output_mask": mask}, (grad, x, w), CONTRACTS[8]
        )


def _members(op: str, site: Site, first: int, last: int) -> tuple[list[int], list[int]]:
    """Where the members of an element's groups lie, outer values first..last-1, by 17.3's table."""
    here = [np.arange(math.prod(t.shape)).reshape(t.shape) for t in site.inputs if t is not None]
    at = [int(v) for v in np.unravel_index(site.element, site.outputs[site.out].shape)]
    if op in ("aten.mm", "aten.addmm", "aten.bmm"):
        a, b = here[-2:]
        if op == "aten.bmm":
            a, b = a[at[0]], b[at[0]]
        return a[at[-2], first:last].tolist(), b[first:last, at[-1]].tolist()
    groups = site.attrs["groups"]
    if op == "aten.convolution":
        x, w = here[:2]
        channel = at[1] // (len(w) // groups) * w.shape[1]
        left, right = x[at[0], channel + first : channel + last], w[at[1], first:last]
        return left.reshape(-1).tolist(), right.reshape(-1).tolist()
    grad, x, w = here
    outs = len(w) // groups
    if site.out == 0:
        group, own = divmod(at[1], w.shape[1])
        span = slice(group * outs + first, group * outs + last)
        left, right = grad[at[0], span], w[span, own]
    else:
        channel = at[0] // outs * w.shape[1] + at[1]
        left, right = grad[first:last, at[0]], x[first:last, channel]
    return left.reshape(-1).tolist(), right.reshape(-1).tolist()


class Places:
    """A source whose elements are their positions."""

    def read(self, operand: int, flat: np.ndarray) -> np.ndarray:
        return flat


def test_the_groups_of_every_element() -> None:
    """17.3, 12.2.1: all members, in their order, of the whole contraction and of a part of it."""
    gen, form = Gen("exact groups"), _geometry(stride=(1, 1), padding=(0, 1), groups=3)
    x, w, grad = gen.floats(3, 6, 3, 5), gen.floats(9, 2, 2, 3), gen.floats(3, 9, 2, 5)
    a, b = gen.floats(2, 4, 7), gen.floats(2, 7, 3)
    for op, attrs, operands in (
        ("aten.mm", {}, (a[0], b[0])),
        ("aten.bmm", {}, (a, b)),
        ("aten.addmm", {"alpha": 1.0, "beta": 1.0}, (gen.floats(4, 1), a[0], b[0])),
        ("aten.convolution", form, (x, w)),
        ("aten.convolution_backward", {**form, "output_mask": (True, True, False)}, (grad, x, w)),
    ):
        for site, output in sites(op, attrs, operands):
            for element in range(output.size):
                at = replace(site, element=element)
                found = summed(at).terms
                assert isinstance(found, Products)
                outer = found.count // found.inner
                for first, last in ((0, outer), (outer // 2, outer)):
                    wanted = _members(op, at, first, last)
                    for group, places in zip(found.groups(), wanted, strict=True):
                        index = np.arange(first * group.each, last * group.each)
                        assert group.members(Places(), index).tolist() == places, (op, site.out)


def test_states_do_not_depend_on_where_a_prover_stops() -> None:
    for op, attrs, operands in _cases("wide", 700):
        for site, _ in sites(op, attrs, operands):
            quantity = opening_rule(replace(site, contract=CONTRACTS[8]))
            if not isinstance(quantity, Local):
                continue
            chain, whole = quantity.needs[0], WholeSource(operands)
            assert isinstance(chain, Chain)
            each = chain_states(chain, whole, range(1, chain.count + 1))
            for links in {1, chain.count // 3 or 1, chain.count // 2 or 1, chain.count}:
                assert same_bits(chain_states(chain, whole, [links])[0], each[links - 1])


def test_links_in_any_pieces() -> None:
    """A prover may stop anywhere: within a phase, and go on over several."""
    for op, attrs, operands in _cases("wide", 700):
        for site, _ in sites(op, attrs, operands):
            quantity = opening_rule(replace(site, contract=CONTRACTS[8]))
            if not isinstance(quantity, Local):
                continue
            chain, whole = quantity.needs[0], WholeSource(operands)
            assert isinstance(chain, Chain)
            each = [chain.start, *chain_states(chain, whole, range(1, chain.count + 1))]
            for first in range(chain.count):
                for last in {first + 1, first + 3, chain.count} & set(range(chain.count + 1)):
                    found = chain.advance(whole, (), each[first], first, last)
                    assert same_bits(found, each[last]), (op, first, last)


def test_a_segment_of_several_blocks() -> None:
    """12.4, 12.5: 400 places an image, blocks of 256: a block ends within the segment, its sum is
    added there, and a prover may begin in the middle of a block."""
    gen, form = Gen("exact places"), _geometry(stride=(1, 1), padding=(1, 1), groups=1)
    operands = gen.floats(1, 1, 20, 20), gen.floats(1, 1, 20, 20), gen.floats(1, 1, 3, 3)
    attrs = {**form, "output_mask": (False, True, False)}
    site, _ = sites("aten.convolution_backward", attrs, operands)[0]
    chain, whole = (
        opening_rule(replace(site, contract=CONTRACTS[8])).needs[0],
        WholeSource(operands),
    )
    assert isinstance(chain, Chain) and chain.count == 12  # three phases of four links
    each = [chain.start, *chain_states(chain, whole, range(1, 13))]
    records = [ExactRecord.of(state) for state in each]
    assert [r.sum == 0 for r in records[9:]] == [False, True, False, True]
    assert [r.total == 0 for r in records[9:]] == [True, False, False, False]
    assert records[10].total == records[11].total != records[12].total
    for first in range(12):
        for last in range(first + 1, 13):
            assert same_bits(chain.advance(whole, (), each[first], first, last), each[last])


def test_a_group_of_zeros_has_no_magnitude() -> None:
    """12.4: 0 and -0; the record says so, in a second segment too."""
    a = np.zeros((1, 400), F32)
    a[0, ::2] = -0.0
    site, _ = sites("aten.mm", {}, (a, a.T.copy()))[0]
    chain = opening_rule(replace(site, contract=CONTRACTS[8])).needs[0]
    for state in chain_states(chain, WholeSource((a, a.T.copy())), range(1, chain.count + 1)):
        assert state.tobytes() == bytes(24)


@pytest.mark.parametrize("width", CONTRACTS)
@pytest.mark.parametrize("maker", ["floats", "mixed"])
def test_games(maker: str, width: int) -> None:
    """A lie at each level, and inventors: the liar alone is convicted by at most 256 terms."""
    for op, attrs, operands in _cases(maker):
        check_lies(op, attrs, *operands, most=2, contract=CONTRACTS[width])
        check_games(op, attrs, operands, contract=CONTRACTS[width])


def test_a_lie_in_one_link_is_found_in_it() -> None:
    """More links than one answer has; a magnitude and a product are both found."""
    gen = Gen("exact chunks")
    a, b = gen.floats(1, 128 * 300), gen.floats(128 * 300, 1)
    for chunk in (0, 1, 150, 299):
        for value in (1000.0, 0.0):
            outcome = check_changed_operand(
                "aten.mm", {}, a, b, operand=0, positions=[128 * chunk + 5], value=value,
                contract=CONTRACTS[22],
            )  # fmt: skip
            assert (outcome.quantity, outcome.clause, outcome.terms) == ("blocks", "6.5", 128)


def test_a_member_that_no_tap_reads_counts() -> None:
    """17.3, 17.7: the largest element of an image, and a NaN, though the stride skips both."""
    form = _geometry(stride=(2, 2), padding=(0, 0), groups=1)
    x, w = Gen("untapped").floats(1, 1, 3, 3), Gen("untapped").floats(1, 1, 1, 1)
    for odd in (1e6, math.nan):
        changed = x.copy()
        changed[0, 0, 1, 1] = odd
        check_values("aten.convolution", form, (changed, w), CONTRACTS[8])
    outcome = check_changed_operand(
        "aten.convolution", form, x, w, operand=0, positions=[4], value=1e6, contract=CONTRACTS[8]
    )
    assert (outcome.quantity, outcome.terms) == ("blocks", 128)


# --- records that two liars agreed on (12.4, 12.5) ------------------------------------------------
def _record(total: float, whole: int, mu: int, nu: int) -> Any:
    return np.frombuffer(struct.pack("<dqII", total, whole, mu, nu), START.dtype)[0]


@pytest.mark.parametrize("total", [0.0, -0.0, math.inf, -math.inf, math.nan, 1e308, 5e-324])
@pytest.mark.parametrize("mu", [0, 1, 0x00800000, 0x3F800000, 0x7F7FFFFF, 0x7F800000, 0xFFFFFFFF])
def test_any_record_goes_on(total: float, mu: int) -> None:
    """Whatever the record is, a link has a result, within the layout, and a canonical NaN."""
    a, b = F32([[1.5, -2.5, np.nan, 3e38]]), F32([[1], [np.inf], [1e-45], [2]])
    site, _ = sites("aten.mm", {}, (a, b))[0]
    chain = opening_rule(replace(site, contract=CONTRACTS[22])).needs[0]
    assert isinstance(chain, Chain) and chain.count == 3
    for whole in (0, 1, -1, 2**63 - 1, -(2**63)):
        for nu in (mu, 0x3F800000, 0, 1):
            given = _record(total, whole, mu, nu)
            found = chain.advance(WholeSource((a, b)), (), given, 2, 3)
            result = ExactRecord.of(found)
            if math.isnan(result.total):
                assert found.tobytes()[:8] == struct.pack("<Q", 0x7FF8000000000000)
            assert result.sum == 0 and (result.mu, result.nu) == (mu, nu)
            if max(mu, nu) >= 0x7F800000:
                assert math.isnan(result.total)
                continue
            value = 0.0  # 12.5
            if mu and nu:
                left, right = (integers_in_group(x, m, 22) for x, m in ((a[0], mu), (b[:, 0], nu)))
                wrapped = (whole + int((left * right).sum()) + 2**63) % 2**64 - 2**63
                e, f = (math.frexp(float(np.uint32(m).view(F32)))[1] for m in (mu, nu))
                value = math.ldexp(float(wrapped), e + f - 42)
            assert struct.pack("<d", result.total) == struct.pack("<d", total + value) or (
                math.isnan(result.total) and math.isnan(total)
            )


def test_a_nan_in_an_agreed_record_becomes_the_canonical_one() -> None:
    """12.3: in a link of every phase, whatever its sign and payload."""
    a, b = F32([[1.5, -2.5]]), F32([[1], [2]])
    site, _ = sites("aten.mm", {}, (a, b))[0]
    chain = opening_rule(replace(site, contract=CONTRACTS[22])).needs[0]
    for bits in (0xFFF8000000000000, 0x7FF8000000000001, 0x7FF4000000000000):
        given = np.frombuffer(struct.pack("<QqII", bits, 3, 5, 7), START.dtype)[0]
        for link in range(3):
            found = chain.advance(WholeSource((a, b)), (), given, link, link + 1)
            assert found.tobytes()[:8] == struct.pack("<Q", 0x7FF8000000000000), (bits, link)


def test_a_sum_wraps_modulo_2_64() -> None:
    """12.4: in a link that does not end its block."""
    a, b = np.ones((1, 300), F32), np.ones((300, 1), F32)
    site, _ = sites("aten.mm", {}, (a, b))[0]
    chain = opening_rule(replace(site, contract=CONTRACTS[22])).needs[0]
    one, product = 0x3F800000, 128 * (1 << 40)  # m(1) = 2^20
    for sign in (1, -1):
        source = WholeSource((a * F32(sign), b))
        for whole in (sign * (2**63 - 1) + (sign - 1) // 2, 0):
            found = chain.advance(source, (), _record(0.5, whole, one, one), 6, 7)
            wanted = (whole + sign * product + 2**63) % 2**64 - 2**63
            assert (ExactRecord.of(found).sum, ExactRecord.of(found).total) == (wanted, 0.5)


def test_integers_beyond_the_range_are_cut() -> None:
    one = 0x3F800000  # e = 1
    x = F32([1, -1, 5, -5, 3e38, -3e38, np.inf, np.nan, 0.25])
    assert integers_in_group(x, one, 8).tolist() == [64, -64, 127, -128, 127, -128, 0, 0, 16]
    assert integers_in_group(x, one, 22)[:4].tolist() == [2**20, -(2**20), 2**21, -(2**21)]
    assert not integers_in_group(x, 0, 22).any() and not integers_in_group(x, 0x7F800000, 22).any()


@pytest.mark.parametrize("width", CONTRACTS)
def test_integers_by_fractions(width: int) -> None:
    for maker in ("floats", "wide", "tiny"):
        x = getattr(Gen(f"integers {maker}"), maker)(200)
        mu = float(np.abs(x).max())
        bits = int(F32(mu).view(np.uint32))
        expected = [integer(float(v), mu, width) if mu else 0 for v in x]
        assert integers_in_group(x, bits, width).tolist() == expected
    for most in (1, 2, 3, 0x7FFFFF, 0x400000):  # subnormal magnitudes
        x = np.array([most, most // 2, most // 3, 1], np.uint32).view(F32)
        expected = [integer(float(v), float(x[0]), width) for v in x]
        assert integers_in_group(x, most, width).tolist() == expected


def test_the_sum_is_rounded_once_where_it_is_too_long() -> None:
    record = ExactRecord(0.0, 2**60 + 1, 0x3F800000, 0x3F800000)
    record.end_block(22)
    assert Fraction(record.total) == Fraction(2**60) * Fraction(2) ** (2 - 42)


def test_an_element_of_no_terms_is_plus_zero() -> None:
    site, _ = sites("aten.mm", {}, (np.zeros((2, 0), F32), np.zeros((0, 2), F32)))[0]
    value = value_of(opening_rule(replace(site, contract=CONTRACTS[8])), WholeSource((None, None)))
    assert same_bits(value, F32(0))
