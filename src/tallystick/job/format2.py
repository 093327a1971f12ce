"""The commitment of a job of format 2 in its manifest: written, and read from any author
(COMMITMENTS 7.6.10)."""

from __future__ import annotations

from tallystick.commit.job import CONTINUES_NONE, JobCommitment2
from tallystick.commit.members import Members
from tallystick.commit.timetable import DataSet, JobProgram, Timetable, Turn
from tallystick.disk.manifest import Manifest


def commitment_members(c: JobCommitment2) -> Manifest:
    """The object `commitment` of the manifest."""
    return {
        "checkpoint_interval": c.checkpoint_interval,
        "continues": None if c.continues == CONTINUES_NONE else c.continues.hex(),
        "contract": c.contract,
        "data": [
            {
                "name": d.name,
                "order_seed": str(d.order_seed),
                "record_count": d.record_count,
                "root": d.root.hex(),
            }
            for d in c.timetable.data
        ],
        "format_version": c.format_version,
        "genesis_root": c.genesis_root.hex(),
        "programs": [
            {
                "batch_size": p.batch_size,
                "by_pass": p.by_pass,
                "data": p.data,
                "digest": p.digest.hex(),
                "first": p.first,
                "micro_batches": p.micro_batches,
                "name": p.name,
            }
            for p in c.timetable.programs
        ],
        "rng_seed": str(c.rng_seed),
        "scalars_digest": c.scalars_digest.hex(),
        "schedule": [{"program": t.program, "steps": t.steps} for t in c.timetable.turns],
        "steps": c.steps,
        "stop_on_non_finite": c.stop_on_non_finite,
        "stop_on_slot": c.stop_on_slot,
    }


def read_commitment(c: Members, contract: str) -> JobCommitment2:
    """The commitment in an untrusted manifest. Raises CorruptFileError, UsageError for values out
    of range."""
    c.only(
        "checkpoint_interval", "continues", "contract", "data", "format_version", "genesis_root",
        "programs", "rng_seed", "scalars_digest", "schedule", "steps", "stop_on_non_finite",
        "stop_on_slot",
    )  # fmt: skip
    if c.of("format_version", int) != 2:
        c.fail("'format_version' is not 2")
    data = tuple(_data_set(Members(item, c.fail)) for item in c.of("data", list))
    programs = tuple(_program(Members(item, c.fail)) for item in c.of("programs", list))
    turns = tuple(_turn(Members(item, c.fail)) for item in c.of("schedule", list))
    none = c.value["continues"] is None
    continues = CONTINUES_NONE if none else c.hex("continues")
    if not none and continues == CONTINUES_NONE:
        c.fail("'continues' is zeros, which are written null")
    return JobCommitment2(
        contract=contract,
        genesis_root=c.hex("genesis_root"),
        timetable=Timetable(programs, data, turns),
        rng_seed=c.decimal("rng_seed", 20),
        steps=c.of("steps", int),
        checkpoint_interval=c.of("checkpoint_interval", int),
        scalars_digest=c.hex("scalars_digest"),
        stop_on_non_finite=c.of("stop_on_non_finite", bool),
        stop_on_slot=c.of("stop_on_slot", bool),
        continues=continues,
    )


def _data_set(entry: Members) -> DataSet:
    entry.only("name", "order_seed", "record_count", "root")
    count, seed = entry.of("record_count", int), entry.decimal("order_seed", 20)
    return DataSet(entry.of("name", str), entry.hex("root"), count, seed)


def _program(entry: Members) -> JobProgram:
    entry.only("batch_size", "by_pass", "data", "digest", "first", "micro_batches", "name")
    return JobProgram(
        entry.of("name", str),
        entry.hex("digest"),
        None if entry.value["data"] is None else entry.of("data", int),
        entry.of("batch_size", int),
        entry.of("micro_batches", int),
        entry.of("by_pass", bool),
        entry.of("first", int),
    )


def _turn(entry: Members) -> Turn:
    entry.only("program", "steps")
    return Turn(entry.of("program", int), entry.of("steps", int))
