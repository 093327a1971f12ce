"""Node digests of one step: computed through the executor's tap, kept in a file (COMMITMENTS 4).

Where a trainer traced a step, an audit can show not only that the step differs, but at which node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tallystick.commit.encoding import HASH_BYTES, Reader, Writer, sha256, tag
from tallystick.commit.node import node_digest, node_root
from tallystick.commit.state import COMMIT_OPERATOR, CommitNode
from tallystick.disk.files import write_file
from tallystick.disk.regular import read_file
from tallystick.errors import DigestMismatchError
from tallystick.kernels.cpu.device import CPU
from tallystick.kernels.device import Device, Tensor
from tallystick.limits import LIMITS
from tallystick.program.ir import COMMIT, Node, Program, Value
from tallystick.program.state import State
from tallystick.program.text import attribute_text

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


@dataclass(frozen=True)
class NodeRecord:
    """Digests of all tensors that one node has read and made (COMMITMENTS 4.1)."""

    operator: str
    attributes: bytes
    inputs: tuple[bytes, ...]
    outputs: tuple[bytes, ...]


@dataclass
class NodeTracer:
    """Digests the nodes of a step: pass `tap` to the executor, then call `finish`.

    The tracer hashes each tensor once, on its device. With `fresh` it hashes inputs anew: after a
    cheat has changed outputs, a node may read another value than the earlier node made.
    """

    program: Program
    program_digest: bytes
    step: int
    device: Device = CPU
    fresh: bool = False
    records: list[NodeRecord] = field(default_factory=list)
    _values: dict[Value, bytes] = field(default_factory=dict)
    _slots: dict[str, bytes] = field(default_factory=dict)

    def tap(
        self,
        index: int,
        node: Node,
        inputs: Sequence[Tensor | None],
        outputs: Sequence[Tensor],
    ) -> None:
        """Digest node `index` as executed (COMMITMENTS 4.1)."""
        given = []
        for value, tensor in zip(node.inputs, inputs, strict=True):
            if value is None or tensor is None:
                continue  # the program's text says which optional operands are absent
            if self.fresh or value not in self._values:
                self._values[value] = self.device.digest(tensor)
            given.append(self._values[value])
        if node.op == COMMIT:
            self._slots = dict(zip(sorted(self.program.state_types), given, strict=True))
            return
        made = []
        for out, tensor in enumerate(outputs):
            made.append(self.device.digest(tensor))
            self._values[Value(index, out)] = made[-1]
        attributes = attribute_text(node.attrs).encode("ascii")
        self.records.append(NodeRecord(node.op, attributes, tuple(given), tuple(made)))

    def finish(
        self, computed: int, entered: int, state: State, log: bytes | None = None
    ) -> NodeTracer:
        """Add the COMMIT node (COMMITMENTS 5.7).

        The caller gives the bits of the loss as it was computed and as it enters the chain (equal
        in an honest run), the chains before the step, and the digest of the step's log where the
        contract keeps one."""
        losses = (float(np.uint32(bits).view(np.float32)) for bits in (computed, entered))
        read, made = (
            CommitNode(self._slots, self.step, loss, state.loss_chain, state.log_chain, log)
            for loss in losses
        )
        record = NodeRecord(COMMIT_OPERATOR, read.attributes(), read.inputs(), made.outputs())
        self.records.append(record)
        return self

    def trace(self) -> NodeTrace:
        """The digests of all nodes."""
        digests = (
            node_digest(
                self.program_digest, self.step, i, r.operator, r.attributes, r.inputs, r.outputs
            )
            for i, r in enumerate(self.records)
        )
        return NodeTrace(self.program_digest, self.step, tuple(digests))


TraceRange = tuple[int, int]


def traced(trace: TraceRange | None, step: int) -> bool:
    """True if `step` lies in the half-open range `trace`."""
    return trace is not None and trace[0] <= step < trace[1]
