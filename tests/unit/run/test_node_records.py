"""What the record of a node holds where operands are absent."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tallystick.commit.tensor import tensor_digest
from tallystick.program.text import parse_text
from tallystick.run.execute.nodes import NodeTracer

PROGRAM = Path(__file__).resolve().parents[3] / "vectors/runs/logreg-run/job/program.txt"


def test_an_absent_operand_has_no_hash_and_no_place() -> None:
    """COMMITMENTS 4.1: `none` is skipped. Of sgd_step(p, g, none, lr, none) three are left."""
    program = parse_text(PROGRAM.read_bytes())
    index = next(i for i, n in enumerate(program.nodes) if n.op == "tallystick.sgd_step")
    node = program.nodes[index]
    assert [v is None for v in node.inputs] == [False, False, True, False, True]
    p, g = (np.full(program.type_of(node.inputs[k]).shape, k, np.float32) for k in (0, 1))
    lr = np.array(0.5)
    tracer = NodeTracer(program, bytes(32), 0)
    tracer.tap(index, node, [p, g, None, lr, None], [p])
    assert tracer.records[0].inputs == tuple(map(tensor_digest, (p, g, lr)))
    assert tracer.records[0].outputs == (tensor_digest(p),)
