"""Opening rule of the fold over micro-batches (NUMERICS 10.12).

An element is made of one element of each operand. These are needs, at most 256, so that the parties
agree on all of them at once, and the game opens the operand of the first one that they do not.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from tallystick.numerics.operators.common import flag
from tallystick.numerics.operators.fold import FOLD, fold_count, split
from tallystick.opening.arithmetic import canonical, rn32
from tallystick.opening.pointwise import one
from tallystick.opening.quantity import Array, Local, Needs, Quantity, Site, Source, opening


@opening(FOLD)
def _fold(site: Site) -> Quantity:
    def element(operand: int, source: Source, _: Needs) -> Any:
        return one(source, operand, site.element)[0]

    @np.errstate(all="ignore")
    def compute(_: Source, needs: Needs) -> Any:
        total = _sum([np.asarray(x, np.float32).reshape(1) for x in needs])
        if flag(site.attrs, "mean"):
            total = total / rn32(fold_count(site.attrs, len(needs)))
        return canonical(total)[0]

    given = (Local(f"x[{i}]", "f32", partial(element, i)) for i in range(len(site.inputs)))
    return Local("out", "f32", compute, tuple(given))


def _sum(xs: list[Array]) -> Array:
    if len(xs) == 1:
        return xs[0]
    half = split(len(xs))
    total: Array = _sum(xs[:half]) + _sum(xs[half:])
    return total
