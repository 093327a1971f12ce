"""The party's side of a session: a signed turn comes in, a reply goes out (PROTOCOL 10.2, 13).

Theory of operation. The party believes some referees' keys. It seals when a believed referee shows
it the rules of a session, and opens when the referee's signed log shows the closing of the sealing
with the party's own seal before it. It plays each game along, and answers a query only if that
query is open for it. So nothing is read from the run but what a game needs. It keeps each session
durably before it signs anything in it (both in `prover.sessions`). Executing takes long: a worker
thread makes the answers (`prover.answers`), and the party replies `working` meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from pathlib import Path

from tallystick.commit.encoding import sha256
from tallystick.commit.signing import Envelope, PrivateKey, PublicKey, verify_run
from tallystick.delegation.entries import (
    FIRST,
    Resumed,
    Sealed,
    SealingClosed,
    SessionBegun,
    open_entry,
)
from tallystick.delegation.entries import Result as SessionResult
from tallystick.delegation.rules import NO_OFFER, Rules
from tallystick.delegation.seals import SealOpening, sign_opening, sign_seal
from tallystick.delegation.turns import (
    IN_CONFLICT,
    MALFORMED,
    NOT_REGISTERED,
    UNBELIEVED,
    AskOpening,
    AskSeal,
    Ended,
    Message,
    Needs,
    Play,
    Refusal,
    Reply,
    Turn,
    Working,
    open_turn,
)
from tallystick.errors import CannotCheckError, CounterpartyError, TallystickError, UsageError
from tallystick.limits import LIMITS
from tallystick.program.terms import Terms
from tallystick.protocol.facts import Facts
from tallystick.protocol.queries import Log, LogBlock, LogHashes, Loss, decode_query
from tallystick.prover.answers import Keeping, Worker
from tallystick.prover.sessions import (
    MOST_SESSIONS,
    GameMirror,
    Mirrors,
    SealedSession,
    Sessions,
    nonce_of,
)

_FAULT = "this machine has failed; the query stays open"


class _RefusedError(Exception):
    def __init__(self, kind: str, why: str) -> None:
        super().__init__(why)
        self.reply = Refusal(kind, why)


class Registered:
    """The party that answers for `party` with `key`, about the job of `terms`.

    `referees` are the keys that it believes. `directory` holds its sessions. It calls `tell` with a
    sentence for its owner. `check_rules` raises CounterpartyError for rules of a session in which
    this party does not seal. Raises UsageError for a key that is not the run's or no referee's,
    CannotCheckError for a damaged record of a session.
    """

    def __init__(
        self,
        party: Keeping,
        key: PrivateKey,
        terms: Terms,
        referees: Sequence[PublicKey],
        directory: Path,
        tell: Callable[[str], None] = lambda _: None,
        check_rules: Callable[[Rules], None] = lambda _: None,
    ) -> None:
        if not referees:
            raise UsageError("No referee's key is believed.", "Name one with --referee.")
        if key.public in referees:
            raise UsageError("A party is not a referee (PROTOCOL 2.10.1).", "Name another key.")
        run, _ = verify_run(Envelope.from_bytes(party.commitment, LIMITS.commitment_bytes))
        if (run.signer, run.job_digest) != (key.public, terms.digest):
            raise UsageError("The run is of another key or job.", "Name those of this run.")
        self._run, self._facts = run, Facts(terms)
        self.key, self.terms = key.public, terms
        self.hands_over_logs = self._facts.contract.keeps_log
        self._private, self._party, self._tell = key, party, tell
        self._check_rules = check_rules
        self._referees = tuple(referees)
        self._sessions, self._lock = Sessions(directory), threading.Lock()
        self._mirrors = Mirrors(terms)
        self._worker = Worker(party, tell)
        self._sealed = self._sessions.sealed(sha256(party.commitment))

    def close(self) -> bool:
        """Begin nothing more; True unless an answer is still being made."""
        return self._worker.close()

    def reply(self, message: bytes, patience: float = 0.0) -> Reply:
        """The reply to a signed turn (13.4). Equal turns have equal replies.

        Where the answer is not made yet, the method waits `patience` seconds before it replies
        Working. A turn that does not fit gets a Refusal and raises no error. Raises StorageError
        where a session cannot be kept.
        """
        try:
            turn, referee = open_turn(message, self._referees)
        except CounterpartyError as error:
            return Refusal(UNBELIEVED, error.message)
        try:
            request = turn.request
            if isinstance(request, AskSeal):
                return self._seal(turn, request, referee)
            if isinstance(request, AskOpening):
                return self._open(turn, request, referee)
            if isinstance(request, Play):
                return self._play(turn, request, referee, patience)
            return self._end(turn, request, referee)
        except _RefusedError as refused:
            return refused.reply
        except CounterpartyError as error:
            return Refusal(MALFORMED, error.message)

    # -- sealing and opening (10.2, 10.3) ----------------------------------------------------------

    def _seal(self, turn: Turn, request: AskSeal, referee: PublicKey) -> Reply:
        begun = open_entry(request.entry, referee)
        if not isinstance(begun.event, SessionBegun) or (begun.index, begun.previous) != (0, FIRST):
            raise _RefusedError(MALFORMED, "the entry does not begin a session")
        rules = begun.event.rules
        if begun.digest() != turn.session or rules.referee != referee:
            raise _RefusedError(MALFORMED, "the entry is of another session or referee")
        if rules.job_digest != self.terms.digest:
            raise _RefusedError(NOT_REGISTERED, "the session is about another job")
        if rules.allowed and self.key not in rules.allowed:
            raise _RefusedError(NOT_REGISTERED, "the rules do not allow this party's key")
        if self.hands_over_logs and rules.most > 2:
            raise _RefusedError(NOT_REGISTERED, "a job with logs has two parties (10.1)")
        own = sha256(self._party.commitment)
        with self._lock:
            known = self._sessions.get(turn.session)
            if known is None:
                self._check_offer(rules.offer)
                try:
                    self._check_rules(rules)
                except CounterpartyError as error:
                    raise _RefusedError(NOT_REGISTERED, error.message) from error
                if len(self._sessions) >= MOST_SESSIONS:
                    raise _RefusedError(NOT_REGISTERED, "this party has too many sessions")
                session = SealedSession(request.entry, referee, rules, own)
                self._sessions.add(turn.session, session)  # durable before the seal is signed
            elif known.commitment != own:
                raise _RefusedError(IN_CONFLICT, "this party has sealed another run in it")
            self._sealed = True
        opening = self._opening(turn.session)
        return Message(sign_seal(self._private, self.terms.digest, opening))

    def _check_offer(self, offer: bytes) -> None:
        if offer != NO_OFFER and self._sessions.of_offer(offer):
            raise _RefusedError(IN_CONFLICT, "this party is in another session of that offer")

    def _opening(self, session: bytes) -> SealOpening:
        nonce = nonce_of(self._private, session, self._party.commitment)
        return SealOpening(session, self.key, nonce, self._party.commitment)

    def _session(self, name: bytes, referee: PublicKey) -> SealedSession:
        with self._lock:
            found = self._sessions.get(name)
        if found is None or found.referee != referee:
            raise _RefusedError(NOT_REGISTERED, "this party has not sealed in that session")
        if found.commitment != sha256(self._party.commitment):
            raise _RefusedError(IN_CONFLICT, "this party has sealed another run in it")
        return found

    def _open(self, turn: Turn, request: AskOpening, referee: PublicKey) -> Reply:
        session = self._session(turn.session, referee)
        opening = self._opening(turn.session)
        seal = sign_seal(self._private, self.terms.digest, opening)
        closing = self._closing(turn.session, request.entries, session, seal)
        with self._lock:
            if session.closing is None:
                self._sessions.opened(turn.session, closing, request.entries)
            elif session.closing != closing:
                self._tell(
                    "A referee has signed two logs of one session (PROTOCOL 12.5.1). Keep the "
                    "record of the session: it proves that."
                )
                raise _RefusedError(IN_CONFLICT, "another signed log of this session was shown")
        return Message(sign_opening(self._private, opening))

    def _closing(
        self, name: bytes, entries: Sequence[bytes], session: SealedSession, seal: bytes
    ) -> bytes:
        """The digest of the last entry, after the chain from entry 0 to it has been checked, and
        that `seal` is in it."""
        previous, time, shown = FIRST, 0, False
        for index, message in enumerate(entries):
            entry = open_entry(message, session.referee)
            if (entry.index, entry.previous) != (index, previous) or entry.time < time:
                raise _RefusedError(MALFORMED, "the log is not chained")
            previous, time = entry.digest(), entry.time
            if index == 0 and previous != name:
                raise _RefusedError(MALFORMED, "the log is of another session")
            last = index == len(entries) - 1
            if index and not isinstance(entry.event, SealingClosed if last else (Sealed, Resumed)):
                raise _RefusedError(MALFORMED, "the log does not end with the sealing's closing")
            shown = shown or (isinstance(entry.event, Sealed) and entry.event.message == seal)
        if len(entries) < 2:
            raise _RefusedError(MALFORMED, "the log does not end with the sealing's closing")
        if not shown:
            raise _RefusedError(NOT_REGISTERED, "the log does not hold this party's seal (10.3)")
        return previous

    # -- games (13.3) --------------------------------------------------------------------------

    def _play(self, turn: Turn, request: Play, referee: PublicKey, patience: float) -> Reply:
        session = self._session(turn.session, referee)
        if session.closing is None:
            raise _RefusedError(NOT_REGISTERED, "this party has not opened in that session")
        if request.commitments[request.party] != self._party.commitment:
            raise _RefusedError(NOT_REGISTERED, "the game is not one of this party's run")
        mirror = self._mirror(turn, request, session.rules.arity, referee)
        with mirror.lock:
            if request.first > mirror.known:
                return Needs(mirror.known)
            for number, (party, message) in enumerate(request.messages, request.first):
                if number < mirror.known:
                    if mirror.referee.transcript[number] != (party, message):
                        raise _RefusedError(IN_CONFLICT, f"message {number} was other bytes before")
                elif mirror.dead or not self._receive(mirror, party, message):
                    raise _RefusedError(
                        MALFORMED, f"message {number} is not an answer in this game"
                    )
            if not request.query:
                return Needs(mirror.known)
            said = mirror.referee.said(request.party, request.query)
            if said is not None:
                return Message(said)
            if mirror.dead or mirror.referee.pending.get(request.party) != request.query:
                raise _RefusedError(NOT_REGISTERED, "the query is not the one open for this party")
        return self._made(self._worker.ask(request.query), patience)

    def _receive(self, mirror: GameMirror, party: int, message: bytes) -> bool:
        try:
            return mirror.receive(party, message)
        except BaseException:
            # The mirror may be between two states. A new one lets the party go on (2.8.1).
            self._mirrors.drop(mirror)
            raise

    def _mirror(self, turn: Turn, request: Play, arity: int, referee: PublicKey) -> GameMirror:
        pair, seat = request.commitments, request.party
        try:
            mirror = self._mirrors.get(turn.session, request.game, seat, pair, arity)
        except UsageError as error:
            raise _RefusedError(MALFORMED, error.message) from error
        except CannotCheckError as error:
            raise _RefusedError(NOT_REGISTERED, error.message) from error
        if mirror is None:
            raise _RefusedError(IN_CONFLICT, "the game of this number is another one")
        keys = [run.signer for run in mirror.referee.runs]
        if keys[0] == keys[1] or referee in keys:
            raise _RefusedError(NOT_REGISTERED, "two parties have one key, or the referee's")
        return mirror

    def _made(self, future: Future[bytes], patience: float) -> Reply:
        wait([future], patience)
        if not future.done():
            return Working("executing the run")
        if future.exception() is not None:
            return Working(_FAULT)
        return Message(future.result())

    def _end(self, turn: Turn, request: Ended, referee: PublicKey) -> Reply:
        self._session(turn.session, referee)
        if not isinstance(open_entry(request.entry, referee).event, SessionResult):
            raise _RefusedError(MALFORMED, "the entry is not a result")
        self._mirrors.end(turn.session)
        return Message(b"")

    # -- logs (6.15) ---------------------------------------------------------------------------

    @property
    def logs_open(self) -> bool:
        """Whether this party hands over its logs: after it has sealed the run they belong to."""
        return self.hands_over_logs and self._sealed

    def commitment(self) -> Reply:
        """The signed run commitment, for a follower that checks logs against it (6.15.1)."""
        if not self.logs_open:
            return Refusal(NOT_REGISTERED, "this party hands over no logs now")
        return Message(self._party.commitment)

    def log(self, query: bytes, patience: float = 0.0) -> Reply:
        """The signed answer to a query of kind 3 or 13 to 15, outside of any game (6.15)."""
        if not self.logs_open:
            return Refusal(NOT_REGISTERED, "this party hands over no logs now")
        try:
            asked = decode_query(query)
            if not isinstance(asked, (Loss, Log, LogHashes, LogBlock)):
                return Refusal(NOT_REGISTERED, "only a game asks that")
            asked.check(self._facts, self._run)
        except TallystickError as error:
            return Refusal(MALFORMED, error.message)
        future = self._worker.ask_log(query)
        return (
            Working("other log blocks come first")
            if future is None
            else self._made(future, patience)
        )
