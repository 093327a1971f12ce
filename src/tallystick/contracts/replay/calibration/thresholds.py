"""Thresholds for the published form from two kinds of hardware (Algorithm 4; NUMERICS 14.9).

Where two machines' results round to opposite sides, a log must still record an element at that
distance from the rounded value. So the threshold must lie below that distance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from tallystick.contracts.replay.calibration.sample import (
    Sample,
    powers,
    published_contract,
    rounded,
)
from tallystick.contracts.replay.contract import Replay
from tallystick.contracts.replay.sections import operators_of, sections_of
from tallystick.errors import UsageError
from tallystick.limits import LIMITS
from tallystick.program.ir import Program

Array = np.ndarray
_UNIT = 40  # thresholds are in units of 2^-40 (14.1)


@dataclass(frozen=True)
class Threshold:
    """The result of a calibration for one operator.

    It has T; the number of pairs of results that rounded to opposite sides; the number of those
    that even the smallest T does not record, because they are too close to a rounded value; and the
    number of elements that two machines kept.
    """

    operator: str
    number: int
    pairs: int
    missed: int
    compared: int


def calibrate(program: Program, samples: Sequence[Sample]) -> list[Threshold]:
    """Algorithm 4 for every logged operator of `program`, over all pairs of `samples`.

    The caller has checked the samples. Raises UsageError for fewer than two.
    """
    if len(samples) < 2:
        raise UsageError("A calibration compares machines.", "Give samples of two or more.")
    contract = published_contract(program)
    sections = sections_of(program, contract)
    operators = np.array(operators_of(program, sections))
    found: dict[str, list[tuple[Array, Array]]] = {}
    for one, two in combinations(samples, 2):
        mine, theirs = one.keys(len(sections)), two.keys(len(sections))
        _, i, j = np.intersect1d(mine, theirs, assume_unique=True, return_indices=True)
        names = operators[one.section[i]] if len(i) else np.empty(0, operators.dtype)
        for name in np.unique(names):
            which = names == name
            found.setdefault(str(name), []).append((one.x[i[which]], two.x[j[which]]))
    return [
        _threshold_of(str(name), found.get(str(name), []), contract)
        for name in np.unique(operators)
    ]


def _threshold_of(operator: str, results: list[tuple[Array, Array]], contract: Replay) -> Threshold:
    y1 = np.concatenate([a for a, _ in results] or [np.empty(0)])
    y2 = np.concatenate([b for _, b in results] or [np.empty(0)])
    distances, scales = opposite_pairs(y1, y2, contract.bits, contract.scale == "decimal")
    number = search(distances, scales, contract.bits)
    missed = int((distances <= scales * _tau(number)).sum())
    return Threshold(operator, number, len(distances) // 2, missed, len(y1))


def _tau(number: int) -> float:
    return float(np.ldexp(float(number), -_UNIT))


def opposite_pairs(y1: Array, y2: Array, bits: int, decimal: bool) -> tuple[Array, Array]:
    """P of Algorithm 4 (lines 7 to 16), and exp of each element's result."""
    r1, r2 = rounded(y1, bits), rounded(y2, bits)
    opposite = (r1 != r2) & (((y1 > r1) & (y2 < r2)) | ((y1 < r1) & (y2 > r2)))
    y, r = (
        np.concatenate([y1[opposite], y2[opposite]]),
        np.concatenate([r1[opposite], r2[opposite]]),
    )
    return np.abs(y - r), powers(y, decimal)


def search(distances: Array, scales: Array, bits: int) -> int:
    """The binary search of Algorithm 4 (lines 19 to 35) over whole T.

    T is at least 0.25·2^-23, and below 0.5·2^(9-b), at which no element would be logged.
    """
    lower, upper = 1 << (_UNIT - 25), 1 << (_UNIT + 8 - bits)
    while upper - lower > 1:
        middle = (lower + upper) // 2
        # The exponent is that of the result, as in Algorithm 1; of p itself, as line 24 has it,
        # no p would ever be below it.
        success = not (distances < scales * _tau(middle)).any()
        lower, upper = (middle, upper) if success else (lower, middle)
    return lower


def with_thresholds(contract: Replay, found: Sequence[Threshold]) -> Replay:
    """`contract` with the thresholds found; no operator's threshold is larger than that.

    The default is the most frequent number. The identifier names the operators with another
    number or, for want of room, only those below the default. If it cannot hold these either, a
    smaller default stands for them. That logs more and is as safe.
    """
    numbers = sorted({t.number for t in found})
    counts = {n: sum(t.number == n for t in found) for n in numbers}
    default = max(numbers, key=lambda n: (counts[n], n), default=contract.threshold)
    for at in range(numbers.index(default) if numbers else 0, -1, -1):
        below = {t.operator: t.number for t in found if t.number < numbers[at]}
        above = {t.operator: t.number for t in found if t.number > numbers[at]}
        for named in ({**below, **above}, below):
            if _fits(contract, numbers[at], named):
                return contract.with_thresholds(numbers[at], named)
    return contract


def _fits(contract: Replay, default: int, named: dict[str, int]) -> bool:
    size = len(contract.text) + len(str(default))
    size += sum(len(f";tau.{operator}={number}") for operator, number in named.items())
    return size <= LIMITS.name_bytes
