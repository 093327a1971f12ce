"""Node digests of one step, computed through the executor's tap (COMMITMENTS 4).

Where a trainer traced a step, an audit can show not only that the step differs, but at which node.
`run.store.unsigned` keeps the digests in a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tallystick.commit.state import COMMIT_OPERATOR, CommitNode, node_digest
from tallystick.devices.cpu import CPU
from tallystick.devices.device import Device, Tensor
from tallystick.program.ir import COMMIT, Node, Program, Value
from tallystick.program.state import State
from tallystick.program.text import attribute_text
from tallystick.run.store.unsigned import NodeTrace


@dataclass(frozen=True)
class NodeDigests:
    """Digests of all tensors that one node has read and made (COMMITMENTS 4.1)."""

    operator: str
    attributes: bytes
    inputs: tuple[bytes, ...]
    outputs: tuple[bytes, ...]


@dataclass
class NodeTracer:
    """Digests the nodes of a step: pass `tap` to the executor, then call `finish`.

    The tracer hashes each tensor once, on its device. An operand that is not shown
    (program.folded_tail) was an output before. With `fresh` it hashes inputs anew: after a cheat
    has changed outputs, a node may read another value than the earlier node made.
    """

    program: Program
    program_digest: bytes
    step: int
    device: Device = CPU
    fresh: bool = False
    records: list[NodeDigests] = field(default_factory=list)
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
        # The program's text says which optional operands are absent.
        pairs = zip(node.inputs, inputs, strict=True)
        read = [(v, t) for v, t in pairs if v is not None]
        anew = {v: t for v, t in read if t is not None and (self.fresh or v not in self._values)}
        made = [] if node.op == COMMIT else list(outputs)
        digests = self.device.digests([*anew.values(), *made])
        found = digests[len(anew) :]
        self._values.update(zip(anew, digests[: len(anew)], strict=True))
        given = [self._values[value] for value, _ in read]
        if node.op == COMMIT:
            self._slots = dict(zip(sorted(self.program.state_types), given, strict=True))
            return
        self._values.update((Value(index, out), digest) for out, digest in enumerate(found))
        attributes = attribute_text(node.attrs).encode("ascii")
        self.records.append(NodeDigests(node.op, attributes, tuple(given), tuple(found)))

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
        record = NodeDigests(COMMIT_OPERATOR, read.attributes(), read.inputs(), made.outputs())
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
