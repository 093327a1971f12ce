"""Files of a run that no signature covers: the metrics of its steps, the node digests of traced
steps, and a cheating run's declaration.

`metrics.jsonl` has the loss, the gradient norm and the author's own metrics of each step. It is for
people and their plots, and no command believes it. A step that is repeated after an interruption is
written once, since the file is cut to the steps before it.

`train --trace` leaves the node digests of a step (COMMITMENTS 4). Where a run has the trace of a
step, an audit can show at which node another execution differs.

`override.json` declares a cheat, a name and numbers (DESIGN 7). An honest run has no such file.
Anyone who may write to the directory may put one there. Reading it plays no cheat.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tallystick.commit.encoding import (
    HASH_BYTES,
    JsonValue,
    Reader,
    Writer,
    canonical_json,
    parse_canonical_json,
    sha256,
    tag,
)
from tallystick.commit.state import node_root
from tallystick.disk.files import write_all, write_file
from tallystick.disk.regular import open_regular, os_errors, present, read_file
from tallystick.errors import CorruptFileError, DigestMismatchError
from tallystick.limits import LIMITS
from tallystick.program.ir import Program

PREFIX = "metric."


def has_metrics(programs: Iterable[Program]) -> bool:
    """True if a program reports more than the loss."""
    return any(name.startswith(PREFIX) for program in programs for name, _ in program.outputs)


def scalar_metrics(outputs: Mapping[str, np.ndarray]) -> dict[str, float]:
    """The metrics of one element among a step's outputs, by name."""
    return {
        name.removeprefix(PREFIX): float(np.asarray(value).reshape(-1)[0])
        for name, value in sorted(outputs.items())
        if name.startswith(PREFIX) and np.asarray(value).size == 1
    }


def _line(step: int, loss: float, values: Mapping[str, float]) -> bytes:
    named = {PREFIX + n if n in ("step", "loss") else n: v for n, v in values.items()}
    numbers = {"loss": loss, **named}
    shown = {name: v if math.isfinite(v) else None for name, v in numbers.items()}
    return json.dumps({"step": step, **shown}).encode("ascii") + b"\n"


def _lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The step and the text of each intact line, up to the first that is none."""
    for line in data.splitlines(keepends=True):
        try:
            found = json.loads(line) if line.endswith(b"\n") else None
        except (ValueError, RecursionError):
            return
        if not isinstance(found, dict) or type(found.get("step")) is not int:
            return
        yield found["step"], line


class MetricLog:
    """The open file. `add` raises StorageError where it cannot be written."""

    def __init__(self, path: Path, start: int) -> None:
        """Keep the lines of steps before `start`, and go on behind them.

        Raises StorageError, CorruptFileError for a link in the place of the file.
        """
        self.path = path
        kept: list[bytes] = []
        if present(path):
            try:
                data = read_file(path, LIMITS.journal_bytes, "metrics file", path.parent)
            except CorruptFileError:
                if path.is_symlink():
                    raise
                data = b""
            kept = [line for step, line in _lines(data) if step < start]
        write_file(path, kept)
        self._file = open_regular(path, "metrics file", path.parent, os.O_WRONLY | os.O_APPEND)

    def add(self, step: int, loss: float, values: Mapping[str, float]) -> None:
        """Append the line of step `step`."""
        with os_errors(self.path):
            write_all(self._file, _line(step, loss, values))

    def close(self) -> None:
        os.close(self._file)


def read_metrics(path: Path) -> list[dict[str, float | None]]:
    """All intact lines, for a plot; [] where there is no file. Raises CorruptFileError."""
    if not present(path):
        return []
    data = read_file(path, LIMITS.journal_bytes, "metrics file", path.parent)
    found = []
    for _, line in _lines(data):
        numbers = json.loads(line)
        found.append({str(k): v for k, v in numbers.items() if type(v) in (int, float, type(None))})
    return found


TRACE_TAG = tag("node-trace/1")


@dataclass(frozen=True)
class NodeTrace:
    """The node digests of `step` in program order; the COMMIT node is last."""

    program_digest: bytes
    step: int
    digests: tuple[bytes, ...]

    def root(self) -> bytes:
        """The node root (COMMITMENTS 4.3)."""
        return node_root(self.digests)

    def first_difference(self, other: NodeTrace) -> int | None:
        """Index of the first node on which the two differ."""
        for index, (mine, theirs) in enumerate(zip(self.digests, other.digests, strict=False)):
            if mine != theirs:
                return index
        if len(self.digests) != len(other.digests):
            return min(len(self.digests), len(other.digests))
        return None

    def save(self, path: Path) -> None:
        """Write the trace; it ends in its node root and the digest of all bytes before."""
        out = Writer(TRACE_TAG).hash(self.program_digest).u64(self.step).u64(len(self.digests))
        for digest in self.digests:
            out.hash(digest)
        body = out.hash(self.root()).finish()
        write_file(path, [body, sha256(body)])


def load_trace(
    path: Path, program_digest: bytes, step: int, nodes: int, inside: Path | None = None
) -> NodeTrace:
    """Read the trace that `save` wrote for this program and step inside the run's directory.

    Raises CorruptFileError, or DigestMismatchError where the trace does not have the digest that
    it states.
    """
    limit = len(TRACE_TAG) + 16 + (nodes + 3) * HASH_BYTES
    data = read_file(path, limit, "node trace", inside)
    source = Reader(data, f"node trace {path}")
    source.expect(TRACE_TAG)
    if source.hash() != program_digest or source.u64() != step:
        source.fail("it is of another program or step")
    digests = tuple(source.hashes(min(nodes, LIMITS.nodes)))
    trace = NodeTrace(program_digest, step, digests)
    root, check = source.hash(), source.hash()
    source.end()
    if len(digests) != nodes:
        source.fail(f"it has {len(digests)} nodes, the program {nodes}")
    if root != trace.root() or check != sha256(data[:-HASH_BYTES]):
        raise DigestMismatchError(
            f"The node trace {path} was altered.", "Trace the step again with `train --trace`."
        )
    return trace


TraceRange = tuple[int, int]  # of steps, half open


Params = Mapping[str, JsonValue]

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}", re.ASCII)


def is_attack_name(name: str) -> bool:
    """True if an attack may have this name, which is also the name of a file."""
    return _NAME.fullmatch(name) is not None


@dataclass(frozen=True)
class Declaration:
    """The attack that made a run, and its parameters: integers, and all others as text."""

    attack: str
    params: Params = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """The contents of override.json."""
        return canonical_json({"attack": self.attack, "params": dict(self.params)})


def read_declaration(path: Path) -> Declaration | None:
    """Read the declaration at `path`; None where there is no such file. Raises CorruptFileError."""
    if not present(path):
        return None
    data = read_file(path, LIMITS.key_file_bytes, "declared override", path.parent)
    value = parse_canonical_json(data, f"declared override {path}")
    if isinstance(value, dict) and set(value) == {"attack", "params"}:
        name, params = value["attack"], value["params"]
        if isinstance(name, str) and is_attack_name(name) and isinstance(params, dict):
            return Declaration(name, params)
    raise CorruptFileError(f"The declared override {path} is malformed.", "Restore the file.")
