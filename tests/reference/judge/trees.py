"""Which quantity an element is (OPENING 6, 8)."""

from __future__ import annotations

from typing import Any

from reference.judge.logs import MOVES, published
from reference.judge.quantities import Element, Q
from reference.judge.trees_attention import ATTENTION
from reference.judge.trees_blocks import exact_blocks, has_blocks
from reference.judge.trees_dot import DOT
from reference.judge.trees_exact import exact, rounds
from reference.judge.trees_loss import LOSS
from reference.judge.trees_move import MOVE
from reference.judge.trees_norm import NORM
from reference.judge.trees_point import POINT
from reference.judge.trees_quantised import QUANTISED
from reference.judge.trees_reduce import REDUCE

TREES: dict[str, Any] = POINT | MOVE | DOT | REDUCE | NORM | LOSS | ATTENTION | QUANTISED


def quantity(x: Element, contract: str) -> Q:
    """The element's own quantity under a contract."""
    if contract.startswith("exact/") and has_blocks(x):
        return exact_blocks(x, contract)
    if contract.startswith("rounded/") and rounds(x):
        return exact(x, contract)
    if "replay/" in contract:
        from reference.judge.trees_logged import logged

        special = logged(x, contract)
        if special is not None:
            return special
    found: Q = TREES[x.op](x)
    if published(contract) and x.out[0] == "f32" and x.op not in MOVES:
        from reference.judge.trees_real import real_value

        return real_value(found, contract)
    return found
