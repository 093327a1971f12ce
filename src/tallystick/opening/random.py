"""Opening rules of random operators: the element's own Philox word (NUMERICS 8)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tallystick.commit.philox import philox4x32
from tallystick.numerics.attachments import Attachments
from tallystick.numerics.operators.common import integer, number
from tallystick.opening import approx
from tallystick.opening.approx import Approx
from tallystick.opening.arithmetic import fma, function, rn32
from tallystick.opening.quantity import (
    Local,
    Needs,
    Quantity,
    RefusedOperandsError,
    Site,
    Source,
    opening,
)

# An element as a real number, for the published form (NUMERICS 14.9.1).
real_draw: Attachments[Callable[[Site, Source], Approx]] = Attachments(
    "real draw", "tallystick.opening.random"
)
_WORD = 1 << 32
_MASK = _WORD - 1
_TWO_PI = np.uint32(0x40C90FDB).view(np.float32)  # C6 of NUMERICS 8.7
_UNIT = np.float32(2.0**-24)


def _words(site: Site, source: Source, block: int) -> tuple[int, ...]:
    """The four words of a block of this draw (NUMERICS 8.1)."""
    seed, step = (int(v) for v in source.read(0, np.array([0, 1], dtype=np.int64)))
    if seed < 0 or not 0 <= step < _WORD:
        raise RefusedOperandsError(site.op, f"the key ({seed}, {step}) is out of range.")
    counter = (block & _MASK, block >> 32, integer(site.attrs, "draw"), step)
    return philox4x32(counter, (seed & _MASK, seed >> 32))


def _word(site: Site, source: Source) -> int:
    return _words(site, source, site.element // 4)[site.element % 4]


@opening("tallystick.dropout_mask")
def _dropout_mask(site: Site) -> Quantity:
    threshold = round(number(site.attrs, "p") * _WORD)  # NUMERICS 8.4: the product is exact
    return Local("mask", "bool", lambda source, _: _word(site, source) >= threshold)


@real_draw("tallystick.uniform")
def _real_uniform(site: Site, source: Source) -> Approx:
    """8.6 in the real numbers: only the attributes are rounded, by RN32 (14.9.1)."""
    low, high = (Approx(rn32(number(site.attrs, name))) for name in ("low", "high"))
    return low + (high - low) * (float(_word(site, source) >> 8) * float(_UNIT))


@real_draw("tallystick.normal")
def _real_normal(site: Site, source: Source) -> Approx:
    """8.7 likewise, with the real number 2 pi."""
    words = _words(site, source, site.element // 2)
    w1, w2 = words[2 * (site.element % 2) : 2 * (site.element % 2) + 2]
    u1, u2 = ((w1 >> 8) + 1) * float(_UNIT), Approx((w2 >> 8) * float(_UNIT))
    z = approx.sqrt(approx.log(u1) * -2.0) * approx.cosine(u2 * (2 * math.pi))
    return z * rn32(number(site.attrs, "std")) + rn32(number(site.attrs, "mean"))


@opening("tallystick.uniform")
def _uniform(site: Site) -> Quantity:
    low, high = rn32(number(site.attrs, "low")), rn32(number(site.attrs, "high"))

    @np.errstate(all="ignore")
    def compute(source: Source, _: Needs) -> Any:
        u = np.float32(_word(site, source) >> 8) * _UNIT
        return fma(u, high - low, low)[()]

    return Local("out", "f32", compute)


@opening("tallystick.normal")
def _normal(site: Site) -> Quantity:
    """NUMERICS 8.7; the steps are named there."""
    mean, std = rn32(number(site.attrs, "mean")), rn32(number(site.attrs, "std"))

    @np.errstate(all="ignore")
    def compute(source: Source, _: Needs) -> Any:
        words = _words(site, source, site.element // 2)
        w1, w2 = words[2 * (site.element % 2) : 2 * (site.element % 2) + 2]
        u1 = (np.float32(w1 >> 8) + np.float32(1)) * _UNIT
        u2 = np.float32(w2 >> 8) * _UNIT
        root = np.sqrt(np.float32(-2) * function("aten.log", np.array([u1])))
        z = root * function("aten.cos", np.array([u2 * _TWO_PI], dtype=np.float32))
        return fma(z, std, mean)[0]

    return Local("out", "f32", compute)
