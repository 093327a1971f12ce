"""Views: the values of a quantity that a query asks for, and a prover's answer (PROTOCOL 6.4).

A path leads from the output element's own quantity to one of the quantities below it. Each number
in it is a position in `needs`. The number len(needs) + i is term i of a `Terms`. A view is a set of
values of the quantity at the end of the path.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tallystick.opening.quantity import (
    BLOCK,
    Chain,
    Extremum,
    Quantity,
    Scalar,
    Source,
    TermsQuantity,
    TreeQuantity,
)
from tallystick.opening.values import (
    blocks_at,
    chain_states,
    needs_of,
    top_level,
    tree_values,
    witness_of,
)

Path = tuple[int, ...]

# The most values in one answer (PROTOCOL 6.4).
FAN_OUT = 256


@dataclass(frozen=True)
class View:
    """`kind` and up to three numbers.

    The kinds are `needs` and `witness`, and three with numbers. `blocks` (level, index) has the
    values one level below block `index` of `level`. `states` (first, last, stride) has the chain
    states after first + stride, first + 2 stride, ... links, below last. `terms` (first, last) has
    terms number first..last-1, one block of them.
    """

    kind: str
    a: int = 0
    b: int = 0
    c: int = 0


NEEDS = View("needs")
WITNESS = View("witness")


def locate(root: Quantity, path: Path) -> Quantity:
    """The quantity at the end of `path`. Raises LookupError where there is none."""
    for step in path:
        below = step - len(root.needs)
        if 0 <= step < len(root.needs):
            root = root.needs[step]
        elif isinstance(root, TermsQuantity) and 0 <= below < root.count:
            root = root.term(below)
        else:
            raise LookupError(f"{root.name} has no part {step}")
    return root


def positions(view: View) -> range:
    """The link counts of a `states` view."""
    return range(view.a + view.c, view.b, view.c)


def view_dtypes(quantity: Quantity, view: View) -> tuple[str, ...]:
    """The dtype of every value of `view`. Raises LookupError where `quantity` has no such view."""
    if view.kind == "needs":
        return tuple(need.dtype for need in quantity.needs)
    if view.kind == "witness" and isinstance(quantity, Extremum):
        return ("i64",)
    if view.kind == "terms" and isinstance(quantity, TermsQuantity):
        whole = view.a % BLOCK == 0 and view.b == min(view.a + BLOCK, quantity.count)
        if whole and 0 <= view.a < view.b:
            return (quantity.dtype,) * (view.b - view.a)
    if view.kind == "blocks" and isinstance(quantity, (TreeQuantity, TermsQuantity)):
        level, index = view.a, view.b
        if 1 <= level <= top_level(quantity.count) and index < blocks_at(quantity.count, level):
            below = blocks_at(quantity.count, level - 1)
            return (quantity.dtype,) * (min(below, (index + 1) * BLOCK) - index * BLOCK)
    if view.kind == "states" and isinstance(quantity, Chain):
        inside = 0 <= view.a < view.b <= quantity.count and view.c >= 1
        if inside and len(positions(view)) <= FAN_OUT:
            return (quantity.dtype,) * len(positions(view))
    raise LookupError(f"{quantity.name} has no view {view}")


def view_values(quantity: Quantity, view: View, source: Source) -> tuple[Scalar, ...]:
    """The values of `view` by the contract, of the dtypes of `view_dtypes`."""
    count = len(view_dtypes(quantity, view))
    if isinstance(quantity, Extremum) and view.kind == "witness":
        return (np.int64(witness_of(quantity, source)),)
    if isinstance(quantity, TermsQuantity) and view.kind == "terms":
        index = np.arange(view.a, view.b, dtype=np.int64)
        return tuple(quantity.terms(source, needs_of(quantity, source), index))
    if isinstance(quantity, (TreeQuantity, TermsQuantity)) and view.kind == "blocks":
        first = view.b * BLOCK
        return tuple(tree_values(quantity, source, view.a - 1, first, first + count))
    if isinstance(quantity, Chain) and view.kind == "states":
        return tuple(chain_states(quantity, source, positions(view)))
    return needs_of(quantity, source)
