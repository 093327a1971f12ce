"""The rule for an update in the middle of a step (PROGRAM 5.16)."""

from __future__ import annotations

from torch import fx

from tallystick.program.capture.lower import Arguments, Lowerer, Results, lowering


@lowering("tallystick.update")
def _update(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    assert lo.updates is not None  # only a step with several optimizers traces such a node
    return lo.updates(
        a["number"],
        [lo.value(p) for p in a["parameters"]],
        [lo.value(g) for g in a["gradients"]],
    )
