"""Phase 2: the first diverging node and its first diverging input or output (PROTOCOL 5)."""

from __future__ import annotations

import numpy as np

from tallystick.commit.data import RecordProof, batch_indices
from tallystick.commit.state import (
    LOG_CHAIN_SLOT,
    LOSS_CHAIN_SLOT,
    SlotProof,
    chain_digest,
    extend_loss_chain,
    state_root,
)
from tallystick.commit.tensor import Array, tensor_digest
from tallystick.errors import CounterpartyError
from tallystick.program.ir import BATCH_PREFIX, COMMIT, SCALAR_PREFIX, Value
from tallystick.protocol.facts import CHAIN, LOSS, header_of_type
from tallystick.protocol.game import (
    BOTH,
    Game,
    Guilty,
    Rounds,
    ask,
    convict,
    leaf_of,
    node_proved,
    short,
    shorts,
    show,
)
from tallystick.protocol.phase_log import opened_logs
from tallystick.protocol.queries import INPUT, NodeHashes, NodeRecord, Nodes, Record, Slot
from tallystick.protocol.tensors import descend, first_element, open_operand, part_guilt


def nodes(game: Game) -> Rounds:
    """5.1 to 5.3: node trees, and the COMMIT nodes that tie them to the states of phase 1."""
    size, last = len(game.facts.program.nodes), game.facts.last_node
    stated = yield from ask({p: Nodes(game.step) for p in BOTH})
    convict(
        {
            p: ("5.2", f"it states {body.count} nodes, the program has {size}")
            for p, body in stated.items()
            if body.count != size
        },
        "1",
    )
    game.trees = (stated[0].root, stated[1].root)
    game.note(2, "5.1", f"node trees of step {game.step}", shorts(game.trees))
    bodies = yield from ask({p: NodeRecord(game.step, last) for p in BOTH})
    false, odd, lost = {}, {}, {}
    for party, body in bodies.items():
        why = game.misfit(last, body)
        after = game.states[party][game.step + 1]
        if not node_proved(game, party, last, body):
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
    game.commits = (bodies[0], bodies[1])
    return "descent"


def descent(game: Game) -> Rounds:
    """5.4: the first differing leaf. The trees differ: the third outputs of COMMIT do (5.3)."""
    first, count, hashes = 0, len(game.facts.program.nodes), game.trees
    while count > 1:
        query = NodeHashes(game.step, first, count)
        bodies = yield from ask(dict.fromkeys(BOTH, query))
        convict(part_guilt(count, bodies, {p: hashes[p] for p in BOTH}, "5.4"))
        parts = (bodies[0].hashes, bodies[1].hashes)
        first, count, hashes = descend(count, parts, first)
    game.node, game.leaves = first, hashes
    operator = game.facts.program.nodes[first].op
    game.found(node=first, operator=operator)
    game.note(2, "5.4", f"first differing node: {first}, {operator}", shorts(hashes))
    return "records"


def records(game: Game) -> Rounds:
    """5.5 to 5.7: what goes in or comes out differently."""
    node = game.node
    if node == game.facts.last_node:  # opened by 5.3 already
        game.records = game.commits
    else:
        bodies = yield from ask({p: NodeRecord(game.step, node) for p in BOTH})
        false, odd = {}, {}
        for party, body in bodies.items():
            why = game.misfit(node, body)
            # The descent has bound the leaf to the tree: the record's own proof adds nothing.
            if leaf_of(game, node, body) != game.leaves[party]:
                false[party] = ("5.5", f"its record of node {node} is not the one in its tree")
            elif why is not None:
                odd[party] = ("5.5", f"its node {node} is not the program's: {why}")
        convict({**false, **odd}, "1" if odd else "")
        game.records = (bodies[0], bodies[1])
    a, b = game.records
    for at, (number, source, _) in enumerate(game.facts.operands(node)):
        if source == LOG_CHAIN_SLOT and game.log_chains:
            _own_chains(game, at)
        elif a.inputs[at] != b.inputs[at]:
            game.operand = number
            game.found(side="input", operand=number)
            stated = (a.inputs[at], b.inputs[at])
            game.note(2, "5.6", f"input {number} of node {node}", shorts(stated))
            return _decided_by(game, source)
    # The records differ, since their leaves do; operator and attributes are the program's.
    game.output = next(k for k in range(len(a.outputs)) if a.outputs[k] != b.outputs[k])
    stated = (a.outputs[game.output], b.outputs[game.output])
    game.found(side="output", operand=game.output)
    game.note(2, "5.7", f"equal inputs; output {game.output} of node {node}", shorts(stated))
    return "commit" if game.facts.program.nodes[node].op == COMMIT else "output"


def _own_chains(game: Game, at: int) -> None:
    """6.14: operand number `at` of COMMIT is each party's own log chain before the step."""
    stated = tuple(body.inputs[at] for body in game.records)
    why = "the log chain that goes into its COMMIT node is not the one in its state"
    wrong = [p for p in BOTH if stated[p] != game.log_chains[p]]
    if wrong:
        game.found(side="input")
        raise Guilty(dict.fromkeys(wrong, ("5.6.1", why)), "2a", shorts(stated))


def _decided_by(game: Game, source: Value | str) -> str:
    """The state that decides on an operand from `source` (5.6.1 to 5.6.5)."""
    if isinstance(source, str):
        return "slot"
    if not source.is_input:
        return "producer"
    kind = game.facts.program.inputs[source.out].kind
    return {"state": "slot", "batch": "batch"}.get(kind, "derived")


def _source(game: Game) -> Value | str:
    """Where the disputed operand comes from."""
    return next(s for number, s, _ in game.facts.operands(game.node) if number == game.operand)


def _input_name(game: Game) -> str:
    """The program input, or the chain, that the disputed operand is."""
    source = _source(game)
    return source if isinstance(source, str) else game.facts.program.inputs[source.out].name


def _rule(game: Game, digest: bytes, clause: str, case: str, what: str) -> Guilty:
    """The end of a case 2: whoever states another digest than the true one of the operand."""
    stated = tuple(game.input_digest(p, game.operand) for p in BOTH)
    guilt = {
        p: (clause, f"input {game.operand} of its node {game.node} is not {what}")
        for p in BOTH
        if stated[p] != digest
    }
    return Guilty(guilt, case, shorts(stated), short(digest))


def slot(game: Game) -> Rounds:
    """5.6.1: the operand is a slot of the state, on whose root both agree."""
    name = _input_name(game)
    body = (yield from ask({0: Slot(game.step, name)}))[0]
    index, size = game.facts.slots.index(name), len(game.facts.slots)
    proof = SlotProof(name, body.digest, index, size, body.proof)
    if not proof.proves(game.states[0][game.step], name, index, size):
        convict({0: ("5.6.6", f"its proof of slot {name} does not give the agreed state")})
    raise _rule(game, body.digest, "5.6.1", "2a", f"slot {name} of the agreed state")


def producer(game: Game) -> Rounds:
    """5.6.2: the operand is an output of an earlier node, whose leaf is the same in both trees."""
    source = _source(game)
    assert isinstance(source, Value)
    body = (yield from ask({0: NodeRecord(game.step, source.node)}))[0]
    if not node_proved(game, 0, source.node, body):
        convict({0: ("5.6.6", f"its record of node {source.node} is not the one in its tree")})
    why = game.misfit(source.node, body)
    if why is not None:
        # Both trees have this leaf, and an honest tree none of another structure.
        sentence = f"node {source.node}, as both have it, is not the program's: {why}"
        convict(dict.fromkeys(BOTH, ("5.6.2", sentence)), "1")
    what = f"output {source.out} of node {source.node}"
    raise _rule(game, body.outputs[source.out], "5.6.2", "2b", what)


def batch(game: Game) -> Rounds:
    """5.6.3: the operand is a batch tensor: one element of it, and the record it is from."""
    name = _input_name(game)[len(BATCH_PREFIX) :]
    number, terms = game.operand, game.facts.job
    header = header_of_type(game.facts.program.batch_types[name])
    digests = (game.input_digest(0, number), game.input_digest(1, number))
    element, claims = yield from first_element(game, INPUT, number, header, digests)
    game.found(element=element)
    at, fields = 0, game.facts.terms.schema.fields
    field = next(f for f in fields if f.name == name)
    for before in fields[: fields.index(field)]:
        at += before.header.nbytes
    place, inside = divmod(element, field.header.elements)
    order = batch_indices(terms.order_seed, terms.record_count, game.step, terms.batch_size)
    index = int(order[place])
    body = (yield from ask({0: Record(index)}))[0]
    proof = RecordProof(body.record, index, body.proof)
    try:
        proof.verify(game.facts.terms.schema, terms.record_count, terms.data_root, index)
    except CounterpartyError as error:
        raise Guilty({0: ("5.6.6", f"its proof of record {index}: {error.message}")}) from None
    at += inside * field.header.itemsize
    value = np.frombuffer(body.record[at : at + field.header.itemsize], claims[0].dtype)[0]
    what = f"the batch: element {element} is {show(value)} (record {index}, field {name})"
    guilt = {
        p: ("5.6.3", f"input {number} of its node {game.node} is not {what}")
        for p in BOTH
        if claims[p].tobytes() != value.tobytes()
    }
    raise Guilty(guilt, "2c", (show(claims[0]), show(claims[1])), show(value))


def derived(game: Game) -> Rounds:
    """5.6.4: the operand is a scalar or the random key, which the job says."""
    name = _input_name(game)
    value: Array
    if name.startswith(SCALAR_PREFIX):
        table = game.facts.terms.scalars[name[len(SCALAR_PREFIX) :]]
        scalar = table if isinstance(table, int | float) else table[game.step]
        value, what = np.array(scalar, np.float64), f"{name} = {float(scalar)!r}"
    else:
        key = (game.facts.job.rng_seed, game.step)
        value, what = np.array(key, np.int64), f"the key (seed {key[0]}, step {key[1]})"
    raise _rule(game, tensor_digest(value), "5.6.4", "2d", f"{what} that the job says")
    yield {}  # a generator that asks nothing


def commit(game: Game) -> Rounds:
    """5.8: chains and state root after the step, from inputs on which both agree."""
    at = len(game.facts.program.nodes[game.node].inputs)
    opened = []
    for number, type_ in ((at, LOSS), (at + 1, CHAIN)):
        header = header_of_type(type_)
        opening = yield from open_operand(game, number, header, [0])
        opened.append(opening.read(0, header.elements))
    loss, chain = opened[0][0], opened[1].tobytes()
    after = dict(zip(game.facts.program.state_types, game.records[0].inputs, strict=False))
    after[LOSS_CHAIN_SLOT] = chain_digest(extend_loss_chain(chain, game.step, float(loss)))
    game.terms_executed += 1
    before = game.input_digest(0, at + 2)
    chains = (before, before)
    if game.facts.log_form is not None:
        chains = yield from opened_logs(game)
    true = []
    for log_chain in chains:
        after[LOG_CHAIN_SLOT] = log_chain
        true.append((after[LOSS_CHAIN_SLOT], log_chain, state_root(after)))
    guilt = {
        p: ("5.8", f"output {game.output} of its COMMIT node is not what its inputs make")
        for p in BOTH
        if game.records[p].outputs != true[p]
    }
    if not guilt:  # the logs differ, and nothing else
        return "entries"
    k = game.output
    stated = (game.records[0].outputs[k], game.records[1].outputs[k])
    wrong = min(guilt)
    raise Guilty(guilt, "3", shorts(stated), short(true[wrong][k]))
