"""Phase 2: the first diverging node and its first diverging input or output (PROTOCOL 5); and the
record behind an element of a batch tensor, with its proof (5.6.3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tallystick.commit.data import DataSchema, Field
from tallystick.commit.job import JobCommitment
from tallystick.commit.records import PartProof, part_bytes, place_of
from tallystick.commit.state import (
    LOG_CHAIN_SLOT,
    LOSS_CHAIN_SLOT,
    SlotProof,
    StateRoots,
    chain_digest,
    extend_loss_chain,
)
from tallystick.commit.stream import DataSet
from tallystick.commit.tensor import Array, tensor_digest
from tallystick.errors import CounterpartyError
from tallystick.program.ir import COMMIT, SCALAR_PREFIX, Value, split_batch
from tallystick.protocol.bodies import Body, PartBody, RecordBody
from tallystick.protocol.facts import CHAIN, LOSS, Facts, header_of_type
from tallystick.protocol.game import (
    BOTH,
    Game,
    Guilty,
    Next,
    Rounds,
    ask,
    convict,
    misfit,
    short,
    shorts,
    show,
)
from tallystick.protocol.messages import Query
from tallystick.protocol.phase_log import opened_logs
from tallystick.protocol.queries import (
    INPUT,
    NodeHashes,
    NodeRecord,
    Nodes,
    Record,
    RecordPart,
    Slot,
)
from tallystick.protocol.results import (
    DisputedInput,
    DisputedLeaf,
    DisputedLogs,
    DisputedNode,
    DisputedOutput,
    DisputedStep,
    DisputedTrees,
)
from tallystick.protocol.tensors import descend, first_element, open_operand, part_guilt


@dataclass(frozen=True)
class Wanted:
    """Element `element` of `field` of record `index` of a data set."""

    number: int
    data: DataSet
    schema: DataSchema
    index: int
    field: Field
    element: int

    @property
    def nbytes(self) -> int:
        """The bytes of the record, or of the part of it, that a true answer shows."""
        return part_bytes(self.schema, place_of(self.schema, self.field, self.element).part)


def wanted_record(facts: Facts, step: int, name: str, element: int) -> Wanted:
    """The value that is element `element` of the batch tensor `name` of `step` (COMMITMENTS 8.5).

    `facts` are those at `step`.
    """
    timetable = facts.job.timetable
    occasion = timetable.at(step)
    program, schema = timetable.programs[occasion.program], facts.schema
    data = timetable.data_of(occasion.program)
    assert schema is not None and data is not None and program.data is not None
    label, micro_batch = split_batch(name)
    field = next(f for f in schema.fields if f.name == label)
    place, inside = divmod(element, field.header.elements)
    place += micro_batch * program.rows
    index = timetable.record(occasion, place)
    return Wanted(program.data, data, schema, index, field, inside)


def record_query(facts: Facts, wanted: Wanted) -> Query[Any]:
    """The query for the record: kind 12 in a job of format 1, kind 16 in one of format 2."""
    if isinstance(facts.job, JobCommitment):
        return Record(wanted.index)
    part = place_of(wanted.schema, wanted.field, wanted.element).part
    return RecordPart(wanted.number, wanted.index, part)


def shown_bytes(body: Body) -> int:
    """The bytes of the record, or of the part of it, in an answer."""
    return len(body.record if isinstance(body, RecordBody) else _part(body).part)


def _part(body: Body) -> PartBody:
    assert isinstance(body, PartBody)
    return body


def record_value(wanted: Wanted, body: Body) -> np.generic:
    """The value, from the answer. Raises CounterpartyError for a proof that does not give the job's
    data root."""
    if isinstance(body, RecordBody):
        proof = PartProof(body.record, (), body.proof)
    else:
        part = _part(body)
        proof = PartProof(part.part, part.inner, part.proof)
    data = wanted.data
    return proof.value(
        wanted.schema, data.record_count, data.root, wanted.index, wanted.field, wanted.element
    )


def nodes(game: Game, at: DisputedStep) -> Rounds:
    """5.1 to 5.3: node trees, and the COMMIT nodes that tie them to the states of phase 1."""
    step, facts = at.step, game.facts.at(at.step)
    size, last = len(facts.program.nodes), facts.last_node
    stated = yield from ask({p: Nodes(step) for p in BOTH})
    convict(
        {
            p: ("5.2", f"it states {body.count} nodes, the program has {size}")
            for p, body in stated.items()
            if body.count != size
        },
        "1",
    )
    roots = (stated[0].root, stated[1].root)
    game.story.note(2, "5.1", f"node trees of step {step}", shorts(roots))
    bodies = yield from ask({p: NodeRecord(step, last) for p in BOTH})
    trees = DisputedTrees(at, roots, (bodies[0], bodies[1]))
    false, odd, lost = {}, {}, {}
    for party, body in bodies.items():
        why = misfit(facts, last, body)
        after = game.states[party][step + 1]
        if not trees.node_proved(facts, party, last, body):
            false[party] = ("5.3", "its COMMIT node is not in the node tree it has stated")
        elif why is not None:
            odd[party] = ("5.3", f"its COMMIT node is not the program's: {why}")
        elif body.outputs[2] != after:
            lost[party] = (
                "5.3",
                f"its nodes make state {short(body.outputs[2])}, it has committed to "
                f"{short(after)}: the commitment cannot be opened",
            )
    convict({**false, **odd, **lost}, "1" if odd else "")
    return Next("descent", trees)


def descent(game: Game, at: DisputedTrees) -> Rounds:
    """5.4: the first differing leaf. The trees differ: the third outputs of COMMIT do (5.3)."""
    program = game.facts.at(at.step).program
    first, count = 0, len(program.nodes)
    hashes: tuple[bytes, ...] = at.roots
    while count > 1:
        query = NodeHashes(at.step, first, count)
        bodies = yield from ask(dict.fromkeys(BOTH, query))
        convict(part_guilt(count, bodies, {p: hashes[p] for p in BOTH}, "5.4"))
        parts = (bodies[0].hashes, bodies[1].hashes)
        first, count, hashes = descend(count, parts, first)
    operator = program.nodes[first].op
    game.story.found(node=first, operator=operator)
    game.story.note(2, "5.4", f"first differing node: {first}, {operator}", shorts(hashes))
    return Next("records", DisputedLeaf(at, first, hashes))


def records(game: Game, leaf: DisputedLeaf) -> Rounds:
    """5.5 to 5.7: the first input or output that differs."""
    trees, node = leaf.trees, leaf.node
    facts = game.facts.at(trees.step)
    stated = trees.commits  # opened by 5.3 already
    if node != facts.last_node:
        bodies = yield from ask({p: NodeRecord(trees.step, node) for p in BOTH})
        false, odd = {}, {}
        for party, body in bodies.items():
            why = misfit(facts, node, body)
            # The descent has bound the leaf to the tree, so the record needs no proof of its own.
            if trees.leaf(facts, node, body) != leaf.hashes[party]:
                false[party] = ("5.5", f"its record of node {node} is not the one in its tree")
            elif why is not None:
                odd[party] = ("5.5", f"its node {node} is not the program's: {why}")
        convict({**false, **odd}, "1" if odd else "")
        stated = (bodies[0], bodies[1])
    at, (a, b) = DisputedNode(trees, node, stated), stated
    for k, (number, source, _) in enumerate(facts.operands(node)):
        if source == LOG_CHAIN_SLOT and trees.at.log_chains:
            _own_chains(game, at, k, trees.at.log_chains)
        elif a.inputs[k] != b.inputs[k]:
            game.story.found(side="input", operand=number)
            pair = (a.inputs[k], b.inputs[k])
            game.story.note(2, "5.6", f"input {number} of node {node}", shorts(pair))
            return Next(_decided_by(facts, source), DisputedInput(at, number))
    # The records differ, since their leaves do; operator and attributes are the program's.
    output = next(k for k in range(len(a.outputs)) if a.outputs[k] != b.outputs[k])
    pair = (a.outputs[output], b.outputs[output])
    game.story.found(side="output", operand=output)
    game.story.note(2, "5.7", f"equal inputs; output {output} of node {node}", shorts(pair))
    commits = facts.program.nodes[node].op == COMMIT
    return Next("commit" if commits else "output", DisputedOutput(at, output))


def _own_chains(game: Game, at: DisputedNode, k: int, chains: Sequence[bytes]) -> None:
    """6.14: operand number `k` of COMMIT is each party's own log chain before the step."""
    stated = tuple(body.inputs[k] for body in at.records)
    why = "the log chain that goes into its COMMIT node is not the one in its state"
    wrong = [p for p in BOTH if stated[p] != chains[p]]
    if wrong:
        game.story.found(side="input")
        raise Guilty(dict.fromkeys(wrong, ("5.6.1", why)), "2a", shorts(stated))


def _decided_by(facts: Facts, source: Value | str) -> str:
    """The state that decides on an operand from `source` (5.6.1 to 5.6.5)."""
    if isinstance(source, str):
        return "slot"
    if not source.is_input:
        return "producer"
    kind = facts.program.inputs[source.out].kind
    return {"state": "slot", "batch": "batch"}.get(kind, "derived")


def _source(game: Game, given: DisputedInput) -> Value | str:
    """The source of the disputed operand."""
    operands = game.facts.at(given.at.step).operands(given.at.node)
    return next(s for number, s, _ in operands if number == given.operand)


def _input_name(game: Game, given: DisputedInput) -> str:
    """The program input, or the chain, that the disputed operand is."""
    source = _source(game, given)
    program = game.facts.at(given.at.step).program
    return source if isinstance(source, str) else program.inputs[source.out].name


def _stated(game: Game, given: DisputedInput) -> tuple[bytes, bytes]:
    """The digests of the disputed operand that the two records state."""
    facts = game.facts.at(given.at.step)
    digest = partial(given.at.input_digest, facts, operand=given.operand)
    return digest(party=0), digest(party=1)


def _rule(
    game: Game, given: DisputedInput, digest: bytes, clause: str, case: str, what: str
) -> Guilty:
    """The end of a case 2: convict each party that states a false digest of the operand."""
    stated = _stated(game, given)
    guilt = {
        p: (clause, f"input {given.operand} of its node {given.at.node} is not {what}")
        for p in BOTH
        if stated[p] != digest
    }
    return Guilty(guilt, case, shorts(stated), short(digest))


def slot(game: Game, given: DisputedInput) -> Rounds:
    """5.6.1: the operand is a slot of the state, on whose root both agree."""
    name = _input_name(game, given)
    body = (yield from ask({0: Slot(given.at.step, name)}))[0]
    index, size = game.facts.slots.index(name), len(game.facts.slots)
    proof = SlotProof(name, body.digest, index, size, body.proof)
    if not proof.proves(game.states[0][given.at.step], name, index, size):
        convict({0: ("5.6.6", f"its proof of slot {name} does not give the agreed state")})
    raise _rule(game, given, body.digest, "5.6.1", "2a", f"slot {name} of the agreed state")


def producer(game: Game, given: DisputedInput) -> Rounds:
    """5.6.2: the operand is an output of an earlier node, whose leaf is the same in both trees."""
    source, facts = _source(game, given), game.facts.at(given.at.step)
    assert isinstance(source, Value)
    body = (yield from ask({0: NodeRecord(given.at.step, source.node)}))[0]
    if not given.at.trees.node_proved(facts, 0, source.node, body):
        convict({0: ("5.6.6", f"its record of node {source.node} is not the one in its tree")})
    why = misfit(facts, source.node, body)
    if why is not None:
        # Both trees have this leaf, and an honest tree none of another structure.
        sentence = f"node {source.node}, as both have it, is not the program's: {why}"
        convict(dict.fromkeys(BOTH, ("5.6.2", sentence)), "1")
    what = f"output {source.out} of node {source.node}"
    raise _rule(game, given, body.outputs[source.out], "5.6.2", "2b", what)


def batch(game: Game, given: DisputedInput) -> Rounds:
    """5.6.3: the operand is a batch tensor: one element of it, and that element's record."""
    name, facts = _input_name(game, given), game.facts.at(given.at.step)
    number, step = given.operand, given.at.step
    header = header_of_type(facts.program.inputs[facts.program.input_index[name]].type)
    where = (step, given.at.node)
    element, claims = yield from first_element(where, INPUT, number, header, _stated(game, given))
    game.story.found(element=element)
    wanted = wanted_record(facts, step, name, element)
    body = (yield from ask({0: record_query(facts, wanted)}))[0]
    if shown_bytes(body) != wanted.nbytes:
        why = f"record {wanted.index} or its part has {wanted.nbytes} bytes, not these"
        raise Guilty({0: ("2.7", why)})
    try:
        value = record_value(wanted, body)
    except CounterpartyError as error:
        sentence = f"its proof of record {wanted.index}: {error.message}"
        raise Guilty({0: ("5.6.6", sentence)}) from None
    record = f"record {wanted.index}, field {wanted.field.name}"
    what = f"the batch: element {element} is {show(value)} ({record})"
    guilt = {
        p: ("5.6.3", f"input {number} of its node {given.at.node} is not {what}")
        for p in BOTH
        if claims[p].tobytes() != value.tobytes()
    }
    raise Guilty(guilt, "2c", (show(claims[0]), show(claims[1])), show(value))


def derived(game: Game, given: DisputedInput) -> Rounds:
    """5.6.4: the operand is a scalar or the random key, which the job fixes."""
    name = _input_name(game, given)
    value: Array
    if name.startswith(SCALAR_PREFIX):
        scalar = game.facts.terms.scalar(name[len(SCALAR_PREFIX) :], given.at.step)
        value, what = np.array(scalar, np.float64), f"{name} = {float(scalar)!r}"
    else:
        key = game.facts.job.random_key(given.at.step)
        value, what = np.array(key, np.int64), f"the key (seed {key[0]}, number {key[1]})"
    raise _rule(game, given, tensor_digest(value), "5.6.4", "2d", f"{what} that the job says")
    yield {}  # a generator that asks nothing


def commit(game: Game, given: DisputedOutput) -> Rounds:
    """5.8: chains and state root after the step, from inputs on which both agree."""
    where, facts = (given.step, given.node), game.facts.at(given.step)
    at = len(facts.program.nodes[given.node].inputs)
    agreed = partial(given.at.input_digest, facts, 0)  # both state the same inputs
    opened = []
    for number, type_ in ((at, LOSS), (at + 1, CHAIN)):
        header = header_of_type(type_)
        opening = yield from open_operand(where, number, header, [0], agreed(number))
        opened.append(opening.read(0, header.elements))
    loss, chain = opened[0][0], opened[1].tobytes()
    after = dict(zip(facts.program.state_types, given.at.records[0].inputs, strict=False))
    after[LOSS_CHAIN_SLOT] = chain_digest(extend_loss_chain(chain, given.step, float(loss)))
    game.story.terms += 1
    before = agreed(at + 2)
    chains, logs = (before, before), None
    if game.facts.log_form is not None:
        logs, chains = yield from opened_logs(game, given.step)
    states = StateRoots(after, [LOG_CHAIN_SLOT])
    true = [(after[LOSS_CHAIN_SLOT], c, states.root({LOG_CHAIN_SLOT: c})) for c in chains]
    guilt = {
        p: ("5.8", f"output {given.output} of its COMMIT node does not follow from its inputs")
        for p in BOTH
        if given.at.records[p].outputs != true[p]
    }
    if not guilt:  # only the logs differ
        assert logs is not None  # else equal chains would have made equal outputs
        return Next("entries", DisputedLogs(given.at.trees, logs))
    k = given.output
    stated = (given.at.records[0].outputs[k], given.at.records[1].outputs[k])
    wrong = min(guilt)
    raise Guilty(guilt, "3", shorts(stated), short(true[wrong][k]))
