"""Shares that another worker computes again, so that a false gradient is found (docs/adr/0024).

In every step each worker signs, for every share that it is about to send, the run commitment of the
share's job (job/share.py), before it learns what is drawn. Worker 0 has drawn in secret which
shares are computed again, and by which other worker, who signs what it finds. Worker 0 compares the
two claims before any update. Receivers compare the bytes that they get with the signed digests.
What a worker does at these points is its *hand*: here an honest one's.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tallystick.commit.signing import PrivateKey, PublicKey, verify_run
from tallystick.commit.streamed import TensorStream, subtrees
from tallystick.commit.tensor import TensorHeader, tensor_digest
from tallystick.devices.context import ExecutionContext
from tallystick.devices.device import Tensor
from tallystick.errors import CounterpartyError, TallystickError, UsageError
from tallystick.job.job import Job
from tallystick.job.share import Shares, ShareTask
from tallystick.job.step_records import records_of
from tallystick.program.folded_tail import share
from tallystick.program.ir import Value
from tallystick.program.layout import new_tensor
from tallystick.program.repeat import SectionShare
from tallystick.program.runner import StepInputs
from tallystick.program.share import Tree, parts_of, statistic_slot, sum_slot
from tallystick.run.distributed.claims import Drawn, FalseShareError, ShareClaim, check_two
from tallystick.run.distributed.messages import Consent, Round, as_bytes, opened, sealed
from tallystick.run.distributed.transport import Bytes, OtherBytesError, Transport, WorkerError

_WORD = 1 << 64


@dataclass(frozen=True)
class ShareDraws:
    """Draws each share with probability `fraction`, independently of all others.

    A draw is HMAC-SHA-256 of step and share under `secret`, which only worker 0 has: what is drawn
    in a step says nothing about another step, and a step that is repeated has the same draws. The
    checker is any of the other `workers`, each with the same probability (to 2^-48). Of the steps
    up to `whole` every share is drawn.
    """

    fraction: float
    workers: int
    secret: bytes = field(default_factory=lambda: os.urandom(32), repr=False)
    whole: int = -1

    def checker(self, step: int, number: int, owner: int) -> int | None:
        """The worker who computes share `number` of `step` again, which is worker `owner`'s; None
        where nobody does."""
        text = step.to_bytes(8, "little") + number.to_bytes(8, "little")
        word = hmac.new(self.secret, text, hashlib.sha256).digest()
        drawn = int.from_bytes(word[:8], "little") < round(self.fraction * _WORD)
        if not drawn and step > self.whole:
            return None
        found = int.from_bytes(word[8:16], "little") % (self.workers - 1)
        return found + (found >= owner)


class Hand:
    """An honest worker signs and sends what it computed. A lying one (`run.cheats.workers`) changes
    it at one of these points; the rest of its code is an honest worker's."""

    def before_claim(self, checks: ShareChecks) -> None:
        """Called in each step when the sums are computed, and nothing is signed yet."""

    def before_check(self, checks: ShareChecks, sums: Mapping[Value, Tensor]) -> None:
        """Called for each share of another worker that this one has computed again, before it signs
        the `sums`."""

    def after_claim(self, checks: ShareChecks) -> None:
        """Called when the claims are signed and compared, before the bytes are sent."""


Note = Callable[[TallystickError], None]


@dataclass
class ShareChecks:
    """One worker's part of the checks of a run of `job`, of which worker 0 draws `fraction`.

    `key` signs this worker's claims; without one a new key does. All workers make it at once.
    Raises UsageError for a job whose shares cannot be compared, or one worker alone.
    """

    job: Job
    transport: Transport
    context: ExecutionContext
    fraction: float = 0.0
    key: PrivateKey = field(default_factory=PrivateKey.generate)
    hand: Hand = field(default_factory=Hand)
    publics: list[PublicKey] = field(init=False)
    step: int = -1
    compared: int = 0  # shares computed again so far, as worker 0 knows
    # The workers whose shares were drawn by chance and are not compared yet, as worker 0 knows.
    open: frozenset[int] = frozenset()
    section: SectionShare | None = None  # of this step
    false: FalseShareError | None = None

    def __post_init__(self) -> None:
        check_two(self.transport.size)
        self.shares = Shares(self.job)
        self._draws = None if self.rank else ShareDraws(self.fraction, self.transport.size)
        own = np.frombuffer(self.key.public.raw, np.uint8).copy()
        try:
            self.publics = [PublicKey(k.tobytes()) for k in self.transport.gather(own)]
        except UsageError as error:
            raise WorkerError(f"A worker has no key: {error.message}", "Train again.") from error
        self._digests: dict[str, tuple[Tensor, bytes]] = {}
        index = [text.input_index for text in self.job.texts]
        self._changed = {
            name
            for text, places in zip(self.job.texts, index, strict=True)
            for name, value in text.next_state.items()
            if value != Value(-1, places[name])
        }

    @property
    def rank(self) -> int:
        return self.transport.rank

    def taken_up(self, done: int) -> None:
        """An earlier session has executed `done` steps, and may have ended in the one after them.

        All shares of those are drawn that this session executes: who ended that one because it was
        drawn may not try again until it is not.
        """
        if self._draws is not None:
            self._draws = replace(self._draws, whole=done)

    def chance(self, rank: int) -> float:
        """The probability that a share of worker `rank` is drawn in this step."""
        return 1.0 - (1.0 - self.fraction) ** len(self.own[rank])

    # -- a step ------------------------------------------------------------------------------------

    def begin(self, step: int) -> None:
        """The next step to be executed is `step`: a new one, or the same once more."""
        if step != self.step:
            self._first: dict[int, ShareClaim] = {}  # of each share, what was signed first
        self.step, self.section, self.false, self.open = step, None, None, frozenset()
        timetable = self.job.commitment.timetable
        entry = timetable.programs[timetable.at(step).program]
        size, parts = self.transport.size, entry.micro_batches
        self.own: list[list[Tree]] = [list(subtrees(share(r, size, parts))) for r in range(size)]
        pairs = [(rank, tree) for rank, trees in enumerate(self.own) for tree in trees]
        self.all = [Drawn(k, rank, tree) for k, (rank, tree) in enumerate(pairs)]
        self.mine: list[Drawn] = []  # that this worker computes again
        self.signed: dict[tuple[int, bool], ShareClaim] = {}  # by share, and whether it is a check
        self._streams: dict[tuple[int, int, str], TensorStream] = {}
        self._tasks: dict[Tree, ShareTask] = {}

    def _tell(self, consent: Consent) -> dict[int, int]:
        """Tell each worker, and no other, what it computes again; worker 0 learns all checkers."""
        exchange, size = Round(self.transport, "list of shares"), self.transport.size
        checkers: dict[int, int] = {}
        if self._draws is not None:
            for drawn in self.all:
                found = self._draws.checker(self.step, drawn.number, drawn.owner)
                if found is not None:
                    checkers[drawn.number] = found
            if self.fraction < 1 and self.step > self._draws.whole:
                self.open = frozenset(self.all[number].owner for number in checkers)
            for rank in range(1, size):
                marks = [checkers.get(drawn.number) == rank for drawn in self.all]
                exchange.send([np.array(marks, np.uint8)], [rank])
            exchange.finish(consent.note)
            self.mine = [d for d in self.all if checkers.get(d.number) == 0]
        else:
            exchange.expect(len(self.all), 0)
            (marks_,) = exchange.finish(consent.note).values()
            self.mine = [d for d in self.all if marks_[d.number] == 1]
        return checkers

    def compare(
        self,
        section: SectionShare,
        state: Mapping[str, Tensor],
        inputs: StepInputs,
        consent: Consent,
    ) -> None:
        """Sign what this worker is about to send; compute again what is drawn; compare.

        Raises FalseShareError, at every worker alike, where two claims about a share differ, and
        WorkerError where a worker's claim is none.
        """
        self.section, self.state = section, state
        checkers = self._tell(consent)
        consent.agree()
        if len(section.parts) == 1:  # the values lie where the next micro-batch's will
            section.sums = {v: [self._copied(v, t)] for v, (t,) in section.sums.items()}
        consent.attempt(lambda: self.hand.before_claim(self))
        consent.attempt(lambda: self._sign(section, state))
        consent.agree()
        self.claims = self._gather(consent)
        tasks = self._verified(consent) if self.rank == 0 else {}
        consent.agree()
        again: dict[int, ShareClaim] = {}
        consent.attempt(lambda: again.update(self._again(section, state, inputs)))
        consent.agree()
        self.signed |= {(number, True): claim for number, claim in again.items()}
        self._settle(again, checkers, tasks, consent)
        self.open = frozenset()
        self.hand.after_claim(self)

    # -- claims ------------------------------------------------------------------------------------

    def task(self, tree: Tree) -> ShareTask:
        """The task that a share of this step is, by this worker's own state and records."""
        if not self._tasks:  # all shares of a step read the same slots
            self._known = self._read(self.shares.share(self.step, tree).reads, self.state)
        if tree not in self._tasks:
            self._tasks[tree] = self.shares.task(self.step, tree, self._known)
        return self._tasks[tree]

    def _read(self, names: Sequence[str], state: Mapping[str, Tensor]) -> dict[str, bytes]:
        """The digests of slots, hashed once where no step changes them."""
        known = {}
        for name in names:
            tensor, digest = self._digests.get(name, (None, b""))
            if tensor is state[name] and name not in self._changed:
                known[name] = digest
        new = [name for name in names if name not in known]
        found = self.context.device.digests([state[name] for name in new])
        for name, digest in zip(new, found, strict=True):
            self._digests[name] = state[name], digest
        return {**known, **dict(zip(new, found, strict=True))}

    def _sign(self, section: SectionShare, state: Mapping[str, Tensor]) -> None:
        for number, tree in enumerate(self.own[self.rank]):
            first = section.parts.start
            statistics = [section.statistics[p - first] for p in parts_of(tree)]
            sums = {v: tensors[number] for v, tensors in section.sums.items()}
            drawn = next(d for d in self.all if (d.owner, d.tree) == (self.rank, tree))
            self.signed[drawn.number, False] = self._claim(tree, sums, statistics)

    def _claim(
        self,
        tree: Tree,
        sums: Mapping[Value, Tensor],
        statistics: Sequence[Mapping[Value, np.ndarray]],
    ) -> ShareClaim:
        task, device = self.task(tree), self.context.device
        slots: dict[str, Any] = task.share.slots(sums, statistics)
        names = [sum_slot(k) for k in range(len(task.share.values))]
        found = dict(zip(names, device.digests([slots[n] for n in names]), strict=True))
        made = {n: found.get(n) or tensor_digest(slots[n]) for n in task.share.made}
        (signature,) = task.claim(made, self.key).signatures
        return ShareClaim(task.digest, made, signature.signature)

    def _gather(self, consent: Consent) -> dict[int, ShareClaim]:
        """The claims of all workers about their own shares, by number."""
        sizes = {
            d.number: ShareClaim.size_of(self.shares.share(self.step, d.tree)) for d in self.all
        }
        of = [[d for d in self.all if d.owner == rank] for rank in range(self.transport.size)]
        longest = max(sum(sizes[d.number] for d in drawn) for drawn in of)
        own = [self.signed[d.number, False].to_bytes() for d in of[self.rank]]
        filling = np.zeros(longest - sum(part.nbytes for part in own), np.uint8)
        found: dict[int, ShareClaim] = {}
        for rank, message in enumerate(self.transport.gather(sealed([*own, filling]))):
            try:
                body = opened(message, rank, "claims")
            except TallystickError as error:
                consent.note(error)
                body = message
            found |= self._taken(body, of[rank])
        return found

    def _taken(self, body: Bytes, drawn: Sequence[Drawn]) -> dict[int, ShareClaim]:
        found, at = {}, 0
        for one in drawn:
            text = self.shares.share(self.step, one.tree)
            size = ShareClaim.size_of(text)
            found[one.number] = ShareClaim.from_bytes(body[at : at + size].tobytes(), text)
            at += size
        return found

    def _verified(self, consent: Consent) -> dict[int, ShareTask]:
        """Worker 0 checks every claim; the tasks by number."""
        tasks = {}
        for drawn in self.all:
            tasks[drawn.number] = self.task(drawn.tree)
            claim = self.claims[drawn.number]
            if not self._check(claim, tasks[drawn.number], drawn.owner, consent):
                continue
            # Whoever has seen a step once may know what is drawn in it.
            if claim.made != self._first.setdefault(drawn.number, claim).made:
                consent.note(
                    WorkerError(
                        f"Worker {drawn.owner} has signed two different values for one share of "
                        f"step {self.step}, which was executed twice.",
                        f"Nothing was updated. Train without worker {drawn.owner}, or check its "
                        "machine.",
                    ).of(drawn.owner)
                )
        return tasks

    def _check(self, claim: ShareClaim, task: ShareTask, rank: int, consent: Consent) -> bool:
        if claim.digest != task.digest:
            consent.note(
                WorkerError(
                    f"Before step {self.step} worker {rank} has another state, or other records, "
                    "than worker 0: the memory or the network of one of them is faulty.",
                    "Nothing was updated. The same command goes on from the last stored "
                    "checkpoint.",
                )
            )
            return False
        try:
            verify_run(claim.envelope(task, self.publics[rank]))
        except CounterpartyError as error:
            why = f"The claim of worker {rank} in step {self.step} is not signed: {error.message}"
            consent.note(
                WorkerError(why, "Nothing was updated. Train without that worker.").of(rank)
            )
            return False
        return True

    # -- computed again ----------------------------------------------------------------------------

    def _again(
        self, section: SectionShare, state: Mapping[str, Tensor], inputs: StepInputs
    ) -> dict[int, ShareClaim]:
        def of(part: int) -> StepInputs:
            return replace(inputs, batch=records_of(self.job, self.step, range(part, part + 1)))

        found = {}
        for drawn in self.mine:
            sums, statistics = section.again(parts_of(drawn.tree), state, of)
            self.hand.before_check(self, sums)
            found[drawn.number] = self._claim(drawn.tree, sums, statistics)
        return found

    def _copied(self, value: Value, tensor: Tensor) -> Tensor:
        assert self.section is not None
        made = new_tensor(self.context.device, self.section.program.type_of(value))
        self.context.device.copy(tensor, made)
        return made

    def _settle(
        self,
        again: Mapping[int, ShareClaim],
        checkers: Mapping[int, int],
        tasks: Mapping[int, ShareTask],
        consent: Consent,
    ) -> None:
        """Worker 0 compares what was computed again with what was claimed."""
        exchange = Round(self.transport, "claims of checks")
        if self.rank:
            if self.mine:
                exchange.send([again[d.number].to_bytes() for d in self.mine], [0])
            exchange.finish(consent.note)
        else:
            of = {
                rank: [d for d in self.all if checkers.get(d.number) == rank]
                for rank in sorted(set(checkers.values()))
            }
            for rank, listed in of.items():
                texts = [self.shares.share(self.step, d.tree) for d in listed]
                if rank:
                    exchange.expect(sum(map(ShareClaim.size_of, texts)), rank)
            found = dict(again)
            for rank, body in exchange.finish(consent.note).items():
                found |= self._taken(body, of[rank])
            self.checked = found
            self._compare(found, checkers, tasks, consent)
        consent.agree()
        word = np.array([-1, 0], np.int64)
        if self.false is not None:
            word[:] = self.false.number, self.false.checker
        self.transport.broadcast(as_bytes(word), 0)
        if word[0] >= 0:
            drawn = self.all[int(word[0])]
            self.false = FalseShareError(
                self.step, drawn.number, drawn.tree, drawn.owner, int(word[1])
            )
            raise self.false

    def _compare(
        self,
        found: Mapping[int, ShareClaim],
        checkers: Mapping[int, int],
        tasks: Mapping[int, ShareTask],
        consent: Consent,
    ) -> None:
        for number, claim in sorted(found.items()):
            drawn, checker = self.all[number], checkers[number]
            if not self._check(claim, tasks[number], checker, consent):
                continue
            self.compared += 1
            if claim.made != self.claims[number].made and self.false is None:
                self.false = FalseShareError(self.step, number, drawn.tree, drawn.owner, checker)

    # -- bytes that arrive -------------------------------------------------------------------------

    def seen(self, source: int, place: int, slot: str, data: Bytes, note: Note) -> None:
        """Compare the bytes of a slot of share `place` of worker `source`, as they arrive in
        order, with the digest that it has signed."""
        tree = self.own[source][place]
        key = source, place, slot
        stream = self._streams.get(key)
        if stream is None:
            type_ = self.shares.share(self.step, tree).made[slot]
            stream = self._streams[key] = TensorStream(TensorHeader(type_.dtype, type_.shape))
        stream.add(data)
        if stream.missing:
            return
        drawn = next(d for d in self.all if (d.owner, d.tree) == (source, tree))
        if self._streams.pop(key).digest() != self.claims[drawn.number].made[slot]:
            note(
                OtherBytesError(
                    f"The bytes that worker {source} sent in step {self.step} are not those that "
                    f"it signed ({slot}).",
                    f"Nothing was updated. Train without worker {source}, or check its machine "
                    "and its network.",
                )
            )

    def seen_statistic(self, source: int, part: int, value: Value, data: Bytes, note: Note) -> None:
        """The same for the whole statistic `value` of micro-batch `part`."""
        place = next(k for k, tree in enumerate(self.own[source]) if part in parts_of(tree))
        self.seen(source, place, self.statistic_slot(part, value), data, note)

    def sum_slot(self, value: Value) -> str:
        """The slot of a folded value."""
        assert self.section is not None
        return sum_slot(self.section.values.index(value))

    def statistic_slot(self, part: int, value: Value) -> str:
        """The slot of a statistic of a micro-batch."""
        assert self.section is not None
        return statistic_slot(part, sorted(self.section.carrying.sent).index(value))
