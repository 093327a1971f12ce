"""A party in memory: executes a small job whole, keeps everything, answers from that.

It lies through the hooks of `Override`, and through `tamper`, which changes node records before
their tree is built.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from tallystick.commit import merkle
from tallystick.commit import records as r
from tallystick.commit.checkpoint import checkpoint_steps, run_root, run_tree
from tallystick.commit.data import batch_columns
from tallystick.commit.job import STOP_SLOT
from tallystick.commit.signing import PrivateKey, RunCommitment, sign_run
from tallystick.commit.state import (
    CHAIN_START,
    COMMIT_OPERATOR,
    LOSS_CHAIN_SLOT,
    commit_attributes,
    extend_loss_chain,
    loss_bits,
    node_digest,
    node_tree,
    prove_slot,
    state_root,
)
from tallystick.commit.tensor import LEAF_BYTES, Array, leaf_hashes, open_tensor, tensor_digest
from tallystick.job.job import Job
from tallystick.opening import quantity
from tallystick.opening.values import WholeSource
from tallystick.opening.views import locate, view_values
from tallystick.program.executor import Executor
from tallystick.program.expand import Expanded, split_batch
from tallystick.program.ir import COMMIT, Node
from tallystick.program.text import attribute_text
from tallystick.protocol import queries as q
from tallystick.protocol.bodies import (
    Body,
    BytesBody,
    HashesBody,
    LossBody,
    NodeBody,
    NodesBody,
    PartBody,
    RecordBody,
    RootsBody,
    SlotBody,
)
from tallystick.protocol.messages import make_answer
from tallystick.protocol.referee import Referee
from tallystick.protocol.verdict import Verdict
from tallystick.run.cheats.override import Override

Tamper = Callable[[int, int, NodeBody], NodeBody]
State = dict[str, bytes]


class Party:
    """A run of `job` with `override`'s and `tamper`'s lies; `statement` edits the commitment."""

    def __init__(
        self,
        job: Job,
        override: Override | None = None,
        tamper: Tamper | None = None,
        statement: dict[str, object] | None = None,
    ) -> None:
        self.job, self.lie = job, override or Override()
        self.key = PrivateKey(bytes([7 + (override is not None)]) * 32)
        self.tamper = tamper or (lambda _step, _node, body: body)
        self.states: list[State] = []
        self.chains = [CHAIN_START]
        self.bits: list[int] = []
        self.inputs: list[list[Sequence[Array | None]]] = []
        self.outputs: list[list[Sequence[Array]]] = []
        # Of nodes that were asked about, the digests of operands and outputs: a run stays as it is.
        self._known: dict[tuple[int, int], tuple[tuple[bytes, ...], tuple[bytes, ...]]] = {}
        self._execute()
        roots = [self.lie.root(s, state_root(d)) for s, d in enumerate(self.states)]
        self.roots = roots
        steps = checkpoint_steps(len(roots) - 1, job.interval)
        self.checkpoints = [(s, roots[s]) for s in steps]
        run = RunCommitment(
            job.digest,
            run_root(job.digest, self.checkpoints),
            steps[-1],
            roots[-1],
            len(steps),
            self.key.public,
        )
        self.run = replace(run, **(statement or {}))  # type: ignore[arg-type]
        self.commitment = sign_run(self.key, self.run).to_bytes()

    def _execute(self) -> None:
        job, lie = self.job, self.lie
        c = job.commitment
        state = job.genesis()
        lie.genesis(state)
        executors = [Executor(program) for program in job.terms.programs]
        self.states.append(state.digests())
        for step in range(lie.final_step(job)):
            lie.before(step, state)
            occasion = c.timetable.at(step)
            executor = executors[occasion.program]
            batch = self._batch(lie.data_step(step))
            lie.batch(step, batch)
            if isinstance(executor.program, Expanded):
                batch = split_batch(batch, executor.program.micro_batches)
            names = executor.program.scalar_names
            scalars = {name: job.terms.scalar(name, step) for name in names}
            lie.scalars(step, scalars)
            key = lie.random_key(step, c.random_key(step))
            self.inputs.append([])
            self.outputs.append([])

            def tap(
                index: int,
                node: Node,
                inputs: Sequence[Array | None],
                outputs: Sequence[Array],
                step: int = step,
            ) -> None:
                # First, since an output may be a view of an input: the lie is about the output.
                self.inputs[step].append([None if a is None else a.copy() for a in inputs])
                self.logged(step, index, node, inputs, outputs)
                lie.node(step, index, node, outputs)
                self.outputs[step].append([a.copy() for a in outputs])

            result = executor.run_step(state.slots, batch, scalars, key, tap)
            bits = lie.loss(step, loss_bits(result.loss))
            loss = np.uint32(bits).view(np.float32)
            self.bits.append(bits)
            self.inputs[step][-1] = [
                *self.inputs[step][-1],
                np.array(result.loss, np.float32),
                *(np.frombuffer(x, np.uint8) for x in (state.loss_chain, state.log_chain)),
            ]
            state.loss_chain = extend_loss_chain(state.loss_chain, step, loss)
            state.log_chain = self.log_chain(step, state.log_chain)
            self.chains.append(state.loss_chain)
            made = state.digests()
            lie.after(step, state)
            self.states.append(state.digests())
            self.outputs[step][-1] = [made]  # digests of the state the nodes make
            stops = c.stop_on_non_finite and not np.isfinite(loss)
            stops = stops or (c.stop_on_slot and bool(state.slots[STOP_SLOT]))
            if stops and lie.final_step(job) == job.steps:
                break

    def _batch(self, step: int) -> dict[str, Array]:
        timetable = self.job.commitment.timetable
        occasion = timetable.at(step)
        data = timetable.programs[occasion.program].data
        if data is None:
            return {}
        return batch_columns(self.job.columns_of[data], timetable.indices(occasion))

    def logged(
        self,
        step: int,
        index: int,
        node: Node,
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> None:
        """What a log makes of a node's outputs; nothing without one (log_simulator.py)."""

    def log_chain(self, step: int, chain: bytes) -> bytes:
        """The log chain after `step`."""
        return chain

    def log_facts(self, query: q.Log | q.LogHashes | q.LogBlock) -> Body:
        """What an honest party answers about its log."""
        raise LookupError("the contract keeps no log")

    def _digests(self, step: int, index: int) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
        if (step, index) not in self._known:
            inputs = [a for a in self.inputs[step][index] if a is not None]
            # The last node's output is the digests of a state, by slot.
            outputs = [a for a in self.outputs[step][index] if not isinstance(a, dict)]
            self._known[step, index] = (
                tuple(map(tensor_digest, inputs)),
                tuple(map(tensor_digest, outputs)),
            )
        return self._known[step, index]

    def _record(self, step: int, index: int) -> NodeBody:
        node = self.job.terms.program_at(step).nodes[index]
        inputs, outputs = self._digests(step, index)
        if node.op == COMMIT:
            made = self.outputs[step][index][0]
            assert isinstance(made, dict)
            chains = (made[LOSS_CHAIN_SLOT], made["chain.log"])
            outputs, attributes = (
                (*chains, state_root(made)),
                commit_attributes(list(self.job.program.state_types)),
            )
            return self.tamper(
                step, index, NodeBody(COMMIT_OPERATOR, attributes, inputs, outputs, ())
            )
        attributes = attribute_text(node.attrs).encode("ascii")
        return self.tamper(step, index, NodeBody(node.op, attributes, inputs, outputs, ()))

    def _tree(self, step: int) -> tuple[list[NodeBody], merkle.Tree]:
        nodes = len(self.job.terms.program_at(step).nodes)
        records = [self._record(step, i) for i in range(nodes)]
        timetable = self.job.commitment.timetable
        program = timetable.programs[timetable.at(step).program].digest
        return records, node_tree(
            [
                node_digest(program, step, i, r.operator, r.attributes, r.inputs, r.outputs)
                for i, r in enumerate(records)
            ]
        )

    def _tensor(self, query: q.TensorHashes | q.Leaf) -> Array:
        kept = self.outputs if query.side == q.OUTPUT else self.inputs
        array = kept[query.step][query.node][query.operand]
        assert array is not None
        return array

    def facts(self, query: q.Query) -> Body:
        """What an honest party answers."""
        if isinstance(query, q.Checkpoints):
            roots = tuple(self.checkpoints[i][1] for i in query.indices)
            return RootsBody(roots, tuple(run_tree(self.checkpoints).multi(query.indices)))
        if isinstance(query, q.States):
            return RootsBody(tuple(self.roots[s] for s in query.steps))
        if isinstance(query, q.Loss):
            proof = prove_slot(self.states[query.step + 1], LOSS_CHAIN_SLOT).path
            return LossBody(self.chains[query.step], self.bits[query.step], proof)
        if isinstance(query, q.Slot):
            proof = prove_slot(self.states[query.step], query.name)
            return SlotBody(proof.digest, proof.path)
        if isinstance(query, q.Record):
            proof = self._part(0, query.index, 0)
            return RecordBody(proof.data, proof.path)
        if isinstance(query, q.RecordPart):
            proof = self._part(query.data, query.index, query.part)
            return PartBody(proof.data, proof.inner, proof.path)
        if isinstance(query, q.TensorHashes):
            tree = merkle.Tree(leaf_hashes(self._tensor(query)))
            return HashesBody(tuple(tree.parts(query.first, query.count, q.DEPTH)))
        if isinstance(query, q.Leaf):
            data = self._tensor(query).tobytes()
            return BytesBody(data[query.leaf * LEAF_BYTES : (query.leaf + 1) * LEAF_BYTES])
        if isinstance(query, q.Opening):
            array = self.inputs[query.step][query.node][query.operand]
            assert array is not None
            per = LEAF_BYTES // array.itemsize
            ranges = [(n * per, min(array.size, (n + 1) * per)) for n in query.leaves]
            return BytesBody(open_tensor(array, ranges).to_bytes())
        if isinstance(query, q.Values):
            return self._values(query)
        if isinstance(query, q.Log | q.LogHashes | q.LogBlock):
            return self.log_facts(query)
        records, tree = self._tree(query.step)
        if isinstance(query, q.Nodes):
            return NodesBody(tree.size, tree.root())
        if isinstance(query, q.NodeHashes):
            return HashesBody(tuple(tree.parts(query.first, query.count, q.DEPTH)))
        return replace(records[query.node], proof=tuple(tree.inclusion(query.node)))

    def _part(self, data: int, index: int, part: int) -> r.PartProof:
        columns, schema = self.job.columns_of[data], self.job.schemas[data]
        values = {n: np.asarray(a[index]) for n, a in columns.items()}
        tree = merkle.Tree(r.leaf_hashes(schema, columns))
        return r.prove_part(schema, values, tree, index, part)

    def _values(self, query: q.Values) -> Body:
        program = self.job.terms.program_at(query.step)
        node = program.nodes[query.node]
        types = tuple(None if v is None else program.type_of(v) for v in node.inputs)
        site = quantity.Site(
            node.op,
            node.attrs,
            types,
            node.out_types,
            query.output,
            query.element,
            self.job.commitment.contract,
        )
        source = WholeSource(self.inputs[query.step][query.node])
        at = locate(quantity.opening_rule(site), query.path)
        values = view_values(at, query.view, source)
        return BytesBody(b"".join(np.asarray(v).tobytes() for v in values))

    def body(self, query: q.Query) -> Body | None:
        """The answer's body after this party's lies; None is unable."""
        try:
            facts: Body | None = self.facts(query)
        except (IndexError, LookupError):
            facts = None
        return self.lie.answer(query, facts)  # type: ignore[return-value]

    def answer(self, query: bytes) -> bytes:
        """The signed answer."""
        asked = q.decode_query(query)
        return make_answer(self.key, self.job.digest, self.run.run_root, asked, self.body(asked))


def play(referee: Referee, parties: Sequence[Party], order: Sequence[int] = (0, 1)) -> None:
    """Hand answers to the referee until there is a verdict."""
    while referee.verdict is None:
        waiting = referee.pending
        assert waiting  # a referee without a verdict asks somebody
        for party in order:
            if party in waiting and referee.verdict is None:
                referee.receive(party, parties[party].answer(waiting[party]))


def judged(job: Job, parties: tuple[Party, Party], arity: int = 20) -> Verdict:
    """The verdict of a game, which a replay of its transcript must give again."""
    commitments = (parties[0].commitment, parties[1].commitment)
    referee = Referee(job.terms, commitments, arity)
    play(referee, parties)
    again = Referee(job.terms, commitments, arity)
    for party, message in referee.transcript:
        again.receive(party, message)
    backwards = Referee(job.terms, commitments, arity)
    play(backwards, parties, order=(1, 0))
    assert referee.verdict is not None
    assert again.verdict == referee.verdict == backwards.verdict
    assert referee.pending == {} and referee.verdict.story == tuple(referee.events)
    return referee.verdict
