"""The job directory: everything that fixes a run (DESIGN 2, COMMITMENTS 7), on disk.

    job.json            manifest: the fields of the job digest, and what people want to know
    program.txt         the canonical program text
    state0.safetensors  initial state (slots of one repeated value are in the manifest instead)
    data/train.safetensors          the records, one tensor per field
    data/validation.safetensors     records for `evaluate`, not part of the run
    eval.txt, forward.txt           programs for `evaluate` and `sample`

Every byte is checked when a job is loaded: programs, states and records against the digests in
the manifest, the manifest against its own digest and the job digest it names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from tallystick.commit.data import DataSchema, Field, data_root
from tallystick.commit.encoding import float_hex, parse_float_hex
from tallystick.commit.job import JobCommitment, ScalarTable, scalars_digest
from tallystick.commit.tensor import DTYPES, Array, dtype_name
from tallystick.errors import (
    CorruptFileError,
    CounterpartyError,
    DigestMismatchError,
    UnsupportedVersionError,
    UsageError,
)
from tallystick.limits import LIMITS
from tallystick.numerics.types import TensorType
from tallystick.program.ir import CONTRACT, CONTRACTS, Program
from tallystick.program.text import parse_text, text_digest
from tallystick.run.files import (
    clone_or_copy,
    make_directory,
    read_file,
    sync_directory,
    write_file,
)
from tallystick.run.manifest import Manifest, load_manifest, manifest_bytes
from tallystick.run.state import State, check_slots
from tallystick.run.tensorfile import read_tensors, write_tensors

if TYPE_CHECKING:
    from tallystick.program.capture.api import CapturedStep

FORMAT = "tallystick-job/1"
MANIFEST = "job.json"
PROGRAM = "program.txt"
STATE0 = "state0.safetensors"
DATA = "data/train.safetensors"
VALIDATION = "data/validation.safetensors"
EVAL_PROGRAM = "eval.txt"
FORWARD_PROGRAM = "forward.txt"
FILES = (PROGRAM, STATE0, DATA, VALIDATION, EVAL_PROGRAM, FORWARD_PROGRAM, MANIFEST)

DEFAULT_INTERVAL = 20


def resolve_contract(name: str) -> str:
    """The full contract name; `ordered/1` means the current draft (DESIGN 4)."""
    if name in CONTRACTS:
        return name
    if name == CONTRACT.split("-draft", 1)[0]:
        return CONTRACT
    raise UnsupportedVersionError(
        f"Contract {name[:80]!r} is not known to this build.",
        f"Use one of: {', '.join(CONTRACTS)}.",
    )


@dataclass(frozen=True)
class Evaluation:
    """How the validation loss is computed: informational, outside the job digest."""

    every: int
    program_digest: bytes
    data_root: bytes
    record_count: int
    batch_size: int


@dataclass(frozen=True)
class Job:
    """A job loaded from a directory; `load_job` has checked every digest it promises to."""

    directory: Path
    commitment: JobCommitment
    scalars: dict[str, ScalarTable]
    schema: DataSchema
    fills: dict[str, float]
    recipe: dict[str, Any] | None
    evaluation: Evaluation | None
    forward_digest: bytes | None
    about: dict[str, str]

    @cached_property
    def digest(self) -> bytes:
        """The job digest (COMMITMENTS 7.2)."""
        return self.commitment.digest()

    @property
    def steps(self) -> int:
        return self.commitment.steps

    @property
    def interval(self) -> int:
        return self.commitment.checkpoint_interval

    @cached_property
    def program(self) -> Program:
        """The program; raises DigestMismatchError when the text is not the job's."""
        return self._program(PROGRAM, self.commitment.program_digest)

    @cached_property
    def eval_program(self) -> Program | None:
        """The validation program, if the job has one."""
        if self.evaluation is None:
            return None
        return self._program(EVAL_PROGRAM, self.evaluation.program_digest)

    @cached_property
    def forward_program(self) -> Program | None:
        """The inference program, if the job has one."""
        if self.forward_digest is None:
            return None
        return self._program(FORWARD_PROGRAM, self.forward_digest)

    def _program(self, name: str, digest: bytes) -> Program:
        path = self.directory / name
        data = read_file(path, LIMITS.program_bytes, "program")
        if text_digest(data) != digest:
            _altered(path)
        return parse_text(data)

    @cached_property
    def columns(self) -> dict[str, Array]:
        """The records, memory-mapped, one array (N, *field shape) per field; not yet hashed."""
        return self._columns(DATA, self.commitment.record_count)

    @cached_property
    def validation_columns(self) -> dict[str, Array]:
        """The validation records."""
        count = self.evaluation.record_count if self.evaluation else 0
        return self._columns(VALIDATION, count)

    def _columns(self, name: str, count: int) -> dict[str, Array]:
        path = self.directory / name
        columns, metadata = read_tensors(path, "data file")
        wanted = {f.name: (f.dtype, (count, *f.shape)) for f in self.schema.fields}
        found = {n: (dtype_name(a.dtype), tuple(a.shape)) for n, a in columns.items()}
        if metadata or found != wanted:
            raise CorruptFileError(
                f"The data file {path} does not have the job's fields and number of records.",
                "Restore it from an intact copy.",
            )
        return columns

    def genesis(self) -> State:
        """state[0], writable. Raises CounterpartyError unless it is the one committed to."""
        path = self.directory / STATE0
        tensors, metadata = read_tensors(path, "initial state", copy=True)
        types = self.program.state_types
        for name, value in self.fills.items():
            if name not in types or name in tensors:
                raise CorruptFileError(
                    f"The job {self.directory} fills a slot {name!r} that it has not.",
                    "Restore it from an intact copy.",
                )
            tensors[name] = np.full(types[name].shape, value, DTYPES[types[name].dtype])
        check_slots(tensors, types, f"initial state {path}")
        state = State({name: tensors[name] for name in types})
        if metadata or state.root() != self.commitment.genesis_root:
            _altered(path)
        return state

    def verify_data(self) -> None:
        """Hash every record. Raises DigestMismatchError unless the data is the committed one."""
        if data_root(self.schema, self.columns) != self.commitment.data_root:
            _altered(self.directory / DATA)

    def verify(self) -> None:
        """Check every byte of the directory against the job digest. Raises CounterpartyError."""
        _check_program_fits(self)
        self.genesis()
        self.verify_data()
        if self.evaluation is not None:
            assert self.eval_program is not None
            root = data_root(self.schema, self.validation_columns)
            if root != self.evaluation.data_root:
                _altered(self.directory / VALIDATION)
        assert self.forward_digest is None or self.forward_program is not None

    def files(self) -> list[str]:
        """The files of the directory, the manifest last."""
        absent = set()
        if self.evaluation is None:
            absent |= {VALIDATION, EVAL_PROGRAM}
        if self.forward_digest is None:
            absent.add(FORWARD_PROGRAM)
        return [name for name in FILES if name not in absent]

    def copy_to(self, target: Path) -> Job:
        """Put a copy of the job at `target`, the manifest last, and load that."""
        make_directory(target / "data")
        for name in self.files():
            clone_or_copy(self.directory / name, target / name)
        sync_directory(target)
        return load_job(target)

    @property
    def disk_bytes(self) -> int:
        """Bytes of the directory's files."""
        return sum((self.directory / name).stat().st_size for name in self.files())


def _altered(path: Path) -> NoReturn:
    raise DigestMismatchError(
        f"{path} is not what the job digest names: it was altered or belongs to another job.",
        "Restore the job from its author; `tallystick fsck` lists every altered file.",
    )


def _check_program_fits(job: Job) -> None:
    """The program's inputs are the job's: contract, batch, scalars. Raises CorruptFileError."""
    program, c = job.program, job.commitment

    def fail(why: str) -> NoReturn:
        raise CorruptFileError(
            f"The job {job.directory} does not fit together: {why}.", "Ask its author."
        )

    if program.contract != c.contract:
        fail("the program is written for another contract")
    if not program.next_state:
        fail("its program has no next state")
    loss = program.output_values.get("loss")
    if loss is None or program.type_of(loss) != TensorType("f32", ()):
        fail("its program has no scalar f32 output `loss`")
    fields = {f.name: TensorType(f.dtype, (c.batch_size, *f.shape)) for f in job.schema.fields}
    if program.batch_types != fields:
        fail("the program's batch is not a batch of the data's records")
    if set(program.scalar_names) != set(job.scalars):
        fail("the scalars are not the program's")
    for name, table in job.scalars.items():
        if not isinstance(table, float) and len(table) != c.steps:
            fail(f"the table {name} has {len(table)} values for {c.steps} steps")


# ---- manifest -----------------------------------------------------------------------------------

_DIGESTS = ("program_digest", "genesis_root", "data_root", "scalars_digest")
_COUNTS = ("record_count", "batch_size", "steps", "checkpoint_interval", "format_version")
_SEEDS = ("order_seed", "rng_seed")


def _manifest(job: Job) -> Manifest:
    c = job.commitment
    fields: Manifest = {name: getattr(c, name).hex() for name in _DIGESTS}
    fields.update({name: getattr(c, name) for name in _COUNTS})
    fields.update({name: str(getattr(c, name)) for name in _SEEDS})
    fields["contract"] = c.contract
    fields["stop_on_non_finite"] = c.stop_on_non_finite
    body: Manifest = {
        "about": dict(job.about),
        "commitment": fields,
        "evaluation": None,
        "fills": {name: float_hex(value) for name, value in job.fills.items()},
        "format": FORMAT,
        "forward": job.forward_digest.hex() if job.forward_digest else None,
        "job_digest": job.digest.hex(),
        "recipe": job.recipe,
        "scalars": {
            name: float_hex(t) if isinstance(t, float) else [float_hex(v) for v in t]
            for name, t in job.scalars.items()
        },
        "schema": [
            {"dtype": f.dtype, "name": f.name, "shape": list(f.shape)} for f in job.schema.fields
        ],
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


class _Fields:
    """Typed access to the members of an untrusted manifest; every fault is one sentence."""

    def __init__(self, value: object, path: Path) -> None:
        self.path = path
        if not isinstance(value, dict):
            self.fail("a member that should be an object is not one")
        self.value: dict[str, Any] = value

    def fail(self, why: str) -> NoReturn:
        raise CorruptFileError(
            f"The manifest {self.path} is malformed: {why}.", "Restore the job from its author."
        )

    def only(self, *names: str) -> None:
        if set(self.value) != set(names):
            odd = sorted(set(self.value) ^ set(names))[0]
            self.fail(f"member {odd[:80]!r} is missing or unknown")

    def of(self, name: str, kind: type) -> Any:
        value = self.value.get(name)
        if type(value) is not kind:
            self.fail(f"{name!r} is not a {kind.__name__}")
        return value

    def digest(self, name: str) -> bytes:
        text = self.of(name, str)
        if len(text) != 64 or not set(text) <= set("0123456789abcdef"):
            self.fail(f"{name!r} is not a digest")
        return bytes.fromhex(text)

    def seed(self, name: str) -> int:
        text = self.of(name, str)
        if len(text) > 20 or not text.isdecimal() or not text.isascii() or str(int(text)) != text:
            self.fail(f"{name!r} is not a decimal number")
        return int(text)

    def child(self, name: str) -> _Fields:
        return _Fields(self.value.get(name), self.path)


def load_job(directory: Path) -> Job:
    """Load the manifest of the job at `directory` and check that its parts hash to its digest.

    Programs, states and records are checked when they are first used, or all by `Job.verify`.
    Raises StorageError, CorruptFileError, DigestMismatchError, UnsupportedVersionError.
    """
    path = Path(directory) / MANIFEST
    if not path.is_file():
        raise UsageError(
            f"{directory} is not a job: it has no {MANIFEST}.", "Make one with `tallystick job new`."
        )
    top = _Fields(load_manifest(path, "job manifest", FORMAT), path)
    top.only(
        "about", "commitment", "evaluation", "fills", "format", "forward", "job_digest", "recipe",
        "scalars", "schema",
    )  # fmt: skip
    c = top.child("commitment")
    c.only(*_DIGESTS, *_COUNTS, *_SEEDS, "contract", "stop_on_non_finite")
    contract = c.of("contract", str)
    if contract not in CONTRACTS:
        resolve_contract(contract)
    try:
        commitment = JobCommitment(
            contract=contract,
            stop_on_non_finite=c.of("stop_on_non_finite", bool),
            **{name: c.digest(name) for name in _DIGESTS},
            **{name: c.of(name, int) for name in _COUNTS},
            **{name: c.seed(name) for name in _SEEDS},
        )
        scalars = {
            name: _read_scalar(table, top) for name, table in top.child("scalars").value.items()
        }
        if scalars_digest(scalars) != commitment.scalars_digest:
            _altered(path)
        schema = _read_schema(top)
    except UsageError as error:
        top.fail(error.message)
    job = Job(
        Path(directory),
        commitment,
        scalars,
        schema,
        {n: parse_float_hex(v, "fill") for n, v in top.child("fills").value.items()},
        _read_recipe(top),
        _read_evaluation(top),
        top.digest("forward") if top.value["forward"] is not None else None,
        {n: str(v) for n, v in top.child("about").value.items()},
    )
    if job.digest != top.digest("job_digest"):
        _altered(path)
    return job


def _read_scalar(table: object, top: _Fields) -> ScalarTable:
    if isinstance(table, str):
        return parse_float_hex(table, "scalar")
    if not isinstance(table, list) or len(table) > LIMITS.scalar_table_values:
        top.fail("a scalar is neither a number nor a table")
    return [parse_float_hex(v, "scalar") for v in table]


def _read_schema(top: _Fields) -> DataSchema:
    fields = []
    for item in top.of("schema", list):
        entry = _Fields(item, top.path)
        entry.only("dtype", "name", "shape")
        shape = entry.of("shape", list)
        if not all(type(d) is int for d in shape) or entry.of("dtype", str) not in DTYPES:
            entry.fail("a field of the schema is malformed")
        fields.append(Field(entry.of("name", str), entry.of("dtype", str), tuple(shape)))
    return DataSchema(tuple(fields))


def _read_recipe(top: _Fields) -> dict[str, Any] | None:
    if top.value["recipe"] is None:
        return None
    recipe = top.child("recipe")
    recipe.only("name", "settings")
    settings = recipe.child("settings").value
    if not all(isinstance(v, str) for v in settings.values()):
        recipe.fail("a setting is not a string")
    return {"name": recipe.of("name", str), "settings": settings}


def _read_evaluation(top: _Fields) -> Evaluation | None:
    if top.value["evaluation"] is None:
        return None
    e = top.child("evaluation")
    e.only("batch_size", "data_root", "every", "program_digest", "record_count")
    return Evaluation(
        e.of("every", int),
        e.digest("program_digest"),
        e.digest("data_root"),
        e.of("record_count", int),
        e.of("batch_size", int),
    )


# ---- writing ------------------------------------------------------------------------------------


def as_columns(data: Mapping[str, Any], what: str) -> dict[str, Array]:
    """Columns as numpy arrays from arrays or torch tensors; float64 is not narrowed silently."""
    columns: dict[str, Array] = {}
    for name, column in data.items():
        array = np.asarray(column.detach().cpu().numpy() if hasattr(column, "detach") else column)
        try:
            dtype_name(array.dtype)
        except UsageError:
            raise UsageError(
                f"Column {name!r} of the {what} is {array.dtype}.",
                f"Convert it to one of {', '.join(DTYPES)}.",
            ) from None
        if array.ndim == 0:
            raise UsageError(f"Column {name!r} of the {what} is a single value.", "Give records.")
        columns[name] = np.asarray(array, order="C")
    lengths = {len(c) for c in columns.values()}
    if len(lengths) != 1 or 0 in lengths:
        raise UsageError(
            f"The columns of the {what} have {sorted(lengths)} records.",
            "Every field needs the same number of records, at least one.",
        )
    return columns


def _schema_for(batch: Mapping[str, TensorType], columns: Mapping[str, Array]) -> DataSchema:
    """The record fields of a program's batch, checked against the columns. Raises UsageError."""
    if set(batch) != set(columns):
        raise UsageError(
            f"The data has fields {sorted(columns)}, the captured batch {sorted(batch)}.",
            "Name the columns as the batch's tensors.",
        )
    fields = []
    for name, type_ in batch.items():
        column = columns[name]
        found = TensorType(dtype_name(column.dtype), tuple(map(int, column.shape[1:])))
        if not type_.shape or (found.dtype, found.shape) != (type_.dtype, type_.shape[1:]):
            raise UsageError(
                f"Records of {name!r} are {found}, the captured batch is {type_}.",
                "The batch is the records stacked along its first axis: convert or reshape them.",
            )
        fields.append(Field(name, type_.dtype, type_.shape[1:]))
    return DataSchema(tuple(fields))


def _batch_size(batch: Mapping[str, TensorType]) -> int:
    sizes = {t.shape[0] if t.shape else 0 for t in batch.values()}
    if len(sizes) != 1 or 0 in sizes:
        raise UsageError(
            "The captured batch's tensors have different first axes.",
            "Capture with tensors of shape (batch, ...), the same batch in all.",
        )
    return sizes.pop()


def _repeated_value(array: Array) -> float | None:
    """The value that fills a whole float tensor of more than one element, if one does."""
    if array.dtype.kind != "f" or array.size < 2:
        return None
    bits = np.ascontiguousarray(array).reshape(-1).view(f"u{array.dtype.itemsize}")
    if (bits != bits[0]).any() or not np.isfinite(array.reshape(-1)[0]):
        return None
    return float(array.reshape(-1)[0])


def save_job(
    captured: CapturedStep,
    directory: str | Path,
    data: Mapping[str, Any],
    *,
    steps: int,
    seed: int = 0,
    order_seed: int | None = None,
    batch_size: int | None = None,
    checkpoint_interval: int = DEFAULT_INTERVAL,
    schedules: Mapping[str, float | Sequence[float]] | None = None,
    initial_state: Mapping[str, Array] | None = None,
    validation: Mapping[str, Any] | None = None,
    eval_program: Program | None = None,
    evaluate_every: int = 0,
    forward_program: Program | None = None,
    stop_on_non_finite: bool = True,
    recipe: Mapping[str, Any] | None = None,
    about: Mapping[str, str] | None = None,
) -> Job:
    """Write the job that trains `captured` on `data`; the directory's manifest comes last.

    `data` maps each batch tensor's name to an array (N, *shape of one record), numpy or torch.
    `seed` keys the random numbers (dropout) and, unless `order_seed` is given, the data's
    order. `schedules` gives a table of `steps` numbers for each per-step scalar that the
    optimizer names. With `validation` and `eval_program` (of `capture_eval`), the validation
    loss is printed every `evaluate_every` steps. Raises UsageError for data, state or schedules
    that do not fit the program, StorageError where the directory cannot be written.
    """
    directory = Path(directory)
    if (directory / MANIFEST).exists():
        raise UsageError(f"{directory} already holds a job.", "Choose another directory.")
    program = captured.program
    columns = as_columns(data, "data")
    schema = _schema_for(captured.batch, columns)
    size = _batch_size(captured.batch)
    if batch_size is not None and batch_size != size:
        raise UsageError(
            f"The step was captured with batches of {size}, not {batch_size}.",
            "Capture again with an example batch of the size you want.",
        )
    state = initial_state if initial_state is not None else captured.initial_state
    if state is None:
        raise UsageError(
            "The module was captured without weights.",
            "Pass initial_state=captured.state_for(weights), or capture a module that has some.",
        )
    try:
        check_slots(state, program.state_types, "initial state")
    except CounterpartyError as error:
        raise UsageError(error.message, "Every weight needs the captured dtype and shape.") from None
    slots = {name: np.asarray(state[name], order="C") for name in program.state_types}
    scalars = _scalars(captured.scalars, schedules or {}, steps)
    try:
        root = data_root(schema, columns)
        commitment = JobCommitment(
            contract=program.contract,
            program_digest=program.digest(),
            genesis_root=State(slots).root(),
            data_root=root,
            record_count=len(next(iter(columns.values()))),
            batch_size=size,
            order_seed=seed if order_seed is None else order_seed,
            rng_seed=seed,
            steps=steps,
            checkpoint_interval=checkpoint_interval,
            scalars_digest=scalars_digest(scalars),
            stop_on_non_finite=stop_on_non_finite,
        )
    except UsageError as error:
        raise UsageError(f"The job cannot be made: {error.message}", error.next_action) from None
    fills = {n: v for n, a in slots.items() if (v := _repeated_value(a)) is not None}
    evaluation, held_out = _evaluation(schema, validation, eval_program, evaluate_every)
    job = Job(
        directory,
        commitment,
        scalars,
        schema,
        fills,
        dict(recipe) if recipe else None,
        evaluation,
        forward_program.digest() if forward_program else None,
        dict(about or {}),
    )
    _check_program_fits_object(job, program)
    make_directory(directory / "data")
    write_file(directory / PROGRAM, [program.text().encode("ascii")])
    write_tensors(directory / STATE0, {n: a for n, a in slots.items() if n not in fills})
    write_tensors(directory / DATA, columns)
    if evaluation is not None and eval_program is not None:
        write_tensors(directory / VALIDATION, held_out)
        write_file(directory / EVAL_PROGRAM, [eval_program.text().encode("ascii")])
    if forward_program is not None:
        write_file(directory / FORWARD_PROGRAM, [forward_program.text().encode("ascii")])
    write_file(directory / MANIFEST, [manifest_bytes(_manifest(job))])
    return load_job(directory)


def _check_program_fits_object(job: Job, program: Program) -> None:
    job.__dict__["program"] = program  # the cached property: its file is not written yet
    try:
        _check_program_fits(job)
    except CorruptFileError as error:
        raise UsageError(error.message, "Capture a step that returns a scalar loss.") from None


def _scalars(
    named: Mapping[str, float | str],
    schedules: Mapping[str, float | Sequence[float]],
    steps: int,
) -> dict[str, ScalarTable]:
    """Constant or table for every per-step scalar. Raises UsageError for a missing schedule."""
    scalars: dict[str, ScalarTable] = {}
    for name, value in named.items():
        if isinstance(value, str):
            if value not in schedules:
                raise UsageError(
                    f"The optimizer takes {name} from a table {value!r} that is not given.",
                    f"Pass schedules={{{value!r}: [...]}} with one number per step.",
                )
            table = schedules[value]
            if isinstance(table, (int, float)):
                scalars[name] = float(table)
                continue
            if len(table) != steps:
                raise UsageError(
                    f"The schedule {value!r} has {len(table)} numbers for {steps} steps.",
                    "Give one number per step.",
                )
            scalars[name] = [float(v) for v in table]
        else:
            scalars[name] = float(value)
    return scalars


def _evaluation(
    schema: DataSchema,
    validation: Mapping[str, Any] | None,
    program: Program | None,
    every: int,
) -> tuple[Evaluation | None, dict[str, Array]]:
    if validation is None and program is None:
        return None, {}
    if validation is None or program is None:
        raise UsageError(
            "Validation needs both data and a program.",
            "Pass validation=... and eval_program=capture_eval(...).",
        )
    columns = as_columns(validation, "validation data")
    if _schema_for(program.batch_types, columns) != schema:
        raise UsageError("Validation records differ from the data's.", "Use the same fields.")
    size = _batch_size(program.batch_types)
    count = len(next(iter(columns.values())))
    if count < size:
        raise UsageError(
            f"{count} validation records are fewer than a batch of {size}.", "Hold out more."
        )
    root = data_root(schema, columns)
    return Evaluation(max(0, every), program.digest(), root, count, size), columns
