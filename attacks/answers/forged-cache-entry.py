"""A forged cache entry: one number of a value that is kept for one place of the text is another.

Gain: a cache that is compressed, shared with another text, or poisoned. How: one
number of a layer's values for the first place is another. Caught: the number is not what the
program makes of the text (case 3).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tallystick.commit.tensor import Array
from tallystick.job.job import Job
from tallystick.program.ir import Value
from tallystick.run.cheats.override import Override

from .._shared import Attack, falsify, node_of
from ._shared import KIND, AtNode, require_answer

_VIEWS = ("aten.view", "aten.permute", "aten.expand", "aten.slice")


def forged(outputs: Sequence[Array]) -> None:
    falsify(outputs[0], 0)


def made_by(job: Job, value: Value) -> int:
    """The node whose numbers `value` has: not one that only presents them otherwise."""
    nodes = job.program.nodes
    while nodes[value.node].op in _VIEWS:
        (source,) = nodes[value.node].inputs
        assert source is not None
        value = source
    return value.node


def build(job: Job, params: dict[str, Any]) -> Override:
    require_answer(job)
    attention = job.program.nodes[node_of(job, -1, "tallystick.attention_values")]
    values = attention.inputs[1]
    assert values is not None
    return AtNode(made_by(job, values), forged)


ATTACK = Attack("forged-cache-entry", KIND, "one number that is kept of the text is false", build)
