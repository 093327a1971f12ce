"""Values and games of an opening rule by operator name; liars who make their answers up.

disputes.py has the game and liars whose lie lies in one operand or one intermediate. Here they
invent: whatever is asked, they answer what fits their own claim, with the lie in a random place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import disputes
import numpy as np
from disputes import Operands, drive, flipped, sites, some_elements

from tallystick.numerics.contracts import ORDERED_1
from tallystick.opening.quantity import (
    ACCUMULATOR,
    BLOCK,
    BLOCKS,
    Array,
    Extremum,
    Quantity,
    Scalar,
    Site,
    Source,
    TermsQuantity,
    TreeQuantity,
    opening_rule,
)
from tallystick.opening.values import WholeSource, top_level, value_of
from tallystick.opening.views import Path, locate, positions, view_values
from tallystick.protocol.element import Ask, ElementOutcome, same_bits

LIARS = ("element", "deep")
# Up to so many elements of an output are all compared; of a larger one, so many.
ALL, SAMPLE = 256, 64


def check_values(
    op: str, attrs: dict[str, Any], operands: Operands, contract: str = ORDERED_1
) -> None:
    """Every element (of a large output some) has exactly the kernel's bits."""
    largest = max(output.size for _, output in sites(op, attrs, operands))
    most = ALL if largest <= ALL else SAMPLE
    disputes.check_values(op, attrs, *operands, most=most, contract=contract)


def wrong(value: Scalar, rng: np.random.Generator) -> Scalar:
    """A value of other bits: near, far, of the other sign, zero, infinite or NaN."""
    if value.dtype in (ACCUMULATOR, BLOCKS):  # any part of a record, by a little or by much
        raw = bytearray(value.tobytes())
        raw[int(rng.integers(len(raw)))] ^= 1 << int(rng.integers(8))
        return np.frombuffer(bytes(raw), value.dtype)[0]
    if value.dtype.kind != "f":
        return flipped(value)
    kind, found = value.dtype.type, value
    with np.errstate(all="ignore"):
        choices = [flipped(value), np.nextafter(value, kind(0)), np.nextafter(value, kind(np.inf))]
        choices += [kind(-value), kind(0), kind(-0.0), kind(np.inf), kind(np.nan)]
    while same_bits(found, value):
        found = choices[rng.integers(len(choices))]
    return found


@dataclass
class Inventor:
    """A liar about `true`. `deep`: what he states of a part sums up to what he claimed of the
    whole, or leaves it to one false part; else all parts he states are the honest ones."""

    true: Quantity
    source: Source
    seed: int
    deep: bool
    asked: int = 0
    _claims: dict[tuple[Path, int, int], Scalar] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)

    def value(self) -> Scalar:
        if ((), -1, 0) not in self._claims:
            self._claims[(), -1, 0] = self._claim()
        return self._claims[(), -1, 0]

    def _claim(self) -> Scalar:
        honest = value_of(self.true, self.source)
        if isinstance(self.true, Extremum) and self.true.kind == "argmax" and self.deep:
            others = [k for k in (-1, 0, self.true.count - 1, self.true.count) if k != honest]
            return np.int64(others[self._rng.integers(len(others))])
        return wrong(honest, self._rng)

    def state(self, ask: Ask) -> tuple[Scalar, ...]:
        self.asked += 1
        quantity = locate(self.true, ask.path)
        honest = view_values(quantity, ask.view, self.source)
        if not self.deep:
            return honest
        stated = getattr(self, f"_{ask.view.kind}")(quantity, ask, honest)
        return tuple(stated)

    def _needs(self, _: Quantity, ask: Ask, honest: Sequence[Scalar]) -> list[Scalar]:
        stated, false = list(honest), int(self._rng.integers(-1, len(honest)))
        if false >= 0:
            stated[false] = wrong(stated[false], self._rng)
        for k, value in enumerate(stated):
            self._claims[(*ask.path, k), -1, 0] = value
        return stated

    def _whole_in_one(self, claimed: Scalar, count: int) -> Array:
        parts = np.full(count, -0.0 if claimed.dtype.kind == "f" else 0, claimed.dtype)
        parts[self._rng.integers(count)] = claimed
        return parts

    def _of_block(
        self, q: TreeQuantity | TermsQuantity, path: Path, level: int, index: int
    ) -> Scalar:
        key = (path, -1, 0) if level == top_level(q.count) else (path, level, index)
        return self._claims[key]

    def _blocks(self, q: TreeQuantity | TermsQuantity, ask: Ask, honest: Sequence[Scalar]) -> Array:
        level, index = ask.view.a, ask.view.b
        parts = self._whole_in_one(self._of_block(q, ask.path, level, index), len(honest))
        for k, part in enumerate(parts):
            self._claims[ask.path, level - 1, index * BLOCK + k] = part
        return parts

    def _terms(self, q: TermsQuantity, ask: Ask, honest: Sequence[Scalar]) -> Array:
        first = ask.view.a
        parts = self._whole_in_one(self._of_block(q, ask.path, 0, first // BLOCK), len(honest))
        for k, part in enumerate(parts):
            self._claims[(*ask.path, len(q.needs) + first + k), -1, 0] = part
        return parts

    def _states(self, _: Quantity, ask: Ask, honest: Sequence[Scalar]) -> list[Scalar]:
        at = int(self._rng.integers(len(positions(ask.view)) + 1))
        return [*honest[:at], *(wrong(v, self._rng) for v in honest[at:])]

    def _witness(self, q: Extremum, _: Ask, honest: Sequence[Scalar]) -> list[Scalar]:
        inside = int(self._rng.integers(q.count))
        choices = (int(np.asarray(honest[0])), inside, -1, q.count)
        return [np.int64(choices[self._rng.integers(len(choices))])]


def depth(quantity: Quantity) -> int:
    """Quantities on the longest path down."""
    below = list(quantity.needs)
    if isinstance(quantity, TermsQuantity) and quantity.count:
        below.append(quantity.term(0))
    return 1 + max(map(depth, below), default=0)


def _site(
    op: str, attrs: dict[str, Any], operands: Operands, out: int, element: int, contract: str
) -> tuple[Site, Quantity]:
    site = replace(sites(op, attrs, operands, contract)[out][0], element=element)
    return site, opening_rule(site)


def play(
    op: str,
    attrs: dict[str, Any],
    operands: Operands,
    out: int,
    element: int,
    liar: str,
    seed: int = 0,
    contract: str = ORDERED_1,
) -> list[ElementOutcome]:
    """An honest claimant and a liar (one of LIARS), who alone is convicted, as either party."""
    site, true = _site(op, attrs, operands, out, element, contract)
    outcomes = []
    for first in (True, False):
        inventor = Inventor(true, WholeSource(operands), seed, liar == "deep")
        outcomes.append(disputes.play(site, operands, inventor, first))
        assert inventor.asked <= 4 * depth(true)  # PROTOCOL P4
    return outcomes


def two_liars(
    op: str,
    attrs: dict[str, Any],
    operands: Operands,
    out: int,
    element: int,
    seed: int = 0,
    contract: str = ORDERED_1,
) -> ElementOutcome | None:
    """Two liars of different claims: one at least is convicted. None if they claim the same."""
    site, true = _site(op, attrs, operands, out, element, contract)
    whole = WholeSource(operands)
    a, b = (Inventor(true, whole, seed + k, k == 0 or seed % 2 == 0) for k in (0, 1))
    if same_bits(a.value(), b.value()):
        return None
    outcome, _ = drive(site, operands, (a, b))
    assert a.asked <= 4 * depth(true)
    return outcome


def check_games(
    op: str,
    attrs: dict[str, Any],
    operands: Operands,
    seed: int = 0,
    most: int = 2,
    contract: str = ORDERED_1,
) -> list[ElementOutcome]:
    """Games of every kind about `most` elements of every output; the verdicts."""
    outcomes = []
    for out, (_, output) in enumerate(sites(op, attrs, operands)):
        for element in some_elements(output.size, most) if output.size else []:
            for liar in LIARS:
                outcomes += play(op, attrs, operands, out, element, liar, seed, contract)
            both = two_liars(op, attrs, operands, out, element, seed, contract)
            outcomes += [both] if both else []
    return outcomes
