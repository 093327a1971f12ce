"""Jobs of format 2 written from parts: small ones for games, and one of every kind of part."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tallystick.commit.data import DataSchema, Field
from tallystick.commit.job import JobCommitment2, ScalarTable, scalars_digest
from tallystick.commit.tensor import Array
from tallystick.disk.files import make_directory, write_file
from tallystick.disk.manifest import manifest_bytes
from tallystick.disk.tensorfile import write_tensors
from tallystick.job.job import MANIFEST, STATE0, Job
from tallystick.job.job_file import job_manifest, load_job
from tallystick.job.parts import Parts, ProgramPart, Records
from tallystick.limits import LIMITS
from tallystick.numerics.contracts import resolve_contract
from tallystick.numerics.operators.reduction import FOLD
from tallystick.numerics.types import TensorType
from tallystick.program.build import Builder
from tallystick.program.canonical import canonicalize
from tallystick.program.ir import Program
from tallystick.program.state import State

WIDTH, RECORDS = 3, 12


def f32(*shape: int) -> TensorType:
    return TensorType("f32", shape)


def write_job(
    path: Path,
    parts: Parts,
    state: Mapping[str, Array],
    scalars: Mapping[str, ScalarTable],
    *,
    steps: int,
    interval: int,
    seed: int = 5,
) -> Job:
    """The job of `parts` in format 2; `state` and the parts' own slots are state[0]."""
    slots = {name: np.asarray(a) for name, a in sorted({**state, **parts.slots}.items())}
    commitment = JobCommitment2(
        contract=parts.programs[0].program.contract,
        genesis_root=State(slots).root(),
        timetable=parts.timetable,
        rng_seed=seed,
        steps=steps,
        checkpoint_interval=interval,
        scalars_digest=scalars_digest(scalars),
        stop_on_slot=parts.stops,
    )
    schemas = tuple(records.schema for records in parts.data)
    job = Job(path, commitment, dict(scalars), schemas, {}, None, None, None, {})
    make_directory(path / "data")
    for number, part in enumerate(parts.programs):
        write_file(path / job.program_file(number), [part.program.text().encode("ascii")])
    write_tensors(path / STATE0, slots)
    for number, records in enumerate(parts.data):
        write_tensors(path / job.data_file(number), dict(records.columns))
    write_file(path / MANIFEST, [manifest_bytes(job_manifest(job))])
    made = load_job(path)
    made.verify()
    return made


def micro_step(contract: str, rows: int, width: int = WIDTH) -> Program:
    """A step over micro-batches of `rows` records: dropout, a carried sum, momentum.

    It learns `param.w` so that the records' products with it become their `y`.
    """
    b = Builder(contract)
    w, buffer = b.state("param.w", f32(width, 1)), b.state("opt.buf.w", f32(width, 1))
    seen = b.state("buffer.seen", f32(width))
    x, y = b.batch("x", f32(rows, width)), b.batch("y", f32(rows, 1))
    lr, rng = b.scalar("lr"), b.rng()
    total = b.one("aten.add.Tensor", [seen, b.one("aten.sum.dim_IntList", [x], dim=(0,),
                                                  keepdim=False)], alpha=1.0)  # fmt: skip
    mask = b.one("tallystick.dropout_mask", [rng], draw=0, p=0.25, shape=(rows, width))
    kept = b.one("tallystick.mask_scale", [x, mask], scale=1.0 / 0.75)
    error = b.one("aten.sub.Tensor", [b.one("aten.mm", [kept, w]), y], alpha=1.0)
    loss = b.one("aten.mean", [b.one("aten.square", [error])])
    slope = b.one("aten.mm", [b.one("aten.permute", [kept], dims=(1, 0)), error])
    b.end_section()
    folded, gradient = b.one(FOLD, [loss], mean=True), b.one(FOLD, [slope], mean=False)
    updated, moment = b.emit(
        "tallystick.sgd_step", [w, gradient, buffer, lr, None],
        momentum=0.9, dampening=0.0, weight_decay=0.0, nesterov=False,
    )  # fmt: skip
    after = {"param.w": updated, "opt.buf.w": moment, "buffer.seen": total}
    b.commit(after)
    return canonicalize(b.finish({**after, "loss": folded}, {"buffer.seen": total}))


def micro_records(name: str = "train", count: int = RECORDS, width: int = WIDTH) -> Records:
    """Records of `x` and `y`, from a fixed seed."""
    rng = np.random.default_rng(count)
    columns = {
        "x": rng.standard_normal((count, width), dtype=np.float32),
        "y": rng.standard_normal((count, 1), dtype=np.float32),
    }
    fields = (Field("x", "f32", (width,)), Field("y", "f32", (1,)))
    return Records(name, DataSchema(fields, LIMITS.long_record_bytes), columns, 9)


def micro_state(width: int = WIDTH) -> dict[str, Array]:
    """state[0] of `micro_step`."""
    w = np.linspace(-1, 1, width, dtype=np.float32).reshape(width, 1)
    zeros = np.zeros((width, 1), np.float32)
    return {"param.w": w, "opt.buf.w": zeros, "buffer.seen": np.zeros(width, np.float32)}


def make_micro_job(
    path: Path,
    micro_batches: int = 2,
    contract: str = "ordered/1",
    *,
    rows: int = 2,
    steps: int = 4,
    interval: int = 2,
    width: int = WIDTH,
    records: int = RECORDS,
    rate: float = 0.05,
) -> Job:
    """A job of V micro-batches of `rows` records each (PROGRAM 6)."""
    program = micro_step(resolve_contract(contract), rows, width)
    part = ProgramPart.alone("step", program, 0, rows * micro_batches, micro_batches)
    rates = [rate / (1 + t) for t in range(steps)]
    return write_job(
        path,
        Parts((part,), (micro_records(count=records, width=width),)),
        micro_state(width),
        {"lr": rates},
        steps=steps,
        interval=interval,
    )
