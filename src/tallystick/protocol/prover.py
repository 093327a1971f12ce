"""A run answers for itself: signed answers to a referee's queries (PROTOCOL 2).

Theory of operation. A prover has the run's directory and its signer's key and nothing else: no
memory of the other party, of the referee, or of what it was asked before, except to save work.
Every answer is a fact about the job or the run, got by executing the disputed segment again, so
that equal queries have equal answers (PROTOCOL 1.3, 2.9). A run that was made by a declared cheat
is repeated with that cheat by the same code; only the cheat's `answer` hook can make it say
anything else than what the repetition gives.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np

from tallystick.commit import merkle
from tallystick.commit.checkpoint import run_root, run_tree
from tallystick.commit.data import record_bytes, record_leaf_hashes
from tallystick.commit.signing import PrivateKey, verify_run
from tallystick.commit.state import CHAIN_SLOTS, CHAIN_START, LOSS_CHAIN_SLOT, extend_loss_chain
from tallystick.commit.tensor import TensorHeader
from tallystick.errors import CannotCheckError, DigestMismatchError, UsageError
from tallystick.limits import LIMITS
from tallystick.numerics.environment import check_environment
from tallystick.program.executor import NodeError, StateLostError
from tallystick.protocol import queries as q
from tallystick.protocol.answers import (
    Body,
    BytesBody,
    HashesBody,
    LossBody,
    NodeBody,
    NodesBody,
    RecordBody,
    RootsBody,
    SlotBody,
    make_answer,
)
from tallystick.protocol.prover_log import Logs
from tallystick.protocol.prover_states import States
from tallystick.protocol.prover_step import Steps, operand_type
from tallystick.run.attacks import read_declaration
from tallystick.run.engine import loss_of
from tallystick.run.override import Override
from tallystick.run.signer import signing_key
from tallystick.run.store import RunStore


class Prover:
    """The party that the run at `run` is in a game.

    `key` is the signer's private key where the run does not keep it; `override` the hooks of a
    cheat that a program made itself, where the run declares none. Raises CannotCheckError for a
    run that is not finished, UsageError for a wrong key, CounterpartyError for damaged files.
    """

    def __init__(
        self,
        run: Path,
        key: PrivateKey | None = None,
        threads: int | None = None,
        override: Override | None = None,
    ) -> None:
        check_environment()
        store = RunStore(Path(run))
        self.job = store.job()
        envelope = store.envelope()
        if envelope is None:
            raise CannotCheckError(
                f"{store.directory} is not finished: it has no signed commitment.",
                "Run the same `tallystick train` command again to finish it.",
            )
        self.commitment = store.commitment_bytes()
        self.run = verify_run(envelope)[0]
        self._key = signing_key(store, self.run.signer, key)
        declared = read_declaration(store.override_path)
        if declared is not None:
            override = declared.make(self.job)
        if override is not None:
            override.begin(self.job)
        self._override = override
        self._journal = store.journal(self.job)
        self._check_journal(store)
        self._tree = run_tree(self._journal.checkpoints)
        self._states = States(store, self.job, self._journal, override, threads)
        self._steps = Steps(self._states)
        self._logs = Logs(self._states)
        self._records: merkle.Tree | None = None
        self._sound = False
        self._said: dict[bytes, bytes] = {}

    def _check_journal(self, store: RunStore) -> None:
        """An honest run whose journal was damaged since must not answer from it."""
        found = run_root(self.job.digest, self._journal.checkpoints)
        if self._override is None and found != self.run.run_root:
            raise DigestMismatchError(
                f"The journal of {store.directory} does not give the signed run root.",
                "Restore it; `tallystick fsck` lists what is damaged.",
            )

    @property
    def executed_steps(self) -> int:
        """Steps executed so far, looks into a step included."""
        return self._states.executed

    def close(self) -> None:
        """Remove the scratch states. The prover must not be used any more."""
        self._states.close()

    def __enter__(self) -> Prover:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- answering -----------------------------------------------------------------------------

    def answer(self, query: bytes) -> bytes:
        """The signed answer to an encoded query (PROTOCOL 2.5).

        Raises CorruptFileError for bytes that are no query, UsageError for a query that the job
        has no sense for: neither is answered. Raises CannotCheckError where this machine, and
        not the run, is at fault.
        """
        said = self._said.get(query)
        if said is None:
            asked = q.decode_query(query)
            self._check(asked)
            said = make_answer(
                self._key, self.job.digest, self.run.run_root, asked, self._body(asked)
            )
            self._said[query] = said
        return said

    def _body(self, query: q.Query) -> Body | None:
        """The body; None where the repeated execution breaks off (PROTOCOL 2.8)."""
        body: Body | None
        try:
            body = self._facts(query)
        except (NodeError, StateLostError):
            body = None
        if self._override is None:
            return body
        lied = self._override.answer(query, body)
        assert lied is None or isinstance(lied, Body)
        return lied

    def _facts(self, query: q.Query) -> Body:
        """What is true of the job and of this run."""
        if isinstance(query, q.Checkpoints):
            roots = tuple(self._journal.checkpoints[i][1] for i in query.indices)
            return RootsBody(roots, tuple(self._tree.multi(query.indices)))
        self._check_data()
        if isinstance(query, q.States):
            return RootsBody(tuple(self._states.root(step) for step in query.steps))
        if isinstance(query, q.Loss):
            return self._loss(query.step)
        if isinstance(query, q.Slot):
            return SlotBody(*self._states.slot(query.step, query.name))
        if isinstance(query, q.Record):
            return self._record(query.index)
        if isinstance(query, q.Values):
            at = self._steps.quantity(query.node, query.output, query.element, query.path)
            return BytesBody(self._steps.values(query.step, query.node, at, query.view))
        if isinstance(query, q.TensorHashes | q.Leaf):
            place = (query.step, query.node, query.side, query.operand)
            operand = self._steps.operand(*place)
            if isinstance(query, q.Leaf):
                return BytesBody(operand.leaf(query.leaf))
            return HashesBody(operand.parts(query.first, query.count))
        if isinstance(query, q.Opening):
            operand = self._steps.operand(query.step, query.node, q.INPUT, query.operand)
            return BytesBody(operand.opening(query.leaves))
        if isinstance(query, q.Log | q.LogHashes | q.LogBlock):
            return self._logs.body(query)
        found = self._steps.tree(query.step)
        if isinstance(query, q.Nodes):
            return NodesBody(found.tree.size, found.tree.root())
        if isinstance(query, q.NodeHashes):
            return HashesBody(tuple(found.tree.parts(query.first, query.count, q.DEPTH)))
        r = found.records[query.node]
        proof = tuple(found.tree.inclusion(query.node))
        return NodeBody(r.operator, r.attributes, r.inputs, r.outputs, proof)

    def _loss(self, step: int) -> LossBody:
        losses, chain = self._journal.losses, CHAIN_START
        for at, bits in enumerate(losses[:step]):
            chain = extend_loss_chain(chain, at, loss_of(bits))
        _, proof = self._states.slot(step + 1, LOSS_CHAIN_SLOT)
        return LossBody(chain, losses[step], proof)

    def _record(self, index: int) -> RecordBody:
        columns, schema = self.job.columns, self.job.schema
        if self._records is None:
            self._records = merkle.Tree(record_leaf_hashes(schema, columns))
        values = {name: np.asarray(column[index]) for name, column in columns.items()}
        return RecordBody(record_bytes(schema, values), tuple(self._records.inclusion(index)))

    def _check_data(self) -> None:
        """Hash the job's records once: an execution on damaged ones would convict us."""
        if not self._sound and self.job.schema.fields:
            self.job.verify_data()
        self._sound = True

    # -- whether a query makes sense -------------------------------------------------------------

    def _check(self, query: q.Query) -> None:
        """Raise UsageError for a query that no referee of this job and run asks."""
        end, nodes = self.run.final_step, len(self.job.program.nodes)
        if isinstance(query, q.Checkpoints):
            _ascending(query.indices, self._tree.size, "checkpoint")
        elif isinstance(query, q.States):
            _ascending(query.steps, end + 1, "state")
        elif isinstance(query, q.Record):
            _below(query.index, self.job.commitment.record_count, "record")
        elif isinstance(query, q.Slot):
            _below(query.step, end + 1, "state")
            if query.name not in self.job.program.state_types and query.name not in CHAIN_SLOTS:
                raise UsageError(f"The state has no slot {query.name[:80]!r}.", "Ask the program.")
        else:
            _below(query.step, min(end, len(self._journal.losses)), "step")
        if isinstance(query, q.NodeHashes):
            _subtree(nodes, query.first, query.count)
        elif isinstance(query, q.NodeRecord | q.TensorHashes | q.Leaf | q.Values | q.Opening):
            _below(query.node, nodes, "node")
        if isinstance(query, q.TensorHashes | q.Leaf | q.Opening):
            self._check_leaves(query)
        if isinstance(query, q.Log | q.LogHashes | q.LogBlock):
            section = self._logs.check(query)
            if section is not None and isinstance(query, q.LogHashes):
                _subtree(section.blocks, query.first, query.count)

    def _check_leaves(self, query: q.TensorHashes | q.Leaf | q.Opening) -> None:
        side = q.INPUT if isinstance(query, q.Opening) else query.side
        type_ = operand_type(self.job.program, query.node, side, query.operand)
        leaves = TensorHeader(type_.dtype, type_.shape).leaves
        if isinstance(query, q.Leaf):
            _below(query.leaf, leaves, "leaf")
        elif isinstance(query, q.TensorHashes):
            _subtree(leaves, query.first, query.count)
        else:
            _ascending(query.leaves, leaves, "leaf")
            if len(query.leaves) > LIMITS.opening_leaves:
                raise UsageError(f"{len(query.leaves)} leaves are too many.", "Ask for fewer.")


def _below(number: int, count: int, what: str) -> None:
    if number >= count:
        raise UsageError(f"There is no {what} {number} of {count}.", "Ask for one that exists.")


def _ascending(numbers: tuple[int, ...], count: int, what: str) -> None:
    if not numbers or any(a >= b for a, b in pairwise(numbers)):
        raise UsageError(f"Numbers of a query for {what}s must ascend.", "Sort them.")
    _below(numbers[-1], count, what)


def _subtree(size: int, first: int, count: int) -> None:
    """Raise UsageError unless the range is one that a tree of `size` is split into (2.4)."""
    start, length = 0, size
    while (start, length) != (first, count):
        if length <= 1 or not start <= first < start + length or count >= length:
            raise UsageError(f"No {count} leaves at {first} are a part of {size}.", "Descend.")
        half = 1 << ((length - 1).bit_length() - 1)
        start, length = (start, half) if first < start + half else (start + half, length - half)
