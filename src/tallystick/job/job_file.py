"""job.json: reading it from any author, writing it, and copying a whole job.

The reader believes nothing in the manifest before its own digest and the job digest that it names
agree with it. Then it checks the type of every member, once, in this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from tallystick.commit.data import DataSchema, read_schema, schema_members
from tallystick.commit.encoding import float_hex, parse_float_hex
from tallystick.commit.job import Commitment, JobCommitment, ScalarTable, scalars_digest
from tallystick.commit.members import Members
from tallystick.devices.environment import exact_environment
from tallystick.disk.files import clone_or_copy, make_directory, share_or_copy, sync_path
from tallystick.disk.manifest import Manifest, load_manifest, read_manifest
from tallystick.disk.regular import present
from tallystick.errors import CorruptFileError, UsageError
from tallystick.job.format2 import commitment_members, read_commitment
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
