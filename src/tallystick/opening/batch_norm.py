"""Opening rules of batch normalisation and its gradient (NUMERICS 6.12 - 6.14)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tallystick.numerics.operators.batch_norm import output_mask, statistics_at
from tallystick.numerics.operators.common import flag, number
from tallystick.numerics.types import DTYPES
from tallystick.opening.approx import Approx
from tallystick.opening.arithmetic import canonical, fma, function, only, rn32, root
from tallystick.opening.quantity import (
    Array,
    Index,
    Local,
    Needs,
    Quantity,
    Site,
    Source,
    Tree,
    opening,
)


@dataclass(frozen=True)
class Channel:
    """Channel `place` of x[N, channels, ...], its `count` elements as one index (NUMERICS 6.12)."""

    place: int
    channels: int
    inner: int
    count: int

    def read(self, source: Source, operand: int, index: Index) -> Array:
        """Elements number `index` of the channel, of an operand laid out as x is."""
        run, at = np.divmod(index, self.inner)
        return source.read(operand, (run * self.channels + self.place) * self.inner + at)

    def one(self, source: Source, operand: int) -> Array:
        """The channel's value of an operand that has one per channel."""
        return source.read(operand, np.array([self.place], dtype=np.int64))


def _channel(site: Site, operand: int, large: bool) -> tuple[Channel, Index]:
    """The channel the element is in, and its place there; x is operand number `operand`."""
    shape = site.type_of(operand).shape
    batch, channels, inner = shape[0], shape[1], math.prod(shape[2:])
    place, at = site.element, 0
    if large:
        run, within = divmod(site.element, inner)
        image, place = divmod(run, channels)
        at = image * inner + within
    return Channel(place, channels, inner, batch * inner), np.array([at], dtype=np.int64)


def _quotient(name: str, total: Tree, divisor: int) -> Local:
    """`total` / divisor in the sum's own dtype, the divisor rounded to it."""
    by = np.dtype(DTYPES[total.dtype]).type(divisor)

    @np.errstate(all="ignore")
    def compute(_: Source, needs: Needs) -> Array:
        return canonical(needs[0] / (float(divisor) if isinstance(needs[0], Approx) else by))

    return Local(name, total.dtype, compute, (total,))


def _affine(site: Site, channel: Channel, source: Source, h: Array) -> Array:
    """y from h, with weight operand 1 and bias operand 2 where present (NUMERICS 6.5)."""
    if site.has(1) and site.has(2):
        return only(fma(h, channel.one(source, 1), channel.one(source, 2)))
    if site.has(1):
        return only(h * channel.one(source, 1))
    return only(h + channel.one(source, 2) if site.has(2) else h)


# --- training (6.12) ------------------------------------------------------------------------------
def _new_statistic(
    site: Site, channel: Channel, operand: int, name: str, observed: Quantity
) -> Local:
    """fma(M, observed - running, running)."""
    momentum = rn32(number(site.attrs, "momentum"))

    @np.errstate(all="ignore")
    def compute(source: Source, needs: Needs) -> Array:
        running = channel.one(source, operand)
        return only(fma(momentum, needs[0] - running, running))

    return Local(name, "f32", compute, (observed,))


def _narrow(name: str, wide: Quantity) -> Local:
    """RN32 of a binary64 quantity."""
    return Local(name, "f32", lambda _, needs: canonical(rn32(needs[0])), (wide,))


@opening("aten._native_batch_norm_legit_functional")
def _training(site: Site) -> Quantity:
    channel, i = _channel(site, 0, large=site.out == 0)
    n = channel.count

    def wide(source: Source, _: Needs, index: Index) -> Array:
        return channel.read(source, 0, index).astype(np.float64)

    @np.errstate(all="ignore")
    def squares(source: Source, needs: Needs, index: Index) -> Array:
        d: Array = wide(source, needs, index) - needs[0]
        return d * d

    m = _quotient("m", Tree("SUM64(x)", "f64", n, wide), n)
    mean = _narrow("mean", m)
    q = Tree("q", "f64", n, squares, (m,))
    if site.out == 1:
        return mean
    if site.out == 3:
        return _new_statistic(site, channel, 3, "running_mean", mean)
    if site.out == 4:
        unbiased = _narrow("u", _quotient("q/(n - 1)", q, max(n - 1, 0)))
        return _new_statistic(site, channel, 4, "running_var", unbiased)
    eps = np.float64(number(site.attrs, "eps"))

    @np.errstate(all="ignore")
    def inverse_root(_: Source, needs: Needs) -> Array:
        # In the real numbers an attribute is RN32 first (14.9.1).
        added = np.float64(rn32(eps)) if isinstance(needs[0], Approx) else eps
        return canonical(rn32(np.float64(1) / root(needs[0] + added)))

    rstd = Local("rstd", "f32", inverse_root, (_quotient("var", q, n),))
    if site.out == 2:
        return rstd

    @np.errstate(all="ignore")
    def compute(source: Source, needs: Needs) -> Array:
        h = (channel.read(source, 0, i) - needs[0]) * needs[1]
        return _affine(site, channel, source, h)

    return Local("y", "f32", compute, (mean, rstd))


# --- by running statistics (6.14) -----------------------------------------------------------------
def _running_rstd(site: Site, channel: Channel, operand: int, source: Source) -> Array:
    """rsqrt(running_var + RN32(eps)); `operand` is the running variance."""
    eps = rn32(number(site.attrs, "eps"))
    return function("aten.rsqrt", channel.one(source, operand) + eps)


@opening("aten._native_batch_norm_legit_no_training")
def _by_running(site: Site) -> Quantity:
    channel, i = _channel(site, 0, large=True)

    @np.errstate(all="ignore")
    def compute(source: Source, _: Needs) -> Array:
        d = channel.read(source, 0, i) - channel.one(source, 3)
        return _affine(site, channel, source, d * _running_rstd(site, channel, 4, source))

    return Local("y", "f32", compute)


# --- the gradient (6.13) --------------------------------------------------------------------------
def _rstd(site: Site, channel: Channel) -> Callable[[Source], Array]:
    """The rstd that the gradient uses: an operand, or of the running variance."""
    _, spread = statistics_at(site.attrs)
    if flag(site.attrs, "train"):
        return lambda source: channel.one(source, spread)
    return lambda source: _running_rstd(site, channel, spread, source)


@opening("aten.native_batch_norm_backward")
def _backward(site: Site) -> Quantity:
    gradient = [k for k, on in enumerate(output_mask(site.attrs)) if on][site.out]
    channel, i = _channel(site, 1, large=gradient == 0)
    mean, _ = statistics_at(site.attrs)
    rstd = _rstd(site, channel)

    @np.errstate(all="ignore")
    def h(source: Source, index: Index) -> Array:
        centred = channel.read(source, 1, index) - channel.one(source, mean)
        return centred * rstd(source)

    @np.errstate(all="ignore")
    def products(source: Source, _: Needs, index: Index) -> Array:
        return channel.read(source, 0, index) * h(source, index)

    n = channel.count
    dw = Tree("dw", "f32", n, products)
    db = Tree("db", "f32", n, lambda source, _, index: channel.read(source, 0, index))
    if gradient:
        return dw if gradient == 1 else db

    @np.errstate(all="ignore")
    def factor(source: Source) -> Array:
        r = rstd(source)
        return r * channel.one(source, 2) if site.has(2) else r

    @np.errstate(all="ignore")
    def by_running(source: Source, _: Needs) -> Array:
        return only(channel.read(source, 0, i) * factor(source))

    @np.errstate(all="ignore")
    def compute(source: Source, needs: Needs) -> Array:
        centred = channel.read(source, 0, i) - needs[0]
        return only(fma(-h(source, i), needs[1], centred) * factor(source))

    if not flag(site.attrs, "train"):
        return Local("dx", "f32", by_running)
    return Local("dx", "f32", compute, (_quotient("s1", db, n), _quotient("s2", dw, n)))
