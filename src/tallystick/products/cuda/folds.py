"""Reductions of tensors: which elements an output has, and which kernels fold them.

A fold is a family of kernels of native/cuda/folds.hpp. No choice made here changes a bit: pieces of
an output are values of the rule's own tree (NUMERICS 3.1), or the fold takes any order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tallystick.devices.cuda.device import Cuda
from tallystick.devices.cuda.launch import f64, over, whole
from tallystick.devices.cuda.tensor import DeviceTensor

BLOCK, CHUNK = 256, 65536  # elements below a value of the rule's first and second level
_TILE = 32
_MOST_GRID = 1 << 20  # blocks of a launch; each takes several items where there are more
# Below this many elements a row is the work of one warp.
WARP_ROW = 1024


@dataclass(frozen=True)
class FoldKernels:
    """The kernels `NAME_thin`, `NAME_warp`, `NAME_block`, `NAME_columns`, the bytes of a state, and
    the fold of states that were stored ("": this one reads its own)."""

    name: str
    state: int
    above: str = ""


_ALL = (
    FoldKernels("reduce_sum", 4),
    FoldKernels("reduce_squares", 4, "reduce_sum"),
    FoldKernels("reduce_differences", 4, "reduce_sum"),
    FoldKernels("reduce_wide", 8, "reduce_sum64"),
    FoldKernels("reduce_deviations", 8, "reduce_sum64"),
    FoldKernels("reduce_sum64", 8),
    FoldKernels("rounded_squares", 8, "reduce_sum64"),
    FoldKernels("replay_magnitudes", 8, "reduce_sum64"),
    FoldKernels("reduce_max", 4),
    FoldKernels("reduce_min", 4),
    FoldKernels("reduce_whole_sum", 8),
    FoldKernels("reduce_whole_max", 8),
    FoldKernels("reduce_whole_min", 8),
    FoldKernels("reduce_bool_sum", 8, "reduce_whole_sum"),
    FoldKernels("reduce_place", 16, "reduce_places"),
    FoldKernels("reduce_places", 16),
    FoldKernels("reduce_whole_place", 16, "reduce_whole_places"),
    FoldKernels("reduce_whole_places", 16),
    FoldKernels("norm_products", 4, "reduce_sum"),
    FoldKernels("norm_row_products", 4, "reduce_sum"),
)
FOLDS = {fold.name: fold for fold in _ALL}


@dataclass(frozen=True)
class FoldLayout:
    """Where the elements of each output lie, as FoldParams in folds.hpp says."""

    outputs: int
    n: int
    inner: int = 1
    outer_step: int = 0
    run: int = 0
    run_step: int = 0
    step: int = 1

    @property
    def is_side_by_side(self) -> bool:
        """True if neighbouring outputs lie next to each other, and their elements do not."""
        return self.inner > 1


def rows(count: int, n: int) -> FoldLayout:
    """`count` rows of n elements, one after the other."""
    return FoldLayout(count, n, 1, n, max(n, 1))


def columns(outer: int, n: int, inner: int) -> FoldLayout:
    """The columns of `outer` matrices of n rows and `inner` columns."""
    if inner == 1:
        return rows(outer, n)
    return FoldLayout(outer * inner, n, inner, n * inner, max(n, 1), step=inner)


def layout(shape: Sequence[int], axes: Sequence[int]) -> FoldLayout | None:
    """The layout of a C-contiguous tensor reduced over `axes` (NUMERICS 3.3). None where it takes
    more than two groups of neighbouring reduced axes, or two that are not at both ends."""
    n = math.prod(shape[a] for a in axes)
    outputs = math.prod(size for a, size in enumerate(shape) if a not in axes)
    if not n or not outputs:
        return rows(outputs, n)
    groups: list[tuple[bool, int]] = []  # (reduced, size), in turn
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        reduced = axis in axes
        if groups and groups[-1][0] == reduced:
            groups[-1] = (reduced, groups[-1][1] * size)
        else:
            groups.append((reduced, size))
    pattern = "".join("r" if reduced else "k" for reduced, _ in groups)
    sizes = [size for _, size in groups]
    if pattern in ("", "k", "r", "kr"):
        return rows(outputs, n)
    if pattern == "rk":
        return columns(1, n, outputs)
    if pattern == "krk":
        return columns(sizes[0], n, sizes[2])
    if pattern == "rkr":
        run = sizes[2]
        return FoldLayout(outputs, n, 1, run, run, outputs * run)
    return None


@dataclass(frozen=True)
class _Launch:
    fold: FoldKernels
    layout: FoldLayout
    shape: str
    pieces: int
    piece: int
    threads: int
    blocks: int
    offset: int  # of its states in the scratch memory; unused by the last launch


def shape_of(at: FoldLayout) -> tuple[str, int]:
    """The kernel's shape, and the elements of a piece."""
    if at.n <= _TILE:
        return "thin", at.n
    if at.is_side_by_side:
        few = -(-at.outputs // _TILE) < 256
        return "columns", BLOCK if few and at.n > 2 * BLOCK else at.n
    if at.n <= WARP_ROW:
        return "warp", at.n
    if at.n <= 32 * BLOCK or at.outputs >= 256:
        return "block", at.n
    if at.outputs * at.n < 64 * CHUNK:
        return "warp", BLOCK
    return "block", CHUNK


def threads_of(n: int) -> int:
    """The threads of a block that shares a row of n elements: a warp for every 256."""
    return min(1024, max(256, 32 << (-(-n // BLOCK) - 1).bit_length()))


def _launch(fold: FoldKernels, at: FoldLayout, offset: int) -> _Launch:
    shape, piece = shape_of(at)
    pieces = max(1, -(-at.n // max(piece, 1)))
    piece = max(piece, 1)
    items, threads = at.outputs * pieces, 256
    if shape == "thin":
        blocks = over(at.outputs)[0]
    elif shape == "warp":
        blocks = -(-items // 8)
    elif shape == "block":
        blocks, threads = items, threads_of(piece)
    else:
        blocks, threads = -(-at.outputs // _TILE) * pieces, 1024
    return _Launch(fold, at, shape, pieces, piece, threads, min(blocks, _MOST_GRID), offset)


class FoldPlan:
    """The launches that fold a tensor. `scratch`: the bytes they need beside the operands."""

    def __init__(self, name: str, at: FoldLayout) -> None:
        self.launches: list[_Launch] = []
        self.scratch = 0
        fold = FOLDS[name]
        while at.outputs:
            made = _launch(fold, at, self.scratch)
            self.launches.append(made)
            if made.pieces == 1:
                break
            self.scratch += -(-at.outputs * made.pieces * fold.state // 256) * 256
            fold = FOLDS[fold.above or fold.name]
            at = columns(at.outputs // at.inner, made.pieces, at.inner)

    def run(
        self,
        device: Cuda,
        out: int,
        x: int,
        y: int = 0,
        a: int = 0,
        b: int = 0,
        scratch: int = 0,
        divisor: float | None = None,
        divisor_at: int = 0,
    ) -> None:
        """Start the launches. Addresses: of the outputs, the operands (FoldParams), the scratch
        memory and of a divisor on the device; `divisor`: one that the host knows."""
        for number, made in enumerate(self.launches):
            last = number == len(self.launches) - 1
            at, target = made.layout, out if last else scratch + made.offset
            params = (
                whole(x, y, a, b, target, at.outputs, at.n)
                + whole(at.inner, at.outer_step, at.run, at.run_step, at.step)
                + whole(made.pieces, made.piece, divisor_at, divisor is not None)
                + f64(divisor or 0.0)
            )
            grid = (made.blocks, 1, 1)
            device.launch(f"{made.fold.name}_{made.shape}", grid, made.threads, params)
            x = target


def turned(x: DeviceTensor, order: Sequence[int]) -> DeviceTensor:
    """A view of x whose axis i is x's axis order[i]."""
    shape, strides = [x.shape[a] for a in order], [x.strides[a] for a in order]
    return DeviceTensor(x.device, x.memory, x.address, x.dtype, shape, strides)


def launch_rows(device: Cuda, kernel: str, count: int, n: int, params: bytes) -> None:
    """Start `KERNEL_warp` or `KERNEL_block` (TS_ROWS in sums.hpp) over `count` rows of n elements;
    nothing where there are no rows."""
    if not count:
        return
    if n <= WARP_ROW:
        device.launch(f"{kernel}_warp", (min(-(-count // 8), _MOST_GRID), 1, 1), 256, params)
    else:
        device.launch(f"{kernel}_block", (min(count, _MOST_GRID), 1, 1), threads_of(n), params)
