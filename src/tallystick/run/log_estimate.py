"""How large the rounding logs of a job will be, before any is written."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tallystick.commit.log import BOUNDED, Section
from tallystick.numerics.contracts import parse_contract
from tallystick.numerics.types import TensorType
from tallystick.program.ir import Node, Program
from tallystick.rounding.log_file import ENTRY, HEADER, TRAILER
from tallystick.run.job import Job
from tallystick.run.store import RunStore

# Of elements with K terms of like size about 4·K^1.5·2⁻³⁰ lie within 2E of a boundary (NUMERICS
# 14.4, 14.6, B = 32); cancellation makes it several times as many.
_RATE = 16 * 2.0**-30
_WORD = 2  # bytes of an entry, and of a block's count


def _terms(program: Program, node: Node, output: int) -> float:
    """About how many terms an element of this output has (NUMERICS 13.3)."""
    types = [TensorType("f32", ()) if v is None else program.type_of(v) for v in node.inputs]
    made = max(1, node.out_types[output].numel)
    if node.op in ("aten.mm", "aten.bmm"):
        return types[0].shape[-1]
    if node.op == "aten.addmm":
        return types[1].shape[-1] + 1
    if node.op == "aten.convolution":
        return types[1].numel / max(1, types[1].shape[0]) + 1
    if node.op == "aten.convolution_backward":
        gradient, weight = types[0], types[2]
        if output == 0:
            return weight.numel / max(1, weight.shape[1])
        return gradient.numel / max(1, gradient.shape[1])
    return types[0].numel / made


def step_log_bytes(program: Program, sections: Sequence[Section]) -> int:
    """Bytes that one step's log will have, about; uncompressed."""
    total: float = HEADER.size + TRAILER.size + len(sections) * ENTRY.size
    spare = parse_contract(program.contract).bits - 32  # a coarser grid has fewer boundaries
    for section in sections:
        if section.form != BOUNDED:
            total += section.packed_bytes
            continue
        terms = _terms(program, program.nodes[section.node], section.output)
        share = min(1.0, _RATE * 2.0**spare * terms**1.5)
        total += _WORD * (section.blocks + math.ceil(share * section.elements))
    return int(total)


def run_log_bytes(job: Job, store: RunStore | None, sections: Sequence[Section]) -> int:
    """Bytes of all logs of a run of `job`; what there already is of it is the better guess."""
    steps = store.logged_steps() if store is not None else []
    if store is not None and steps:
        return store.log_bytes() * job.steps // len(steps)
    return step_log_bytes(job.program, sections) * job.steps
