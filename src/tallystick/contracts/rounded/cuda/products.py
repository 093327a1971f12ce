"""mm, bmm and addmm (NUMERICS 13.3; 2.4, 2.5), convolutions with their gradients (2.6, 2.7), sums
and means (3.3, 3.4), as rounded operators over native/cuda/rounded.cu.

A convolution is a product with the patches of an image, which are laid out in scratch memory for
some places at a time. An element in doubt reads the image itself.
"""

from __future__ import annotations

from tallystick.contracts.ordered.cuda.reduction import seen, turned_copy
from tallystick.contracts.rounded.cuda import rounded_kernel
from tallystick.devices.cuda.copies import copy
from tallystick.devices.cuda.device import Cuda
from tallystick.devices.cuda.launch import THREADS, Outputs, Tensors, f64, over, whole
from tallystick.devices.cuda.tensor import DeviceTensor
from tallystick.devices.device import operand
from tallystick.numerics.operators.reduction import reduced_axes
from tallystick.numerics.types import Attrs
from tallystick.products.cuda.dots import (
    LIMITS_OF,
    Last,
    Lines,
    Marks,
    ProductTile,
    Rounding,
    Target,
    cut,
    decide,
    last_of,
    lines_of,
    multiply,
    part_of,
    product,
    tiles_of,
    wide_bytes,
)
from tallystick.products.cuda.folds import BLOCK, FoldLayout, FoldPlan, columns, rows, turned
from tallystick.products.cuda.windows import lay, slots, tap_squares
from tallystick.products.operators import (
    CONVOLUTION_OPERATORS,
    MATRIX_OPERATORS,
    Convolution,
    convolutions,
    matrices,
    plain,
)
from tallystick.products.squares import term_factor


# --- matrix products ------------------------------------------------------------------------------
@rounded_kernel(*MATRIX_OPERATORS, named=True)
def _products(op: str, how: Rounding, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    operands = matrices(op, attrs, inputs, outputs)
    out = operands.out
    if out.size == 0:
        return
    device, (batches, m, n, k) = out.device, operands.sizes
    sides, sizes = [], list[int]()
    for x, axis, count in ((operands.a, -2, m), (operands.b, -1, n)):
        lines = lines_of(x, axis)
        layout = lines.layout(count, k)
        is_copied = layout is None
        if layout is None:
            lines = lines_of(x.dense(0), axis)
            layout = lines.layout(count, k)
            assert layout is not None
        plan = FoldPlan("rounded_squares", layout)
        sides.append((x, lines, plan, is_copied))
        sizes += [x.nbytes if is_copied else 0, 8 * lines.period * count, plan.scratch]
    made = cut(device, batches, m, n, k)
    places = device.places([*sizes, *made.sizes])
    read, squares = [], places[1:6:3]
    for number, (x, lines, plan, is_copied) in enumerate(sides):
        copied, own, scratch = places[3 * number : 3 * number + 3]
        address = copied if is_copied else lines.address
        if is_copied:
            copy(x, x.dense(address))
        plan.run(device, own, address, scratch=scratch)
        read.append(Lines(address, lines.line, lines.term, lines.batch, lines.period))
    target = Target(
        out.address, batches, m, n, k, how.bits, last_of(operands), squares[0], read[0].period, m,
        squares[1], n, marks=how.marks.get(0),
    )  # fmt: skip
    product(device, read[0], read[1], target, made, places[6:], batches)


# --- convolutions ---------------------------------------------------------------------------------
_ALIGNED = 256  # places


@rounded_kernel(*CONVOLUTION_OPERATORS, named=True)
def _convolutions(op: str, how: Rounding, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    for output, conv in enumerate(convolutions(op, attrs, inputs, outputs)):
        if conv.makes == "bias":
            _bias_gradient(how, output, conv.y, conv.out)
        elif not conv.out.size:
            continue
        elif conv.makes == "weight":
            _weight_gradient(how, output, conv)
        else:
            _images(how, output, conv)


def _at_a_time(places: int, patches: int, results: int) -> int:
    """Places whose patches (values of a place) and results stand in scratch memory together."""
    limits = LIMITS_OF[0]
    most = min(limits.patches // max(patches, 1), limits.results // max(results, 1))
    if most >= places:
        return places
    return max(1, most // _ALIGNED * _ALIGNED or most)


def _images(how: Rounding, output: int, conv: Convolution[DeviceTensor]) -> None:
    """out[n,g·M + i,·] = Σ over taps of weight[g,i,taps]·patches[n,g,taps,·] (+ bias[g·M + i])."""
    window, weight, out, m = conv.window, _grouped(conv), conv.out, conv.rows
    device, groups, k = out.device, window.groups, window.taps
    count = _at_a_time(window.places, groups * k, groups * m)
    parts = part_of(device, groups * tiles_of(m, count), k, groups * m * count)
    of_weight = FoldPlan("rounded_squares", rows(groups * m, k))
    most = FoldPlan("rounded_squares", columns(groups, k, count)).scratch
    copied, patches, w, a_squares, b_squares, scratch, wide_a, wide_b = device.places((
        0 if weight.is_contiguous else weight.nbytes,
        4 * groups * k * count, 8 * groups * m * count * parts,
        8 * groups * m, 8 * groups * count, max(of_weight.scratch, most),
        wide_bytes(device, groups * m * k), wide_bytes(device, groups * k * count),
    ))  # fmt: skip
    if weight.is_contiguous:
        copied = weight.address
    else:
        copy(weight, weight.dense(copied))
    lines = Lines(copied, k, 1, m * k, groups)
    of_weight.run(device, a_squares, copied, scratch=scratch)
    last = last_of(conv)
    for first in range(0, window.places, count):
        here = min(count, window.places - first)
        lay(window, first, here, patches)
        FoldPlan("rounded_squares", columns(groups, k, here)).run(
            device, b_squares, patches, scratch=scratch
        )
        tile = ProductTile(groups, m, here, parts, first_column=first)
        laid = Lines(patches, 1, here, k * here, groups)
        part = multiply(device, tile, k, lines, laid, w, (wide_a, wide_b))
        target = Target(
            out.address, groups, m, window.plane, k, how.bits, last,
            a_squares, groups, m, b_squares - 8 * first, here, marks=how.marks.get(output),
            b_first=True,
        )  # fmt: skip
        share = target.share(min(part, k), parts)
        decide(device, "places", target, tile, w, share, lines.slots() + slots(window))


def _grouped(conv: Convolution[DeviceTensor]) -> DeviceTensor:
    """The weight [O,C,kh,kw] as [groups, O/groups, C, taps]; as the gradient of x reads it,
    [groups, C, O/groups, taps]."""
    w, groups = conv.weight, conv.form[3]
    o, c, taps = w.shape[0] // groups, w.shape[1], w.shape[2] * w.shape[3]
    shape = (groups, o, c, taps)
    strides = (4 * o * c * taps, 4 * c * taps, 4 * taps, 4)
    found = DeviceTensor(w.device, w.memory, w.address, "f32", shape, strides)
    return turned(found, (0, 2, 1, 3)) if conv.makes == "x" else found


def _weight_gradient(how: Rounding, output: int, conv: Convolution[DeviceTensor]) -> None:
    """out[g·M + i, tap] = Σ over (n,y,x) of grad[n,g·M + i,y,x] · tap `tap` there."""
    window, grad, out, m = conv.window, conv.y, conv.out, conv.rows
    device, groups, n = out.device, window.groups, window.taps
    channels, plane, terms = grad.shape[1], window.plane, window.places
    count = max(1, _at_a_time(terms, groups * n + channels, 1))
    starts, marks = range(0, max(terms, 1), count), how.marks.get(output)
    # Under a log the bound itself matters, so that b's squares are added as 3.1 says.
    of_taps = FoldPlan("reduce_sum64", rows(groups * n, -(-terms // BLOCK)))
    whole_squares = marks is not None and len(starts) > 1
    parts = part_of(device, groups * tiles_of(m, n), count, groups * m * n)
    of_grad = FoldPlan("rounded_squares", FoldLayout(channels, terms, 1, plane, max(plane, 1),
                                             channels * plane, 1))  # fmt: skip
    most = FoldPlan("rounded_squares", rows(groups * n, count)).scratch
    patches, gradients, w, a_squares, b_squares, scratch, wide_a, wide_b, blocks = device.places((
        4 * groups * n * count, 4 * channels * count, 8 * groups * m * n * parts,
        8 * channels, 8 * groups * n * len(starts), max(of_grad.scratch, most),
        wide_bytes(device, channels * count), wide_bytes(device, groups * n * count),
        8 * groups * n * -(-terms // BLOCK) + of_taps.scratch if whole_squares else 0,
    ))  # fmt: skip
    of_grad.run(device, a_squares, grad.address, scratch=scratch)
    tile, longest = ProductTile(groups, m, n, parts), 0
    for number, first in enumerate(starts):
        here = min(count, terms - first)
        lay(window, first, here, patches)
        lay(plain(grad), first, here, gradients)
        if not whole_squares:
            FoldPlan("rounded_squares", rows(groups * n, here)).run(
                device, b_squares + 8 * groups * n * number, patches, scratch=scratch
            )
        a = Lines(gradients, here, 1, m * here, groups)
        b = Lines(patches, here, 1, n * here, groups)
        to = (wide_a, wide_b)
        longest = max(longest, multiply(device, tile, here, a, b, w, to, adds=number > 0))
    if whole_squares:
        tap_squares(window, blocks)
        behind = blocks + 8 * groups * n * -(-terms // BLOCK)
        of_taps.run(device, b_squares, blocks, scratch=behind)
    target = Target(
        out.address, groups, m, n, terms, how.bits, Last(), a_squares, groups, m,
        b_squares, n, 1 if whole_squares else len(starts), groups * n, marks,
    )  # fmt: skip
    share = target.share(min(longest, terms), parts + len(starts))
    lines = Lines(grad.address, plane, 1, m * plane, groups, max(plane, 1), channels * plane)
    decide(device, "taps", target, tile, w, share, lines.slots() + slots(window))


def _bias_gradient(how: Rounding, output: int, grad: DeviceTensor, out: DeviceTensor) -> None:
    """out[o] = Σ over (n,y,x) of grad[n,o,y,x] (2.7)."""
    images, channels, height, width = grad.shape
    plane = height * width
    at = FoldLayout(channels, images * plane, 1, plane, max(plane, 1), channels * plane, 1)
    marks = how.marks.get(output)
    scratch = out.device.scratch(max(sum_bytes(at, marks), 1))
    sum_lines(out.device, at, grad.address, out.address, scratch, how.bits, marks)


# --- sums and means (3.3, 3.4) --------------------------------------------------------------------
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
    axes, marks = reduced_axes(op, attrs, x.ndim), how.marks.get(0)
    at, is_copied = seen(x, axes)
    copied, scratch = out.device.places([x.nbytes if is_copied else 0, sum_bytes(at, marks)])
    source = turned_copy(x, axes, copied) if is_copied else x.address
    mean = op.startswith("aten.mean")
    sum_lines(out.device, at, source, out.address, scratch, how.bits, marks, mean)
