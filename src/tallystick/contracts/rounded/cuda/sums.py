"""Sums and means as rounded operators (NUMERICS 13.3; 3.3, 3.4) over native/cuda/rounded.cu."""

from __future__ import annotations

import math

from tallystick.contracts.rounded.cuda import rounded_kernel
from tallystick.devices.cuda.copies import copy
from tallystick.devices.cuda.device import Cuda
from tallystick.devices.cuda.launch import THREADS, Outputs, Tensors, f64, over, whole
from tallystick.devices.kernel import operand
from tallystick.numerics.operators.reduction import reduced_axes
from tallystick.numerics.types import Attrs
from tallystick.products.cuda.dots import Marks, Rounding
from tallystick.products.cuda.folds import FoldLayout, FoldPlan, Room, layout, rows, turned
from tallystick.products.squares import term_factor

_MAGNITUDES = "replay_magnitudes"
_SHORTEST, _MOST_PARTS = 1024, 512
_WARPS, _SPREAD = 8192, 1 << 17  # warps, or threads, that keep a large GPU busy


def _parts(at: FoldLayout) -> tuple[int, int]:
    """The number of parts of a line, and the elements of one."""
    wanted = _SPREAD if at.is_side_by_side else _WARPS
    parts = max(1, min(wanted // max(at.outputs, 1), -(-at.n // _SHORTEST), _MOST_PARTS))
    part = max(1, -(-at.n // parts))
    return max(1, -(-at.n // part)), part


def state_bytes(at: FoldLayout) -> int:
    """The memory of the states of all parts."""
    return 24 * at.outputs * _parts(at)[0]


def sum_bytes(at: FoldLayout, marks: Marks | None) -> int:
    """The scratch memory of `sum_lines`."""
    return _aligned(state_bytes(at)) + _bound_bytes(at, marks)


def _aligned(nbytes: int) -> int:
    return -(-nbytes // 256) * 256


def _bound_bytes(at: FoldLayout, marks: Marks | None) -> int:
    """Those of the sums of magnitudes, which only a log's bound needs."""
    return 0 if marks is None else _aligned(8 * at.outputs) + FoldPlan(_MAGNITUDES, at).scratch


def sum_lines(
    device: Cuda,
    at: FoldLayout,
    x: int,
    out: int,
    scratch: int,
    bits: int,
    marks: Marks | None,
    mean: bool = False,
) -> None:
    """out = R of the sum of each line of x, f32, or what its entry says; of a mean, divided by the
    number of elements. Arguments but `at`, `bits` and `marks` are addresses."""
    if not at.outputs:
        return
    factor = term_factor(at.n)
    pieces, piece = _parts(at)
    params = (
        whole(x, 0, 0, 0, out, at.outputs, at.n)
        + whole(at.inner, at.outer_step, max(at.run, 1), at.run_step, at.step)
        + whole(pieces, piece, 0, 0)
        + f64(0.0)
        + whole(scratch)
        + f64(float(at.n))
        + whole(mean, bits)
    )
    items = at.outputs * pieces
    if at.is_side_by_side:
        device.launch("rounded_sum_thread", over(items), THREADS, params)
    else:
        device.launch("rounded_sum_warp", over(32 * items), THREADS, params)
    if marks is None:
        device.launch("rounded_sum_end", over(at.outputs), THREADS, params)
        return
    magnitudes = scratch + _aligned(state_bytes(at))
    plan = FoldPlan(_MAGNITUDES, at)
    plan.run(device, magnitudes, x, scratch=magnitudes + _aligned(8 * at.outputs))
    params += whole(magnitudes) + f64(factor) + marks.slots()
    device.launch("replay_sum_end", over(at.outputs), THREADS, params)


@rounded_kernel("aten.sum", "aten.sum.dim_IntList", "aten.mean", "aten.mean.dim", named=True)
def _sum(op: str, how: Rounding, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    x, out = operand(inputs, 0), outputs[0]
    if not out.size:
        return
    axes, room = reduced_axes(op, attrs, x.ndim), Room(out.device)
    n = math.prod(x.shape[a] for a in axes)
    at = layout(x.shape, axes) if x.is_contiguous else None
    copied = room.take(x.nbytes if at is None else 0)
    source = x.address
    is_copied = at is None
    if at is None:
        at = rows(out.size, n)
    marks = how.marks.get(0)
    scratch = room.take(sum_bytes(at, marks))
    if is_copied and n:
        source = room.at(copied)
        view = turned(x, (*(a for a in range(x.ndim) if a not in axes), *axes))
        copy(view, view.dense(source))
    mean = op.startswith("aten.mean")
    sum_lines(out.device, at, source, out.address, room.at(scratch), how.bits, marks, mean)
