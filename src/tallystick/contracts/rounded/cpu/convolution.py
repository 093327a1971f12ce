"""Pieces of a convolution and its gradients (NUMERICS 13.3; 2.6, 2.7).

Each is a product of a small matrix with the patches of an image, or of gradients with patches.
Patches are laid out by tiles. A convolution's output and its input gradient both read another
tensor through windows (patches.py), so one function computes both.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tallystick import _core
from tallystick.contracts.rounded.cpu.operators import rounded_kernel
from tallystick.contracts.rounded.cpu.pieces import (
    DotTerms,
    Gathered,
    Piece,
    depth_share,
    per_gather,
    term_factor,
)
from tallystick.contracts.rounded.cpu.sums import row_pieces
from tallystick.devices.arrays import Arrays, Outputs, operand
from tallystick.numerics.operators.dot import geometry, output_mask
from tallystick.numerics.types import Attrs
from tallystick.products.engines import ProductEngine, current_engine
from tallystick.products.patches import Window, backward_window, forward_window
from tallystick.products.squares import RowSquares
from tallystick.products.tiles import BUDGET, SCRATCH, ranges, widened

Tile = tuple[int, int, int, int]  # images n0..n1, rows y0..y1
# Images of fewer places go into one product together: BLAS is slow on narrow matrices.
_MERGED = 256


def _tiles(images: int, rows: int, per_row: int, budget: int) -> list[Tile]:
    """(n0, n1, y0, y1): whole images together, or rows of one image, of about `budget` values."""
    whole = max(1, rows * per_row)
    if whole <= budget:
        return [(n0, n1, 0, rows) for n0, n1 in ranges(images, max(1, budget // whole))]
    step = max(1, budget // max(1, per_row))
    return [(n, n + 1, y0, y1) for n in range(images) for y0, y1 in ranges(rows, step)]


@rounded_kernel("aten.convolution")
def convolution(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> Iterator[Piece]:
    """aten.convolution; a bias is the last term."""
    x, weight, out = operand(inputs, 0), operand(inputs, 1), outputs[0]
    bias = inputs[2] if len(inputs) == 3 else None
    stride, padding, dilation, groups = geometry("aten.convolution", attrs)
    shape = (out.shape[2], out.shape[3])
    window = forward_window(x, weight.shape[2:], shape, stride, padding, dilation)
    yield from _windowed(window, weight, groups, bias, out, 0)


def _turned(weight: np.ndarray, groups: int) -> np.ndarray:
    """The weight as the input gradient reads it: [C, O/g, kh, kw]."""
    o, c, kh, kw = weight.shape
    turned = weight.reshape(groups, o // groups, c, kh, kw).transpose(0, 2, 1, 3, 4)
    return np.ascontiguousarray(turned).reshape(groups * c, o // groups, kh, kw)


@rounded_kernel("aten.convolution_backward")
def convolution_backward(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> Iterator[Piece]:
    """aten.convolution_backward: gradients of input, weight and bias, as output_mask asks."""
    grad, x, weight = operand(inputs, 0), operand(inputs, 1), operand(inputs, 2)
    stride, padding, dilation, groups = geometry("aten.convolution_backward", attrs)
    want_input, want_weight, want_bias = output_mask(attrs)
    kernel, size = weight.shape[2:], (x.shape[2], x.shape[3])
    number = 0
    if want_input:
        window = backward_window(grad, kernel, size, stride, padding, dilation)
        turned = _turned(weight, groups)
        yield from _windowed(window, turned, groups, None, outputs[number], number)
        number += 1
    if want_weight:
        shape = (grad.shape[2], grad.shape[3])
        window = forward_window(x, kernel, shape, stride, padding, dilation)
        yield from _weight_pieces(window, grad, groups, outputs[number], number)
        number += 1
    if want_bias:
        yield from _bias_pieces(grad, outputs[number], number)


# --- an output image as a product with patches ----------------------------------------------------
def _windowed(
    window: Window,
    weight: np.ndarray,
    groups: int,
    bias: np.ndarray | None,
    out: np.ndarray,
    output: int,
) -> Iterator[Piece]:
    """out[n,o,·] = weight[o,·] · patches[n,·] (+ bias[o]), by groups of channels."""
    if out.size == 0:
        return
    images, channels = out.shape[:2]
    per_group, k = channels // groups, weight.shape[1] * window.taps
    width, places = window.columns.places, window.places
    engine, factor = current_engine(), term_factor(k + (bias is not None))
    matrix = weight.reshape(groups, per_group, k)
    with np.errstate(over="ignore", invalid="ignore"):
        # The taps are a of 14.4 and the weights b (OPENING 7.3), so the factor goes to the taps.
        of_weight = np.sqrt(_core.square_sums_rows(weight.reshape(channels, k)))
    wide = matrix.astype(np.float64)
    flat = out.reshape(-1)
    budget = max(1, BUDGET - wide.size)
    for n0, n1, y0, y1 in _tiles(
        images, window.rows.places, width * (groups * k * 3 // 2 + channels), budget
    ):
        count, here = n1 - n0, (y1 - y0) * width
        w = SCRATCH.get("w", (count, groups, per_group, here))
        if groups == 1 and count > 1 and here < _MERGED:
            squares = _merged_product(engine, window, wide[0], (n0, n1, y0, y1), w[:, 0])
        else:
            squares = _image_products(engine, window, wide, (n0, n1, y0, y1), w)
        w = w.reshape(-1, here)
        ec = None
        if bias is not None:
            ec = np.tile(bias.astype(np.float64), count).reshape(-1, 1)
            with np.errstate(over="ignore", invalid="ignore"):
                np.add(w, ec, out=w)
                ec = factor * np.abs(ec)
        start = n0 * channels * places + y0 * width
        target = np.lib.stride_tricks.as_strided(
            flat[start:], w.shape, (places * flat.itemsize, flat.itemsize)
        )
        yield Piece(
            output,
            w,
            np.tile(of_weight, count),
            factor * np.sqrt(squares),
            ec,
            target,
            start,
            places,
            _window_terms(window, weight, groups, bias, n0, y0, here),
        )


def _image_products(
    engine: ProductEngine, window: Window, wide: np.ndarray, tile: Tile, w: np.ndarray
) -> np.ndarray:
    """w[n,g] = wide[g]·patches[n,g]; f64[n·g, places]: SUM64 of the patches' squares."""
    count, groups, _, here = w.shape
    k = wide.shape[2]
    if window.is_plain:
        n0, n1, y0, y1 = tile
        patches = window.x[n0:n1, :, y0:y1].reshape(count, groups, k, here)
    else:
        patches = _laid(window.view(*tile)).reshape(count, groups, k, here)
    squares = np.empty((count * groups, here))
    for at, block in enumerate(patches.reshape(count * groups, k, here)):
        squares[at] = _core.square_sums_columns(block)
    if groups == 1:
        images = np.broadcast_to(wide[0], (count, *wide.shape[1:]))
        engine.mm(images, widened("b", patches[:, 0]), w[:, 0])
        return squares
    for n in range(count):
        engine.mm(wide, widened("b", patches[n]), w[n])
    return squares


def _merged_product(
    engine: ProductEngine, window: Window, wide: np.ndarray, tile: Tile, w: np.ndarray
) -> np.ndarray:
    """As `_image_products`, for one group and small images: one product with the patches of all
    images."""
    count, channels, here = w.shape
    patches = _laid(window.view(*tile).transpose(1, 2, 3, 0, 4, 5)).reshape(-1, count * here)
    squares: np.ndarray = np.asarray(_core.square_sums_columns(patches)).reshape(count, here)
    product = SCRATCH.get("part", (channels, count * here))
    engine.mm(wide, widened("b", patches), product)
    np.copyto(w, product.reshape(channels, count, here).swapaxes(0, 1))
    return squares


def _laid(view: np.ndarray) -> np.ndarray:
    """A C-contiguous copy in scratch memory."""
    laid = SCRATCH.get("patches", view.shape, np.float32)
    np.copyto(laid, view)
    return laid


def _window_terms(
    window: Window,
    weight: np.ndarray,
    groups: int,
    bias: np.ndarray | None,
    n0: int,
    y0: int,
    here: int,
) -> DotTerms:
    channels, per_channel = weight.shape[0], weight.shape[1]
    rows = weight.reshape(channels, -1)
    k = rows.shape[1]

    def gather(at: np.ndarray) -> Gathered:
        row, place = np.divmod(at, here)
        n, o = np.divmod(row, channels)
        first = o // (channels // groups) * per_channel
        column = window.patches(n0 + n, first, per_channel, place + y0 * window.columns.places)
        return rows, column.T, o, np.arange(len(at))

    def last(at: np.ndarray) -> np.ndarray:
        assert bias is not None
        return np.asarray(bias[at // here % channels])

    return DotTerms(gather, None if bias is None else last, per_gather(k))


# --- the weight gradient --------------------------------------------------------------------------
def _weight_pieces(
    window: Window, grad: np.ndarray, groups: int, out: np.ndarray, output: int
) -> Iterator[Piece]:
    """out[o,(c,i,j)] = Σ over (n,y,x) of grad[n,o,y,x] · tap (c,i,j) there."""
    if out.size == 0:
        return
    images, channels = grad.shape[:2]
    per_group, k = channels // groups, out.shape[1] * window.taps
    width = window.columns.places
    engine, factor = current_engine(), term_factor(images * window.places)
    w = np.zeros((groups, per_group, k))
    part = np.empty_like(w)
    longest = parts = 0
    of_grad, of_taps = RowSquares(channels), RowSquares(groups * k)
    for n0, n1, y0, y1 in _tiles(
        images, window.rows.places, width * (groups * k + channels) * 3 // 2, BUDGET
    ):
        length = (n1 - n0) * (y1 - y0) * width
        longest, parts = max(longest, length), parts + 1
        gradients = SCRATCH.get("gradients", (channels, n1 - n0, y1 - y0, width), np.float32)
        np.copyto(gradients, grad[n0:n1, :, y0:y1].swapaxes(0, 1))
        taps = _laid(window.view(n0, n1, y0, y1).transpose(1, 2, 3, 0, 4, 5))
        of_grad.add(gradients.reshape(channels, length))
        of_taps.add(taps.reshape(groups * k, length))
        engine.mm(
            widened("a", gradients.reshape(groups, per_group, length)),
            widened("b", taps.reshape(groups, k, length)).swapaxes(1, 2),
            part,
        )
        with np.errstate(over="ignore", invalid="ignore"):
            np.add(w, part, out=w)
    with np.errstate(over="ignore", invalid="ignore"):
        ea, eb = factor * np.sqrt(of_grad.total()), np.sqrt(of_taps.total())
    yield Piece(
        output,
        w.reshape(channels, k),
        ea,
        eb.reshape(groups, k),
        None,
        out.reshape(channels, k),
        0,
        k,
        _weight_terms(window, grad, groups, k),
        depth_share(images * window.places, longest, parts),
    )


def _weight_terms(window: Window, grad: np.ndarray, groups: int, k: int) -> DotTerms:
    images, channels = grad.shape[:2]
    length = images * window.places

    def gather(at: np.ndarray) -> Gathered:
        o, tap = np.divmod(at, k)
        first = o // (channels // groups) * (k // window.taps)
        rows, i = np.unique(o, return_inverse=True)
        columns, j = np.unique(first * window.taps + tap, return_inverse=True)
        a = grad[:, rows].swapaxes(0, 1).reshape(len(rows), length)
        b = window.everywhere(columns // window.taps, columns % window.taps)
        return a, b.T, i.astype(np.int64), j.astype(np.int64)

    return DotTerms(gather, None, per_gather(length))


def _bias_pieces(grad: np.ndarray, out: np.ndarray, output: int) -> Iterator[Piece]:
    """out[o] = Σ over (n,y,x) of grad[n,o,y,x] (2.7)."""
    images, channels, height, width = grad.shape
    length = images * height * width
    for o0, o1 in ranges(channels, max(1, BUDGET // max(1, length))):
        rows = np.ascontiguousarray(grad[:, o0:o1].swapaxes(0, 1)).reshape(o1 - o0, length)
        yield from row_pieces(rows, out[o0:o1], o0, output)
