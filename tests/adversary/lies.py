"""Every single lie about a small run, as data: each step, node and field, each state.

A lie about a record needs runs that part, so its teller also commits to a root that never was from
the next state on, and its COMMIT node claims it: up to the lie, all is honest. The program of a
step is the one that the job's timetable gives (COMMITMENTS 7.6.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from tallystick.commit.checkpoint import checkpoint_steps
from tallystick.commit.state import CHAIN_SLOTS
from tallystick.commit.tensor import Array
from tallystick.job.job import Job
from tallystick.program.expand import part_of_name
from tallystick.program.ir import COMMIT, Node, Program
from tallystick.program.state import State
from tallystick.protocol import queries as q
from tallystick.protocol.bodies import Body, HashesBody, NodeBody, NodesBody, PartBody, SlotBody

WRONG, NEVER = bytes([9]) * 32, bytes([11]) * 32
Ways = set[tuple[str, str]]  # clause and case of a conviction
Change = Callable[[NodeBody], NodeBody]
RULED = {("6.5", "3"), ("6.6", "3"), ("6.8", "3"), ("6.9", "3")}  # an output that is not one


@dataclass(frozen=True)
class Ground:
    """A job, the step after which its honest run ends, and the steps that are lied about."""

    job: Job
    end: int
    steps: Sequence[int]

    def program(self, step: int) -> Program:
        """The program of a step, micro-batches written out."""
        return self.job.terms.program_at(step)

    @cached_property
    def slots(self) -> list[str]:
        return [*self.job.program.state_types, *CHAIN_SLOTS]

    def fields(self, step: int) -> list[str]:
        """The tensors of a step's whole batch."""
        return sorted({part_of_name(name)[0] for name in self.program(step).batch_types})

    def other_step(self, step: int) -> int | None:
        """Another step of the same program, which reads another batch; None where each of its
        steps reads the same, as those of a pass's last batch do."""
        timetable = self.job.commitment.timetable
        program, number = timetable.at(step)
        others = (
            other
            for other in range(self.job.steps)
            if timetable.at(other).program == program and timetable.at(other).number != number
        )
        return next(others, None)


@dataclass
class Told:
    """A lie: hooks and record changes of its teller, and how it may end for it."""

    name: str
    ways: Ways
    hooks: dict[str, Callable[..., Any]] = field(default_factory=dict)
    tamper: Callable[[int, int, NodeBody], NodeBody] | None = None
    statement: dict[str, Any] = field(default_factory=dict)
    # In seat 1, where the lie is another one because party 0 alone is asked.
    second: Ways | None = None


# -- the root that never was, under which a record is lied about -----------------------------------


def never_was(step: int) -> dict[str, Callable[..., Any]]:
    """Roots from state[step + 1] on are made up."""
    return {"root": lambda s, root: NEVER[:-1] + bytes([s]) if s > step else root}


def claims(program: Program, step: int, index: int, change: Change) -> Any:
    """COMMIT of `step` claims the made-up root; node `index` is changed besides."""
    last = len(program.nodes) - 1

    def tamper(at: int, node: int, body: NodeBody) -> NodeBody:
        if at != step:
            return body
        if node == last:
            body = replace(body, outputs=(*body.outputs[:2], NEVER[:-1] + bytes([step + 1])))
        return change(body) if node == index else body

    return tamper


def put(given: tuple[bytes, ...], at: int) -> tuple[bytes, ...]:
    return (*given[:at], WRONG, *given[at + 1 :])


def drop(given: tuple[bytes, ...], at: int) -> tuple[bytes, ...]:
    return (*given[:at], *given[at + 1 :])


def sources(program: Program, node: Node) -> list[str]:
    """What decides on each operand of a node: slot, producer, batch or derived (PROTOCOL 5.6)."""
    found = []
    for value in node.inputs:
        if value is not None:
            kind = program.inputs[value.out].kind if value.is_input else "producer"
            found.append({"state": "slot"}.get(kind, kind))
    return [*found, "producer", "slot", "slot"] if node.op == COMMIT else found


NO_TENSOR = {("6.1", "")}  # the digest is of no tensor at all, so none can be opened
OPERAND: dict[str, Ways] = {
    "slot": {("5.6.1", "2a")},
    "producer": {("5.6.2", "2b")},
    "batch": NO_TENSOR,
    "scalar": {("5.6.4", "2d")},
    "rng": {("5.6.4", "2d")},
}


def record_lies(program: Program, node: Node) -> Iterator[tuple[str, Ways, Change]]:
    """Each field of a node's record, nothing else being wrong."""
    commits = node.op == COMMIT
    odd = {("5.3" if commits else "5.5", "1")}
    yield "operator", odd, lambda b: replace(b, operator="aten.exp")
    yield "attributes", odd, lambda b: replace(b, attributes=b.attributes + b" ")
    yield "other attributes", odd, lambda b: replace(b, attributes=b"x")
    yield "an input more", odd, lambda b: replace(b, inputs=(*b.inputs, WRONG))
    yield "an output more", odd, lambda b: replace(b, outputs=(*b.outputs, WRONG))
    yield "an output less", odd, lambda b: replace(b, outputs=b.outputs[1:])
    for k, source in enumerate(sources(program, node)):
        yield f"no input {k}", odd, lambda b, k=k: replace(b, inputs=drop(b.inputs, k))
        yield f"input {k}", OPERAND[source], lambda b, k=k: replace(b, inputs=put(b.inputs, k))
    for k in range(3 if commits else len(node.out_types)):
        ways = NO_TENSOR
        if commits:
            ways = {("5.3", "")} if k == 2 else {("5.8", "3")}
        yield f"output {k}", ways, lambda b, k=k: replace(b, outputs=put(b.outputs, k))


def records(ground: Ground) -> Iterator[Told]:
    """Each field of each node's record in each step."""
    for step in ground.steps:
        hooks, program = never_was(step), ground.program(step)
        for index, node in enumerate(program.nodes):
            for what, ways, change in record_lies(program, node):
                name = f"step {step}, node {index}: {what}"
                yield Told(name, ways, hooks, claims(program, step, index, change))


# -- answers that the tree does not hold -----------------------------------------------------------


def answering(step: int, change: Callable[[Any, Any], Body]) -> Callable[..., Any]:
    """An `answer` hook for queries about one step."""
    return lambda query, body: (
        change(query, body) if getattr(query, "step", None) == step and body else body
    )


def counted(off: int) -> Callable[[Any, Any], Body]:
    return lambda k, b: replace(b, count=b.count + off) if isinstance(k, q.Nodes) else b


def false_digest(at: int) -> Callable[[Any, Any], Body]:
    def change(query: Any, body: Any) -> Body:
        if isinstance(query, q.NodeHashes) and 0 <= at - query.first < len(body.hashes):
            return HashesBody(put(body.hashes, at - query.first))
        return body  # type: ignore[no-any-return]

    return change


def step_lies(program: Program) -> Iterator[tuple[str, Ways, Callable[[Any, Any], Body]]]:
    """Counts, tree root, node digests and a proof said otherwise than the tree has them."""
    nodes = len(program.nodes)
    for off in (-nodes, -1, 1, 2**63):
        yield f"nodes {off:+}", {("5.2", "1")}, counted(off)
    made_up = NodesBody(nodes, WRONG)
    yield "tree root", {("5.3", "")}, lambda k, b: made_up if isinstance(k, q.Nodes) else b
    for at in range(nodes):
        yield f"digest of node {at}", {("5.4", "")}, false_digest(at)
    yield (
        "proof of COMMIT",
        {("5.3", "")},
        lambda k, b: replace(b, proof=(WRONG, *b.proof[1:])) if isinstance(k, q.NodeRecord) else b,
    )


def answers(ground: Ground) -> Iterator[Told]:
    """What each step's lies are, in each step."""
    for step in ground.steps:
        program = ground.program(step)
        for what, ways, change in step_lies(program):
            hooks = {**never_was(step), "answer": answering(step, change)}
            yield Told(f"step {step}: {what}", ways, hooks, claims(program, step, -1, lambda b: b))


# -- lies that are lived: executed with something wrong --------------------------------------------


def another(value: Any) -> Any:
    """Another value of the same dtype."""
    if value.dtype.kind == "b":
        return not value
    if value.dtype.kind in "iu":
        return 1 - value  # of the two classes the other one
    return 5 if value * 2 + 1 == value else value * 2 + 1  # infinities stay what they are


def changed(array: Array, element: int) -> None:
    """One element is another one, in place."""
    where = np.unravel_index(element % array.size, array.shape)
    any_array: Any = array
    any_array[where] = another(array[where])


def wrong_output(step: int, index: int, k: int, element: int) -> Callable[..., None]:
    def node(at: int, number: int, _: Node, outputs: Sequence[Array]) -> None:
        if (at, number) == (step, index):
            changed(outputs[k], element)

    return node


def slot_change(step: int, name: str) -> Callable[[int, State], None]:
    def change(at: int, state: State) -> None:
        if at != step:
            return
        if name in CHAIN_SLOTS:
            attribute = name.replace("chain.", "") + "_chain"
            setattr(state, attribute, WRONG)
        else:
            changed(state.slots[name], -1)

    return change


def lived(ground: Ground) -> Iterator[Told]:
    """Outputs, slots, batches, scalars, orders, losses: what the run was really made with."""
    for step in ground.steps:
        program = ground.program(step)
        for index, node in enumerate(program.nodes[:-1]):
            for k in range(len(node.out_types)):
                for element in (0, -1):
                    name = f"step {step}: element {element} of output {k} of node {index}"
                    yield Told(name, RULED, {"node": wrong_output(step, index, k, element)})
        for slot in ground.slots:
            change = slot_change(step, slot)
            # A slot goes in that is not the state's; the record of who reads it says so.
            yield Told(f"{slot} before step {step}", {("5.6.1", "2a")}, {"before": change})
            # A slot is swapped after COMMIT: then no nodes make the state that is committed to.
            yield Told(f"{slot} after step {step}", {("5.3", "")}, {"after": change})
        for name in ground.fields(step):
            batch = at(step, lambda b, name=name: changed(b[name], -1))
            yield Told(f"{name} of step {step}", {("5.6.3", "2c")}, {"batch": batch})
        other = ground.other_step(step) if program.batch_types else None
        if other is not None:
            swapped = {"data_step": lambda s, step=step, o=other: o if s == step else s}
            yield Told(f"batch of step {other} in step {step}", {("5.6.3", "2c")}, swapped)
        for name in program.scalar_names:
            scalars = at(step, lambda s, name=name: s.__setitem__(name, s[name] * 2))
            yield Told(f"{name} of step {step}", {("5.6.4", "2d")}, {"scalars": scalars})
        if any(spec.kind == "rng" for spec in program.inputs):
            for half in (0, 1):
                key = {"random_key": other_key(step, half)}
                yield Told(f"half {half} of the key of step {step}", {("5.6.4", "2d")}, key)
        loss = {"loss": lambda s, bits, step=step: bits ^ 1 if s == step else bits}
        yield Told(f"loss of step {step}", {("5.8", "3")}, loss)


def other_key(step: int, half: int) -> Callable[[int, tuple[int, int]], tuple[int, int]]:
    """Another random seed (half 0), or another number of the step (half 1)."""

    def change(at: int, key: tuple[int, int]) -> tuple[int, int]:
        if at != step:
            return key
        return (key[0] + 1, key[1]) if half == 0 else (key[0], key[1] + 1)

    return change


def at(step: int, change: Callable[[Any], None]) -> Callable[[int, Any], None]:
    return lambda s, given: change(given) if s == step else None


# -- lies about the run as a whole -----------------------------------------------------------------


def whole(ground: Ground) -> Iterator[Told]:
    """State roots, slots at genesis, final step, number of checkpoints, final state."""
    job, honest_end = ground.job, ground.end
    held = checkpoint_steps(honest_end, job.interval)
    for step in held:
        hooks = {"root": lambda s, root, step=step: NEVER if s == step else root}
        ways = {("3.4", "0")} if step == 0 else {("5.3", "")}
        yield Told(f"root of state {step}", ways, hooks)
    for slot in ground.slots:
        hooks = {"genesis": lambda state, slot=slot: slot_change(0, slot)(0, state)}
        yield Told(f"{slot} at genesis", {("3.4", "0")}, hooks)
    for end in (*range(min(job.steps, honest_end + 3) + 2), 2**40):
        if end == honest_end:
            continue
        allowed = 1 <= end <= job.steps and (end == job.steps or job.commitment.ends_early)
        same = allowed and len(checkpoint_steps(end, job.interval)) == len(held)
        # With as many checkpoints it is the proof that has other steps in it.
        ways = {("3.3", "0")} if same else {("3.2", "0")}
        yield Told(f"final step {end}", ways, statement={"final_step": end})
        if 0 < end < job.steps:
            hooks = {"final_step": lambda _, end=end: end}
            ways = {("4.11" if job.commitment.stop_on_slot else "4.9", "0")}
            yield Told(f"ends after {end}", ways, hooks)
    for count in (1, len(held) - 1, len(held) + 1, len(held) + 2):
        yield Told(f"{count} checkpoints", {("3.2", "0")}, statement={"checkpoints": count})
    yield Told("final state", {("3.5", "0")}, statement={"final_state_root": WRONG})
    yield Told("run root", {("3.3", "0"), ("3.3", "")}, statement={"run_root": WRONG})
    if job.commitment.stop_on_slot:
        yield from stops(ground)


def stops(ground: Ground) -> Iterator[Told]:
    """The slot that ends the run, said otherwise (PROTOCOL 4.11); party 0 alone is asked."""
    proofs: dict[str, Callable[[Any], Any]] = {
        "another digest": lambda b: SlotBody(WRONG, b.proof),
        "no proof": lambda b: SlotBody(b.digest, ()),
        "a proof turned round": lambda b: SlotBody(b.digest, b.proof[::-1]),
        "a proof longer by one": lambda b: SlotBody(b.digest, (*b.proof, WRONG)),
    }
    for end in (ground.end - 1, ground.end + 1):
        for name, change in proofs.items():
            told = answering_slot(change)
            hooks = {"final_step": lambda _, end=end: end, "answer": told}
            # In seat 1 it is not asked for the slot: only the wrong end is left of the lie.
            yield Told(f"ends after {end}: {name}", {("4.11", "0")}, hooks)


def answering_slot(change: Callable[[Any], Any]) -> Callable[..., Any]:
    """An `answer` hook for slots of any state."""
    return lambda query, body: change(body) if isinstance(query, q.Slot) and body else body


def proofs(ground: Ground) -> Iterator[Told]:
    """Slots of a state said otherwise when the referee asks for one."""
    for step in ground.steps:
        program = ground.program(step)
        for index, node in enumerate(program.nodes):
            found = sources(program, node)
            for k in (k for k, source in enumerate(found) if source == "slot"):
                tamper = claims(
                    program, step, index, lambda b, k=k: replace(b, inputs=put(b.inputs, k))
                )
                lie = answering(
                    step, lambda k, b: SlotBody(WRONG, b.proof) if isinstance(k, q.Slot) else b
                )
                hooks = {**never_was(step), "answer": lie}
                name = f"step {step}: a slot said to be input {k} of node {index}"
                yield Told(name, {("5.6.6", "")}, hooks, tamper, second={("5.6.1", "2a")})


def parts(ground: Ground) -> Iterator[Told]:
    """Records of the batch shown otherwise, where party 0 is asked for one (kinds 12 and 16)."""
    for step in ground.steps:
        for name in ground.fields(step):
            batch = at(step, lambda b, name=name: changed(b[name], -1))
            for what, change in PARTS.items():
                hooks = {"batch": batch, "answer": answering_part(change)}
                ways = {("2.7", "")} if "bytes" in what else {("5.6.6", "")}
                told = f"step {step}: {name}, and {what}"
                yield Told(told, ways, hooks, second={("5.6.3", "2c")})


def answering_part(change: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda query, body: change(body) if isinstance(query, q.RecordPart) and body else body


PARTS: dict[str, Callable[[PartBody], PartBody]] = {
    "another value in the record": lambda b: replace(b, part=b.part[:-1] + b"\7"),
    "fewer bytes of the record": lambda b: replace(b, part=b.part[:-1]),
    "more bytes of the record": lambda b: replace(b, part=b.part + b"\0"),
    "a proof in it": lambda b: replace(b, inner=(*b.inner, WRONG)),
    "no proof of it": lambda b: replace(b, proof=b.proof[1:]),
    "a longer proof of it": lambda b: replace(b, proof=(*b.proof, WRONG)),
    "a proof of another record": lambda b: replace(b, proof=(WRONG, *b.proof[1:])),
}

KINDS = {
    "records": records, "answers": answers, "lived": lived, "whole": whole, "proofs": proofs,
    "parts": parts,
}  # fmt: skip
