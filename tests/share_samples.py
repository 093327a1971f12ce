"""A step whose micro-batches several workers may execute: random draws, batch normalisation whose
running statistics are carried, a scalar that the section reads, a field that nothing reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from format_two import write_job

from tallystick.commit.data import DataSchema, Field
from tallystick.commit.stream import Stream
from tallystick.commit.tensor import Array
from tallystick.commit.timetable import ScheduleTurn
from tallystick.job.job import Job
from tallystick.job.parts import Parts, ProgramPart, Records
from tallystick.limits import LIMITS
from tallystick.numerics.contracts import resolve_contract
from tallystick.numerics.operators.reduction import FOLD
from tallystick.numerics.types import TensorType
from tallystick.program.build import Builder
from tallystick.program.canonical import canonicalize
from tallystick.program.ir import Program

ROWS, WIDTH, RECORDS = 3, 4, 40
NORM = "aten._native_batch_norm_legit_functional"


def f32(*shape: int) -> TensorType:
    return TensorType("f32", shape)


def share_step(contract: str = "ordered/1") -> Program:
    """Dropout before and after a batch normalisation, a product, a plain update."""
    b = Builder(resolve_contract(contract))
    w, gain = b.state("param.w", f32(WIDTH, 2)), b.state("param.gain", f32(WIDTH))
    mean, var = b.state("buffer.mean", f32(WIDTH)), b.state("buffer.var", f32(WIDTH))
    seen = b.state("buffer.seen", TensorType("i64", ()))
    frozen, lr = b.state("buffer.frozen", f32(5)), b.scalar("lr")
    x, y = b.batch("x", f32(ROWS, WIDTH)), b.batch("y", TensorType("i64", (ROWS, 1)))
    b.batch("unread", f32(ROWS, 2))

    def dropped(value: object, draw: int) -> object:
        mask = b.one("tallystick.dropout_mask", [b.rng()], draw=draw, p=0.25, shape=(ROWS, WIDTH))
        return b.one("tallystick.mask_scale", [value, mask], scale=1.0 / 0.75)  # type: ignore[list-item]

    out, _, _, mean_after, var_after = b.emit(
        NORM, [dropped(x, 0), gain, None, mean, var], momentum=0.1, eps=1e-5  # type: ignore[list-item]
    )  # fmt: skip
    seen_after = b.one("aten.add.Scalar", [seen], other=1.0, alpha=1.0)
    out = dropped(out, 1)  # type: ignore[assignment]
    target = b.one("aten._to_copy", [y], dtype="f32")
    error = b.one("aten.sub.Tensor", [b.one("aten.mm", [out, w]), target], alpha=1.0)
    loss = b.one("aten.mean", [b.one("aten.square", [error])])
    turned = b.one("aten.permute", [out], dims=(1, 0))
    slope = b.one("aten.mm", [turned, error])
    tilt = b.one("aten.mean.dim", [out], dim=(0,), keepdim=False)
    moved = b.one(
        "tallystick.sgd_step", [gain, tilt, None, lr, None],
        momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False,
    )  # fmt: skip
    b.end_section()
    folded, gradient = b.one(FOLD, [loss], mean=True), b.one(FOLD, [slope], mean=False)
    turns = b.one(FOLD, [turned], mean=False)  # a view, folded
    after = {
        "param.w": b.one("aten.sub.Tensor", [w, gradient], alpha=0.01),
        "param.gain": b.one(FOLD, [moved], mean=True),
        "buffer.mean": mean_after,
        "buffer.var": var_after,
        "buffer.seen": seen_after,
        "buffer.frozen": frozen,
    }
    b.commit(after)
    carried = {"buffer.mean": mean_after, "buffer.var": var_after, "buffer.seen": seen_after}
    outputs = {"loss": folded, "metric.turns": turns, **after}
    return canonicalize(b.finish(outputs, carried))


def share_state() -> dict[str, Array]:
    """state[0] of `share_step`."""
    rng = np.random.default_rng(3)
    return {
        "param.w": rng.standard_normal((WIDTH, 2), dtype=np.float32),
        "param.gain": rng.standard_normal(WIDTH, dtype=np.float32),
        "buffer.mean": rng.standard_normal(WIDTH, dtype=np.float32),
        "buffer.var": np.ones(WIDTH, np.float32),
        "buffer.seen": np.array(7, np.int64),
        "buffer.frozen": np.zeros(5, np.float32),
    }


def share_records() -> Records:
    """Records from a fixed seed."""
    rng = np.random.default_rng(RECORDS)
    columns = {
        "unread": rng.standard_normal((RECORDS, 2), dtype=np.float32),
        "x": rng.standard_normal((RECORDS, WIDTH), dtype=np.float32),
        "y": rng.integers(0, 3, (RECORDS, 1)),
    }
    types = {"unread": ("f32", (2,)), "x": ("f32", (WIDTH,)), "y": ("i64", (1,))}
    fields = tuple(Field(name, *type_) for name, type_ in types.items())
    return Records("train", DataSchema(fields, LIMITS.long_record_bytes), columns, 9)


def make_share_job(
    path: Path,
    parts: int,
    contract: str = "ordered/1",
    steps: int = 5,
    epoch: int | None = None,
) -> Job:
    """A job of `share_step` with so many micro-batches; of an epoch of `epoch` records the last
    batch has what is left of them."""
    program, stream = share_step(contract), Stream("step", 0, ROWS * parts, epoch_records=epoch)
    programs, turns = (
        [ProgramPart("step", program, stream, ROWS * parts, parts)],
        [ScheduleTurn(0, 1)],
    )
    if stream.epoch is not None and stream.is_uneven:
        last = stream.last_size
        programs.append(ProgramPart("step-short", program, stream, last, last // ROWS))
        turns = [ScheduleTurn(0, stream.epoch - 1), ScheduleTurn(1, 1)]
    rates = [0.05 / (1 + t) for t in range(steps)]
    made = Parts(tuple(programs), (share_records(),), tuple(turns))
    return write_job(path, made, share_state(), {"lr": rates}, steps=steps, interval=2)
