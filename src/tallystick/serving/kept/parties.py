"""Many parties behind one server: whoever has kept answers defends each of them (ANSWERS 7.7.4).

Theory of operation. Each job has its own address, `/answers/JOB`, with the same paths below it as a
server of one run. A turn is looked at only if a believed referee has signed it; then what was kept
of the answer is read and compared, and the party seals with the commitment that its receipt has.
Nothing is executed for that. The first query of a game does it (`executions`), and a game has one
only after both parties have sealed and opened, and differ. So strangers cost a signature check.

No path of a request ever reaches a file: a job is 64 hexadecimal digits, and looked up in a
table.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tallystick.commit.signing import PrivateKey, PublicKey
from tallystick.delegation.rules import Rules
from tallystick.delegation.turns import (
    NOT_REGISTERED,
    PARTY,
    TURN,
    UNBELIEVED,
    Card,
    Refusal,
    Reply,
    Working,
    open_turn,
)
from tallystick.devices.context import DEFAULT, ExecutionContext
from tallystick.errors import CannotCheckError, CounterpartyError
from tallystick.prover.registered import Registered
from tallystick.service.doors import BOUNDS, Bounds
from tallystick.service.guard import Guard, believed
from tallystick.service.party_app import response_of
from tallystick.serving.kept.executions import Executions
from tallystick.serving.kept.prover import DisputedAnswer
from tallystick.serving.kept.reader import KeptReader, KeptRow, sessions_of

# Jobs whose games are in memory; each has a thread that waits.
OPEN = 64


class KeptParty:
    """The party of one job (prover.answers.Keeping). It executes when it is asked."""

    def __init__(
        self,
        disputed: Callable[[], DisputedAnswer],
        commitment: bytes,
        job: bytes,
        key: PrivateKey,
        parties: KeptParties,
    ) -> None:
        self._disputed, self._job, self._key, self._parties = disputed, job, key, parties
        self.commitment = commitment

    def answer(self, query: bytes, stranger: bool = False) -> bytes:
        parties = self._parties
        with parties.executions.prover(
            self._job, lambda: self._disputed().prover(self._key, parties.context, parties.tell)
        ) as prover:
            return prover.answer(query, stranger)

    def kept(self, query: bytes) -> bytes | None:
        return self._parties.executions.kept(self._job, query)


@dataclass
class _Open:
    registered: Registered
    users: int = 0


class KeptParties:
    """The parties for all answers in `kept`, with the private keys that have signed them; they
    believe `referees`. `tell` gets a sentence for the owner. Safe for threads. `close` it."""

    def __init__(
        self,
        kept: KeptReader,
        keys: Sequence[PrivateKey],
        referees: Sequence[PublicKey],
        context: ExecutionContext = DEFAULT,
        tell: Callable[[str], None] = lambda _: None,
        executions: Executions | None = None,
        most: int = OPEN,
    ) -> None:
        self._kept, self._referees, self._most = kept, tuple(referees), most
        self._keys: Mapping[PublicKey, PrivateKey] = {key.public: key for key in keys}
        self.context, self.tell = context, tell
        self.executions = executions or Executions()
        self._lock = threading.Lock()
        self._open: OrderedDict[bytes, _Open] = OrderedDict()

    def close(self) -> bool:
        """Begin nothing more; True unless an answer is still being made."""
        with self._lock:
            closed = [one.registered.close() for one in self._open.values()]
        return all(closed)

    def card(self, job: bytes) -> Card | None:
        """The card of the party for a job; None where no answer of a key here is kept of it."""
        found = self._row(job)
        return None if found is None else Card(found[1].public, job, False)

    def reply(self, job: bytes, message: bytes, patience: float = 0.0) -> Reply:
        """The reply to a signed turn about a job (PROTOCOL 13.4), as `Registered.reply`."""
        try:
            open_turn(message, self._referees)  # before anything is read for it
        except CounterpartyError as error:
            return Refusal(UNBELIEVED, error.message)
        try:
            found = self._party(job)
        except CannotCheckError as error:  # of this machine: the turn is asked again
            self.tell(f"The answer of job {job.hex()} cannot be defended yet: {error.message}")
            return Working("this machine has failed")
        except CounterpartyError as error:
            self.tell(f"The answer of job {job.hex()} is damaged: {error.message}")
            return Working("this machine has failed")
        if not isinstance(found, _Open):
            return found
        try:
            said = found.registered.reply(message, patience)
            if isinstance(said, Working) and self.executions.waiting(job):
                return Working("other disputes come first")
            return said
        finally:
            with self._lock:
                found.users -= 1

    def sweep(self) -> None:
        """Free the memory of what no game has used for a while."""
        self.executions.sweep()

    def _party(self, job: bytes) -> _Open | Reply:
        with self._lock:
            if job not in self._open:
                found = self._row(job)
                if found is None:
                    return Refusal(NOT_REGISTERED, "no answer of this job is kept here")
                if len(self._open) >= self._most and not self._make_room():
                    return Working("other disputes come first")
                self._open[job] = _Open(self._registered(*found))
            self._open.move_to_end(job)
            self._open[job].users += 1
            return self._open[job]

    def _make_room(self) -> bool:
        for job, one in self._open.items():
            if not one.users and not self.executions.working(job):
                one.registered.close()
                self.executions.let_go(job)
                del self._open[job]
                return True
        return False

    def _row(self, job: bytes) -> tuple[KeptRow, PrivateKey] | None:
        """The oldest kept answer of a job that a key here has signed."""
        for row in self._kept.of_job(job):
            key = self._keys.get(self._kept.signer(row))
            if key is not None:
                return row, key
        return None

    def _registered(self, row: KeptRow, key: PrivateKey) -> Registered:
        first = self._kept.disputed(row)
        until = max(other.until for other in self._kept.of_job(row.job))

        def check(_: Rules) -> None:
            if time.time() * 1000 > until:
                raise CounterpartyError("the receipt's promise has ended (ANSWERS 7.7.3)")

        party = KeptParty(
            lambda: self._kept.disputed(row), first.signed.commitment(), row.job, key, self
        )
        directory = sessions_of(self._kept.directory, row.job)
        terms = first.job().terms
        return Registered(party, key, terms, self._referees, directory, self.tell, check)


ANSWERS = "/answers/"
_JOB = re.compile(r"[0-9a-f]{64}")


def disputes_app(
    parties: KeptParties,
    bounds: Bounds = BOUNDS,
    tell: Callable[[BaseException], None] = lambda _: None,
) -> Guard:
    """The ASGI application that answers for all of `parties` within `bounds`.

    It calls `tell` with the error of a request that a fault of this machine has ended.
    """
    most = bounds.requests + bounds.known_peers * bounds.known_connections
    threads = ThreadPoolExecutor(most, "tallystick-request")

    async def turn(request: Request) -> Response:
        body, job = await request.body(), _job(request)
        if job is None:
            return _none()
        make = partial(parties.reply, job, body, bounds.patience_seconds)
        reply = await asyncio.get_running_loop().run_in_executor(threads, make)
        if not isinstance(reply, Refusal):
            believed(request.scope)
        return response_of(reply)

    async def party(request: Request) -> Response:
        job = _job(request)
        if job is None:
            return _none()
        loop = asyncio.get_running_loop()
        card = await loop.run_in_executor(threads, parties.card, job)
        return _none() if card is None else JSONResponse(card.members())

    place = ANSWERS.rstrip("/") + "/{job}"
    app = Starlette(
        routes=[
            Route(place + TURN, turn, methods=["POST"]),
            Route(place + PARTY, party, methods=["GET"]),
        ]
    )
    app.router.redirect_slashes = False
    return Guard(app, bounds, tell)


def _job(request: Request) -> bytes | None:
    text = request.path_params["job"]
    return bytes.fromhex(text) if _JOB.fullmatch(text) else None


def _none() -> Response:
    return JSONResponse({"refused": "no answer of this job is kept here"}, 404)
