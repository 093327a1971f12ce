"""The file of a step's node digests (COMMITMENTS 4), which `train --trace` leaves in a run.

Where a run has the trace of a step, an audit can show at which node another execution differs.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tallystick.commit.encoding import HASH_BYTES, Reader, Writer, sha256, tag
from tallystick.commit.state import node_root
from tallystick.disk.files import write_file
from tallystick.disk.regular import read_file
from tallystick.errors import DigestMismatchError
from tallystick.limits import LIMITS

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
