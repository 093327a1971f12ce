"""Opening rules of the dot class: products, convolution and its gradients (NUMERICS 2).

An element is a DOT: a chain whose links are chunks of 128 terms. Each chunk is a partial that the
referee can execute. Where a bias or a factor enters, the element is a local quantity over that
chain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tallystick.numerics.operators.common import number
from tallystick.numerics.operators.dot import geometry, output_mask
from tallystick.opening.arithmetic import canonical, dot_chunk, dot_partials, rn32
from tallystick.opening.quantity import (
    CHUNK,
    Array,
    Chain,
    Index,
    Local,
    Needs,
    Quantity,
    Site,
    Source,
    Tree,
    opening,
)

# Both factors of the terms number `index` of a DOT.
Factors = Callable[[Source, Index], tuple[Array, Array]]
# Terms number `index` of a sum.
Values = Callable[[Source, Needs, Index], Array]
# The whole chunks whose factors a prover gathers at once; the number bounds working memory.
_AT_ONCE = 1 << 13


@dataclass(frozen=True)
class Products:
    """The `length` terms of a DOT, in order. Every contract's rule adds them up."""

    name: str
    length: int
    factors: Factors


@dataclass(frozen=True)
class Elements:
    """The `count` terms of a sum, in order."""

    name: str
    count: int
    values: Values


def dot(products: Products, chunk: int = CHUNK) -> Chain:
    """DOT as a chain of chunks (NUMERICS 2.1, 2.2). A contract may have another length of them."""
    length, factors = products.length, products.factors

    @np.errstate(all="ignore")
    def advance(source: Source, _: Needs, state: Any, first: int, last: int) -> Any:
        whole = min(last, length // chunk)  # the last chunk may be shorter, and is not padded (2.3)
        for at in range(first, whole, _AT_ONCE):
            until = min(at + _AT_ONCE, whole)
            a, b = factors(source, np.arange(at * chunk, until * chunk, dtype=np.int64))
            partials = dot_partials(a.reshape(-1, chunk), b.reshape(-1, chunk))
            # Chunk 0 initialises: it is not added to +0 (2.2).
            terms = partials if at == 0 else np.append(state, partials).astype(np.float32)
            state = np.add.accumulate(terms)[-1]
        if last > whole:
            short = dot_chunk(*factors(source, np.arange(whole * chunk, length, dtype=np.int64)))
            state = short if whole == 0 else state + short
        return state

    count = -(-length // chunk)
    return Chain(products.name, "f32", count, 1, np.float32(0), advance, weight=chunk)


def _shape(site: Site, operand: int) -> tuple[int, ...]:
    return site.type_of(operand).shape


# --- matrix products (2.4, 2.5) -------------------------------------------------------------------
def product(site: Site, left: int) -> Products:
    """A row of operand `left` times a column of the next, both of 2 or 3 axes."""
    rows, length = _shape(site, left)[-2:]
    columns = _shape(site, left + 1)[-1]
    row, j = divmod(site.element, columns)
    a0, b0 = row * length, row // rows * length * columns + j

    def factors(source: Source, k: Index) -> tuple[Array, Array]:
        return source.read(left, a0 + k), source.read(left + 1, b0 + k * columns)

    return Products("dot", length, factors)


@opening("aten.mm", "aten.bmm")
def _mm(site: Site) -> Quantity:
    return dot(product(site, 0))


def place_of_c(site: Site) -> int:
    """The position in operand 0 of an addmm that is added to the site's element (2.5)."""
    place = np.unravel_index(site.element, site.outputs[0].shape)
    at = 0
    for size, coordinate in zip(_shape(site, 0), place[2 - len(_shape(site, 0)) :], strict=True):
        at = at * size + (0 if size == 1 else int(coordinate))
    return at


@np.errstate(all="ignore")
def scaled(site: Site, source: Source, d: Any) -> Array:
    """The element of an addmm, given its DOT (2.5)."""
    # The tests are on the binary64 attributes, the factors are rounded.
    alpha, beta = number(site.attrs, "alpha"), number(site.attrs, "beta")
    d = d if alpha == 1 else rn32(alpha) * d
    if beta != 0:
        c = source.read(0, np.array([place_of_c(site)], dtype=np.int64))[0]
        d = d + (c if beta == 1 else rn32(beta) * c)
    return canonical(d)


@opening("aten.addmm")
def _addmm(site: Site) -> Quantity:
    chain = dot(product(site, 1))
    if number(site.attrs, "alpha") == 1 and number(site.attrs, "beta") == 0:
        return chain

    def compute(source: Source, needs: Needs) -> Array:
        return scaled(site, source, needs[0])

    return Local("out", "f32", compute, (chain,))


# --- convolution (2.6, 2.7) -----------------------------------------------------------------------
def _inside(
    source: Source, operand: int, shape: tuple[int, ...], plane: Index, row: Index, column: Index
) -> Array:
    """Elements at (row, column) of planes of a 4-axis operand, +0 outside of them (2.6)."""
    height, width = shape[2:]
    there = (row >= 0) & (row < height) & (column >= 0) & (column < width)
    values = np.zeros(len(row), np.float32)
    flat = (plane * height + row) * width + column
    values[there] = source.read(operand, flat[there])
    return values


def _digits(index: Index, *sizes: int) -> tuple[Index, ...]:
    """Row-major coordinates of `index` where the axes after the first have `sizes`."""
    digits: list[Index] = []
    for size in reversed(sizes):
        digits.append(index % size)
        index = index // size
    return (index, *reversed(digits))


def seen_by(site: Site) -> Products:
    """The taps of an element of `aten.convolution` times their weights (2.6)."""
    stride, padding, dilation, groups = geometry(site.op, site.attrs)
    image, weight = _shape(site, 0), _shape(site, 1)
    outs, taps = weight[0], weight[1] * weight[2] * weight[3]
    n, o, y, x = (int(v) for v in np.unravel_index(site.element, site.outputs[0].shape))
    channel = n * image[1] + o // (outs // groups) * weight[1]

    def factors(source: Source, k: Index) -> tuple[Array, Array]:
        c, i, j = _digits(k, *weight[2:])
        row = y * stride[0] - padding[0] + i * dilation[0]
        column = x * stride[1] - padding[1] + j * dilation[1]
        seen = _inside(source, 0, image, channel + c, row, column)
        return seen, source.read(1, o * taps + k)

    return Products("dot", taps, factors)


def place_of_bias(site: Site) -> int | None:
    """The position in the bias that is added to the site's element, None without a bias (2.6)."""
    if not site.has(2):
        return None
    return int(np.unravel_index(site.element, site.outputs[0].shape)[1])


@opening("aten.convolution")
def _convolution(site: Site) -> Quantity:
    chain, at = dot(seen_by(site)), place_of_bias(site)
    if at is None:
        return chain

    @np.errstate(all="ignore")
    def compute(source: Source, needs: Needs) -> Array:
        return canonical(needs[0] + source.read(2, np.array([at], dtype=np.int64))[0])

    return Local("out", "f32", compute, (chain,))


def gradient(site: Site) -> Products | Elements:
    """The terms of an element of an output of `aten.convolution_backward` (2.7)."""
    gradients: list[Callable[[Site], Products | Elements]]
    gradients = [_input_gradient, _weight_gradient, _bias_gradient]
    on = [g for g, wanted in zip(gradients, output_mask(site.attrs), strict=True) if wanted]
    return on[site.out](site)


@opening("aten.convolution_backward")
def _convolution_backward(site: Site) -> Quantity:
    terms = gradient(site)
    if isinstance(terms, Products):
        return dot(terms)
    return Tree(terms.name, "f32", terms.count, terms.values)


def _input_gradient(site: Site) -> Products:
    stride, padding, dilation, groups = geometry(site.op, site.attrs)
    grad, image, weight = _shape(site, 0), _shape(site, 1), _shape(site, 2)
    of_group, kernel = weight[0] // groups, weight[2] * weight[3]
    n, channel, h, w = (int(v) for v in np.unravel_index(site.element, image))
    group, c = divmod(channel, weight[1])

    def factors(source: Source, k: Index) -> tuple[Array, Array]:
        o, i, j = _digits(k, *weight[2:])
        o = group * of_group + o
        row, column = h + padding[0] - i * dilation[0], w + padding[1] - j * dilation[1]
        met = (row % stride[0] == 0) & (column % stride[1] == 0)
        row = np.where(met, row // stride[0], -1)  # outside: +0, and multiplied
        seen = _inside(source, 0, grad, n * grad[1] + o, row, column // stride[1])
        return seen, source.read(2, (o * weight[1] + c) * kernel + k % kernel)

    return Products("input gradient", of_group * kernel, factors)


def _weight_gradient(site: Site) -> Products:
    stride, padding, dilation, groups = geometry(site.op, site.attrs)
    grad, image, weight = _shape(site, 0), _shape(site, 1), _shape(site, 2)
    o, c, i, j = (int(v) for v in np.unravel_index(site.element, weight))
    channel, plane = o // (weight[0] // groups) * weight[1] + c, grad[2] * grad[3]

    def factors(source: Source, k: Index) -> tuple[Array, Array]:
        n, y, x = _digits(k, *grad[2:])
        row = y * stride[0] - padding[0] + i * dilation[0]
        column = x * stride[1] - padding[1] + j * dilation[1]
        taps = _inside(source, 1, image, n * image[1] + channel, row, column)
        return source.read(0, (n * grad[1] + o) * plane + k % plane), taps

    return Products("weight gradient", grad[0] * plane, factors)


def _bias_gradient(site: Site) -> Elements:
    grad = _shape(site, 0)
    plane = grad[2] * grad[3]

    def terms(source: Source, _: Needs, index: Index) -> Array:
        at = (index // plane * grad[1] + site.element) * plane + index % plane
        return source.read(0, at)

    return Elements("bias gradient", grad[0] * plane, terms)
