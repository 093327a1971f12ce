"""A game with both parties at hand: referee and provers in one process (PROTOCOL 1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from time import process_time
from typing import Protocol

from tallystick.commit.signing import PrivateKey
from tallystick.errors import (
    CannotCheckError,
    CounterpartyError,
    MachineFaultError,
    StorageError,
    StoreError,
    TallystickError,
    UsageError,
)
from tallystick.program.terms import Terms
from tallystick.protocol.evidence import Evidence, evidence_of
from tallystick.protocol.forfeit import Forfeit, sign_forfeit
from tallystick.protocol.referee import Referee
from tallystick.protocol.verdict import Event, Verdict

# How often `play` asks a party whose machine fails for the same answer, before it gives up.
ATTEMPTS = 3
# Faults that may be gone when `play` asks for the same answer again.
_FAULTS = (MachineFaultError, StorageError, MemoryError, OSError)


class SilenceError(TallystickError):
    """A party keeps silent. The object that stands for the party raises this error. Any other
    error of a local party is a fault of this machine (a full disk), by which no party may lose a
    game."""


class Party(Protocol):
    """Answers queries: a Prover, or an object that behaves like one."""

    @property
    def commitment(self) -> bytes:
        """The signed run commitment, an envelope's bytes."""

    def answer(self, query: bytes) -> bytes:
        """The signed answer to an encoded query."""


@dataclass(frozen=True)
class Played:
    """A finished game: its verdict, its evidence, and the referee's own processor seconds."""

    verdict: Verdict
    evidence: Evidence
    referee_seconds: float


def play(
    terms: Terms,
    parties: Sequence[Party],
    arity: int = 20,
    on_event: Callable[[Event], None] | None = None,
    key: PrivateKey | None = None,
    on_fault: Callable[[int, str], None] = lambda _party, _why: None,
) -> Played:
    """Play `parties` (two) against each other, about the job of `terms`, to a verdict.

    A party is silent if it raises SilenceError, or if the message that it returns is no answer. The
    forfeit is signed with `key`, or with a new key if that is None. A party whose machine fails has
    given no answer yet: `play` calls `on_fault` with its number and the reason, and asks again,
    ATTEMPTS times in all.

    Raises CannotCheckError after that, UsageError where `key` is a party's own (PROTOCOL 2.10.1),
    the errors of Referee for commitments that are no party to the game, and the errors of a party.
    """
    commitments = (parties[0].commitment, parties[1].commitment)
    began = process_time()
    referee = Referee(terms, commitments, arity)
    seconds, told = process_time() - began, 0
    forfeits: tuple[bytes, ...] = ()
    if key is not None and key.public in [run.signer for run in referee.runs]:
        raise UsageError(
            "The referee's key is a party's key, with which no forfeit can be signed.",
            "Name another key, or none: then a new one signs.",
        )
    while True:
        if on_event is not None:
            for event in referee.events[told:]:
                on_event(event)
        told = len(referee.events)
        if referee.verdict is not None:
            break
        silent: dict[int, bytes] = {}
        for party, query in sorted(referee.pending.items()):
            message = _asked(parties[party], query, partial(on_fault, party))
            began = process_time()
            if message is None or not _received(referee, party, message):
                silent[party] = query
            seconds += process_time() - began
            if referee.verdict is not None:
                break
        if silent and referee.verdict is None:
            began = process_time()
            forfeits = _forfeited(referee, terms, silent, key)
            seconds += process_time() - began
    evidence = evidence_of(referee, terms.digest, arity, commitments, forfeits)
    return Played(referee.verdict, evidence, seconds)


def _asked(party: Party, query: bytes, on_fault: Callable[[str], None]) -> bytes | None:
    """The party's answer, or None for silence. A fault of the machine is neither (PROTOCOL 2.8)."""
    last: BaseException | None = None
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return party.answer(query)
        except SilenceError:
            return None
        except _FAULTS as error:
            last = error
            on_fault(f"attempt {attempt} of {ATTEMPTS}: {_words(error)}")
    way = "Make room, or play it on a larger machine."
    if isinstance(last, StoreError):
        way = last.next_action
    raise CannotCheckError(
        f"The game could not be played to its end on this machine: {_words(last)}",
        f"No party is convicted by that. {way}",
    ) from last


def _words(error: BaseException | None) -> str:
    if isinstance(error, StoreError):
        return error.message
    return str(error) or type(error).__name__


def _received(referee: Referee, party: int, message: bytes) -> bool:
    """True if `message` is an answer (PROTOCOL 2.6)."""
    try:
        referee.receive(party, message)
    except CounterpartyError:
        return False
    return True


def _forfeited(
    referee: Referee, terms: Terms, silent: dict[int, bytes], key: PrivateKey | None
) -> tuple[bytes, ...]:
    """The signed forfeits of the silent parties, by their open queries (PROTOCOL 2.10.2)."""
    signer = key if key is not None else PrivateKey.generate()
    roots = (referee.runs[0].run_root, referee.runs[1].run_root)
    referee.silent(*silent)
    return tuple(
        sign_forfeit(signer, Forfeit(terms.digest, roots, party, query, signer.public))
        for party, query in silent.items()
    )
