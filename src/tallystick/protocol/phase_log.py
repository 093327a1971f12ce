"""Rounding logs in a game: opened, tied to the states, compared (PROTOCOL 6.10, 6.13); and the way
on past a step whose values are equal and whose logs are not (6.14).

phase3 judges the entries. A log is a step's section digests. The block of an element shows whether
the element has an entry.

Past such a step both parties' logs of it are sound as far as 6.13 has looked, so the states differ
in their log chains only. A party that withholds a log must not hide a later lie behind it. From
here on the referee compares states without their log chains. The inclusion path of slot `chain.log`
is made of all other slots' leaves, so two states differ in another slot exactly if their paths
differ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from tallystick.commit import merkle
from tallystick.commit.log import BLOCK_BYTES, BOUNDED, ENTRIES_PER_BYTE, Section, log_digest
from tallystick.commit.state import LOG_CHAIN_SLOT, SlotProof, chain_digest, extend_log_chain
from tallystick.contracts.replay.entries import decode_block, unpack
from tallystick.errors import CorruptFileError
from tallystick.protocol.bodies import HashesBody, LogBody, SlotBody
from tallystick.protocol.game import (
    BOTH,
    Asking,
    Game,
    Guilty,
    Next,
    Rounds,
    ask,
    convict,
    misfit,
    shorts,
)
from tallystick.protocol.phase1 import prove
from tallystick.protocol.queries import Log, LogBlock, LogHashes, NodeRecord, Slot, States
from tallystick.protocol.results import (
    ClaimedElement,
    DisputedElement,
    DisputedLogs,
    DisputedNode,
    DisputedOutput,
    DisputedStep,
    DisputedTrees,
)
from tallystick.protocol.tensors import descend, known_hashes, part_guilt
from tallystick.protocol.verdict import UNDECIDED, Place

Pair = tuple[LogBody, LogBody]
NORMAL = 1  # the entry of a published log that changes nothing (NUMERICS 14.9)


def opened_logs(game: Game, step: int) -> Asking[tuple[Pair, tuple[bytes, bytes]]]:
    """6.10: both open their logs of a step. Returns the logs and the chains' digests after it."""
    bodies = yield from ask({p: Log(step) for p in BOTH})
    guilt = {}
    for party, body in bodies.items():
        why = _unfit(game, step, party, body)
        if why is not None:
            guilt[party] = ("6.10", f"{why}: a log that was not committed")
    convict(guilt)
    logs = (bodies[0], bodies[1])
    game.story.note(3, "6.10", f"both have opened their rounding logs of step {step}")
    first, second = (chain_digest(_chain_after(step, body)) for body in logs)
    return logs, (first, second)


def _chain_after(step: int, body: LogBody) -> bytes:
    return extend_log_chain(body.chain, step, log_digest(step, body.sections))


def _unfit(game: Game, step: int, party: int, body: LogBody) -> str | None:
    """The reason why an opened log does not fit the party's commitments; None if it fits."""
    sections = game.facts.at(step).sections
    if len(body.sections) != len(sections):
        return f"it opens {len(body.sections)} sections, the program has {len(sections)}"
    index, size = game.facts.slots.index(LOG_CHAIN_SLOT), len(game.facts.slots)
    ends = (
        ("before", step, body.chain, body.before),
        ("after", step + 1, _chain_after(step, body), body.after),
    )
    for when, end, chain, path in ends:
        proof = SlotProof(LOG_CHAIN_SLOT, chain_digest(chain), index, size, path)
        if not proof.proves(game.states[party][end], LOG_CHAIN_SLOT, index, size):
            return f"the log chain {when} step {step} is not the one in its state"
    return None


# --- blocks ---------------------------------------------------------------------------------------
# The entries of a block: position to direction, or to the published log's entry there.
Block = dict[int, int]


def _opened_blocks(
    game: Game, step: int, logs: Pair, number: int, block: int
) -> Asking[tuple[Block, Block]]:
    """6.10: both open one block of section `number`."""
    query = LogBlock(step, number, block)
    bodies = yield from ask(dict.fromkeys(BOTH, query))
    section, guilt, found = game.facts.at(step).sections[number], {}, []
    for party, body in bodies.items():
        leaf = merkle.leaf_hash(body.data)
        root = merkle.inclusion_root(leaf, block, section.blocks, body.proof)
        if root is None or section.digest(root) != logs[party].sections[number]:
            guilt[party] = ("6.10", f"block {block} is not in section {number} of its log")
    convict(guilt)
    read: Callable[[Section, int, bytes], Block]
    read = _bounded if section.form == BOUNDED else _published
    for party in BOTH:
        try:
            found.append(read(section, block, bodies[party].data))
        except CorruptFileError as error:
            guilt[party] = ("6.10", f"block {block} of section {number}: {error.message}")
    convict(guilt, "3")
    return found[0], found[1]


def _bounded(section: Section, block: int, data: bytes) -> Block:
    """COMMITMENTS 10.2. The last block may have entries at elements that do not exist."""
    entries = decode_block(block, data)
    return dict(zip(entries.positions.tolist(), entries.directions.tolist(), strict=True))


def _published(section: Section, block: int, data: bytes) -> Block:
    """COMMITMENTS 10.3."""
    first = block * BLOCK_BYTES * ENTRIES_PER_BYTE
    count = min(section.elements - first, BLOCK_BYTES * ENTRIES_PER_BYTE)
    entries = unpack(data, count)
    return {first + at: int(entries[at]) for at in np.flatnonzero(entries != NORMAL).tolist()}


# --- states ---------------------------------------------------------------------------------------
def log(game: Game, at: ClaimedElement) -> Rounds:
    """6.10: each party's entry for the disputed element."""
    step, output, element = at.at.step, at.at, at.element
    logs, _ = yield from opened_logs(game, step)
    facts = game.facts.at(step)
    number = facts.section_of(output.node, output.output)
    assert number is not None  # phase3.output enters only then
    section = facts.sections[number]
    blocks = yield from _opened_blocks(game, step, logs, number, section.block_of(element))
    said = blocks[0].get(element), blocks[1].get(element)
    return Next("element", replace(at, entries=said))


def entries(game: Game, given: DisputedLogs) -> Rounds:
    """6.13: outputs are equal and logs are not; the first entry on which they differ."""
    a, b = (body.sections for body in given.logs)
    # Equal sections would have made equal chains, and 5.8 a conviction.
    number = next(k for k in range(len(a)) if a[k] != b[k])
    section = game.facts.at(given.trees.step).sections[number]
    block = yield from _differing_block(game, given, number)
    game.story.note(3, "6.13", f"section {number} of the logs", shorts((a[number], b[number])))
    blocks = yield from _opened_blocks(game, given.trees.step, given.logs, number, block)
    element = min(at for at, _ in set(blocks[0].items()) ^ set(blocks[1].items()))
    output = yield from _at_output(game, given.trees, section, element)
    said = blocks[0].get(element), blocks[1].get(element)
    return Next("entry", DisputedElement(output, element, said))


def _differing_block(game: Game, given: DisputedLogs, number: int) -> Asking[int]:
    """The first block of a section that differs between the logs."""
    section = game.facts.at(given.trees.step).sections[number]
    first, count = 0, section.blocks
    if not count:  # the program alone gives the digest of an empty section
        true = section.digest(merkle.EMPTY_ROOT)
        wrong = [p for p in BOTH if given.logs[p].sections[number] != true]
        convict(dict.fromkeys(wrong, ("6.13", f"its section {number}, which is empty, is not")))
    hashes: tuple[bytes, ...] = ()
    stated = [body.sections[number] for body in given.logs]
    while count > 1:
        query = LogHashes(given.trees.step, number, first, count)
        bodies = yield from ask(dict.fromkeys(BOTH, query))
        why = f"section {number} has {section.blocks} blocks, not these"
        convict({p: ("2.7", why) for p, b in bodies.items() if b.blocks != section.blocks})
        plain = {p: HashesBody(body.hashes) for p, body in bodies.items()}
        known = known_hashes(count, plain, hashes, lambda p, r: section.digest(r) == stated[p])
        convict(part_guilt(count, plain, known, "6.13"))
        parts = (bodies[0].hashes, bodies[1].hashes)
        first, count, hashes = descend(count, parts, first)
    return first


def _at_output(
    game: Game, trees: DisputedTrees, section: Section, element: int
) -> Asking[DisputedOutput]:
    """The game is now about an output on which both agree, of a node before COMMIT."""
    node, facts = section.node, game.facts.at(trees.step)
    body = (yield from ask({0: NodeRecord(trees.step, node)}))[0]
    if not trees.node_proved(facts, 0, node, body):
        why = f"its record of node {node} is not the one in its tree"
        raise Guilty({0: ("6.13", why)})
    why_not = misfit(facts, node, body)
    if why_not is not None:
        # Both trees have this leaf, and an honest tree none of another structure.
        sentence = f"node {node}, as both have it, is not the program's: {why_not}"
        raise Guilty(dict.fromkeys(BOTH, ("6.13", sentence)), "1")
    operator = facts.program.nodes[node].op
    game.story.found(
        node=node, operator=operator, side="output", operand=section.output, element=element
    )
    return DisputedOutput(DisputedNode(trees, node, (body, body)), section.output)


# The proofs of both parties, by step.
Known = dict[int, dict[int, SlotBody]]


def beyond(game: Game, given: DisputedStep) -> Rounds:
    """6.14: the first step after which the states differ in more than their log chains."""
    start, end = given.step + 1, min(run.final_step for run in game.runs)
    known: Known = {}
    if (yield from _alike(game, known, end)):
        if game.runs[0].final_step != game.runs[1].final_step:
            return Next("stop")
        why = "the final states are equal but for their log chains"
        game.story.note(1, "6.14", why)
        return Next(UNDECIDED)
    low, high = yield from _between_checkpoints(game, known, start, end)
    while high - low > 1:
        middle = (low + high) // 2
        if (yield from _alike(game, known, middle)):
            low = middle
        else:
            high = middle
    chains = yield from _log_chains(game, known, low)
    game.story.choices, game.story.place = (0, 0), Place(step=low)
    roots = (game.states[0][high], game.states[1][high])
    game.story.note(1, "6.14", f"values differ first after step {low}", shorts(roots))
    return Next("nodes", DisputedStep(low, (chains[0].digest, chains[1].digest)))


def _between_checkpoints(game: Game, known: Known, start: int, end: int) -> Asking[tuple[int, int]]:
    """Two steps, at most an interval apart: the states are alike at the first only."""
    interval = game.facts.job.checkpoint_interval
    # Common checkpoints strictly between the ends, which are alike and not alike.
    low, high = start // interval, -(-end // interval)
    while high - low > 1:
        middle = (low + high) // 2
        if (yield from _alike(game, known, middle * interval)):
            low = middle
        else:
            high = middle
    return max(low * interval, start), min(high * interval, end)


def _alike(game: Game, known: Known, step: int) -> Asking[bool]:
    """True if both parties' state[step] differ in their log chains at most."""
    proofs = yield from _log_chains(game, known, step)
    return proofs[0].proof == proofs[1].proof


def _log_chains(game: Game, known: Known, step: int) -> Asking[dict[int, SlotBody]]:
    """Both parties prove slot chain.log in their own state[step], which they pin first."""
    if step in known:  # no query is asked twice
        return known[step]
    yield from _pinned(game, step)
    bodies = yield from ask({p: Slot(step, LOG_CHAIN_SLOT) for p in BOTH})
    index, size = game.facts.slots.index(LOG_CHAIN_SLOT), len(game.facts.slots)
    why = f"its proof of slot {LOG_CHAIN_SLOT} does not give its own state after {step} steps"
    convict(
        {
            p: ("6.14", why)
            for p, body in bodies.items()
            if not SlotProof(LOG_CHAIN_SLOT, body.digest, index, size, body.proof).proves(
                game.states[p][step], LOG_CHAIN_SLOT, index, size
            )
        }
    )
    known[step] = bodies
    return bodies


def _pinned(game: Game, step: int) -> Asking[None]:
    """Pin state[step] of each party that has not stated it, by a checkpoint proof if it is one."""
    silent = [p for p in BOTH if step not in game.states[p]]
    index, rest = divmod(step, game.facts.job.checkpoint_interval)
    if not rest:
        yield from prove(game, dict.fromkeys(silent, (index,)))
        return
    if silent:
        bodies = yield from ask({p: States((step,)) for p in silent})
        for party, body in bodies.items():
            game.states[party][step] = body.roots[0]
