"""The commitment of a job of format 2 or 3 in its manifest: written, and read from any author
(COMMITMENTS 7.6.10, 7.7.7)."""

from __future__ import annotations

from typing import Any

from tallystick.commit.job import CONTINUES_NONE, JobCommitment2
from tallystick.commit.members import Members
from tallystick.commit.stream import DataSet, JobProgram, Stream, check_names
from tallystick.commit.timetable import ScheduleTurn, Timetable
from tallystick.disk.manifest import Manifest

_DATA = ("name", "order_seed", "record_count", "root")
_PROGRAM = ("batch_size", "digest", "micro_batches", "name")
_READS = ("by_pass", "data", "first")  # of a program in format 2, of a stream in format 3
_STREAM = ("batch_size", "epoch_records", "name")


def commitment_members(c: JobCommitment2) -> Manifest:
    """The object `commitment` of the manifest."""
    timetable, two = c.timetable, c.timetable.plain
    members: Manifest = {
        "checkpoint_interval": c.checkpoint_interval,
        "continues": None if c.continues == CONTINUES_NONE else c.continues.hex(),
        "contract": c.contract,
        "data": [
            {
                "name": d.name,
                "order_seed": str(d.order_seed),
                "record_count": d.record_count,
                "root": d.root.hex(),
                **({} if two else {"order": d.order}),
            }
            for d in timetable.data
        ],
        "format_version": c.format_version,
        "genesis_root": c.genesis_root.hex(),
        "programs": [
            {
                "batch_size": p.batch_size,
                "digest": p.digest.hex(),
                "micro_batches": p.micro_batches,
                "name": p.name,
                **(_reads(p.stream) if two else {"stream": timetable.streams.index(p.stream)}),
            }
            for p in timetable.programs
        ],
        "rng_seed": str(c.rng_seed),
        "scalars_digest": c.scalars_digest.hex(),
        "schedule": [{"program": t.program, "steps": t.steps} for t in timetable.turns],
        "steps": c.steps,
        "stop_on_non_finite": c.stop_on_non_finite,
        "stop_on_slot": c.stop_on_slot,
    }
    if not two:
        members["streams"] = [
            {**_reads(s), **{name: getattr(s, name) for name in _STREAM}} for s in timetable.streams
        ]
    return members


def _reads(stream: Stream) -> dict[str, Any]:
    return {name: getattr(stream, name) for name in _READS}


def read_commitment(c: Members, contract: str, version: int) -> JobCommitment2:
    """The commitment in an untrusted manifest of format `version`. Raises CorruptFileError,
    UsageError for values out of range."""
    two = version == 2
    c.only(
        "checkpoint_interval", "continues", "contract", "data", "format_version", "genesis_root",
        "programs", "rng_seed", "scalars_digest", "schedule", "steps", "stop_on_non_finite",
        "stop_on_slot", *(() if two else ("streams",)),
    )  # fmt: skip
    if c.of("format_version", int) != version:
        c.fail(f"'format_version' is not {version}")
    data = tuple(_data_set(Members(item, c.fail), two) for item in c.of("data", list))
    programs = [Members(item, c.fail) for item in c.of("programs", list)]
    timetable = Timetable(
        tuple(map(_program, programs)) if two else _with_streams(c, programs),
        data,
        tuple(_turn(Members(item, c.fail)) for item in c.of("schedule", list)),
    )
    if timetable.plain and not two:
        c.fail("format 2 can say this job")
    none = c.value["continues"] is None
    continues = CONTINUES_NONE if none else c.hex("continues")
    if not none and continues == CONTINUES_NONE:
        c.fail("'continues' is zeros, which are written null")
    return JobCommitment2(
        contract=contract,
        genesis_root=c.hex("genesis_root"),
        timetable=timetable,
        rng_seed=c.decimal("rng_seed", 20),
        steps=c.of("steps", int),
        checkpoint_interval=c.of("checkpoint_interval", int),
        scalars_digest=c.hex("scalars_digest"),
        stop_on_non_finite=c.of("stop_on_non_finite", bool),
        stop_on_slot=c.of("stop_on_slot", bool),
        continues=continues,
    )


def _data_set(entry: Members, two: bool) -> DataSet:
    entry.only(*_DATA, *(() if two else ("order",)))
    count, seed = entry.of("record_count", int), entry.decimal("order_seed", 20)
    order = () if two else (entry.of("order", str),)
    return DataSet(entry.of("name", str), entry.hex("root"), count, seed, *order)


def _program(entry: Members) -> JobProgram:
    """A program of format 2, with a stream of its own."""
    entry.only(*_PROGRAM, *_READS)
    return JobProgram.alone(
        entry.of("name", str),
        entry.hex("digest"),
        _number(entry, "data"),
        entry.of("batch_size", int),
        entry.of("micro_batches", int),
        entry.of("by_pass", bool),
        entry.of("first", int),
    )


def _number(entry: Members, name: str) -> int | None:
    return None if entry.value[name] is None else entry.of(name, int)


def _with_streams(c: Members, entries: list[Members]) -> tuple[JobProgram, ...]:
    """The programs of format 3. Fails unless the streams are those of the programs, in order."""
    streams = [_stream(Members(item, c.fail)) for item in c.of("streams", list)]
    check_names("stream", [stream.name for stream in streams])
    programs, first = [], 0
    for entry in entries:
        entry.only(*_PROGRAM, "stream")
        number = entry.of("stream", int)
        if not 0 <= number < len(streams) or number > first:
            c.fail("the streams are not in the order of their first programs")
        first = max(first, number + 1)
        programs.append(
            JobProgram(
                entry.of("name", str),
                entry.hex("digest"),
                streams[number],
                entry.of("batch_size", int),
                entry.of("micro_batches", int),
            )
        )
    if first != len(streams):
        c.fail("a stream has no program")
    return tuple(programs)


def _stream(entry: Members) -> Stream:
    entry.only(*_STREAM, *_READS)
    return Stream(
        entry.of("name", str),
        _number(entry, "data"),
        entry.of("batch_size", int),
        entry.of("by_pass", bool),
        _number(entry, "epoch_records"),
        entry.of("first", int),
    )


def _turn(entry: Members) -> ScheduleTurn:
    entry.only("program", "steps")
    return ScheduleTurn(entry.of("program", int), entry.of("steps", int))
