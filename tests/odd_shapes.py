"""Calls of other sizes, made from the golden vectors: of every operator, without a rule for each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import kernel_format as fmt
import numpy as np
from device_calls import KINDS, OPS, Arrays, call, difference

from tallystick.errors import TallystickError
from tallystick.kernels.cpu.device import CPU
from tallystick.kernels.device import Device
from tallystick.kernels.views import view
from tallystick.numerics.contracts import find_contract

# Around the sizes of warps, vectors of four, blocks and chunks.
_MORE = (0, 1, 1, 2, 3, 5, 7, 15, 30, 33, 61, 127, 130, 257)
_MOST_ELEMENTS = 20_000
_TRIES = 4


def grown(arrays: Arrays, rng: np.random.Generator) -> list[np.ndarray | None] | None:
    """Operands with other sizes and elements of the old ones; None if they grew too large.

    Equal sizes grow alike, so that axes that must agree still do. None shrinks, so that an index
    stays inside of its axis.
    """
    sizes = sorted({size for x in arrays if x is not None for size in x.shape})
    to = {size: size + int(rng.choice(_MORE)) if size > 1 else size for size in sizes}
    found: list[np.ndarray | None] = []
    for x in arrays:
        if x is None:
            found.append(None)
            continue
        shape = tuple(to[size] for size in x.shape)
        if math.prod(shape) > _MOST_ELEMENTS:
            return None
        places = rng.integers(0, max(x.size, 1), math.prod(shape))
        found.append(x.reshape(-1)[places].reshape(shape) if x.size else np.zeros(shape, x.dtype))
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


def _expected(op: str, case: fmt.Case, arrays: Arrays) -> tuple[np.ndarray, ...] | None:
    try:
        out = call(CPU, op, case.attrs, arrays)
    except (TallystickError, ValueError, IndexError):
        return None
    return out if sum(x.size for x in out) <= 4 * _MOST_ELEMENTS else None


def check_odd_shapes(
    device: Device, seed: int, groups: Sequence[str] | None = None, share: float = 1.0
) -> Odd:
    """Of a share of the golden calls, one of other sizes each: `device` against the processor."""
    found, rng = Odd(), np.random.default_rng(seed)
    table = device.kernels(find_contract("ordered/1"))
    for group in fmt.groups() if groups is None else groups:
        for case in fmt.load(group, KINDS):
            if case.op in view or case.op not in OPS or rng.random() > share:
                continue
            for arrays, expected in _tries(case, rng):
                if expected is None:
                    found.refused += 1
                    continue
                turned = bool(rng.integers(2)) and table[case.op].strided
                got = call(device, case.op, case.attrs, arrays, turned=turned)
                found.calls[case.op] = found.calls.get(case.op, 0) + 1
                wrong = difference(expected, got)
                if wrong:
                    shapes = [None if x is None else x.shape for x in arrays]
                    found.wrong.append(f"{group} {case.op} {dict(case.attrs)} {shapes}: {wrong}")
                break
    return found


def _tries(
    case: fmt.Case, rng: np.random.Generator
) -> Iterator[tuple[list[np.ndarray | None], tuple[np.ndarray, ...] | None]]:
    for _ in range(_TRIES):
        arrays = grown(case.inputs, rng)
        if arrays is not None:
            yield arrays, _expected(case.op, case, arrays)
