"""Small programs written by hand, and a plain interpreter to compare the executor with."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tallystick.contracts.ordered.cpu import run_of
from tallystick.kernels.evaluate import view
from tallystick.numerics.types import DTYPES, TensorType
from tallystick.program.build import Builder
from tallystick.program.ir import BATCH_PREFIX, COMMIT, Program, Value

Arrays = dict[str, np.ndarray]


def f32(*shape: int) -> TensorType:
    return TensorType("f32", shape)


def linear_step() -> Program:
    """One SGD step of y = x @ w with loss sum(y), dropout on the input, a passed-through slot."""
    b = Builder()
    w, frozen = b.state("param.w", f32(4, 3)), b.state("buffer.frozen", f32(2))
    x = b.batch("x", f32(5, 4))
    lr, rng = b.scalar("lr"), b.rng()
    mask = b.one("tallystick.dropout_mask", [rng], draw=0, p=0.25, shape=(5, 4))
    kept = b.one("tallystick.mask_scale", [x, mask], scale=1.0 / 0.75)
    y = b.one("aten.mm", [kept, w])
    loss = b.one("aten.sum", [y])
    ones = b.one("aten.full", [], size=(5, 3), value=1.0, dtype="f32")
    gradient = b.one("aten.mm", [b.one("aten.permute", [kept], dims=(1, 0)), ones])
    (updated,) = b.emit(
        "tallystick.sgd_step",
        [w, gradient, None, lr, None],
        momentum=0.0, dampening=0.0, weight_decay=0.5, nesterov=False,
    )  # fmt: skip
    after = {"param.w": updated, "buffer.frozen": frozen}
    b.commit(after)
    return b.finish({"loss": loss, **after})


LINEAR_TEXT = """\
tallystick program 1
contract ordered/1-draft.1
input batch batch.x f32[5,4]
input state buffer.frozen f32[2]
input state param.w f32[4,3]
input rng rng i64[2]
input scalar scalar.lr f64[]
%0 = tallystick.dropout_mask(@rng){draw=0, p=0x1.0000000000000p-2, shape=[5,4]} : bool[5,4]
%1 = tallystick.mask_scale(@batch.x, %0){scale=0x1.5555555555555p+0} : f32[5,4]
%2 = aten.mm(%1, @param.w) : f32[5,3]
%3 = aten.sum(%2) : f32[]
%4 = aten.full(){dtype="f32", size=[5,3], value=0x1.0000000000000p+0} : f32[5,3]
%5 = aten.permute(%1){dims=[1,0]} : f32[4,5]
%6 = aten.mm(%5, %4) : f32[4,3]
%7 = tallystick.sgd_step(@param.w, %6, none, @scalar.lr, none){dampening=0x0.0p+0, \
momentum=0x0.0p+0, nesterov=false, weight_decay=0x1.0000000000000p-1} : f32[4,3]
%8 = tallystick.commit(@buffer.frozen, %7) : none
output buffer.frozen @buffer.frozen
output loss %3
output param.w %7
end
"""


def linear_inputs() -> tuple[Arrays, Arrays]:
    """State and batch for `linear_step`."""
    rng = np.random.default_rng(0)
    state = {
        "param.w": rng.standard_normal((4, 3), dtype=np.float32),
        "buffer.frozen": np.zeros(2, np.float32),
    }
    return state, {"x": rng.standard_normal((5, 4), dtype=np.float32)}


def interpret(program: Program, inputs: Mapping[str, np.ndarray]) -> Arrays:
    """Every output, computed in program order on fresh arrays: nothing shared, nothing reused."""
    made: dict[Value, np.ndarray] = {
        Value(-1, i): np.array(inputs[spec.name]) for i, spec in enumerate(program.inputs)
    }
    for index, node in enumerate(program.nodes):
        if node.op == COMMIT:
            continue
        operands = [None if v is None else np.array(made[v], order="C") for v in node.inputs]
        if node.op in view:
            assert operands[0] is not None
            made[Value(index, 0)] = np.array(view[node.op](node.attrs, operands[0]), order="C")
            continue
        outputs = [np.empty(t.shape, DTYPES[t.dtype]) for t in node.out_types]
        run_of(node.op)(node.attrs, operands, outputs)
        made.update({Value(index, i): array for i, array in enumerate(outputs)})
    return {name: made[value] for name, value in program.outputs}


def named_inputs(state: Arrays, batch: Arrays, **others: np.ndarray) -> Arrays:
    """Program inputs by full name."""
    return {**state, **{BATCH_PREFIX + k: v for k, v in batch.items()}, **others}
