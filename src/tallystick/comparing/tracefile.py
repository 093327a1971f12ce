"""The files of a trace: what a PyTorch loop has computed, one line for each operator.

A trace is a directory. `trace.json` says on what the loop ran, `operators.jsonl` has a line of
canonical JSON for each operator, and `values.bin` has the bytes of some tensors, found by their
digests. The lines are arrays that begin with their kind:

    ["step", NUMBER]
    ["set", OPTIMIZER, [[NAME, VALUE], ...], [ORDINAL, BEGUN, COUNTED]]
    ["module", ROOT, NAME, CLASS, TRAINING]
    ["call", MODULE, TYPE, ROOT, HEX]
    ["schema", OPERATOR, [[ARGUMENT, DEFAULT], ...]]
    ["op", OPERATOR, ARGUMENTS, PLACE, INPUTS, OUTPUTS, RANDOM]
    ["rows", DIGEST, HEX]
    ["value", DIGEST, TYPE, OFFSET, BYTES]
    ["random", GENERATOR]
    ["end", WHY]

A "random" line says in which step the loop first drew from the generator of numpy or of Python. A
call names the outermost module, the type of its first tensor, the module's number among the
outermost ones, and the digests of the tensor's rows. A
"module" line says how a module within it stands from the next call on. Behind the settings of an
optimizer's group stand its number among the optimizers of its class, the parameters with a state,
and the steps that it has counted (-1 where it counts none). Older traces lack "module", "schema",
and what stands behind a call's type and behind the settings. An input is
[DIGEST, TYPE, KIND, NAME, STEP, SOURCE, OUT]: the operator SOURCE of STEP made it, or STEP is -1
and it comes from outside. An output is [DIGEST, TYPE]. A digest is "-" for memory that nothing has
written yet, and "?" for a tensor without bytes to read (sparse, quantized, or of the device meta).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from tallystick.commit.encoding import JsonValue, canonical_json, parse_canonical_json
from tallystick.commit.tensor import DTYPES, Array, TensorHeader
from tallystick.comparing.steps import CARRIED, OPERATOR, ExecutedOperator, OperandRecord
from tallystick.disk.files import make_directory, open_new, remove_all, write_file
from tallystick.disk.manifest import load_manifest, manifest_bytes
from tallystick.disk.regular import is_directory, names, open_file, os_errors, present
from tallystick.errors import CorruptFileError, UsageError

FORMAT = "tallystick-trace/1"
MANIFEST, LOG, VALUES = "trace.json", "operators.jsonl", "values.bin"
UNWRITTEN = "-"  # the digest of memory without content
UNREADABLE = "?"  # the digest of a tensor without bytes to read
COMPLETE, FULL = "complete", "full"

_LINE = 1 << 20
_IN_STEP = 1 << 20
_INDEX = 1 << 20
_CALLS = 64  # calls of a step of which the modules' modes are kept
_NUMBER = 1 << 63
_DIGEST = 32  # hexadecimal digits of a tensor's digest
# A dtype of torch's and up to 64 sizes, as f32[2,3].
_TYPE = re.compile(r"([a-z0-9_]{1,32})\[((?:[0-9]{1,19}(?:,[0-9]{1,19}){0,63})?)\]")


def digest_of(form: str, data: bytes | memoryview) -> str:
    """The digest of a tensor: of its type and its bytes."""
    made = hashlib.sha256(form.encode() + b"\0")
    made.update(data)
    return made.hexdigest()[:_DIGEST]


# -- writing ---------------------------------------------------------------------------------------
class TraceWriter:
    """Writes a trace within its budgets: `log_bytes` of lines, `keep_bytes` of values."""

    def __init__(
        self,
        directory: Path,
        about: Mapping[str, str],
        log_bytes: int,
        keep_bytes: int,
        overwrite: bool,
    ) -> None:
        """Raises UsageError where the directory holds other files, or a trace without
        `overwrite`; StorageError."""
        _make_room(directory, overwrite)
        body: dict[str, JsonValue] = {"about": dict(about), "format": FORMAT}
        with os_errors(directory):
            self._log, self._values = open_new(directory / LOG), open_new(directory / VALUES)
        # The manifest comes last: what a killed start leaves is no trace.
        write_file(directory / MANIFEST, [manifest_bytes(body)])
        self._directory = directory
        self._room, self._keep = log_bytes, keep_bytes
        self._offset = 0
        self._known: set[str] = set()
        self.full = False

    def line(self, *value: JsonValue) -> None:
        """Append a line, unless the budget is used up."""
        if self.full:
            return
        data = canonical_json(list(value)) + b"\n"
        if len(data) > _LINE or len(data) > self._room:
            self.full = True
            data = canonical_json(["end", FULL]) + b"\n"
        self._room -= len(data)
        with os_errors(self._directory):
            self._log.write(data)

    def wants(self, digest: str, size: int) -> bool:
        """True if the bytes of this tensor are to be kept and there is room for them."""
        return not self.full and digest not in self._known and size <= self._keep - self._offset

    def keep(self, digest: str, kind: str, data: bytes) -> None:
        """Keep the bytes of a tensor."""
        with os_errors(self._directory):
            self._values.write(data)
        self._known.add(digest)
        self.line("value", digest, kind, self._offset, len(data))
        self._offset += len(data)

    def end(self) -> None:
        """Say that the loop has come to its end. A trace without this line was stopped."""
        self.line("end", COMPLETE)

    def close(self) -> None:
        """Close the files."""
        with os_errors(self._directory):
            self._log.close()
            self._values.close()


def _make_room(directory: Path, overwrite: bool) -> None:
    ours = {MANIFEST, LOG, VALUES}
    if present(directory) and not is_directory(directory):
        raise UsageError(
            f"{directory} is a file, not a directory.", "Name a directory for the trace."
        )
    make_directory(directory)
    found = set(names(directory))
    if found - ours:
        raise UsageError(
            f"{directory} contains other files ({min(found - ours)}).",
            "Choose a new or empty directory.",
        )
    if found and not overwrite:
        raise UsageError(
            f"{directory} already contains a trace.",
            "Choose another directory, or pass overwrite=True.",
        )
    for name in sorted(found, reverse=True):
        remove_all(directory / name)


# -- reading ---------------------------------------------------------------------------------------
@dataclass
class TracedStep:
    """The operators of one step, and the optimizers' settings in it. `draws` has the generator of
    each random operator by its number, `moved` the generators outside of torch that the loop first
    drew from in this step. `calls` has the type of what each outermost module was given, `callers`
    the module, `given` the digests of the rows, and `modes` the class of each module within it and
    whether it is in training mode. `progress` has, for each of the settings, the optimizer's
    number, the parameters with a state, and the steps that it has counted. What an older trace
    lacks is empty, or None."""

    number: int
    operators: list[ExecutedOperator] = field(default_factory=list)
    settings: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    draws: dict[int, str] = field(default_factory=dict)
    progress: list[tuple[int, int, int] | None] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    callers: list[str] = field(default_factory=list)
    given: list[str] = field(default_factory=list)
    modes: list[Mapping[str, tuple[str, bool]]] = field(default_factory=list)
    moved: set[str] = field(default_factory=set)
    ended: bool = False  # another step has begun after it

    @property
    def unread(self) -> int:
        """How many tensors had no bytes to read."""
        operands = (o for entry in self.operators for o in (*entry.inputs, *entry.outputs))
        return sum(operand.digest == UNREADABLE for operand in operands)


class TraceReader:
    """A trace, read one step after the other. Values are read when they are asked for."""

    def __init__(self, directory: Path) -> None:
        """Raises CorruptFileError, StorageError."""
        self.directory = directory
        body = load_manifest(directory / MANIFEST, "trace manifest", FORMAT)
        about = body.get("about")
        if not isinstance(about, dict):
            self._fail("its manifest has no `about`")
        self.about = {str(name): str(value) for name, value in about.items()}
        self.values: dict[str, tuple[str, int, int]] = {}
        self.rows: dict[str, str] = {}
        self.schemas: dict[str, tuple[tuple[str, str], ...]] = {}
        self._called: set[tuple[str, str]] = set()
        self._optimizers: dict[str, int] | None = None
        self._modules: dict[int, dict[str, tuple[str, bool]]] = {}
        self.end = ""
        self.is_read = False  # to its last line

    def _fail(self, why: str) -> NoReturn:
        raise CorruptFileError(
            f"The trace {self.directory} is damaged: {why}.", "Record the loop again."
        )

    def steps(self) -> Iterator[TracedStep]:
        """All steps in order. A loop that was killed ends with its last whole line."""
        step: TracedStep | None = None
        for line in self._lines():
            if line[0] == "step":
                if step is not None:
                    step.ended = True
                    yield step
                step = TracedStep(self._number(line[1]))
                continue
            self._take(step, line)
        self.is_read = True
        if step is not None:
            yield step

    def all_rows(self) -> dict[str, str]:
        """The records of every batch of the loop, also of steps that are not read yet."""
        for line in self._lines():
            if line[0] == "rows":
                self._take(None, line)
        return self.rows

    def called(self) -> set[tuple[str, str]]:
        """Each operator of the whole loop with the place where it is called."""
        if not self._called:
            for line in self._lines():
                if line[0] == "op" and len(line) > 3 and len(self._called) < _INDEX:
                    self._called.add((str(line[1]), str(line[3])))
        return self._called

    def optimizers(self, kind: str) -> int:
        """How many optimizers of a class the whole loop has; 0 in an older trace."""
        if self._optimizers is None:
            self._optimizers = {}
            for line in self._lines():
                if line[0] == "set" and len(line) > 3 and isinstance(line[3], list):
                    name, number = str(line[1]).rpartition(" ")[0], self._number(line[3][0])
                    self._optimizers[name] = max(self._optimizers.get(name, 0), number + 1)
        return self._optimizers.get(kind, 0)

    def _take(self, step: TracedStep | None, line: list[Any]) -> None:
        try:
            self._sort(step, line)
        except (IndexError, TypeError, ValueError):
            self._fail("a line is malformed")

    def _sort(self, step: TracedStep | None, line: list[Any]) -> None:
        kind = line[0]
        if kind == "value" and len(self.values) < _INDEX:
            _, digest, form, offset, size = line
            self.values[str(digest)] = self._form(form), self._number(offset), self._number(size)
        elif kind == "rows" and len(self.rows) < _INDEX:
            self.rows[str(line[1])] = str(line[2])
        elif kind == "schema" and len(self.schemas) < _INDEX:
            self.schemas[str(line[1])] = tuple((str(n), str(default)) for n, default in line[2])
        elif kind == "module":
            _, root, name, form, training = line
            stands = self._modules.setdefault(self._number(root), {})
            if len(stands) < _INDEX and len(self._modules) < _IN_STEP:
                stands[str(name)] = str(form), bool(training)
        elif kind == "end":
            self.end = str(line[1])
        elif kind in ("value", "rows", "schema"):
            return  # more than are looked at
        elif step is None:
            self._fail("an operator stands before the first step")
        elif kind == "set":
            step.settings.append((str(line[1]), {str(n): str(v) for n, v in line[2]}))
            step.progress.append(self._progress(line[3]) if len(line) > 3 else None)
        elif kind == "call":
            step.calls.append(self._form(line[2]))
            root = self._number(line[3]) if len(line) > 3 else None
            step.callers.append(f"{line[1]} {root}")
            step.given.append(str(line[4]) if len(line) > 4 else "")
            stands = {} if root is None else self._modules.get(root, {})
            step.modes.append(dict(stands) if len(step.modes) < _CALLS else {})
        elif kind == "random":
            step.moved.add(str(line[1]))
        elif kind == "op":
            self._operator(step, line)
        else:
            self._fail(f"it has a line of the kind {str(kind)[:20]!r}")

    def _lines(self) -> Iterator[list[Any]]:
        file, _ = open_file(self.directory / LOG, "trace", self.directory)
        with os_errors(self.directory), file:
            while line := file.readline(_LINE + 1):
                if len(line) > _LINE:
                    self._fail("a line is too long")
                if not line.endswith(b"\n"):
                    return  # the loop was killed while it wrote this line
                value = parse_canonical_json(line[:-1], f"trace {self.directory}", _LINE)
                if not isinstance(value, list) or len(value) < 2:
                    self._fail("a line is malformed")
                yield value

    def _number(self, value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _NUMBER:
            self._fail("a number is malformed")
        return value

    def _progress(self, value: Any) -> tuple[int, int, int]:
        ordinal, begun, counted = value
        return (
            self._number(ordinal),
            self._number(begun),
            -1 if counted == -1 else self._number(counted),
        )

    def _form(self, value: Any) -> str:
        if not isinstance(value, str) or _TYPE.fullmatch(value) is None:
            self._fail("the type of a tensor is malformed")
        return value

    def _operator(self, step: TracedStep, line: list[Any]) -> None:
        _, operator, attributes, place, inputs, outputs, random = line
        number = len(step.operators)
        if number >= _IN_STEP:
            self._fail("a step has too many operators")
        read = tuple(self._input(step, number, *operand) for operand in inputs)
        made = tuple(OperandRecord(str(d), self._form(t)) for d, t in outputs)
        if random:
            step.draws[number] = str(random)
        step.operators.append(
            ExecutedOperator(str(operator), str(attributes), read, made, str(place), number)
        )

    def _input(
        self,
        step: TracedStep,
        number: int,
        digest: Any,
        form: Any,
        kind: Any,
        name: Any,
        made_in: Any,
        source: Any,
        out: Any,
    ) -> OperandRecord:
        known = self._form(form)
        if made_in != step.number:
            origin = str(kind) if str(name) or made_in == -1 else CARRIED
            return OperandRecord(str(digest), known, origin, str(name))
        if not 0 <= self._number(source) < number:
            self._fail("an operator reads what comes after it")
        return OperandRecord(str(digest), known, OPERATOR, str(name), source, self._number(out))

    def value(self, operand: OperandRecord) -> Array | None:
        """The tensor of an operand; None where the trace has not kept it, and for a type or a size
        that `is_readable` does not know."""
        if operand.digest not in self.values:
            return None
        form, offset, size = self.values[operand.digest]
        if form != operand.type:
            self._fail("a value has another type than its tensor")
        layout = _layout(form)
        if layout is None:
            return None
        dtype, shape, nbytes = layout
        if nbytes != size:
            self._fail("a value has another size than its type")
        file, total = open_file(self.directory / VALUES, "values of a trace", self.directory)
        with os_errors(self.directory), file:
            if offset + size > total:
                return None  # the loop was killed before these bytes were written
            file.seek(offset)
            data = file.read(size)
        if digest_of(form, data) != operand.digest:
            self._fail("a value has another digest than its tensor")
        array: Array = np.frombuffer(data, dtype).reshape(shape)
        return array


# Types of torch that no job has. numpy has them too, so that a trace's values can be shown.
_OTHER_TYPES = {
    "complex64": "<c8", "complex128": "<c16",
    "int8": "i1", "int16": "<i2", "uint16": "<u2", "uint32": "<u4", "uint64": "<u8",
}  # fmt: skip


def is_readable(form: str) -> bool:
    """True if `diff` can show the values of such a tensor, where a trace has kept them."""
    return _layout(form) is not None


def _layout(form: str) -> tuple[np.dtype[np.generic], tuple[int, ...], int] | None:
    """The dtype, the shape and the bytes of a tensor; None for a type without values to show, and
    for a rank or a size that no job's tensor can have."""
    name, _, sizes = form[:-1].partition("[")
    shape = tuple(int(size) for size in sizes.split(",") if size)
    dtype = DTYPES[name] if name in DTYPES else _OTHER_TYPES.get(name)
    if dtype is None:
        return None
    known: np.dtype[np.generic] = np.dtype(dtype)
    try:
        return known, shape, TensorHeader("u8", shape).nbytes * known.itemsize
    except UsageError:
        return None


def is_trace(directory: Path) -> bool:
    """True if the directory holds a trace."""
    return is_directory(directory) and present(directory / MANIFEST)
