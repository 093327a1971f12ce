"""The operators of `exact/1`: mm, bmm and addmm (NUMERICS 17.3; 2.4, 2.5), convolutions and their
gradients (17.2, 17.3; 2.6, 2.7).

A group of a convolution is all of an image's channels of a segment, so that every element has one
integer for all the taps that read it. The integers are made once, and the patches hold integers.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from tallystick import _core
from tallystick.contracts.exact import BLOCK_LENGTHS, outer_values
from tallystick.contracts.exact.cpu import exact_kernel
from tallystick.contracts.exact.cpu.integers import Factors, Integers, dots, integers_of
from tallystick.contracts.ordered.cpu.reduction import convolve
from tallystick.devices.device import Arrays, Outputs
from tallystick.numerics.types import Attrs
from tallystick.products.following import scale_and_add
from tallystick.products.operators import (
    CONVOLUTION_OPERATORS,
    MATRIX_OPERATORS,
    Convolution,
    Window,
    convolutions,
    matrices,
)
from tallystick.products.patches import image_tiles, view, weight_rows
from tallystick.products.tiles import BUDGET, ranges


# --- matrix products ------------------------------------------------------------------------------
def _batched(a: np.ndarray, b: np.ndarray, width: int) -> np.ndarray:
    """f32[G,M,N]: the DOTs of a f32[G,M,K] and b f32[G,K,N], any strides (17.3)."""
    (batch, m, k), n = a.shape, b.shape[2]
    segment = BLOCK_LENGTHS[width]
    left = integers_of(a.reshape(batch * m, k), segment, width)
    right = integers_of(b.swapaxes(1, 2).reshape(batch * n, k), segment, width)
    am, bm = left.m.reshape(batch, m, k), right.m.reshape(batch, n, k)

    def parts(s: int, begin: int, end: int) -> Factors:
        mu_a, mu_b = left.mu[:, s].reshape(batch, m), right.mu[:, s].reshape(batch, n)
        return am[:, :, begin:end], bm[:, :, begin:end], mu_a, mu_b

    out = dots((batch, m, n), k, segment, width, parts)
    rows, columns = left.unruly.reshape(batch, m), right.unruly.reshape(batch, n)
    if rows.any() or columns.any():
        ordinary = np.empty_like(out)  # 17.7
        _core.bmm(a, b, ordinary)
        np.copyto(out, ordinary, where=rows[:, :, None] | columns[:, None, :])
    return out


@exact_kernel(*MATRIX_OPERATORS, named=True)
def _products(op: str, width: int, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    product = matrices(op, attrs, inputs, outputs)
    batch, m, n, k = product.sizes
    made = _batched(product.a.reshape(batch, m, k), product.b.reshape(batch, k, n), width)
    made = made.reshape(product.out.shape)
    if product.c is not None:
        scale_and_add(made, product.c, product.alpha, product.beta)
    np.copyto(product.out, made)


# --- convolutions ---------------------------------------------------------------------------------
@exact_kernel(*CONVOLUTION_OPERATORS, named=True)
def _convolutions(op: str, width: int, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    for conv in convolutions(op, attrs, inputs, outputs):
        if conv.makes == "bias":
            convolve(conv)
        elif conv.makes == "weight":
            _weight_gradient(conv, width)
        else:
            _images(conv, width)


def _not_finite(conv: Convolution[np.ndarray], planes: np.ndarray) -> None:
    """Make the planes of the output that bool[·,·] says as `ordered/1` does (17.7)."""
    if planes.any():
        ordinary = np.empty_like(conv.out)
        convolve(replace(conv, bias=None).into(conv.makes, ordinary))
        np.copyto(conv.out, ordinary, where=planes[:, :, None, None])


# --- an output image as a product with patches ----------------------------------------------------
def _images(conv: Convolution[np.ndarray], width: int) -> None:
    """out[n,o,·] = the DOTs of weight rows and patches, of integers; then the bias."""
    window, out = conv.window, conv.out
    groups, x = window.groups, window.x
    images, area, count = x.shape[0], math.prod(x.shape[2:]), outer_values(width, window.kernel)
    rows = x.reshape(images * groups, window.channels * area)
    seen = integers_of(rows, count * area, width, -(-window.channels // count))
    segment = count * window.kernel
    rows = weight_rows(conv).reshape(groups * conv.rows, window.taps)
    weight = integers_of(rows, segment, width)
    window = replace(window, x=seen.m.reshape(x.shape))
    mu_seen = seen.mu.reshape(images, groups, seen.mu.shape[1])
    per_row = window.columns.places * (window.taps + conv.rows) * groups
    for tile in image_tiles(images, window.rows.places, per_row, BUDGET):
        n0, n1, y0, y1 = tile
        taps = view(window, tile)
        for g in range(groups):
            own = taps[:, g * window.channels : (g + 1) * window.channels]
            part = slice(g * conv.rows, (g + 1) * conv.rows)
            of_group = Integers(weight.m[part], weight.mu[part])
            found = _patch_dots(of_group, own, mu_seen[n0:n1, g], segment, width)
            shape = (n1 - n0, conv.rows, y1 - y0, window.columns.places)
            out[n0:n1, part, y0:y1] = found.reshape(shape)
    image = seen.unruly.reshape(images, groups)
    _not_finite(conv, np.repeat(image, conv.rows, axis=1) | weight.unruly)
    if conv.bias is not None:
        scale_and_add(out, conv.bias[:, None, None])


def _patch_dots(
    weight: Integers, taps: np.ndarray, mu: np.ndarray, segment: int, width: int
) -> np.ndarray:
    """f32[n,M,places]: the DOTs of weight rows f32[M,K] and of patches, of taps f32[n,c,i,j,y,x]
    with groups of mu u32[n,S]."""
    rows, k = weight.m.shape
    images, places = len(taps), math.prod(taps.shape[4:])
    patches = np.ascontiguousarray(taps.transpose(0, 4, 5, 1, 2, 3)).reshape(images, places, k)

    def parts(s: int, begin: int, end: int) -> Factors:
        a = np.broadcast_to(weight.m[:, begin:end], (images, rows, end - begin))
        mu_a = np.broadcast_to(weight.mu[:, s], (images, rows))
        mu_b = np.broadcast_to(mu[:, s, None], (images, places))
        return a, patches[:, :, begin:end], mu_a, mu_b

    return dots((images, rows, places), k, segment, width, parts)


# --- the weight gradient --------------------------------------------------------------------------
def _weight_gradient(conv: Convolution[np.ndarray], width: int) -> None:
    """out[o,(c,i,j)] = the DOTs of gradients and taps over (n,y,x), of integers."""
    window, x, rows = conv.window, conv.x, conv.rows
    images, channels = len(x), window.channels
    count = outer_values(width, window.plane)
    left, right = _by_channel(conv.y, count, width), _by_channel(x, count, width)
    back = right.m.reshape(x.shape[1], images, *x.shape[2:]).swapaxes(0, 1)
    window = replace(window, x=back)
    step = max(1, BUDGET // max(1, window.kernel * count * window.plane))
    for g in range(window.groups):
        part = slice(g * rows, (g + 1) * rows)
        of_group = Integers(left.m[part], left.mu[part])
        for c0, c1 in ranges(channels, step):
            columns = slice(g * channels + c0, g * channels + c1)
            found = _tap_dots(of_group, window, columns, right.mu[columns], count, width)
            conv.out[part, c0:c1] = found.reshape(rows, c1 - c0, *conv.out.shape[2:])
    of_x = right.unruly.reshape(window.groups, channels)
    _not_finite(conv, left.unruly[:, None] | np.repeat(of_x, rows, axis=0))


def _tap_dots(
    grad: Integers, window: Window[np.ndarray], channels: slice, mu: np.ndarray, count: int,
    width: int,
) -> np.ndarray:  # fmt: skip
    """f32[1,M,(c,i,j)]: the DOTs of gradients f32[M,(n,y,x)] and of these channels' taps, with
    groups of mu u32[c,S], `count` images a segment."""
    rows, length = grad.m.shape
    segment, columns = count * window.plane, len(mu) * window.kernel
    laid: dict[int, np.ndarray] = {}

    def parts(s: int, begin: int, end: int) -> Factors:
        first = s * count
        if s not in laid:
            laid.clear()
            tile = (first, min(first + count, len(window.x)), 0, window.rows.places)
            taps = view(window, tile)[:, channels].transpose(1, 2, 3, 0, 4, 5)
            laid[s] = np.ascontiguousarray(taps).reshape(columns, -1)
        own = laid[s][None, :, begin - s * segment : end - s * segment]
        mu_b = np.repeat(mu[:, s], window.kernel)[None]
        return grad.m[None, :, begin:end], own, grad.mu[None, :, s], mu_b

    return dots((1, rows, columns), length, segment, width, parts)


def _by_channel(x: np.ndarray, count: int, width: int) -> Integers:
    """The integers of x f32[n,C,H,W] by rows of a channel, `count` images a segment."""
    images, channels, plane = x.shape[0], x.shape[1], math.prod(x.shape[2:])
    turned = np.ascontiguousarray(x.swapaxes(0, 1)).reshape(channels, images * plane)
    return integers_of(turned, count * plane, width, -(-images // count))
