"""A copy of another party's run that an auditor can follow (PROTOCOL 6.15, 6.15.2).

The copy has the job, the run's signed commitment, its logs, and a journal made from proved answers.
It has no state: `train --replay` needs none. Every root in the journal follows from a proof, and
together they give the signed run root.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from tallystick.commit import merkle
from tallystick.commit.checkpoint import checkpoint_steps, run_root
from tallystick.commit.signing import Envelope, RunCommitment, verify_run
from tallystick.commit.state import (
    CHAIN_START,
    LOSS_CHAIN_SLOT,
    chain_digest,
    extend_loss_chain,
    loss_of,
    slot_leaf,
    state_root_of,
)
from tallystick.disk.files import remove_file, write_file
from tallystick.errors import CounterpartyError, UsageError
from tallystick.job.job import Job
from tallystick.limits import LIMITS
from tallystick.protocol.bodies import LossBody
from tallystick.protocol.facts import Facts
from tallystick.protocol.messages import ANSWERED, open_answer
from tallystick.protocol.queries import Loss, encode_query
from tallystick.prover.handover import hand_over
from tallystick.prover.local import Party
from tallystick.run.logs.reader import LogShape, open_log
from tallystick.run.store.directory import RunStore
from tallystick.run.store.journal import Journal, end_reason


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
