"""The handover of a party's rounding logs, by the queries of a game, and the copy of its run that
an auditor can then follow (PROTOCOL 6.15, 6.15.2).

An auditor that could not read a trainer's log of a step has other values from that step on, and
can find no later lie (6.12). The trainer opens its logs in the game, so it can hand them over. The
final state root that the trainer has signed binds the logs: every step's sections enter the log
chain in that state. A log file gets its name only after the log was verified.

The copy has the job, the run's signed commitment, its logs, and a journal made from proved answers.
It has no state: `train --replay` needs none. Every root in the journal follows from a proof, and
together they give the signed run root.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NoReturn

import numpy as np

from tallystick.commit import merkle
from tallystick.commit.checkpoint import checkpoint_steps, run_root
from tallystick.commit.log import BOUNDED, FORMS, Section, log_digest
from tallystick.commit.signing import Envelope, RunCommitment, verify_run
from tallystick.commit.state import (
    CHAIN_START,
    LOG_CHAIN_SLOT,
    LOSS_CHAIN_SLOT,
    SlotProof,
    chain_digest,
    extend_log_chain,
    extend_loss_chain,
    loss_of,
    slot_leaf,
    state_root_of,
)
from tallystick.contracts.replay.entries import WORD, Blocks
from tallystick.contracts.replay.sections import operators_of
from tallystick.disk.files import make_directory, remove_file, write_file
from tallystick.errors import CounterpartyError, UsageError
from tallystick.job.job import Job
from tallystick.limits import LIMITS
from tallystick.program.terms import Terms
from tallystick.protocol.bodies import LossBody
from tallystick.protocol.facts import Facts
from tallystick.protocol.messages import ANSWERED, B, Query, open_answer
from tallystick.protocol.queries import DEPTH, Log, LogBlock, LogHashes, Loss, encode_query
from tallystick.prover.local import Party
from tallystick.run.logs.reader import Expected, LogShape, open_log
from tallystick.run.logs.writer import LogDirectory, log_path
from tallystick.run.store.directory import RunStore
from tallystick.run.store.journal import Journal, end_reason


def hand_over(
    party: Party,
    terms: Terms,
    first: int,
    directory: Path,
    on_step: Callable[[int], None] = lambda _: None,
) -> range:
    """Write `party`'s logs of steps `first` to its last into `directory`; return the steps.

    The files are those of a run's `logs`, so an auditor can follow a copy of the run that lacked
    them. The function calls `on_step` with each step that it has written.

    Raises CounterpartyError where an answer does not fit the party's signed commitment (no file of
    that step then stays, and this convicts no party) or where the directory is a link; UsageError
    for a job without logs, a step that the run has not or a directory with another run's logs;
    StorageError; and the errors of the party.
    """
    run, _ = verify_run(Envelope.from_bytes(party.commitment, LIMITS.commitment_bytes))
    facts = Facts(terms)
    if not facts.contract.keeps_log:
        raise UsageError("This job's contract keeps no rounding logs.", "There is none to get.")
    if run.job_digest != terms.digest:
        raise CounterpartyError("This run is of another job.", "Ask for a run of this one.")
    if not 0 < run.final_step <= terms.commitment.steps:  # else its owner is asked without an end
        raise CounterpartyError(
            f"This run states {run.final_step} steps, and the job has {terms.commitment.steps}.",
            "Do not accept the run.",
        )
    if not 0 <= first < run.final_step:
        raise UsageError(f"The run has no step {first}.", f"Ask for 0 to {run.final_step - 1}.")
    source = _Source(party, facts, run)
    steps = range(first, run.final_step)
    digests = source.digests(steps)
    form = FORMS[facts.contract.form]
    operators = operators_of(terms.program, facts.sections)
    expected = Expected(terms.digest, facts.sections, operators, form)
    logs = LogDirectory(directory, terms.digest, facts.sections, form)
    make_directory(directory, directory.parent)
    try:
        for step in steps:
            if not _there(expected, directory, step, digests[step]):
                source.write(logs, step, digests[step])
            on_step(step)
    finally:
        logs.flush()
    return steps


def _there(expected: Expected, directory: Path, step: int, digest: bytes) -> bool:
    """True if the log is in the directory already. The caller replaces a damaged log. It never
    replaces a sound log of another run: for that the function raises UsageError."""
    try:
        with open_log(directory, step, expected) as reader:
            reader.verify()
            found = reader.digest
    except CounterpartyError:
        return False  # missing or damaged
    if found != digest:
        raise UsageError(
            f"{log_path(directory, step)} is a log of another run.", "Name another directory."
        )
    return True


class _Source:
    """The logs of one signed run, read from its owner's answers."""

    def __init__(self, party: Party, facts: Facts, run: RunCommitment) -> None:
        self._party, self._run = party, run
        self._sections, self._slots = facts.sections, facts.slots

    def _refuse(self, step: int, why: str) -> NoReturn:
        raise CounterpartyError(
            f"The log of step {step} was not handed over: {why}.",
            "Without it nothing behind that step is checked; do not accept the run.",
        )

    def _ask(self, step: int, query: Query[B]) -> B:
        encoded = encode_query(query)
        answer = open_answer(self._party.answer(encoded), self._run.signer)
        named = (answer.job_digest, answer.run_root, answer.query)
        if named != (self._run.job_digest, self._run.run_root, encoded):
            self._refuse(step, "the answer is to another query")
        if answer.status != ANSWERED:
            self._refuse(step, "its owner says that it cannot")
        return query.layout.decode(answer.body)

    def digests(self, steps: range) -> dict[int, bytes]:
        """The log digests of `steps`, which end at the run's last step. The signed final state
        confirms them."""
        found: dict[int, bytes] = {}
        chain: bytes | None = None
        for step in steps:
            body = self._ask(step, Log(step))
            found[step] = log_digest(step, body.sections)
            if chain not in (None, body.chain):
                self._refuse(step, "it does not follow from the log before it")
            chain = extend_log_chain(body.chain, step, found[step])
        index, size = self._slots.index(LOG_CHAIN_SLOT), len(self._slots)
        proof = SlotProof(LOG_CHAIN_SLOT, chain_digest(chain or b""), index, size, body.after)
        if not proof.proves(self._run.final_state_root, LOG_CHAIN_SLOT, index, size):
            self._refuse(steps[0], "the logs are not those of the final state that was signed")
        return found

    def write(self, logs: LogDirectory, step: int, digest: bytes) -> None:
        """Write the log of `step`, whose digest is `digest`."""
        stated = self._ask(step, Log(step)).sections
        if len(stated) != len(self._sections) or log_digest(step, stated) != digest:
            self._refuse(step, "its sections are not the program's, or others than before")
        writer = logs.writer(step)
        try:
            for number, section in enumerate(self._sections):
                blocks = self._blocks(step, number, section, stated[number])
                if section.form == BOUNDED:
                    writer.bounded(number, self._bounded(step, section, blocks))
                else:
                    data = b"".join(blocks[k] for k in sorted(blocks))
                    if len(data) != section.packed_bytes:
                        self._refuse(step, f"section {number} has {len(data)} bytes")
                    writer.published(number, data)
            if writer.digest() != digest:
                self._refuse(step, "its blocks are cut otherwise than COMMITMENTS 10 says")
            writer.finish()
        except BaseException:
            writer.discard()
            raise
        logs.finished(writer)

    def _blocks(self, step: int, number: int, section: Section, digest: bytes) -> dict[int, bytes]:
        """The blocks of a section that are not empty, each checked against the section's digest.

        The function does not ask for a range whose hash says that all its blocks are empty.
        """
        found: dict[int, bytes] = {}
        todo: list[tuple[int, int, bytes | None]] = [(0, section.blocks, None)]
        if digest == section.digest(_empty(section.blocks)):
            todo = []
        while todo:
            first, count, known = todo.pop()
            parts: tuple[bytes, ...] = ()
            given: bytes | None
            if count == 1:
                found[first] = self._ask(step, LogBlock(step, number, first)).data
                given = merkle.leaf_hash(found[first])
            elif count:
                query = LogHashes(step, number, first, count)
                parts = self._ask(step, query).hashes
                given = merkle.combine_parts(count, DEPTH, parts)
            else:
                given = None
            if given is None or (known or digest) != (given if known else section.digest(given)):
                self._refuse(step, f"section {number} opens to something else")
            if parts:
                ranges = merkle.parts_of(first, count, DEPTH)
                todo += [(*r, h) for r, h in zip(ranges, parts, strict=True) if h != _empty(r[1])]
        return found

    def _bounded(self, step: int, section: Section, blocks: dict[int, bytes]) -> Blocks:
        counts = np.zeros(section.blocks, WORD)
        for block, data in blocks.items():
            if len(data) % WORD.itemsize:
                self._refuse(step, f"block {block} has {len(data)} bytes")
            counts[block] = len(data) // WORD.itemsize
        words = np.frombuffer(b"".join(blocks[k] for k in sorted(blocks)), WORD)
        return Blocks(counts, words)


@cache
def _empty(count: int) -> bytes:
    """The hash over `count` empty blocks."""
    return merkle.root([merkle.leaf_hash(b"")] * count)


def copy_run(
    party: Party, job: Job, directory: Path, on_step: Callable[[int], None] = lambda _: None
) -> RunCommitment:
    """Write to `directory` a run of `job` that has `party`'s logs, and return its commitment.

    A copy that was broken off goes on. The function calls `on_step` with each step whose log is
    there. Raises as `hand_over`, and CounterpartyError where the answers do not give the signed run
    root: the directory is then no finished run. That convicts no party.
    """
    run, _ = verify_run(Envelope.from_bytes(party.commitment, LIMITS.commitment_bytes))
    store = RunStore(directory)
    if store.exists and store.signed and store.commitment_bytes() != party.commitment:
        raise UsageError(f"{directory} holds another run.", "Name another directory.")
    store.create(job)
    steps = hand_over(party, job.terms, 0, store.logs_path, on_step)
    if store.signed:
        return run
    bits, roots = _proved(party, job, run, len(steps))
    _write_journal(store, job, run, bits, roots)
    write_file(store.commitment_path, [party.commitment])
    return run


def _proved(
    party: Party, job: Job, run: RunCommitment, steps: int
) -> tuple[list[int], dict[int, bytes]]:
    """The bits of each step's loss, and the checkpoints' roots (PROTOCOL 2.1, kind 3)."""
    slots = Facts(job.terms).slots
    index, size = slots.index(LOSS_CHAIN_SLOT), len(slots)
    due = set(checkpoint_steps(steps, job.interval))
    chain, bits, roots = CHAIN_START, [], {0: job.commitment.genesis_root}
    for step in range(steps):
        body = _asked(party, run, Loss(step))
        if body.chain != chain:
            _refuse(f"the loss of step {step} does not follow from those before it")
        chain = extend_loss_chain(chain, step, loss_of(body.bits))
        bits.append(body.bits)
        if step + 1 in due:
            leaf = slot_leaf(LOSS_CHAIN_SLOT, chain_digest(chain))
            tree = merkle.inclusion_root(leaf, index, size, body.proof)
            if tree is None:
                _refuse(f"the loss of step {step} is not proved")
            roots[step + 1] = state_root_of(size, tree)
    checkpoints = sorted(roots.items())
    if run_root(job.digest, checkpoints) != run.run_root:
        _refuse("the proved states do not give the signed run root")
    return bits, roots


def _asked(party: Party, run: RunCommitment, query: Loss) -> LossBody:
    encoded = encode_query(query)
    answer = open_answer(party.answer(encoded), run.signer)
    named = (answer.job_digest, answer.run_root, answer.query, answer.status)
    if named != (run.job_digest, run.run_root, encoded, ANSWERED):
        _refuse("an answer is to another query, or its owner says that it cannot")
    return query.layout.decode(answer.body)


def _refuse(why: str) -> NoReturn:
    raise CounterpartyError(f"The run was not handed over: {why}.", "Do not accept the run.")


def _write_journal(
    store: RunStore, job: Job, run: RunCommitment, bits: list[int], roots: dict[int, bytes]
) -> None:
    """The journal of the copied run; one that a broken-off copy left is replaced."""
    expected = LogShape(job).expected
    remove_file(store.journal_path)
    journal = Journal.open(store.journal_path, job.digest)
    try:
        journal.checkpoint(0, roots[0])
        for step, loss in enumerate(bits):
            with open_log(store.logs_path, step, expected) as log:
                journal.loss(step, loss, log.digest)
            if step + 1 in roots:
                journal.checkpoint(step + 1, roots[step + 1])
        reason = end_reason(job, len(bits), bits[-1])
        journal.end(len(bits), reason, run.run_root)
    finally:
        journal.close()
