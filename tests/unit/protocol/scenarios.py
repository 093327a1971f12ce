"""One lie per clause that convicts: what the liar does, and what must become of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from unit.protocol.simulator import Party

from tallystick.commit.tensor import Array
from tallystick.job.job import Job
from tallystick.program.ir import Node
from tallystick.program.state import State
from tallystick.protocol import queries as q
from tallystick.protocol.bodies import (
    Body,
    BytesBody,
    HashesBody,
    LossBody,
    NodeBody,
    NodesBody,
    RecordBody,
    RootsBody,
    SlotBody,
)
from tallystick.run.cheats.override import Override

WRONG = bytes([9]) * 32
STEP = 6  # the step that most liars get wrong; neither first, last nor a checkpoint
ADDMM, MM, SGD, COMMIT = 1, 6, 10, 11  # nodes of the logreg program

# Settings of `logreg` with short steps, for tests that count steps.
SMALL = {"features": "4", "classes": "2", "records": "16", "batch_size": "2"}


class Drift(Override):
    """A parameter changes on its own before one step."""

    def __init__(self, step: int) -> None:
        self.at = step

    def before(self, step: int, state: State) -> None:
        if step == self.at:
            state.slots["param.0.bias"][0] += 1


class Lie(Override):
    """Hooks by name."""

    def __init__(self, **hooks: Callable[..., Any]) -> None:
        for name, hook in hooks.items():
            setattr(self, name, hook)


def at_step(change: Callable[..., Any]) -> Callable[..., None]:
    """A hook that acts at STEP only."""

    def hook(step: int, *rest: Any) -> None:
        if step == STEP:
            change(*rest)

    return hook


def answering(kind: type, change: Callable[[Any, Any], Body | None]) -> Callable[..., Body | None]:
    """An `answer` hook that changes the bodies of one kind of query."""
    return lambda query, body: change(query, body) if isinstance(query, kind) else body


def chained(*hooks: Callable[..., Body | None]) -> Callable[..., Body | None]:
    """Several `answer` hooks, one after the other."""

    def hook(query: Any, body: Any) -> Body | None:
        for change in hooks:
            body = change(query, body)
        return body

    return hook


def node_lie(step: int, index: int, node: Node, outputs: Sequence[Array]) -> None:
    """A wrong gradient of the weight: one element of a product."""
    if (step, index) == (STEP, MM):
        outputs[0][1, 650] += 1


def tampering(index: int, **changes: Any) -> Callable[[int, int, NodeBody], NodeBody]:
    """Node records of one node, at STEP, with other fields."""

    def tamper(step: int, at: int, body: NodeBody) -> NodeBody:
        if (step, at) != (STEP, index):
            return body
        made = {k: v(getattr(body, k)) if callable(v) else v for k, v in changes.items()}
        return replace(body, **made)

    return tamper


def put(at: int, digest: bytes = WRONG) -> Callable[[tuple[bytes, ...]], tuple[bytes, ...]]:
    """A tuple of digests with one replaced."""
    return lambda given: (*given[:at], digest, *given[at + 1 :])


def first_wrong(_: q.Query, body: HashesBody) -> HashesBody:
    return HashesBody((WRONG, *body.hashes[1:]))


def one_less(_: q.Query, body: HashesBody) -> HashesBody:
    return HashesBody(body.hashes[1:])


def flipped(_: q.Query, body: BytesBody) -> BytesBody:
    return BytesBody(body.data[:-1] + bytes([body.data[-1] ^ 1]))


def flipped_leaf(_: q.Query, body: BytesBody) -> BytesBody:
    """The opening of a tensor of one leaf ends in its bytes and the number 0 of hashes."""
    data = bytearray(body.data)
    data[-9] ^= 1
    return BytesBody(bytes(data))


def signalling(array: Array) -> None:
    """A NaN that no honest party makes."""
    array.reshape(-1).view(np.uint32)[650] = 0x7F800001


def weight_drift(slots: Any) -> None:
    slots.slots["param.0.weight"][0, 0] += 1


@dataclass
class Scenario:
    """`zero_only`: the lie shows only where party 0 alone is asked."""

    clause: str
    case: str
    hooks: dict[str, Any] = field(default_factory=dict)
    tamper: Any = None
    statement: dict[str, Any] = field(default_factory=dict)
    zero_only: bool = False
    phase: int | None = None


def liar(job: Job, scenario: Scenario) -> Party:
    """The party that lies so."""
    return Party(job, Lie(**scenario.hooks), scenario.tamper, scenario.statement)


BATCH = at_step(lambda batch: batch["x"].__setitem__((1, 5), 3.0))
WRONG_NODE = {"node": node_lie}
WRONG_LOSS = {"loss": lambda step, bits: bits + (step == STEP)}
WRONG_PART = answering(q.Values, flipped)

SCENARIOS: dict[str, Scenario] = {
    "ends after too many steps": Scenario("3.2", "0", statement={"final_step": 14}),
    "ends before it began": Scenario("3.2", "0", statement={"final_step": 0}),
    "too many checkpoints": Scenario("3.2", "0", statement={"checkpoints": 9}),
    "another run root": Scenario(
        "3.3", "0", {"answer": answering(q.Checkpoints, lambda _, b: RootsBody(b.roots, ()))}
    ),
    "a root that is not proved": Scenario(
        "3.3",
        "0",
        {
            "before": at_step(weight_drift),
            "answer": lambda k, b: (
                RootsBody((WRONG, *b.roots[1:]), b.proof)
                if isinstance(k, q.Checkpoints) and 0 not in k.indices
                else b
            ),
        },
        phase=1,
    ),
    "another genesis": Scenario("3.4", "0", {"genesis": weight_drift}),
    "another final state": Scenario("3.5", "0", statement={"final_state_root": WRONG}),
    "only a middle checkpoint": Scenario(
        "5.3", "", {"root": lambda step, root: WRONG if step == 8 else root}
    ),
    "a state after the step": Scenario("5.3", "", {"after": at_step(weight_drift)}),
    "another number of nodes": Scenario(
        "5.2",
        "1",
        {**WRONG_NODE, "answer": answering(q.Nodes, lambda _, b: replace(b, count=13))},
    ),
    "a node tree of nothing": Scenario(
        "5.3",
        "",
        {**WRONG_NODE, "answer": answering(q.Nodes, lambda _, b: NodesBody(b.count, WRONG))},
    ),
    "another COMMIT": Scenario("5.3", "1", WRONG_NODE, tampering(COMMIT, attributes=b"")),
    "a COMMIT with too few inputs": Scenario(
        "5.3", "1", WRONG_NODE, tampering(COMMIT, inputs=lambda d: d[1:])
    ),
    "false hashes of nodes": Scenario(
        "5.4", "", {**WRONG_NODE, "answer": answering(q.NodeHashes, first_wrong)}
    ),
    "too few hashes of nodes": Scenario(
        "2.7", "", {**WRONG_NODE, "answer": answering(q.NodeHashes, one_less)}
    ),
    "a record that is not in the tree": Scenario(
        "5.5",
        "",
        {
            **WRONG_NODE,
            "answer": answering(
                q.NodeRecord, lambda k, b: replace(b, outputs=(WRONG,)) if k.node == MM else b
            ),
        },
    ),
    "another operator": Scenario(
        "5.5", "1", tamper=tampering(MM, operator="aten.add"), hooks=WRONG_NODE
    ),
    "another attribute": Scenario(
        "5.5", "1", tamper=tampering(MM, attributes=b"x"), hooks=WRONG_NODE
    ),
    "an output too many": Scenario(
        "5.5", "1", tamper=tampering(MM, outputs=lambda d: (*d, WRONG)), hooks=WRONG_NODE
    ),
    "another state goes in": Scenario("5.6.1", "2a", {"before": at_step(weight_drift)}),
    "another chain goes in": Scenario("5.6.1", "2a", WRONG_LOSS, tampering(COMMIT, inputs=put(3))),
    "another loss goes in": Scenario("5.6.2", "2b", WRONG_LOSS, tampering(COMMIT, inputs=put(2))),
    "another node's output goes in": Scenario(
        "5.6.2", "2b", WRONG_NODE, tampering(ADDMM, inputs=put(2))
    ),
    "another batch": Scenario("5.6.3", "2c", {"batch": BATCH}),
    "a batch of another step": Scenario("5.6.3", "2c", {"data_step": lambda step: step // 7 * 3}),
    "another learning rate": Scenario(
        "5.6.4", "2d", {"scalars": at_step(lambda s: s.__setitem__("lr", 1.0))}
    ),
    "a false proof of a slot": Scenario(
        "5.6.6",
        "",
        {
            "before": at_step(weight_drift),
            "answer": answering(q.Slot, lambda _, b: SlotBody(WRONG, b.proof)),
        },
        zero_only=True,
    ),
    "a false record of another node": Scenario(
        "5.6.6",
        "",
        {
            **WRONG_NODE,
            "answer": answering(
                q.NodeRecord, lambda k, b: replace(b, outputs=(WRONG,)) if k.node == 0 else b
            ),
        },
        tampering(ADDMM, inputs=put(2)),
        zero_only=True,
    ),
    "a false record of the data": Scenario(
        "5.6.6",
        "",
        {
            "batch": BATCH,
            "answer": answering(q.Record, lambda _, b: RecordBody(b.record[::-1], b.proof)),
        },
        zero_only=True,
    ),
    "another loss in the chain": Scenario("5.8", "3", WRONG_LOSS),
    "a wrong product": Scenario("6.5", "3", WRONG_NODE),
    "a wrong product and a wrong part of it": Scenario(
        "6.5", "3", {**WRONG_NODE, "answer": WRONG_PART}
    ),
    "false hashes of a tensor": Scenario(
        "6.1", "", {**WRONG_NODE, "answer": answering(q.TensorHashes, first_wrong)}
    ),
    "too few hashes of a tensor": Scenario(
        "2.7", "", {**WRONG_NODE, "answer": answering(q.TensorHashes, one_less)}
    ),
    "a false leaf": Scenario("6.1", "", {**WRONG_NODE, "answer": answering(q.Leaf, flipped)}),
    "a leaf of another length": Scenario(
        "2.7",
        "",
        {**WRONG_NODE, "answer": answering(q.Leaf, lambda _, b: BytesBody(b.data[:-4]))},
    ),
    "a value that is not canonical": Scenario(
        "6.1",
        "3",
        {"node": lambda s, i, n, out: signalling(out[0]) if (s, i) == (STEP, MM) else None},
    ),
    "a false opening": Scenario(
        "6.5",
        "",
        {**WRONG_NODE, "answer": chained(WRONG_PART, answering(q.Opening, flipped_leaf))},
        zero_only=True,
    ),
    "an opening that is none": Scenario(
        "2.7",
        "",
        {
            **WRONG_NODE,
            "answer": chained(
                WRONG_PART, answering(q.Opening, lambda _, b: BytesBody(b.data[:-1]))
            ),
        },
        zero_only=True,
    ),
    "too few values": Scenario(
        "2.7", "", {**WRONG_NODE, "answer": answering(q.Values, lambda _, b: BytesBody(b""))}
    ),
    "unable": Scenario("2.8", "", {**WRONG_NODE, "answer": answering(q.Nodes, lambda _, b: None)}),
}

# Runs of the diverging job, whose honest run ends after step 1.
ENDINGS: dict[str, Scenario] = {
    "ends early": Scenario("4.9", "0", {"final_step": lambda job: 1}),
    "goes on": Scenario("4.8", "0", {"final_step": lambda job: 8}),
    "goes on, elsewhere": Scenario(
        "5.6.1",
        "2a",
        {
            "final_step": lambda job: 8,
            "before": lambda step, state: weight_drift(state) if step == 0 else None,
        },
    ),
    "a false loss": Scenario(
        "4.10",
        "0",
        {
            "final_step": lambda job: 8,
            "answer": answering(q.Loss, lambda _, b: LossBody(b.chain, 0x3F800000, b.proof)),
        },
        zero_only=True,
    ),
    "a loss of other bits": Scenario(
        "4.10",
        "0",
        {
            "final_step": lambda job: 8,
            "answer": answering(q.Loss, lambda _, b: LossBody(b.chain, 0x7FC00001, b.proof)),
        },
        zero_only=True,
    ),
}
