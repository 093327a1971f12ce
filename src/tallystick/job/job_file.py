"""job.json: reading it from any author, writing it, and copying a whole job.

The reader believes nothing in the manifest before its own digest and the job digest that it names
agree with it. Then it checks the type of every member, once, in this module.
The commitment of a job of format 2 or 3 has members of its own (COMMITMENTS 7.6.10, 7.7.7).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from tallystick.commit.data import DataSchema, read_schema, schema_members
from tallystick.commit.encoding import float_hex, parse_float_hex
from tallystick.commit.job import (
    CONTINUES_NONE,
    Commitment,
    JobCommitment,
    JobCommitment2,
    ScalarTable,
    scalars_digest,
)
from tallystick.commit.members import Members
from tallystick.commit.stream import DataSet, JobProgram, Stream, check_names
from tallystick.commit.timetable import ScheduleTurn, Timetable
from tallystick.devices.environment import exact_environment
from tallystick.disk.files import clone_or_copy, make_directory, share_or_copy, sync_path
from tallystick.disk.manifest import Manifest, load_manifest, read_manifest
from tallystick.disk.regular import present
from tallystick.errors import CorruptFileError, UsageError
from tallystick.job.job import (
    FORMAT,
    FORMATS,
    MANIFEST,
    STATE0,
    Evaluation,
    Job,
    altered,
    check_terms_fit,
    checked_text,
)
from tallystick.limits import LIMITS
from tallystick.numerics.contracts import parse_contract
from tallystick.program.terms import Terms

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


_DIGESTS = ("program_digest", "genesis_root", "data_root", "scalars_digest")
_COUNTS = ("record_count", "batch_size", "steps", "checkpoint_interval", "format_version")
_SEEDS = ("order_seed", "rng_seed")


def job_manifest(job: Job) -> Manifest:
    first = isinstance(job.commitment, JobCommitment)
    schemas: list[Any] = [schema_members(schema) for schema in job.schemas]
    body: Manifest = {
        "about": dict(job.about),
        "commitment": _commitment_members(job.commitment),
        "evaluation": None,
        "fills": {name: float_hex(value) for name, value in job.fills.items()},
        "format": FORMATS[job.commitment.format_version - 1],
        "forward": job.forward_digest.hex() if job.forward_digest else None,
        "job_digest": job.digest.hex(),
        "recipe": job.recipe,
        "scalars": {
            name: float_hex(t) if isinstance(t, float) else [float_hex(v) for v in t]
            for name, t in job.scalars.items()
        },
        "schema" if first else "schemas": schemas[0] if first else schemas,
    }
    if job.evaluation is not None:
        e = job.evaluation
        body["evaluation"] = {
            "batch_size": e.batch_size,
            "data_root": e.data_root.hex(),
            "every": e.every,
            "program_digest": e.program_digest.hex(),
            "record_count": e.record_count,
        }
    return body


def _commitment_members(c: Commitment) -> Manifest:
    if not isinstance(c, JobCommitment):
        return commitment_members(c)
    fields: Manifest = {name: getattr(c, name).hex() for name in _DIGESTS}
    fields.update({name: getattr(c, name) for name in _COUNTS})
    fields.update({name: str(getattr(c, name)) for name in _SEEDS})
    fields["contract"] = c.contract
    fields["stop_on_non_finite"] = c.stop_on_non_finite
    return fields


def _malformed(path: Path, why: str) -> NoReturn:
    raise CorruptFileError(
        f"The job manifest {path} is malformed: {why}.",
        "Get an intact copy of the job from its author.",
    )


@exact_environment()
def load_terms(directory: Path) -> Terms:
    """Load the parts of the job at `directory` that a referee needs: job.json and program.txt,
    without any tensor.

    Raises the errors of load_job, and CorruptFileError where the program does not fit.
    """
    return load_job(directory).terms


@exact_environment()
def load_job(directory: Path) -> Job:
    """Load the manifest of the job at `directory` and check that its parts hash to its digest.

    The first use of a program, state or record checks it; `Job.verify` checks all of them.
    Raises StorageError, CorruptFileError, DigestMismatchError, UnsupportedVersionError.
    """
    path = Path(directory) / MANIFEST
    if not present(path):
        raise UsageError(
            f"{directory} is not a job: it has no {MANIFEST}.",
            "Make one with `tallystick job new`.",
        )
    content = load_manifest(path, "job manifest", *FORMATS)
    return _read_job(content, path)


@exact_environment()
def terms_of_files(files: Mapping[str, bytes], where: Path) -> Terms:
    """The terms in the bytes of a job's files by name: the manifest, and the text of each of its
    programs. `where` is what errors call the directory; nothing is read from it.

    Raises CorruptFileError where a file is missing, is one too many or does not fit, and as
    `load_job`.
    """
    path = where / MANIFEST
    if MANIFEST not in files:
        raise CorruptFileError(
            f"{where} contains no {MANIFEST}.", "Ask the sender for the complete job."
        )
    job = _read_job(read_manifest(files[MANIFEST], path, "job manifest", *FORMATS), path)
    programs = job.commitment.timetable.programs
    names = [job.program_file(number) for number in range(len(programs))]
    if odd := {MANIFEST, *names} ^ set(files):
        raise CorruptFileError(
            f"The file {min(odd)} in {where} is missing, or does not belong to the job.",
            "Ask the sender for the complete job.",
        )
    texts = tuple(
        checked_text(files[name], entry.digest, where / name)
        for name, entry in zip(names, programs, strict=True)
    )
    terms = Terms(job.commitment, texts, job.scalars, job.schemas)
    check_terms_fit(terms, where)
    return terms


def _read_job(content: Manifest, path: Path) -> Job:
    """The job whose manifest, called `path`, has this content. Raises as load_job."""
    top = Members(content, partial(_malformed, path))
    first = content["format"] == FORMAT
    top.only(
        "about", "commitment", "evaluation", "fills", "format", "forward", "job_digest", "recipe",
        "scalars", "schema" if first else "schemas",
    )  # fmt: skip
    c = top.child("commitment")
    contract = c.of("contract", str)
    parse_contract(contract)
    try:
        if first:
            commitment: Commitment = _read_first(c, contract)
        else:
            commitment = read_commitment(c, contract, FORMATS.index(content["format"]) + 1)
        scalars = {
            name: _read_scalar(table, top) for name, table in top.child("scalars").value.items()
        }
        if scalars_digest(scalars) != commitment.scalars_digest:
            altered(path)
        schemas = _read_schemas(top, first)
        if len(schemas) != len(commitment.timetable.data):
            top.fail("there is not one schema for each data set")
    except UsageError as error:
        top.fail(error.message)
    job = Job(
        path.parent,
        commitment,
        scalars,
        schemas,
        {n: parse_float_hex(v, "fill") for n, v in top.child("fills").value.items()},
        _read_recipe(top),
        _read_evaluation(top),
        top.hex("forward") if top.value["forward"] is not None else None,
        {n: str(v) for n, v in top.child("about").value.items()},
    )
    if job.digest != top.hex("job_digest"):
        altered(path)
    return job


def _read_scalar(table: object, top: Members) -> ScalarTable:
    if isinstance(table, str):
        return parse_float_hex(table, "scalar")
    if not isinstance(table, list) or len(table) > LIMITS.scalar_table_values:
        top.fail("a scalar is neither a number nor a table")
    return [parse_float_hex(v, "scalar") for v in table]


def _read_first(c: Members, contract: str) -> JobCommitment:
    c.only(*_DIGESTS, *_COUNTS, *_SEEDS, "contract", "stop_on_non_finite")
    members: dict[str, Any] = {name: c.hex(name) for name in _DIGESTS}
    members |= {name: c.of(name, int) for name in _COUNTS}
    members |= {name: c.decimal(name, 20) for name in _SEEDS}
    stops = c.of("stop_on_non_finite", bool)
    return JobCommitment(contract=contract, stop_on_non_finite=stops, **members)


def _read_schemas(top: Members, first: bool) -> tuple[DataSchema, ...]:
    if first:
        return (read_schema(top, top.of("schema", list), LIMITS.record_bytes),)
    most = LIMITS.long_record_bytes
    schemas = []
    for fields in top.of("schemas", list):
        if not isinstance(fields, list):
            top.fail("a schema is not a list")
        schemas.append(read_schema(top, fields, most))
    return tuple(schemas)


def _read_recipe(top: Members) -> dict[str, Any] | None:
    if top.value["recipe"] is None:
        return None
    recipe = top.child("recipe")
    recipe.only("name", "settings")
    settings = recipe.child("settings").value
    if not all(isinstance(v, str) for v in settings.values()):
        recipe.fail("a setting is not a string")
    return {"name": recipe.of("name", str), "settings": settings}


def _read_evaluation(top: Members) -> Evaluation | None:
    if top.value["evaluation"] is None:
        return None
    e = top.child("evaluation")
    e.only("batch_size", "data_root", "every", "program_digest", "record_count")
    every, records, batch = (e.of(n, int) for n in ("every", "record_count", "batch_size"))
    if every < 0 or not 1 <= batch <= records <= LIMITS.records:
        e.fail("its numbers of validation records are impossible")
    return Evaluation(every, e.hex("program_digest"), e.hex("data_root"), records, batch)


def copy_job(job: Job, target: Path, inside: Path) -> Job:
    """Put a copy of `job` at `target`, a directory in `inside`, and load the copy. The function
    writes the manifest last.

    Raises StorageError, CorruptFileError where a link is in the way.
    """
    make_directory(target, inside)
    make_directory(target / "data", inside)
    for name in job.files():
        large = name == STATE0 or name.startswith("data/")
        put = share_or_copy if large else clone_or_copy
        put(job.directory / name, target / name, job.directory)
    sync_path(target)
    return load_job(target)
