"""Carried slots of a program whose micro-batches are executed on several machines (PROGRAM 6.4).

What a micro-batch computes does not depend on the running statistics that it changes. So each
worker executes its micro-batches without them and sends the statistics of each. Then the slots are
carried from micro-batch to micro-batch, in order, by a few small nodes.

The statistics leave the node of batch normalisation itself. With running statistics 0 and momentum
1 its last output is fma(1, u - 0, 0), which is u (NUMERICS 6.12), since u is never -0. The mean is
its output 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tallystick.errors import UsageError
from tallystick.numerics.operators.reduction import FOLD
from tallystick.numerics.types import TensorType
from tallystick.program.build import given, piece, value_name
from tallystick.program.ir import Input, Node, Program, Value, op_spec

BATCH_NORM = "aten._native_batch_norm_legit_functional"
_STATISTICS = ((3, 1), (4, 4))  # (running operand and output, output that is the statistic)
_ZEROS = -2  # Value(_ZEROS, n): n zeros, an input of the section
_SENT = -3  # Value(_SENT - i, out): what node i of a micro-batch made, an input of the link


def zeros_of(value: Value) -> Input | None:
    """The input that stands for `value` if it is the zeros of a node of `Carrying.nodes`."""
    if value.node != _ZEROS:
        return None
    return given(f"@zeros.{value.out}", TensorType("f32", (value.out,)))


@dataclass
class Carrying:
    """The section without what it carries, and the carrying by itself.

    `nodes` are those of the section, for a micro-batch by itself, and `zeros` inputs that they have
    beside its own. `sent` are their values that `link` reads. `link` carries all slots over one
    micro-batch: its state are the slots, its batch the values `sent`.

    Raises UsageError, which names a slot, where other values of a micro-batch depend on a carried
    slot, or a slot on more of the micro-batch than the statistics of batch normalisation.
    """

    program: Program
    nodes: tuple[Node, ...] = field(init=False)
    zeros: tuple[Input, ...] = field(init=False)
    sent: tuple[Value, ...] = field(init=False)
    link: Program = field(init=False)

    def __post_init__(self) -> None:
        self._slots = {
            Value(-1, self.program.input_index[slot]): slot for slot, _ in self.program.carried
        }
        self._follows = self._following()
        alone = [self._alone(i) for i in range(self.program.section)]
        self.nodes = tuple(alone)
        zeros = (zeros_of(v) for node in alone for v in node.inputs if v is not None)
        self.zeros = tuple({spec.name: spec for spec in zeros if spec is not None}.values())
        self._link()

    def _following(self) -> set[Value]:
        """The slots, and the values of a micro-batch that depend on them."""
        found = set(self._slots)
        program = self.program
        for index in range(program.section):
            node = program.nodes[index]
            read = [at for at, v in enumerate(node.inputs) if v in found]
            if not read:
                continue
            outs = range(len(node.out_types))
            if node.op == BATCH_NORM and min(read) >= _STATISTICS[0][0]:
                outs = range(_STATISTICS[0][0], len(node.out_types))
            found |= {Value(index, out) for out in outs}
        for node in program.nodes[program.section :]:
            if node.op == FOLD and node.inputs[0] in found:
                raise self._refusal("a folded value of a micro-batch depends on it")
        return found

    def _refusal(self, why: str) -> UsageError:
        slots = ", ".join(sorted(self._slots.values())[:3])
        return UsageError(
            f"Only one worker can execute this job: of a carried slot ({slots}), {why}.",
            "Train it with one worker (--workers 1).",
        )

    def _is_norm(self, index: int) -> bool:
        """Whether the text's node `index` changes carried running statistics."""
        node = self.program.nodes[index]
        return node.op == BATCH_NORM and Value(index, _STATISTICS[0][0]) in self._follows

    def _alone(self, index: int) -> Node:
        """A node of the section as a worker executes it."""
        node = self.program.nodes[index]
        if not self._is_norm(index):
            return node
        zeros = Value(_ZEROS, node.out_types[3].shape[0])
        attrs = {**node.attrs, "momentum": 1.0}
        return Node(node.op, (*node.inputs[:3], zeros, zeros), attrs, node.out_types)

    def _link(self) -> None:
        program, sent = self.program, []
        made: dict[Value, Value] = {}  # by the text's value, the link's
        nodes: list[Node] = []

        def here(value: Value | None) -> Value | None:
            return value if value is None or value.is_input else made[value]

        for index in self._needed():
            node = program.nodes[index]
            if not self._is_norm(index):
                nodes.append(
                    Node(node.op, tuple(map(here, node.inputs)), node.attrs, node.out_types)
                )
                for out in range(len(node.out_types)):
                    made[Value(index, out)] = Value(len(nodes) - 1, out)
                continue
            for running, statistic in _STATISTICS:
                old, new = here(node.inputs[running]), Value(_SENT - index, statistic)
                types = (node.out_types[running],)
                sent.append(Value(index, statistic))
                nodes.append(Node("aten.sub.Tensor", (new, old), {"alpha": 1.0}, types))
                attrs = {"alpha": node.attrs["momentum"]}
                moved = Value(len(nodes) - 1, 0)
                nodes.append(Node("aten.add.Tensor", (old, moved), attrs, types))
                made[Value(index, running)] = Value(len(nodes) - 1, 0)
        self.sent = tuple(sent)

        def place(value: Value) -> Value | Input:
            if value.node <= _SENT:
                origin = Value(_SENT - value.node, value.out)
                return given(value_name(origin), program.type_of(origin))
            return program.inputs[value.out] if value.is_input else value

        outputs = [(slot, here(value)) for slot, value in program.carried]
        state = (program.inputs[slot.out] for slot in self._slots)
        self.link = piece(program.contract, nodes, outputs, place, always=state)  # type: ignore[arg-type]

    def _needed(self) -> list[int]:
        """The text's nodes that the carrying consists of, in order."""
        found: set[int] = set()
        waiting = [value for _, value in self.program.carried]
        while waiting:
            value = waiting.pop()
            if value.is_input:
                if self.program.inputs[value.out].kind != "state":
                    raise self._refusal("the next value depends on the micro-batch itself")
                continue
            if value.node in found:
                continue
            node = self.program.nodes[value.node]
            if op_spec(node.op).is_random:
                raise self._refusal("the next value is drawn at random")
            if self._is_norm(value.node):
                if value not in self._follows:
                    raise self._refusal("the next value depends on the micro-batch itself")
                waiting += [v for v in node.inputs[3:] if v is not None]
            else:
                waiting += [v for v in node.inputs if v is not None]
            found.add(value.node)
        return sorted(found)
