"""Which elements a rule reads, and in which order, is what OPENING 7 says (OPENING 5.1, 7).

The formulas of the positions are taken from the text and evaluated: each read of each quantity of
the golden calls must be of the operand and at the positions that the tables give. What the text
says in prose (the letters for shapes) is bound here, per clause.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from unit.opening.disputes import WholeSource, locate, paths
from unit.opening.opening_letters import Expected, Place, Positions, Read, bcast, family, read_rows
from unit.opening.opening_text import CONTRACTS, golden_sites

from tallystick.numerics.registry import all_ops, rounded_operators
from tallystick.opening.quantity import (
    BLOCK,
    Array,
    Chain,
    Extremum,
    Index,
    Local,
    Quantity,
    Site,
    TermsQuantity,
    TreeQuantity,
    opening_rule,
)
from tallystick.opening.values import needs_of


# --- what a rule reads ----------------------------------------------------------------------------
@dataclass
class Recorder:
    """A source that remembers its reads, each once."""

    source: WholeSource
    reads: list[tuple[int, Positions]] = field(default_factory=list)

    def read(self, operand: int, flat: Index) -> Array:
        read = (operand, np.asarray(flat).reshape(-1).tolist())
        if read[1] and read not in self.reads:
            self.reads.append(read)
        return self.source.read(operand, flat)


def executed(q: Quantity, source: WholeSource) -> Iterator[tuple[range, list[Any]]]:
    """The reads of the first and of the last part of `q` that a referee could execute, with the
    numbers of its terms, links or elements."""
    needs = needs_of(q, source)
    if isinstance(q, Local):
        recorder = Recorder(source)
        q.compute(recorder, needs)
        yield range(1), recorder.reads
    elif isinstance(q, Chain):
        for first in sorted({0, max(q.count - 1, 0) // q.stretch * q.stretch}):
            recorder, last = Recorder(source), min(q.count, first + q.stretch)
            if last > first:
                q.advance(recorder, needs, q.start, first, last)
                yield range(first, last), recorder.reads
    elif isinstance(q, (TreeQuantity, Extremum)):
        for first in sorted({0, max(q.count - 1, 0) // BLOCK * BLOCK}):
            recorder, last = Recorder(source), min(q.count, first + BLOCK)
            index = np.arange(first, last, dtype=np.int64)
            if last == first:
                continue
            if isinstance(q, TreeQuantity):
                q.terms(recorder, needs, index)
            else:
                q.element(recorder, needs, index)
            yield range(first, last), recorder.reads


# --- the test -------------------------------------------------------------------------------------
def quantities(root: Quantity) -> Iterator[tuple[Quantity, int]]:
    """Every quantity below `root`, with the number of the term it is below or -1."""
    for path in paths(root):
        term, q = -1, root
        for k, step in enumerate(path):
            if isinstance(q, TermsQuantity):
                term = step - len(q.needs)
            elif q.needs and q.needs[0].name == "x[0]":  # one of each operand (OPENING 2.3)
                term = step
            q = locate(root, path[: k + 1])
        yield q, term


def name_in(q: Quantity) -> str:
    """The quantity's name as the tables write it (OPENING 7.1.3)."""
    return re.sub(r"^([sx])\[\d+\]$", r"\1[i]", q.name)


def reads_of(site: Site, q: Quantity) -> tuple[str, tuple[Read, ...]]:
    """The row of the tables for a quantity of the site."""
    name = name_in(q)
    op = site.op
    if op == "aten.native_batch_norm_backward" and name == "dx":
        op += " with train" if site.attrs["train"] else " without train"
    return op, read_rows()[op, name]


def matched(stated: list[tuple[Read, tuple[int, Positions]]], made: list[Any]) -> bool:
    """Whether the reads made are those stated, optional ones left out or not."""
    if not stated:
        return not made
    (read, one), rest = stated[0], stated[1:]
    if one[1] == []:  # a read of no positions asks for nothing (5.3)
        return matched(rest, made)
    if made and made[0] == one and matched(rest, made[1:]):
        return True
    return read.optional and matched(rest, made)


def _first(stated: list[tuple[Read, tuple[int, Positions]]]) -> Any:
    """Without a read that was made before: it asks for nothing (5.3), and is recorded once."""
    surely = [[one for read, one in stated[:k] if not read.optional] for k in range(len(stated))]
    return [s for s, before in zip(stated, surely, strict=True) if s[1] not in before]


POINTWISE_READS = tuple(
    op for op, spec in all_ops().items() if spec.forms and op != "aten.mse_loss_backward"
)


@pytest.mark.parametrize("op", sorted(set(all_ops()) - set(POINTWISE_READS)))
def test_reads_are_those_of_the_tables(op: str) -> None:
    """OPENING 7.1.2 to 7.10."""
    seen = set()
    for site, case in golden_sites(CONTRACTS["ordered"], 2, op):
        if site.op != op:
            continue
        whole = WholeSource(case.inputs)
        for q, term in quantities(opening_rule(site)):
            key, reads = reads_of(site, q)
            place = Place(site, q, case.inputs, needs_of(q, whole), term)
            expected = family(op)(place)
            for numbers, made in executed(q, whole):
                stated = _first([(r, _unlearnt(expected, r, numbers)) for r in reads])
                assert matched(stated, made), (op, site.attrs, q.name, stated, made)
            seen.add((key, name_in(q)))
    assert seen == {k for k in read_rows() if k[0].split(" ")[0] == op}


@pytest.mark.parametrize("op", sorted(rounded_operators()))
def test_reads_of_exact_sums(op: str) -> None:
    """OPENING 8.4: a link reads its factors or terms as under `ordered/1`, then the last term."""
    seen = 0
    for contract in ("rounded", "bounded"):
        for site, case in golden_sites(CONTRACTS[contract], 2, op):
            if site.op != op or site.outputs[site.out].dtype != "f32":
                continue
            whole, root = WholeSource(case.inputs), opening_rule(site)
            plain = opening_rule(replace(site, contract=CONTRACTS["ordered"]))
            inner = plain.needs[0] if plain.needs else plain
            stated = _exact_reads(site, plain, inner, case.inputs)
            sums = root.needs if contract == "bounded" else root.needs[:1]
            assert isinstance(sums[0], Chain)
            for q in sums:
                for numbers, made in executed(q, whole):
                    assert matched(stated(q, numbers), made), (site.attrs, q.name, made)
                    seen += 1
    assert seen


def _exact_reads(site: Site, plain: Quantity, inner: Quantity, operands: Any) -> Any:
    """The reads of the parts `numbers` of a quantity of 8.3."""
    _, reads = reads_of(site, inner)
    expected = family(site.op)(Place(site, inner, operands, (), -1))
    last = "out" if plain is not inner and plain.name == "out" else ""
    if site.op == "aten.addmm" and (site.attrs["alpha"], site.attrs["beta"]) != (1, 1):
        last = ""
    tree = isinstance(inner, TreeQuantity)
    length = inner.count if tree else _length(site)

    def stated(q: Quantity, numbers: range) -> list[Any]:
        chain = isinstance(q, Chain)
        terms = numbers if not chain else range(128 * numbers.start, 128 * numbers.stop)
        within = range(terms.start, min(terms.stop, length))
        if tree:
            found = [(r, expected(r, within)) for r in reads]
        else:
            found = [(r, _of_terms(expected, r, within)) for r in reads]
        if chain and last and terms.start <= length < terms.stop:
            _, (own,) = reads_of(site, plain)
            found.append(
                (own, family(site.op)(Place(site, plain, operands, (), -1))(own, range(1)))
            )
        return found

    return stated


def _of_terms(expected: Expected, read: Read, terms: range) -> tuple[int, Positions]:
    """As `expected`, which takes links of 128 terms: those of a tree are 256, from one link on."""
    links = range(terms.start // 128, -(-terms.stop // 128)) if terms else range(0)
    operand, positions = expected(read, links)
    return operand, positions


def _length(site: Site) -> int:
    """The products of a DOT (7.3)."""
    if "conv" not in site.op:
        return site.type_of(1 if site.op == "aten.addmm" else 0).shape[-1]
    if site.op == "aten.convolution":
        return math.prod(site.type_of(1).shape[1:])
    grad, weight = site.type_of(0).shape, site.type_of(2).shape
    if opening_rule(replace(site, contract=CONTRACTS["ordered"])).name == "weight gradient":
        return grad[0] * grad[2] * grad[3]
    return weight[0] // int(site.attrs["groups"]) * weight[2] * weight[3]  # type: ignore[arg-type]


def _unlearnt(expected: Expected, read: Read, numbers: range) -> tuple[int, Positions]:
    """As `expected`; what an optional read asks for may be undefined where it is not made."""
    try:
        return expected(read, numbers)
    except (NameError, IndexError, ValueError):
        if not read.optional:
            raise
        return -1, [-1]


@pytest.mark.parametrize("op", sorted(POINTWISE_READS))
def test_pointwise_reads(op: str) -> None:
    """OPENING 7.1.1: one element of every operand that is there, in order."""
    found = 0
    for site, case in golden_sites(CONTRACTS["ordered"], 3, op):
        if site.op == op:
            out = site.outputs[site.out].shape
            stated = [
                (k, [bcast(site.element, out, t.shape)])
                for k, t in enumerate(site.inputs)
                if t is not None
            ]
            ((_, made),) = executed(opening_rule(site), WholeSource(case.inputs))
            assert made == stated
            found += 1
    assert found
