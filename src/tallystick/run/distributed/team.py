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
from tallystick.commit.tensor import Array, check_canonical, tensor_digest
from tallystick.errors import TallystickError, UsageError
from tallystick.job.job import Job
from tallystick.kernels.context import ExecutionContext
from tallystick.kernels.device import Tensor
from tallystick.numerics.contracts import parse_contract
from tallystick.numerics.types import DTYPES, TensorType
from tallystick.program.layout import new_tensor
from tallystick.program.owners import Owners, read_slots
from tallystick.program.state import State
from tallystick.run.distributed.bundles import bundles, part_of
from tallystick.run.distributed.checks import ShareChecks
from tallystick.run.distributed.faults import PeerLostError, WorkerError
from tallystick.run.distributed.messages import Consent, Round, as_bytes
from tallystick.run.distributed.transport import Transport


class Order(IntEnum):
    """What worker 0 tells the others to do; the argument is in brackets."""

    END = 0
    LOAD = 1  # a state (its step)
    STEP = 2  # the next step (its number)
    DIGESTS = 3  # digests of the slots that one owns
    FETCH = 4  # a slot, for worker 0 (its number in the program)
    DISPUTE = 5  # answer about the share that two workers have signed differently


def owners_of(job: Job, workers: int) -> Owners:
    """Who owns what of the job's state. Raises UsageError, which says what to do, where so many
    workers cannot execute the job."""
    contract = job.commitment.contract
    if parse_contract(contract).keeps_log:
        raise UsageError(
            f"Several workers cannot write the rounding logs of {contract}.",
            "Train with one worker, or make the job under ordered/1 or rounded/1.",
        )
    programs = job.commitment.timetable.programs
    parts = [p.micro_batches for p, text in zip(programs, job.texts, strict=True) if text.section]
    least = min(parts, default=1)
    if least < workers:
        what = "as a whole" if least == 1 else f"in {least} micro-batches"
        raise UsageError(
            f"The job computes each batch {what}: {workers} workers have too little to do.",
            f"Make the job with --micro-batches {workers} or more (`tallystick job new`), or use "
            f"{'one worker' if least == 1 else f'at most {least} workers'}.",
        )
    evaluated: set[str] = set()
    if job.eval_program is not None:
        evaluated = read_slots(job.eval_program, range(len(job.eval_program.nodes)))
    return Owners(job.texts, workers, frozenset(evaluated), cuts=False)


@dataclass
class Team:
    """This worker's place among the workers of `job`, connected by `transport`."""

    job: Job
    transport: Transport
    context: ExecutionContext
    checks: ShareChecks | None = None
    owners: Owners = field(init=False)
    idle: bool = True  # all other workers wait for an order

    def __post_init__(self) -> None:
        self.owners = owners_of(self.job, self.transport.size)

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
        self.transport.broadcast(as_bytes(np.array([order, argument], np.int64)), 0)
        self.idle = order == Order.END

    def next_order(self) -> tuple[Order, int]:
        """Wait for the next order of worker 0."""
        data = np.empty(16, np.uint8)
        self.transport.broadcast(data, 0)
        order, argument = data.view(np.int64)
        return Order(int(order)), int(argument)

    # -- the state ---------------------------------------------------------------------------------

    def load(
        self,
        step: int,
        slots: Iterator[tuple[str, Array]] | None = None,
        chains: tuple[bytes, bytes] | None = None,
    ) -> TeamState:
        """Distribute state[step]. Worker 0 gives `slots`, all of them in the program's order, and
        the two chains; it holds one whole slot at a time. The others give nothing.

        Raises what `slots` raises, CounterpartyError for a value that is not canonical.
        """
        self.give(Order.LOAD, step)
        both = b"".join(chains) if chains is not None else bytes(2 * HASH_BYTES)
        chain = np.frombuffer(both, np.uint8).copy()
        self.transport.broadcast(chain, 0)
        losses, logs = chain[:HASH_BYTES].tobytes(), chain[HASH_BYTES:].tobytes()
        state = TeamState({}, losses, logs, self.context.device, team=self)
        consent = Consent(self.transport)
        with self.all_alike():
            for name, type_ in self.types.items():
                self._load_slot(name, type_, slots, state, consent)
            consent.agree()
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

    def _load_slot(
        self,
        name: str,
        type_: TensorType,
        slots: Iterator[tuple[str, Array]] | None,
        state: TeamState,
        consent: Consent,
    ) -> None:
        array: Array | None = None

        def take() -> None:
            nonlocal array
            assert slots is not None
            found, array = next(slots)
            assert found == name
            check_canonical(array, f"slot {name} of the stored state")
            state.loaded[name] = tensor_digest(array)

        if self.rank == 0:
            consent.attempt(take)
        # A file that cannot be read ends the loading everywhere, with this error.
        consent.agree()
        everyone = range(self.transport.size)
        holders = list(everyone) if name in self.owners.held else [self.owners.slots[name]]
        if self.rank in holders:
            state.slots[name] = new_tensor(self.context.device, type_)
        if self.rank == 0 and name in state.slots:
            assert array is not None
            self.context.device.write(array, state.slots[name])
        others = [rank for rank in holders if rank]
        data = as_bytes(array) if array is not None else None
        self._move(name, type_, data, others, state.slots.get(name), consent)

    def _move(
        self,
        name: str,
        type_: TensorType,
        data: Array | None,
        to: list[int],
        into: Tensor | None,
        consent: Consent,
    ) -> None:
        """Send a tensor's bytes from worker 0 to others, bundle by bundle."""
        if self.rank and self.rank not in to:
            return
        device, at = self.context.device, 0
        for (segment,) in bundles([(name, type_)]):
            exchange = Round(self.transport, f"bytes of slot {name}")
            if self.rank == 0:
                assert data is not None
                exchange.send([data[at : at + segment.nbytes]], to)
                at += segment.nbytes
            else:
                exchange.expect(segment.nbytes, 0)
            for body in exchange.finish(consent.note).values():
                device.write(body.view(DTYPES[type_.dtype]), part_of(device, into, segment))

    def digests(self, state: TeamState) -> dict[str, bytes]:
        """The tensor digests of all slots, each by its owner, at every worker."""
        self.give(Order.DIGESTS)
        of: list[list[str]] = [[] for _ in range(self.transport.size)]
        for name, owner in self.owners.slots.items():
            of[owner].append(name)
        own = self.context.device.digests([state.slots[name] for name in of[self.rank]])
        longest = max(map(len, of)) * HASH_BYTES
        data = np.frombuffer(b"".join(own).ljust(longest, b"\0"), np.uint8).copy()
        found: dict[str, bytes] = {}
        for names, body in zip(of, self.transport.gather(data), strict=True):
            for number, name in enumerate(names):
                found[name] = body[number * HASH_BYTES : (number + 1) * HASH_BYTES].tobytes()
        self.idle = True
        return {name: found[name] for name in self.types}

    def fetch(self, state: TeamState, number: int) -> Array | None:
        """Slot `number` of the program's order as a host array, at worker 0."""
        name = list(self.types)[number]
        owner, type_ = self.owners.slots[name], self.types[name]
        host = self.context.device.host
        if self.rank == 0 and name in state.slots:
            return np.asarray(host(state.slots[name]))
        self.give(Order.FETCH, number)
        if self.rank not in (0, owner):
            return None
        consent = Consent(self.transport)
        out = np.empty(type_.shape, DTYPES[type_.dtype]) if not self.rank else None
        for (segment,) in bundles([(name, type_)]):
            exchange = Round(self.transport, f"bytes of slot {name}")
            if out is None:
                part = part_of(self.context.device, state.slots[name], segment)
                exchange.send([as_bytes(host(part))], [0])
                exchange.finish(consent.note)
                continue
            exchange.expect(segment.nbytes, owner)
            for body in exchange.finish(consent.note).values():
                out.reshape(-1)[segment.start : segment.stop] = body.view(out.dtype)
        if self.rank == 0:
            self.idle = True
            if consent.fault is not None:
                raise consent.fault
        return out


@dataclass
class TeamState(State):
    """A state whose slots lie with several workers; `slots` are those that this one holds.

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
        found = self.team.fetch(self, list(self.team.types).index(name))
        assert found is not None, "only worker 0 has all slots"
        return found

    def file_types(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        types = {name: (t.dtype, t.shape) for name, t in self.team.types.items()}
        return {**types, LOSS_CHAIN_SLOT: ("u8", (32,)), LOG_CHAIN_SLOT: ("u8", (32,))}
