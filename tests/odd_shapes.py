"""Calls of other sizes, made from the golden vectors: of every operator, no rule for each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import kernel_format as fmt
import numpy as np
from device_calls import KINDS, OPS, Arrays, call, compared
from reference.data import Gen

from tallystick.devices.cpu import CPU
from tallystick.devices.device import Device
from tallystick.errors import TallystickError
from tallystick.kernels.evaluate import view
from tallystick.numerics.contracts import find_contract

# Around the sizes of warps, vectors of four, blocks and chunks.
_MORE = (0, 1, 1, 2, 3, 5, 7, 15, 30, 33, 61, 127, 130, 257)
_MOST_ELEMENTS = 20_000
_TRIES = 4


def grown(arrays: Arrays, gen: Gen, nasty: bool = False) -> list[np.ndarray | None] | None:
    """Operands with other sizes and elements of the old ones; None if they grew too large.

    Equal sizes grow alike, so that axes that must agree still do. None shrinks, so that an index
    stays inside of its axis. `nasty`: every fourth number is any bit pattern.
    """
    sizes = sorted({size for x in arrays if x is not None for size in x.shape})
    more = gen.words(len(sizes)) % np.uint64(len(_MORE))
    to = {n: n + _MORE[int(m)] if n > 1 else n for n, m in zip(sizes, more, strict=True)}
    found: list[np.ndarray | None] = []
    for x in arrays:
        if x is None:
            found.append(None)
            continue
        shape = tuple(to[size] for size in x.shape)
        count = math.prod(shape)
        if count > _MOST_ELEMENTS:
            return None
        if not x.size:
            found.append(np.zeros(shape, x.dtype))
            continue
        made = x.reshape(-1)[gen.words(count) % np.uint64(x.size)]
        if nasty and x.dtype == np.float32:
            words = gen.words(count)
            patterns = (words >> np.uint64(32)).astype(np.uint32).view(np.float32)
            made = np.where(words % np.uint64(4) == 0, patterns, made)
        found.append(made.reshape(shape))
    return found


@dataclass
class Odd:
    """What a pass found. `refused`: calls that do not fit the operator or its values."""

    calls: dict[str, int] = field(default_factory=dict)
    refused: int = 0
    wrong: list[str] = field(default_factory=list)

    def add(self, other: Odd) -> None:
        """Count another pass too."""
        for op, calls in other.calls.items():
            self.calls[op] = self.calls.get(op, 0) + calls
        self.refused += other.refused
        self.wrong += other.wrong

    def __str__(self) -> str:
        return (
            f"{len(self.calls)} operators, {sum(self.calls.values())} calls of odd sizes, "
            f"{len(self.wrong)} wrong"
        )


def operands(
    group: str, ordinal: int, seed: int, case: fmt.Case, nasty: bool = False
) -> Iterator[list[np.ndarray | None]]:
    """A few tries of other operands for golden call `ordinal` of a group; the same on every
    machine."""
    gen = Gen(f"{group} {ordinal} {seed}")
    for _ in range(_TRIES):
        arrays = grown(case.inputs, gen, nasty)
        if arrays is not None:
            yield arrays


def expected(case: fmt.Case, arrays: Arrays) -> tuple[np.ndarray, ...] | None:
    """The processor's outputs; None where the operands do not fit the operator, or are large."""
    try:
        out = call(CPU, case.op, case.attrs, arrays)
    except (TallystickError, ValueError, IndexError, AssertionError):
        return None
    return out if sum(x.size for x in out) <= 4 * _MOST_ELEMENTS else None


def calls(group: str) -> Iterator[tuple[int, fmt.Case]]:
    """The golden calls of a group that a kernel computes, with their numbers."""
    for ordinal, case in enumerate(fmt.load(group, KINDS)):
        if case.op not in view and case.op in OPS:
            yield ordinal, case


def check_odd_shapes(
    device: Device, seed: int, groups: Sequence[str] | None = None, every: int = 1
) -> Odd:
    """Of every `every`th golden call one of other sizes: `device` against the processor."""
    found = Odd()
    table = device.kernels(find_contract("ordered/1"))
    for group in fmt.device_groups() if groups is None else groups:
        for ordinal, case in calls(group):
            if (ordinal + seed) % every or case.op not in table:
                continue
            for arrays in operands(group, ordinal, seed, case):
                wanted = expected(case, arrays)
                if wanted is None:
                    found.refused += 1
                    continue
                turned = bool(ordinal % 2) and table[case.op].strided
                found.calls[case.op] = found.calls.get(case.op, 0) + 1
                wrong = compared(wanted, device, case.op, case.attrs, arrays, turned=turned)
                if wrong:
                    shapes = [None if x is None else x.shape for x in arrays]
                    found.wrong.append(f"{group} {case.op} {dict(case.attrs)} {shapes}: {wrong}")
                break
    return found
