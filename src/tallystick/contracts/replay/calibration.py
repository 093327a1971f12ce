"""Calibration of the published form: samples of machines, and the thresholds they give
(Algorithm 4; NUMERICS 14.9).

Every machine computes the same operators on the same operands. It keeps its binary64 results for
elements near a rounding boundary. To have the same operands everywhere, the steps themselves run on
the kernels of `ordered/1`, whose results depend on the job alone. The stock kernels' results go
into the sample only.

Where two machines' results round to opposite sides, a log must still record an element at that
distance from the rounded value. So the threshold must lie below that distance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from tallystick import _core
from tallystick.commit.log import Section
from tallystick.contracts.ordered.cpu import run_of
from tallystick.contracts.replay.boundaries import boundaries, indices_of
from tallystick.contracts.replay.contract import Replay
from tallystick.contracts.replay.published import load_stock
from tallystick.contracts.replay.published.follow import round_unlogged
from tallystick.contracts.replay.sections import (
    LoggedProgram,
    operators_of,
    refused_there,
    sections_of,
)
from tallystick.devices.cpu import CPU
from tallystick.devices.device import Run
from tallystick.errors import UsageError
from tallystick.limits import LIMITS
from tallystick.numerics.contracts import MAX_BITS, find_contract
from tallystick.numerics.registry import OpSpec
from tallystick.numerics.types import Attrs
from tallystick.program.ir import Node, Program

if TYPE_CHECKING:
    from tallystick.contracts.replay.stock.stock import Stock
    from tallystick.devices.device import Device


# --- samples: one machine's results near a rounding boundary --------------------------------------
Array = np.ndarray
# The sample keeps elements at most this part of their power of two away from a boundary. That is
# above any stock kernel's error, and holds for one element in a few dozen.
REACH = 2.0**-30
ELEMENTS = 1 << 16  # the default number of elements of an output that the sampler looks at
_DRAW = 1 << 31  # draw ids from here on are calibration's: no program has as many draws (8.2)


def rounded(x: Array, bits: int) -> Array:
    """R(x), f32 of x's shape, signed zeros kept (14.9)."""
    out: Array = np.empty(x.shape, np.float32)
    round_unlogged(np.ascontiguousarray(x), bits, out)
    return out


def near_boundary(x: Array, bits: int) -> Array:
    """bool: True where x f64 lies within REACH of a boundary; False where R(x) is not finite."""
    r = rounded(x, bits)
    finite = np.isfinite(r) & (x != 0)
    index = indices_of(np.where(finite, r, np.float32(1)), bits)
    low = np.where(x < r, index - 1, index)
    near: Array = finite & (np.abs(x - boundaries(low, bits)) <= REACH * powers(x, False))
    return near


def powers(x: Array, decimal: bool) -> Array:
    """exp(x) of 14.9 for finite x f64 that are not zero (for others, 1)."""
    size = np.where(np.isfinite(x) & (x != 0), np.abs(x), 1.0)
    if not decimal:
        found: Array = np.ldexp(1.0, np.frexp(size)[1] - 1)
        return found
    table = np.array([float(f"1e{k}") for k in range(-323, 309)])
    below: Array = table[np.maximum(np.searchsorted(table, size, side="right") - 1, 0)]
    return below


@dataclass(frozen=True)
class Sample:
    """One machine's results: element `element` of section `section` at step `step` was `x`.

    The columns are i64[n], x is f64[n]; strictly ascending by (step, section, element).
    """

    step: Array
    section: Array
    element: Array
    x: Array

    def check(self, sections: Sequence[Section], steps: int) -> None:
        """Raise UsageError unless a Sampler can have made the columns; any party may send them."""
        columns = (self.step, self.section, self.element)
        if any(c.dtype != np.int64 or c.shape != self.x.shape or c.ndim != 1 for c in columns):
            _misfit("its columns are not equally long lists of integers")
        if self.x.dtype != np.float64 or not np.isfinite(self.x).all():
            _misfit("a result is not a finite binary64 number")
        if not len(self.x):
            return
        sizes = np.array([s.elements for s in sections], np.int64)
        if self.step.min() < 0 or self.step.max() >= steps:
            _misfit(f"it has a step outside of its {steps}")
        if self.section.min() < 0 or self.section.max() >= len(sizes):
            _misfit("it has an output that the program has not")
        if self.element.min() < 0 or (self.element >= sizes[self.section]).any():
            _misfit("it has an element that its output has not")
        if (np.diff(self.keys(len(sizes))) <= 0).any():
            _misfit("its elements do not ascend")

    def keys(self, sections: int) -> Array:
        """i64[n]: one number per element, ascending; steps and sections are few enough."""
        where = self.step * sections + self.section
        if len(where) and int(where.max()) >= (1 << 63) // LIMITS.tensor_bytes:
            _misfit("it covers too many steps")
        keys: Array = where * LIMITS.tensor_bytes + self.element
        return keys


def _misfit(why: str) -> None:
    raise UsageError(f"A calibration sample cannot be used: {why}.", "Take the sample again.")


def published_contract(program: Program) -> Replay:
    """The program's contract. Raises UsageError unless it has thresholds to calibrate."""
    contract = find_contract(program.contract)
    if not isinstance(contract, Replay) or contract.form != "published":
        raise UsageError(
            f"Contract {contract} has no thresholds.",
            'Calibrate a job made with --contract "replay/1;form=published".',
        )
    return contract


class Sampler:
    """Executes steps like an engine's log (run.execute.engine.StepLog), and keeps a Sample."""

    def __init__(
        self, program: Program, seed: int, elements: int = ELEMENTS, stock: Stock | None = None
    ) -> None:
        contract = published_contract(program)
        self.bits = contract.bits
        self.stock = stock or load_stock()
        self._logged = LoggedProgram(program)
        self._seed = seed
        self._elements = elements
        self._step = 0
        self._parts: list[tuple[int, int, Array, Array]] = []

    def move_to(self, device: Device) -> None:
        """Raises UsageError for another device than the processor."""
        if device is not CPU:
            raise refused_there(self._logged, device)

    def begin(self, step: int) -> None:
        self._step = step
        self.stock.prepare()

    def finish(self) -> bytes:
        return bytes(32)

    def abort(self) -> None:
        """Drop the results of a step that failed."""
        self._parts = [part for part in self._parts if part[0] != self._step]

    def kernels(self, index: int, node: Node, spec: OpSpec) -> Run | None:
        """The executor's hook."""
        numbers = self._logged.numbers_of(index, node)
        if not numbers:
            return None
        ordinary = run_of(node.op)

        def run(attrs: Attrs, inputs: Sequence[Array | None], given: Sequence[Array]) -> None:
            # Before the outputs are written: one of them may be an operand's storage.
            spare = [np.empty(out.shape, out.dtype) for out in given]
            found = self.stock.compute(spec, attrs, inputs, spare)
            ordinary(attrs, inputs, given)
            for out, x in enumerate(found):
                number = numbers.get(out)
                if x is not None and number is not None:
                    self._keep(number, x.reshape(-1))
                    if self.bits != MAX_BITS:  # the next operators' operands are on the grid
                        given[out][...] = rounded(given[out].astype(np.float64), self.bits)

        return run

    def _keep(self, number: int, x: Array) -> None:
        positions = self._chosen(number, x.size)
        near = near_boundary(x[positions], self.bits)
        self._parts.append((self._step, number, positions[near], x[positions[near]]))

    def _chosen(self, number: int, size: int) -> Array:
        """i64: the positions in the sample, the same on every machine."""
        if size <= self._elements:
            return np.arange(size, dtype=np.int64)
        words: Array = np.empty(2 * self._elements, np.uint32)
        _core.philox_words(self._seed, self._step, _DRAW + number, 0, words)
        drawn = words.view(np.uint64) % np.uint64(size)
        return np.unique(drawn.astype(np.int64))

    def sample(self) -> Sample:
        """The results so far."""
        parts = sorted(self._parts, key=lambda part: part[:2])
        counts = [len(part[2]) for part in parts]
        empty = [np.empty(0, np.int64)]
        return Sample(
            np.repeat(np.array([p[0] for p in parts], np.int64), counts),
            np.repeat(np.array([p[1] for p in parts], np.int64), counts),
            np.concatenate([p[2] for p in parts] or empty),
            np.concatenate([p[3] for p in parts] or [np.empty(0)]),
        )


# --- thresholds, from two kinds of hardware -------------------------------------------------------
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
