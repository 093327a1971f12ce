"""The workers of a run, as each of them knows the others.

Worker 0 holds the run: directory, journal, key. It gives an order, and every worker does its part
of it. Between two orders a worker waits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from tallystick.commit.encoding import HASH_BYTES
from tallystick.commit.state import LOG_CHAIN_SLOT, LOSS_CHAIN_SLOT, chain_digest
from tallystick.commit.tensor import Array
from tallystick.devices.context import ExecutionContext
from tallystick.errors import TallystickError, UsageError
from tallystick.job.job import Job
from tallystick.numerics.contracts import parse_contract
from tallystick.numerics.types import DTYPES, TensorType
from tallystick.program.owners import Owners, read_slots
from tallystick.program.state import State
from tallystick.run.distributed.checks import ShareChecks
from tallystick.run.distributed.messages import Consent, as_bytes
from tallystick.run.distributed.slots import Read, SlotMoves
from tallystick.run.distributed.transport import (
    RESUME,
    PeerLostError,
    Pending,
    Transport,
    WorkerError,
)


class Order(IntEnum):
    """What worker 0 tells the others to do; the argument is in brackets."""

    END = 0
    LOAD = 1  # a state (its step)
    STEP = 2  # the next step (its number)
    DIGESTS = 3  # digests of the slots that one owns
    FETCH = 4  # a slot, for worker 0 (its number in the program)
    DISPUTE = 5  # answer about the share that two workers have signed differently


def _check_whole(job: Job) -> None:
    """Raise UsageError for a stream of which some batches have micro-batches, and others none."""
    pairs = list(zip(job.commitment.timetable.programs, job.texts, strict=True))
    in_parts = {entry.stream for entry, text in pairs if text.section}
    for entry, text in pairs:
        if not text.section and entry.stream in in_parts:
            raise UsageError(
                f"The program {entry.name} computes its batch of {entry.batch_size} as a whole, "
                "so several workers cannot share it.",
                "Use one worker, or drop the last batch of an epoch (drop_last=True), or choose a "
                "batch size that divides the number of records.",
            )


def owners_of(job: Job, workers: int, cuts: bool = True) -> Owners:
    """Who owns what of the job's state; with `cuts`, ranges of large slots too. Raises UsageError,
    which says what to do, where this number of workers cannot execute the job."""
    contract = job.commitment.contract
    if parse_contract(contract).keeps_log:
        raise UsageError(
            f"Several workers cannot write the rounding logs of {contract}.",
            "Train with one worker, or make the job under ordered/1 or rounded/1.",
        )
    programs = job.commitment.timetable.programs
    parts = [p.micro_batches for p, text in zip(programs, job.texts, strict=True) if text.section]
    _check_whole(job)
    least = min(parts, default=1)
    if least < workers:
        what = "as a whole" if least == 1 else f"in {least} micro-batches"
        raise UsageError(
            f"The job computes each batch {what}, so {workers} workers cannot share it.",
            f"Make the job with --micro-batches {workers} or more (`tallystick job new`), or use "
            f"{'one worker' if least == 1 else f'at most {least} workers'}.",
        )
    evaluated: set[str] = set()
    if job.eval_program is not None:
        evaluated = read_slots(job.eval_program, range(len(job.eval_program.nodes)))
    return Owners(job.texts, workers, frozenset(evaluated), cuts)


@dataclass
class Team:
    """This worker's place among the workers of `job`, connected by `transport`."""

    job: Job
    transport: Transport
    context: ExecutionContext
    checks: ShareChecks | None = None
    owners: Owners = field(init=False)
    moves: SlotMoves = field(init=False)
    consent: Consent = field(init=False)
    idle: bool = True  # all other workers wait for an order
    _orders: list[Pending] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.consent = Consent(self.transport)
        self.owners = owners_of(self.job, self.transport.size, cuts=self.checks is None)
        self.moves = SlotMoves(self.owners, self.transport, self.context.device)

    @property
    def rank(self) -> int:
        return self.transport.rank

    @property
    def types(self) -> Mapping[str, TensorType]:
        return self.owners.types

    # -- orders ------------------------------------------------------------------------------------

    def give(self, order: Order, argument: int = 0) -> None:
        """Give an order; worker 0 does its own part after that."""
        if self.rank:
            return
        if not self.idle:
            raise WorkerError("The workers are in the middle of a step.", "Train again.")
        data = as_bytes(np.array([order, argument], np.int64))
        under_way = [self.transport.send(data, rank) for rank in range(1, self.transport.size)]
        # Worker 0 begins while the others still hear of it; after the last order it hangs up.
        for one in [*self._orders, *(under_way if order == Order.END else ())]:
            one.wait()
        self._orders = under_way
        self.idle = order == Order.END

    def next_order(self) -> tuple[Order, int]:
        """Wait for the next order of worker 0. Raises WorkerError for what is none."""
        data = np.empty(16, np.uint8)
        self.transport.receive(data, 0).wait()
        order, argument = data.view(np.int64)
        if order not in list(Order):
            raise WorkerError("An order of worker 0 arrived altered.", RESUME)
        return Order(int(order)), int(argument)

    # -- the state ---------------------------------------------------------------------------------

    def load(
        self,
        step: int,
        read: Read | None = None,
        chains: tuple[bytes, bytes] | None = None,
    ) -> TeamState:
        """Distribute state[step]. Worker 0 gives `read`, which is asked for all slots in the
        program's order, piece by piece, and the two chains. The others give nothing.

        Raises what `read` raises, CounterpartyError for a value that is not canonical.
        """
        self.give(Order.LOAD, step)
        both = b"".join(chains) if chains is not None else bytes(2 * HASH_BYTES)
        chain = np.frombuffer(both, np.uint8).copy()
        self.transport.broadcast(chain, 0)
        losses, logs = chain[:HASH_BYTES].tobytes(), chain[HASH_BYTES:].tobytes()
        state = TeamState({}, losses, logs, self.context.device, team=self)
        consent = self.consent
        consent.begin()
        with self.all_alike():
            for name in self.types:
                digest = self.moves.load(name, read, state.slots, consent)
                # A file that cannot be read ends the loading everywhere, with its error.
                consent.agree()
                if self.rank == 0:
                    state.loaded[name] = digest
        return state

    @contextmanager
    def all_alike(self) -> Iterator[None]:
        """Around what all workers end alike, with the same error if there is one: they wait for
        the next order then. Lost connections, and what no worker foresees, end the team."""
        try:
            yield
        except PeerLostError:
            raise
        except TallystickError:
            self.idle = True
            raise
        self.idle = True

    def digests(self, state: TeamState) -> dict[str, bytes]:
        """The tensor digests of all slots, at every worker."""
        self.give(Order.DIGESTS)
        found = self.moves.digests(state.slots)
        self.idle = True
        return found

    def fetch(self, state: TeamState, name: str) -> Iterator[Array]:
        """The elements of a slot, row-major, in pieces, at worker 0; the others `send` theirs."""
        if self.moves.has_all(name):
            yield from self.moves.collect(name, state.slots)
            return
        self.give(Order.FETCH, list(self.types).index(name))
        is_lost = False
        try:
            yield from self.moves.collect(name, state.slots)
        except PeerLostError:
            is_lost = True
            raise
        finally:
            self.idle = not is_lost

    def send(self, state: TeamState, number: int) -> None:
        """Send worker 0 what this worker owns of slot `number` of the program's order."""
        self.moves.give(list(self.types)[number], state.slots)


@dataclass
class TeamState(State):
    """A state whose slots lie with several workers; `slots` are those that this one holds, and
    its ranges of those that are cut, of rank 1.

    At worker 0 it digests and gives all of them. `loaded` are the digests that the slots had there
    when they were distributed.
    """

    team: Team = field(kw_only=True)
    loaded: dict[str, bytes] = field(default_factory=dict, kw_only=True)

    def digests(self) -> dict[str, bytes]:
        return self._with_chains(self.team.digests(self))

    def loaded_root(self) -> bytes:
        """The root of the state that was distributed."""
        return self.root_of(self._with_chains(self.loaded))

    def _with_chains(self, digests: Mapping[str, bytes]) -> dict[str, bytes]:
        chains = {LOSS_CHAIN_SLOT: self.loss_chain, LOG_CHAIN_SLOT: self.log_chain}
        return {**digests, **{name: chain_digest(chain) for name, chain in chains.items()}}

    def tensors(self) -> dict[str, Array]:
        """Every slot at once, at worker 0: a checkpoint is written slot by slot instead."""
        return {name: self.tensor(name) for name in self.file_types()}

    def tensor(self, name: str) -> Array:
        if name in (LOSS_CHAIN_SLOT, LOG_CHAIN_SLOT):
            return super().tensor(name)
        type_ = self.team.types[name]
        found: Array = np.concatenate([np.empty(0, DTYPES[type_.dtype]), *self.pieces(name)])
        return found.reshape(type_.shape)

    def pieces(self, name: str) -> Iterator[Array]:
        """As State.pieces, at worker 0: of others' slots a bundle at a time."""
        if name in (LOSS_CHAIN_SLOT, LOG_CHAIN_SLOT):
            return super().pieces(name)
        return self.team.fetch(self, name)

    def file_types(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        types = {name: (t.dtype, t.shape) for name, t in self.team.types.items()}
        return {**types, LOSS_CHAIN_SLOT: ("u8", (32,)), LOG_CHAIN_SLOT: ("u8", (32,))}
