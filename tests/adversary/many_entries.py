"""Honest and forged entries of bounded logs, judged as a referee judges them (NUMERICS 14, PROTOCOL
6.11, 6.13), against plain fractions.

    PYTHONPATH=src:tests python tests/adversary/many_entries.py [--elements 100000] [--seed 0]

Each element is a product or a sum of random scale, made to be doubtful: heavy cancellation, ties
of the grid moved by a few E, underflow, overflow, B from 20 to 32. Two honest trainers compute it
with errors that 14.4 allows an admissible kernel, and log it as 14.6 says. None of them may be
blamed, whatever the other has. Then one of them is replaced by a liar: a forged entry, an entry
added where none is due, another value. Whoever is blamed must be who the plain text says.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from reference.rounded import abs_sums, grid_pattern, patterns, products, square_sums

from tallystick.numerics.types import TensorType
from tallystick.opening.quantity import Logged, Site, opening_rule
from tallystick.opening.values import WholeSource, needs_of
from tallystick.protocol.element import ElementOutcome, examine, resolve

F32, F64 = np.float32, np.float64
C = F64(float.fromhex("0x1.00001p-53"))
INFINITY = 0x7F800000
Entry = int | None


# --- the plain text -------------------------------------------------------------------------------
@dataclass(frozen=True)
class Plain:
    """v*, E and the grid of an element, all in fractions; elements of G by their order."""

    true: Fraction
    bound: Fraction
    bits: int

    def order(self, v: Fraction) -> int:
        pattern = grid_pattern(v, self.bits)
        at = (pattern & 0x7FFFFFFF) >> (32 - self.bits)
        return -at if pattern >> 31 else at

    def element(self, at: int) -> Fraction:
        pattern = abs(at) << (32 - self.bits)
        size = Fraction(float(patterns([pattern])[0])) if pattern < INFINITY else Fraction(2) ** 128
        return -size if at < 0 else size

    def value(self, at: int) -> np.float32:
        pattern = abs(at) << (32 - self.bits) | (0x80000000 if at < 0 else 0)
        return F32(patterns([pattern])[0])

    @property
    def top(self) -> int:
        return INFINITY >> (32 - self.bits)

    def boundary(self, at: int) -> Fraction | None:
        """Between an element and the one above it; None beyond an infinity."""
        if not -self.top <= at < self.top:
            return None
        return (self.element(at) + self.element(at + 1)) / 2

    @cached_property
    def nearest(self) -> int:
        return self.order(self.true)

    @cached_property
    def possible(self) -> tuple[int, int]:
        """The ends of V (14.5)."""
        return self.order(self.true - self.bound), self.order(self.true + self.bound)

    def due(self, entry: Entry) -> int:
        """14.5: the value of an element with this entry."""
        low, high = self.possible
        if entry is None or high != low + 1:
            return self.nearest
        return (low, high)[entry]

    def forged(self, entry: Entry) -> bool:
        """14.7, word by word."""
        low, high = self.possible
        if entry is None or high == low + 1:
            return False
        above, below = self.boundary(self.nearest), self.boundary(self.nearest - 1)
        read, other = (above, below) if entry == 0 else (below, above)
        if read is None:
            return True
        far = abs(read - self.true) > 3 * self.bound
        return far and other is not None and abs(other - self.true) < abs(read - self.true)

    def trained(self, w: float) -> tuple[int, Entry]:
        """14.6: an honest trainer's value and entry, w being its kernel's."""
        near, reach = Fraction(w), 2 * self.bound
        low, high = self.order(near - reach) - 1, self.order(near + reach) + 1
        if high - low > 4:
            return self.nearest, None
        about = []
        for at in range(low, high):
            boundary = self.boundary(at)
            if boundary is not None and abs(boundary - near) <= reach:
                about.append(at)
        if len(about) > 1:
            return self.nearest, None
        mine = self.order(near)
        return mine, (int(mine > about[0]) if about else None)


# --- elements -------------------------------------------------------------------------------------
@dataclass
class Element:
    """Operands of one element, and what a referee opens of it."""

    op: str
    operands: tuple[np.ndarray, ...]
    terms: list[float]
    plain: Plain
    rule: Logged
    source: WholeSource
    needs: tuple[Any, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.needs = needs_of(self.rule, self.source)


def _bound(op: str, operands: tuple[np.ndarray, ...]) -> float:
    """E by 14.4."""
    if op == "aten.sum":
        (x,) = operands
        return float(F64(len(x)) * C * abs_sums(x[:, None])[0])
    a, b = operands[-2].reshape(-1, 1), operands[-1].reshape(-1, 1)
    terms = len(a) + (op == "aten.addmm")
    scale = F64(terms) * C
    bound = scale * np.sqrt(square_sums(a)[0]) * np.sqrt(square_sums(b)[0])
    return float(bound + scale * abs(F64(operands[0][0])) if op == "aten.addmm" else bound)


def _site(op: str, operands: tuple[np.ndarray, ...], bits: int) -> Site:
    attrs: dict[str, Any] = {"alpha": 1.0, "beta": 1.0} if op == "aten.addmm" else {}
    inputs = tuple(TensorType("f32", x.shape) for x in operands)
    out = TensorType("f32", () if op == "aten.sum" else (1, 1))
    contract = f"replay/1-draft.1;b={bits};form=bounded"
    return Site(op, attrs, inputs, (out,), 0, 0, contract)


def make(op: str, a: np.ndarray, b: np.ndarray, bits: int) -> Element:
    """The element of terms a[k] * b[k]; of a sum, a[k]; of an addmm the last a[k] is C."""
    operands: tuple[np.ndarray, ...]
    if op == "aten.sum":
        operands, terms = (a,), [float(x) for x in a]
    elif op == "aten.addmm":
        operands = (a[-1:], a[None, :-1], b[:-1, None])
        terms = [*products(a[:-1], b[:-1]), float(a[-1])]
    else:
        operands, terms = (a[None, :], b[:, None]), products(a, b)
    true = sum(map(Fraction, terms), Fraction(0))
    plain = Plain(true, Fraction(_bound(op, operands)), bits)
    rule = opening_rule(_site(op, operands, bits))
    assert isinstance(rule, Logged)
    return Element(op, operands, terms, plain, rule, WholeSource(operands))


def elements(rng: random.Random) -> Iterator[Element]:
    """Elements for ever, most of them doubtful."""
    numbers = np.random.default_rng(rng.getrandbits(64))
    while True:
        bits = rng.choice((20, 21, 24, 26, 28, 31, 32, 32))
        count, kind = rng.randint(2, 40), rng.choice(("any", "cancel", "tie", "tie", "deep"))
        op = rng.choice(("aten.mm", "aten.addmm", "aten.sum"))
        a = numbers.standard_normal(count).astype(F32)
        b = numbers.standard_normal(count).astype(F32)
        scale = F32(2.0 ** rng.choice((0, 0, -20, 30, -66, 60)))
        with np.errstate(all="ignore"):
            a = a * scale
            if kind == "cancel":  # what is left is far smaller than the terms
                half = count // 2
                a[half : 2 * half], b[half : 2 * half] = -a[:half], b[:half]
                a[-1] = a[0] * F32(2.0 ** -rng.randint(20, 60))
            elif kind in ("tie", "deep"):
                a = _tie(rng, numbers, count, bits, deep=kind == "deep")
                b = np.ones(len(a), F32)
        if np.isfinite(a).all() and np.isfinite(b).all():
            yield make(op, a, b, bits)


def _tie(
    rng: random.Random, numbers: np.random.Generator, count: int, bits: int, deep: bool
) -> np.ndarray:
    """Terms whose sum is about a boundary of the grid: a few E from it, or on it."""
    step = 1 << (32 - bits)
    pattern = rng.choice(
        (
            rng.randrange(0, INFINITY),
            rng.randrange(1, 64) * step,
            INFINITY - step * rng.randint(1, 3),
        )
    )
    pattern = min(pattern // step * step, INFINITY - step)
    low = patterns([pattern])[0]
    high = (
        Fraction(2) ** 128
        if pattern + step >= INFINITY
        else Fraction(float(patterns([pattern + step])[0]))
    )
    half = float((high - Fraction(float(low))) / 2)
    a = np.zeros(max(count, 6), F32)
    a[0], a[1] = low, F32(half)  # half a step of the grid, where binary32 has it
    if deep:  # large terms that cancel: E is larger, up to many steps
        size = F32(min(max(abs(float(low)), 1e-38) * 2.0 ** rng.randint(0, 34), 1e38))
        a[2], a[3] = size, -size
    # E for these terms, roughly; the last one moves the sum by some of them.
    magnitude = float(np.sqrt((a.astype(F64) ** 2).sum()))
    e = len(a) * float(C) * magnitude * float(np.sqrt(len(a)))
    moved = rng.choice((0, 0, 0.3, 0.9, 1.0, 1.1, 1.9, 2.1, 2.9, 3.1, 6, 40)) * e
    a[4] = F32(rng.choice((-1, 1)) * moved)
    if rng.random() < 0.5:
        a[5] = F32(numbers.standard_normal() * e / 4)
    if rng.random() < 0.5:
        a = -a
    return np.asarray(a, F32)


def kernel(rng: random.Random, element: Element) -> float:
    """w of an admissible kernel: the terms added in some order, or any error that 14.4 allows."""
    if rng.random() < 0.3:
        terms = list(element.terms)
        rng.shuffle(terms)
        while len(terms) > 1:
            k = rng.randrange(len(terms) - 1)
            terms[k : k + 2] = [terms[k] + terms[k + 1]]
        return terms[0]
    plain = element.plain
    share = Fraction(rng.choice((-1.0, 1.0, rng.uniform(-1, 1), rng.uniform(-1, 1))))
    w = float(plain.true + share * plain.bound)
    return w if abs(Fraction(w) - plain.true) <= plain.bound else float(plain.true)


# --- judging --------------------------------------------------------------------------------------
def judge(
    element: Element, values: tuple[int, int], entries: tuple[Entry, Entry]
) -> ElementOutcome:
    """What the referee finds: 6.11 for different values, 6.13 for different entries."""
    claims = (element.plain.value(values[0]), element.plain.value(values[1]))
    if values[0] != values[1]:
        game = resolve(element.rule, claims, element.source, (), entries)
    else:
        game = examine(element.rule, entries, claims[0], element.source, published=False)
    game.send(None)  # both state what the element's quantities are, and agree
    try:
        game.send((element.needs, element.needs))
    except StopIteration as end:
        outcome: ElementOutcome = end.value
        return outcome
    raise AssertionError("the operands are at hand, so nothing is asked")


def blamed(element: Element, values: tuple[int, int], entries: tuple[Entry, Entry]) -> list[bool]:
    """Who is to be blamed by the plain text."""
    plain = element.plain
    if values[0] != values[1]:
        return [v != plain.due(e) for v, e in zip(values, entries, strict=True)]
    return [plain.forged(e) or v != plain.due(e) for v, e in zip(values, entries, strict=True)]


def check(
    element: Element, values: tuple[int, int], entries: tuple[Entry, Entry]
) -> ElementOutcome | None:
    """One game about an element; None where there is nothing to play about."""
    if values[0] == values[1] and entries[0] == entries[1]:
        return None
    outcome = judge(element, values, entries)
    assert list(outcome.convicted) == blamed(element, values, entries), (element, values, entries)
    return outcome


def honest_pair(rng: random.Random, element: Element, seen: Counter[str]) -> tuple[int, Entry]:
    """Two honest trainers about one element: nobody is blamed. The first one's value and entry."""
    plain = element.plain
    first, second = (plain.trained(kernel(rng, element)) for _ in (0, 1))
    low, high = plain.possible
    for value, entry in (first, second):
        assert value == plain.due(entry), (element, value, entry)
        assert not plain.forged(entry), (element, value, entry)
        # A log like this one, followed by somebody who sums exactly.
        check(element, (value, value), (entry, None))
    outcome = check(element, (first[0], second[0]), (first[1], second[1]))
    assert outcome is None or outcome.convicted == (False, False), (element, first, second)
    seen["honest elements"] += 1
    seen["doubtful"] += high != low or first[1] is not None or second[1] is not None
    seen["two honest values"] += first[0] != second[0]
    seen["more than two values"] += high > low + 1
    return first


def liars(
    rng: random.Random, element: Element, honest: tuple[int, Entry], seen: Counter[str]
) -> None:
    """A liar of each kind against an honest trainer, in a random seat."""
    plain = element.plain
    low, high = plain.possible
    near = [plain.nearest + k for k in (-2, -1, 0, 1, 2)]
    values = [v for v in (*near, low, high) if -plain.top <= v <= plain.top]
    for kind, value, entry in (
        ("another value", rng.choice(values), honest[1]),
        ("another entry", honest[0], rng.choice((None, 0, 1))),
        ("value and entry", rng.choice(values), rng.choice((None, 0, 1))),
        ("forged entry followed", plain.nearest - 1, 0),
        ("forged entry followed", plain.nearest + 1, 1),
        ("forged entry added", honest[0], 0),
        ("forged entry added", honest[0], 1),
    ):
        if not -plain.top <= value <= plain.top:
            continue
        seat = rng.randrange(2)
        pair = [honest, honest]
        pair[seat] = (value, entry)
        outcome = check(element, (pair[0][0], pair[1][0]), (pair[0][1], pair[1][1]))
        if outcome is not None:
            assert not outcome.convicted[1 - seat], (element, kind, value, entry)
            seen[f"{kind}: {'convicted' if outcome.convicted[seat] else 'not false'}"] += 1


def run(count: int, seed: int) -> Counter[str]:
    """`count` elements; what was seen. Raises AssertionError with the element that failed."""
    rng, seen = random.Random(seed), Counter[str]()
    for element in elements(rng):
        honest = honest_pair(rng, element, seen)
        liars(rng, element, honest, seen)
        if seen["doubtful"] >= count:
            return seen
    raise AssertionError("elements never end")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--elements", type=int, default=100_000, help="doubtful ones")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    began = time.monotonic()
    seen = run(given.elements, given.seed)
    for name, count in sorted(seen.items()):
        print(f"{count:10,}  {name}")
    print(f"{time.monotonic() - began:10,.0f}  seconds; nobody honest was blamed")


if __name__ == "__main__":
    main()
