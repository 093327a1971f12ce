"""Pieces of a convolution and its gradients (NUMERICS 13.3; 2.6, 2.7).

Each is a product of a small matrix with the patches of an image, or of gradients with patches.
Patches are laid out by tiles.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tallystick import _core
from tallystick.contracts.rounded.cpu import rounded_kernel
from tallystick.contracts.rounded.cpu.pieces import (
    DotTerms,
    Gathered,
    Piece,
    add_last,
    depth_share,
    per_gather,
)
from tallystick.contracts.rounded.cpu.products import row_pieces
from tallystick.devices.device import Arrays, Outputs
from tallystick.numerics.types import Attrs
from tallystick.products.engines import ProductEngine, current_engine
from tallystick.products.operators import CONVOLUTION_OPERATORS, Convolution, Window, convolutions
from tallystick.products.patches import Tile, everywhere, image_tiles, patches, view, weight_rows
from tallystick.products.squares import RowSquares, term_factor
from tallystick.products.tiles import BUDGET, SCRATCH, ranges, widened

# Images of fewer places go into one product together: BLAS is slow on narrow matrices.
_MERGED = 256


@rounded_kernel(*CONVOLUTION_OPERATORS, named=True)
def convolution(op: str, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> Iterator[Piece]:
    """aten.convolution and aten.convolution_backward; a bias is the last term."""
    for output, conv in enumerate(convolutions(op, attrs, inputs, outputs)):
        if conv.makes == "bias":
            yield from _bias_pieces(conv.y, conv.out, output)
        elif not conv.out.size:
            continue
        elif conv.makes == "weight":
            yield from _weight_pieces(conv, output)
        else:
            yield from _image_pieces(conv, output)


# --- an output image as a product with patches ----------------------------------------------------
def _image_pieces(conv: Convolution[np.ndarray], output: int) -> Iterator[Piece]:
    """out[n,o,·] = weight[o,·] · patches[n,·] (+ bias[o]), by groups of channels."""
    window, bias, out = conv.window, conv.bias, conv.out
    groups, k, per_group = window.groups, window.taps, conv.rows
    images, channels = out.shape[:2]
    width, places = window.columns.places, window.plane
    engine, factor = current_engine(), term_factor(k + (bias is not None))
    matrix = weight_rows(conv)
    with np.errstate(over="ignore", invalid="ignore"):
        # The taps are a of 14.4 and the weights b (OPENING 7.3), so the factor goes to the taps.
        of_weight = np.sqrt(_core.square_sums_rows(matrix.reshape(channels, k)))
    wide = matrix.astype(np.float64)
    terms = _image_terms(window, matrix.reshape(channels, k), bias)
    flat = out.reshape(-1)
    budget = max(1, BUDGET - wide.size)
    per_row = width * (groups * k * 3 // 2 + channels)
    for tile in image_tiles(images, window.rows.places, per_row, budget):
        n0, n1, y0, y1 = tile
        count, here = n1 - n0, (y1 - y0) * width
        w = SCRATCH.get("w", (count, groups, per_group, here))
        if groups == 1 and count > 1 and here < _MERGED:
            squares = _merged_product(engine, window, wide[0], tile, w[:, 0])
        else:
            squares = _image_products(engine, window, wide, tile, w)
        w = w.reshape(-1, here)
        ec = None if bias is None else add_last(w, np.tile(bias, count)[:, None], factor)
        start = n0 * channels * places + y0 * width
        target = np.lib.stride_tricks.as_strided(
            flat[start:], w.shape, (places * flat.itemsize, flat.itemsize)
        )
        ea, eb = np.tile(of_weight, count), factor * np.sqrt(squares)
        yield Piece(output, w, ea, eb, ec, target, start, places, terms)


def _image_products(
    engine: ProductEngine, window: Window[np.ndarray], wide: np.ndarray, tile: Tile, w: np.ndarray
) -> np.ndarray:
    """w[n,g] = wide[g]·patches[n,g]; f64[n·g, places]: SUM64 of the patches' squares."""
    count, groups, _, here = w.shape
    k = wide.shape[2]
    if window.is_plain:
        n0, n1, y0, y1 = tile
        laid = window.x[n0:n1, :, y0:y1].reshape(count, groups, k, here)
    else:
        laid = _laid(view(window, tile)).reshape(count, groups, k, here)
    squares = np.empty((count * groups, here))
    for at, block in enumerate(laid.reshape(count * groups, k, here)):
        squares[at] = _core.square_sums_columns(block)
    if groups == 1:
        images = np.broadcast_to(wide[0], (count, *wide.shape[1:]))
        engine.mm(images, widened("b", laid[:, 0]), w[:, 0])
        return squares
    for n in range(count):
        engine.mm(wide, widened("b", laid[n]), w[n])
    return squares


def _merged_product(
    engine: ProductEngine, window: Window[np.ndarray], wide: np.ndarray, tile: Tile, w: np.ndarray
) -> np.ndarray:
    """As `_image_products`, for one group and small images: one product with the patches of all
    images."""
    count, channels, here = w.shape
    laid = _laid(view(window, tile).transpose(1, 2, 3, 0, 4, 5)).reshape(-1, count * here)
    squares: np.ndarray = np.asarray(_core.square_sums_columns(laid)).reshape(count, here)
    product = SCRATCH.get("part", (channels, count * here))
    engine.mm(wide, widened("b", laid), product)
    np.copyto(w, product.reshape(channels, count, here).swapaxes(0, 1))
    return squares


def _laid(x: np.ndarray) -> np.ndarray:
    """A C-contiguous copy in scratch memory."""
    laid = SCRATCH.get("patches", x.shape, np.float32)
    np.copyto(laid, x)
    return laid


def _image_terms(window: Window[np.ndarray], rows: np.ndarray, bias: np.ndarray | None) -> DotTerms:
    channels, k = rows.shape
    per_group = channels // window.groups

    def gather(at: np.ndarray) -> Gathered:
        plane, place = np.divmod(at, window.plane)
        n, o = np.divmod(plane, channels)
        taps = patches(window, n, o // per_group, place)
        return rows, taps.T, o, np.arange(len(at))

    def last(at: np.ndarray) -> np.ndarray:
        assert bias is not None
        return np.asarray(bias[at // window.plane % channels])

    return DotTerms(gather, None if bias is None else last, per_gather(k))


# --- the weight gradient --------------------------------------------------------------------------
def _weight_pieces(conv: Convolution[np.ndarray], output: int) -> Iterator[Piece]:
    """out[o,(c,i,j)] = Σ over (n,y,x) of grad[n,o,y,x] · tap (c,i,j) there."""
    window, grad = conv.window, conv.y
    groups, k, per_group = window.groups, window.taps, conv.rows
    images, channels = grad.shape[:2]
    width = window.columns.places
    engine, factor = current_engine(), term_factor(window.places)
    w = np.zeros((groups, per_group, k))
    part = np.empty_like(w)
    longest = parts = 0
    of_grad, of_taps = RowSquares(channels), RowSquares(groups * k)
    per_row = width * (groups * k + channels) * 3 // 2
    for tile in image_tiles(images, window.rows.places, per_row, BUDGET):
        n0, n1, y0, y1 = tile
        length = (n1 - n0) * (y1 - y0) * width
        longest, parts = max(longest, length), parts + 1
        gradients = SCRATCH.get("gradients", (channels, n1 - n0, y1 - y0, width), np.float32)
        np.copyto(gradients, grad[n0:n1, :, y0:y1].swapaxes(0, 1))
        taps = _laid(view(window, tile).transpose(1, 2, 3, 0, 4, 5))
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
        ea, eb = factor * np.sqrt(of_grad.total()), np.sqrt(of_taps.total()).reshape(groups, k)
    rows, out = w.reshape(channels, k), conv.out.reshape(channels, k)
    share = depth_share(window.places, longest, parts)
    yield Piece(output, rows, ea, eb, None, out, 0, k, _weight_terms(window, grad), share)


def _weight_terms(window: Window[np.ndarray], grad: np.ndarray) -> DotTerms:
    channels = grad.shape[1]

    def gather(at: np.ndarray) -> Gathered:
        o, tap = np.divmod(at, window.taps)
        rows, i = np.unique(o, return_inverse=True)
        first = o // (channels // window.groups) * window.taps
        columns, j = np.unique(first + tap, return_inverse=True)
        a = grad[:, rows].swapaxes(0, 1).reshape(len(rows), window.places)
        b = everywhere(window, *np.divmod(columns, window.kernel))
        return a, b.T, i.astype(np.int64), j.astype(np.int64)

    return DotTerms(gather, None, per_gather(window.places))


def _bias_pieces(grad: np.ndarray, out: np.ndarray, output: int) -> Iterator[Piece]:
    """out[o] = Σ over (n,y,x) of grad[n,o,y,x] (2.7)."""
    images, channels, height, width = grad.shape
    length = images * height * width
    for o0, o1 in ranges(channels, max(1, BUDGET // max(1, length))):
        rows = np.ascontiguousarray(grad[:, o0:o1].swapaxes(0, 1)).reshape(o1 - o0, length)
        yield from row_pieces(rows, out[o0:o1], o0, output)
