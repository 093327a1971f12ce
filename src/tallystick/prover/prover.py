"""The prover: it signs a run's answers to a referee's queries (PROTOCOL 2).

Theory of operation. A prover has the run's directory and its signer's key and nothing else. It
remembers nothing of the other party or of the referee. It keeps earlier answers, within bounds and
only to save work. Every answer is a fact about the job or the run. The prover gets it by executing
the disputed segment again, so that equal queries have equal answers (PROTOCOL 1.3, 2.9). It takes
from the directory only what the signed commitment covers. Any other file is a hint, which the
prover checks, or does not belong there. Where this machine fails, or an object store that has the
run, there is no answer yet, and the prover signs nothing (PROTOCOL 2.8). The prover of a declared
cheat (`prover.cheating`) replaces the small methods of this one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tallystick.closing import Closing
from tallystick.commit.checkpoint import run_tree
from tallystick.commit.records import PartProof, prove_part
from tallystick.commit.signing import PrivateKey, RunCommitment, verify_run
from tallystick.commit.state import CHAIN_START, LOSS_CHAIN_SLOT, extend_loss_chain, loss_of
from tallystick.commit.streamed import RecordTree
from tallystick.devices.context import DEFAULT, ExecutionContext, in_its_context
from tallystick.devices.cpu import CPU
from tallystick.devices.environment import check_environment
from tallystick.errors import (
    CannotCheckError,
    DigestMismatchError,
    MachineFaultError,
    TallystickError,
)
from tallystick.program.runner import NodeError
from tallystick.protocol import queries as q
from tallystick.protocol.bodies import (
    BlockBody,
    BlocksBody,
    Body,
    BytesBody,
    HashesBody,
    LogBody,
    LossBody,
    NodeBody,
    NodesBody,
    PartBody,
    RecordBody,
    RootsBody,
    SlotBody,
)
from tallystick.protocol.facts import Facts
from tallystick.protocol.messages import Query, make_answer
from tallystick.prover.answers import FROM_FILES, TO_GAMES, TO_STRANGERS, Answers
from tallystick.prover.covered import Logs, Notice, make_good, usable_journal
from tallystick.prover.states import RunStates
from tallystick.prover.steps import Steps
from tallystick.run.store.claim import signing_key
from tallystick.run.store.directory import RunStore
from tallystick.run.store.journal import JournalContent

# Errors of this program. A person should see them as they are. The prover signs nothing then.
_OUR_FAULTS = (AssertionError, AttributeError, LookupError, NameError, TypeError)


class Prover(Closing):
    """The party to a game that answers for the run at `run`.

    `key` is the signer's private key where the run does not keep it. The prover calls `notice`
    with a sentence for each file that it does not use.

    Raises CannotCheckError for a run that is not finished, UsageError for a wrong key, StoreError
    where the store of the run is away, CounterpartyError for files whose damage no execution makes
    good.
    """

    def __init__(
        self,
        run: Path,
        key: PrivateKey | None = None,
        context: ExecutionContext = DEFAULT,
        notice: Notice = lambda _: None,
    ) -> None:
        self.context = context
        self._open(RunStore(Path(run)), key, notice)

    @in_its_context
    def _open(self, store: RunStore, key: PrivateKey | None, notice: Notice) -> None:
        check_environment()
        self.job = store.job()
        envelope = store.envelope()
        if envelope is None:
            raise CannotCheckError(
                f"{store.directory} is not finished: it has no signed commitment.",
                "Run the same `tallystick train` command again to finish it.",
            )
        self.commitment = store.commitment_bytes()
        self.run = verify_run(envelope)[0]
        if self.run.job_digest != self.job.digest:
            raise DigestMismatchError(
                f"The commitment in {store.directory} is of another job.", "Restore the run."
            )
        self._facts = Facts(self.job.terms)
        self._key = signing_key(store, self.run.signer, key)
        self._journal = self._usable_journal(store, notice)
        self._states = self._run_states(store, notice)
        try:
            self._make_good(self.run, notice)
            self._tree = run_tree(self._journal.checkpoints)
        except BaseException:
            self._states.close()
            raise
        self._records: dict[int, RecordTree] = {}
        self._sound = False
        self._answers = Answers()
        self._begin()

    # -- methods that a declared cheat replaces, and `_body` below (prover.cheating) --------------

    def _usable_journal(self, store: RunStore, notice: Notice) -> JournalContent:
        return usable_journal(store, self.job, self.run, notice)

    def _run_states(self, store: RunStore, notice: Notice) -> RunStates:
        return RunStates(store, self.job, self._journal, self.context, notice)

    def _make_good(self, run: RunCommitment, notice: Notice) -> None:
        """Execute the run again where its journal does not serve."""
        make_good(self._states, run, notice)

    def _begin(self) -> None:
        """Begin with no step looked into."""
        self._steps = Steps(self._states, self._facts)
        self._logs = Logs(self._states)

    @property
    def executed_steps(self) -> int:
        """The number of steps executed so far, looks into a step included."""
        return self._states.executed

    def close(self) -> None:
        """Remove the scratch states. The caller must not use the prover afterwards."""
        self._states.close()

    # -- answering -----------------------------------------------------------------------------

    @in_its_context
    def answer(self, query: bytes, stranger: bool = False) -> bytes:
        """The signed answer to an encoded query (PROTOCOL 2.5). Where no game but a `stranger` asks
        (6.15), it pushes out no kept answer to a game.

        Raises CorruptFileError for bytes that are no query, UsageError for a query that makes no
        sense for the job: the prover answers neither. Raises CannotCheckError (MachineFaultError or
        StoreError where a later attempt may succeed) where this machine or a store, and not the
        run, is at fault: the prover then signs nothing.
        """
        said = self._answers.get(query)
        if said is None:
            asked = q.decode_query(query)
            asked.check(self._facts, self.run)
            try:
                said = self._answer(asked)
            except (TallystickError, *_OUR_FAULTS):
                self._forget()
                raise
            except Exception as error:
                self._forget()
                raise MachineFaultError(
                    f"The run could not be executed here: {str(error) or type(error).__name__}.",
                    "Nothing was signed. Free memory, threads or disk space, then try again.",
                ) from error
            share = TO_STRANGERS if stranger else TO_GAMES
            if isinstance(asked, (q.LogHashes, q.LogBlock)):
                share = FROM_FILES
            self._answers.keep(query, said, share)
        return said

    def kept(self, query: bytes) -> bytes | None:
        """The answer to `query` that this prover has made and still keeps; None if there is none.
        It may be called beside `answer`, in any thread."""
        return self._answers.get(query)

    def _forget(self) -> None:
        """Free the memory of a broken-off execution: a new attempt may need the room."""
        self._states.forget()
        self._begin()

    def _answer(self, asked: Query[Any]) -> bytes:
        body = self._body(asked)
        return make_answer(self._key, self.job.digest, self.run.run_root, asked, body)

    def _body(self, query: Query[Any]) -> Body | None:
        """The body of the answer. None, which the prover signs as *unable*, where a kernel refuses
        the values of its operands: no honest run has a step that cannot be executed (PROTOCOL
        2.8)."""
        try:
            return self._true(query)
        except NodeError as error:
            self._confirm_unable(query, error)
            return None

    def _confirm_unable(self, query: Query[Any], first: NodeError) -> None:
        """Answer the query once more, by executing anew from states and records hashed anew.

        A step that cannot be executed stops twice at one node; a fault of this machine does not.
        The processor executes it, since a fault of another device's driver or compiler would stop
        it twice. Raises MachineFaultError.
        """
        context = self._states.context
        if context.device is not CPU:
            self._states.context = ExecutionContext(context.threads)
        self._states.distrust()
        self._begin()
        self._sound = False
        try:
            with self._states.context.entered():
                self._true(query)
        except NodeError as again:
            if again.node == first.node:
                return
        finally:
            if context is not self._states.context:
                self._states.context = context
                self._forget()
        raise MachineFaultError(
            f"A step could not be executed, and a second execution on this machine did not stop "
            f"at the same node ({first.node}).",
            "Nothing was signed. Try again, or on another machine.",
        )

    def _check_data(self) -> None:
        """Hash the job's records once: an execution on damaged records would convict the prover."""
        if not self._sound:
            self.job.verify_data()
        self._sound = True

    def _true(self, query: Query[Any]) -> Body:
        """The body that is true of the job and of this run."""
        if type(query) is not q.Checkpoints:  # the commitment alone gives the checkpoints
            self._check_data()
        return ANSWER_METHODS[type(query)](self, query)

    # -- the run -------------------------------------------------------------------------------

    def _checkpoints(self, query: q.Checkpoints) -> RootsBody:
        roots = tuple(self._journal.checkpoints[i][1] for i in query.indices)
        return RootsBody(roots, tuple(self._tree.multi(query.indices)))

    def _state_roots(self, query: q.States) -> RootsBody:
        return RootsBody(tuple(self._states.root(step) for step in query.steps))

    def _slot(self, query: q.Slot) -> SlotBody:
        return SlotBody(*self._states.slot(query.step, query.name))

    def _loss(self, query: q.Loss) -> LossBody:
        step = query.step
        _, proof = self._states.slot(step + 1, LOSS_CHAIN_SLOT)
        after = self._states.at(step + 1).state.loss_chain
        losses, chain = self._journal.losses[: step + 1], CHAIN_START
        for at, bits in enumerate(losses[:step]):
            chain = extend_loss_chain(chain, at, loss_of(bits))
        # The journal is a hint: the chain in the state says whether it is right.
        if len(losses) > step and extend_loss_chain(chain, step, loss_of(losses[step])) == after:
            return LossBody(chain, losses[step], proof)
        chain = self._states.at(step).state.loss_chain
        bits = self._states.repeat(step)
        if extend_loss_chain(chain, step, loss_of(bits)) != after:
            raise MachineFaultError(
                f"Two executions of step {step} on this machine gave two losses.",
                "Nothing was signed. Try again, or on another machine.",
            )
        return LossBody(chain, bits, proof)

    def _record(self, query: q.Record) -> RecordBody:
        proof = self._part(0, query.index, 0)
        return RecordBody(proof.data, proof.path)

    def _record_part(self, query: q.RecordPart) -> PartBody:
        proof = self._part(query.data, query.index, query.part)
        return PartBody(proof.data, proof.inner, proof.path)

    def _part(self, data: int, index: int, part: int) -> PartProof:
        """A part of a record, proved; the tree of its data set is kept."""
        columns, schema = self.job.columns_of[data], self.job.schemas[data]
        if data not in self._records:
            self._records[data] = self.job.record_tree(data)
        values = {name: np.asarray(column[index]) for name, column in columns.items()}
        return prove_part(schema, values, self._records[data], index, part)

    # -- a step ----------------------------------------------------------------------------------

    def _nodes(self, query: q.Nodes) -> NodesBody:
        tree = self._steps.tree(query.step).tree
        return NodesBody(tree.size, tree.root())

    def _node_hashes(self, query: q.NodeHashes) -> HashesBody:
        tree = self._steps.tree(query.step).tree
        return HashesBody(tuple(tree.parts(query.first, query.count, q.DEPTH)))

    def _node_record(self, query: q.NodeRecord) -> NodeBody:
        found = self._steps.tree(query.step)
        r = found.records[query.node]
        proof = tuple(found.tree.inclusion(query.node))
        return NodeBody(r.operator, r.attributes, r.inputs, r.outputs, proof)

    def _tensor_hashes(self, query: q.TensorHashes) -> HashesBody:
        operand = self._steps.operand(query.step, query.node, query.side, query.operand)
        return HashesBody(operand.parts(query.first, query.count))

    def _leaf(self, query: q.Leaf) -> BytesBody:
        operand = self._steps.operand(query.step, query.node, query.side, query.operand)
        return BytesBody(operand.leaf(query.leaf))

    def _opening(self, query: q.Opening) -> BytesBody:
        operand = self._steps.operand(query.step, query.node, q.INPUT, query.operand)
        return BytesBody(operand.opening(query.leaves))

    def _values(self, query: q.Values) -> BytesBody:
        at = self._steps.quantity(query.step, query.node, query.output, query.element, query.path)
        return BytesBody(self._steps.values(query.step, query.node, at, query.view))

    def _log(self, query: q.Log) -> LogBody:
        return self._logs.log(query)

    def _log_hashes(self, query: q.LogHashes) -> BlocksBody:
        return self._logs.hashes(query)

    def _log_block(self, query: q.LogBlock) -> BlockBody:
        return self._logs.block(query)


# The method that answers each kind of query (PROTOCOL 2.1).
ANSWER_METHODS: dict[type[Query[Any]], Callable[[Prover, Any], Body]] = {
    q.Checkpoints: Prover._checkpoints,
    q.States: Prover._state_roots,
    q.Loss: Prover._loss,
    q.Nodes: Prover._nodes,
    q.NodeHashes: Prover._node_hashes,
    q.NodeRecord: Prover._node_record,
    q.Slot: Prover._slot,
    q.TensorHashes: Prover._tensor_hashes,
    q.Leaf: Prover._leaf,
    q.Values: Prover._values,
    q.Opening: Prover._opening,
    q.Record: Prover._record,
    q.RecordPart: Prover._record_part,
    q.Log: Prover._log,
    q.LogHashes: Prover._log_hashes,
    q.LogBlock: Prover._log_block,
}
