"""Programs with micro-batches written by hand (PROGRAM 6)."""

from __future__ import annotations

import numpy as np

from tallystick.numerics.operators.reduction import FOLD
from tallystick.numerics.types import TensorType
from tallystick.program.build import Builder
from tallystick.program.canonical import canonicalize
from tallystick.program.ir import Program

Arrays = dict[str, np.ndarray]
ROWS = 3  # records of one micro-batch


def f32(*shape: int) -> TensorType:
    return TensorType("f32", shape)


def micro_step(contract: str = "ordered/1-draft.1") -> Program:
    """Dropout twice, a running mean and a count that are carried, clipping, momentum."""
    b = Builder(contract)
    w, frozen = b.state("param.w", f32(4, 3)), b.state("buffer.frozen", f32(2))
    mean, count = b.state("buffer.mean", f32(4)), b.state("buffer.count", TensorType("i64", ()))
    momentum = b.state("opt.buf.w", f32(4, 3))
    x, lr, rng = b.batch("x", f32(ROWS, 4)), b.scalar("lr"), b.rng()
    drop = {"p": 0.25, "shape": (ROWS, 4)}
    first = b.one("tallystick.dropout_mask", [rng], draw=0, **drop)
    seen = b.one("aten.mean.dim", [x], dim=(0,), keepdim=False)
    moved = b.one("aten.mul.Scalar", [mean], other=0.9)
    moved = b.one("aten.add.Tensor", [moved, seen], alpha=0.125)
    counted = b.one("aten.add.Scalar", [count], other=1.0, alpha=1.0)
    kept = b.one("tallystick.mask_scale", [x, first], scale=1.0 / 0.75)
    kept = b.one("aten.sub.Tensor", [kept, moved], alpha=1.0)
    second = b.one("tallystick.dropout_mask", [rng], draw=1, **drop)
    kept = b.one("tallystick.mask_scale", [kept, second], scale=1.0 / 0.75)
    y = b.one("aten.mm", [kept, w])
    loss = b.one("aten.mean", [b.one("aten.square", [y])])
    turned = b.one("aten.permute", [kept], dims=(1, 0))
    slope = b.one("aten.mm", [turned, y])
    b.end_section()
    folded = b.one(FOLD, [loss], mean=True)
    total = b.one(FOLD, [loss], mean=False)
    gradient = b.one(FOLD, [slope], mean=True)
    turns = b.one(FOLD, [turned], mean=False)  # a view, folded
    squares = b.one("tallystick.sum_squares", [gradient])
    coefficient, norm = b.emit("tallystick.clip_coef", [squares], max_norm=0.5)
    updated, buffer = b.emit(
        "tallystick.sgd_step",
        [w, gradient, momentum, lr, coefficient],
        momentum=0.9, dampening=0.0, weight_decay=0.5, nesterov=True,
    )  # fmt: skip
    # The tail reads the slot as it was before the step, and the last micro-batch's value.
    change = b.one("aten.sub.Tensor", [moved, mean], alpha=1.0)
    after = {"param.w": updated, "buffer.frozen": frozen, "opt.buf.w": buffer}
    after |= {"buffer.mean": moved, "buffer.count": counted}
    b.commit(after)
    others = {"loss": folded, "metric.norm": norm, "metric.total": total, "metric.change": change,
              "metric.turns": turns, "metric.count": counted, "metric.old": mean}  # fmt: skip
    return canonicalize(b.finish(after | others, {"buffer.mean": moved, "buffer.count": counted}))


MICRO_TEXT = """\
tallystick program 2
contract ordered/1-draft.1
input batch batch.x f32[2]
input state buffer.n f32[2]
input state param.w f32[2]
micro 2
carry buffer.n %0
%0 = aten.add.Tensor(@buffer.n, @batch.x){alpha=0x1.0000000000000p+0} : f32[2]
%1 = aten.mul.Tensor(%0, @param.w) : f32[2]
%2 = tallystick.fold(%1){mean=true} : f32[2]
%3 = tallystick.commit(%0, %2) : none
output buffer.n %0
output param.w %2
end
"""


def micro_inputs(parts: int) -> tuple[Arrays, Arrays]:
    """State and batch of a whole step for `micro_step`."""
    rng = np.random.default_rng(parts)
    state = {
        "param.w": rng.standard_normal((4, 3), dtype=np.float32),
        "buffer.frozen": np.zeros(2, np.float32),
        "buffer.mean": rng.standard_normal(4, dtype=np.float32),
        "buffer.count": np.array(7, np.int64),
        "opt.buf.w": rng.standard_normal((4, 3), dtype=np.float32),
    }
    return state, {"x": rng.standard_normal((parts * ROWS, 4), dtype=np.float32)}
