"""Convolutions of `exact/1` and their gradients (NUMERICS 17.2, 17.3; 2.6, 2.7).

A group is all of an image's channels of a segment, so that every element has one integer for all
the taps that read it. The integers are made once, and the patches hold integers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from tallystick import _core
from tallystick.contracts.exact.cpu.integers import Integers, dots, integers_of, outer_values
from tallystick.contracts.exact.cpu.operators import exact_kernel
from tallystick.contracts.rounded.cpu.products import canonical
from tallystick.devices.arrays import Arrays, Outputs, operand
from tallystick.numerics.operators.dot import geometry, output_mask
from tallystick.numerics.types import Attrs
from tallystick.products.patches import Window, backward_window, forward_window
from tallystick.products.tiles import BUDGET, ranges

_Parts = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def _tiles(images: int, rows: int, per_row: int) -> Iterator[tuple[int, int, int, int]]:
    """(n0, n1, y0, y1): whole images together, or rows of one image, within BUDGET values."""
    together = BUDGET // max(1, rows * per_row)
    if together:
        yield from ((n0, n1, 0, rows) for n0, n1 in ranges(images, together))
        return
    step = max(1, BUDGET // max(1, per_row))
    yield from ((n, n + 1, y0, y1) for n in range(images) for y0, y1 in ranges(rows, step))


def _seen(window: Window, seen: Integers, weight: Integers, groups: int, out: np.ndarray,
          segment: int, width: int) -> None:  # fmt: skip
    """out[n,o,·] = the DOTs of weight rows and patches. `seen` are the integers of the window's
    tensor, rows (image, group); `weight` those of f32[O,K]. `segment` is in index values."""
    images, channels = out.shape[:2]
    per_group, k = channels // groups, weight.m.shape[1]
    rows, columns = window.rows.places, window.columns.places
    here = k // window.taps
    mu_seen = seen.mu.reshape(images, groups, seen.mu.shape[1])
    for n0, n1, y0, y1 in _tiles(images, rows, columns * (k + per_group) * groups):
        view = window.view(n0, n1, y0, y1)
        for g in range(groups):
            own = view[:, g * here : (g + 1) * here].transpose(0, 4, 5, 1, 2, 3)
            patches = np.ascontiguousarray(own).reshape(n1 - n0, (y1 - y0) * columns, k)
            part = slice(g * per_group, (g + 1) * per_group)
            shape = (n1 - n0, per_group, patches.shape[1])
            matrix = np.broadcast_to(weight.m[part], (n1 - n0, per_group, k))

            def parts(
                s: int, begin: int, end: int,
                matrix: np.ndarray = matrix, patches: np.ndarray = patches, g: int = g,
                part: slice = part, shape: tuple[int, int, int] = shape, n0: int = n0,
            ) -> _Parts:  # fmt: skip
                mu_a = np.broadcast_to(weight.mu[part, s], shape[:2])
                mu_b = np.repeat(mu_seen[n0 : n0 + shape[0], g, s], shape[2]).reshape(shape[::2])
                return matrix[:, :, begin:end], patches[:, :, begin:end], mu_a, mu_b

            found = dots(shape, k, segment, width, parts)
            out[n0:n1, part, y0:y1] = found.reshape(n1 - n0, per_group, y1 - y0, columns)


def _unruly(seen: Integers, weight: Integers, images: int, groups: int) -> np.ndarray | None:
    """bool[n,O,1,1]: the planes of the output that are `ordered/1`'s (17.7); None if none is."""
    image, row = seen.unruly.reshape(images, groups), weight.unruly
    if not image.any() and not row.any():
        return None
    of_group: np.ndarray = np.repeat(image, len(row) // groups, axis=1) | row
    return of_group[:, :, None, None]


@exact_kernel("aten.convolution")
def _convolution(width: int, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    x, w, out = operand(inputs, 0), operand(inputs, 1), outputs[0]
    form = geometry("aten.convolution", attrs)
    stride, padding, dilation, groups = form
    taps, plane, images = math.prod(w.shape[2:]), math.prod(x.shape[2:]), x.shape[0]
    count = outer_values(width, taps)
    rows = x.reshape(images * groups, w.shape[1] * plane)
    seen = integers_of(rows, count * plane, width, -(-w.shape[1] // count))
    weight = integers_of(w.reshape(w.shape[0], w.shape[1] * taps), count * taps, width)
    window = forward_window(
        seen.m.reshape(x.shape), w.shape[2:], out.shape[2:], stride, padding, dilation
    )
    _seen(window, seen, weight, groups, out, count * taps, width)
    mask = _unruly(seen, weight, images, groups)
    if mask is not None:
        ordinary = np.empty_like(out)
        _core.convolution(x, w, None, ordinary, *form)
        np.copyto(out, ordinary, where=mask)
    if len(inputs) == 3 and inputs[2] is not None:
        with np.errstate(all="ignore"):
            np.add(out, inputs[2][:, None, None], out=out)
        canonical(out)


@exact_kernel("aten.convolution_backward")
def _backward(width: int, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    grad, x, w = operand(inputs, 0), operand(inputs, 1), operand(inputs, 2)
    want_input, want_weight, want_bias = output_mask(attrs)
    remaining = iter(outputs)
    if want_input:
        _input_gradient(attrs, grad, w, next(remaining), width)
    if want_weight:
        _weight_gradient(attrs, grad, x, next(remaining), width)
    if want_bias:
        _core.convolution_bias_grad(grad, next(remaining))


def _input_gradient(
    attrs: Attrs, grad: np.ndarray, w: np.ndarray, out: np.ndarray, width: int
) -> None:
    form = geometry("aten.convolution_backward", attrs)
    stride, padding, dilation, groups = form
    outs, here, (kh, kw) = w.shape[0] // groups, w.shape[1], w.shape[2:]
    taps, plane, images = kh * kw, math.prod(grad.shape[2:]), grad.shape[0]
    count = outer_values(width, taps)
    seen = integers_of(grad.reshape(images * groups, outs * plane), count * plane, width)
    turned = w.reshape(groups, outs, here, taps).transpose(0, 2, 1, 3)
    weight = integers_of(
        np.ascontiguousarray(turned).reshape(groups * here, outs * taps), count * taps, width
    )
    window = backward_window(
        seen.m.reshape(grad.shape), (kh, kw), out.shape[2:], stride, padding, dilation
    )
    _seen(window, seen, weight, groups, out, count * taps, width)
    mask = _unruly(seen, weight, images, groups)
    if mask is not None:
        ordinary = np.empty_like(out)
        _core.convolution_input_grad(grad, w, ordinary, *form)
        np.copyto(out, ordinary, where=mask)


def _weight_gradient(
    attrs: Attrs, grad: np.ndarray, x: np.ndarray, out: np.ndarray, width: int
) -> None:
    form = geometry("aten.convolution_backward", attrs)
    stride, padding, dilation, groups = form
    images, outs = grad.shape[:2]
    per_group, here = outs // groups, out.shape[1]
    places = math.prod(grad.shape[2:])
    count = outer_values(width, places)
    left, right = _by_channel(grad, count, width), _by_channel(x, count, width)
    back = right.m.reshape(x.shape[1], images, *x.shape[2:]).transpose(1, 0, 2, 3)
    window = forward_window(back, out.shape[2:], grad.shape[2:], stride, padding, dilation)
    taps, length = window.taps, images * places
    step = max(1, BUDGET // max(1, taps * count * places))
    for g in range(groups):
        rows = slice(g * per_group, (g + 1) * per_group)
        for c0, c1 in ranges(here, step):
            columns = slice(g * here + c0, g * here + c1)
            laid: dict[int, np.ndarray] = {}

            def parts(
                s: int, begin: int, end: int,
                columns: slice = columns, rows: slice = rows, laid: dict[int, np.ndarray] = laid,
            ) -> _Parts:  # fmt: skip
                first = s * count
                if s not in laid:
                    laid.clear()
                    view = window.view(
                        first, min(first + count, images), 0, window.rows.places
                    )[:, columns].transpose(1, 2, 3, 0, 4, 5)  # fmt: skip
                    laid[s] = np.ascontiguousarray(view).reshape(
                        (columns.stop - columns.start) * taps, -1
                    )
                own = laid[s][None, :, begin - first * places : end - first * places]
                mu_b = np.repeat(right.mu[columns, s], taps)[None]
                return left.m[None, rows, begin:end], own, left.mu[None, rows, s], mu_b

            found = dots((1, per_group, (c1 - c0) * taps), length, count * places, width, parts)
            out[rows, c0:c1] = found.reshape(per_group, c1 - c0, *out.shape[2:])
    unruly_x = right.unruly.reshape(groups, here)
    if left.unruly.any() or unruly_x.any():
        ordinary = np.empty_like(out)
        _core.convolution_weight_grad(grad, x, ordinary, *form)
        mask = left.unruly[:, None] | np.repeat(unruly_x, per_group, axis=0)
        np.copyto(out, ordinary, where=mask[:, :, None, None])


def _by_channel(x: np.ndarray, count: int, width: int) -> Integers:
    """The integers of x f32[n,C,H,W] by rows of a channel, `count` images a segment."""
    images, channels, plane = x.shape[0], x.shape[1], math.prod(x.shape[2:])
    turned = np.ascontiguousarray(x.swapaxes(0, 1)).reshape(channels, images * plane)
    return integers_of(turned, count * plane, width, -(-images // count))
