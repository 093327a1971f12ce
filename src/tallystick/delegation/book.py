"""The documents of one offer with the times of their receipts, and what they make of it
(PROTOCOL 14.3 to 14.5, 14.7)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tallystick.commit.signing import PublicKey
from tallystick.delegation.documents import (
    Acceptance,
    Alarm,
    Receipt,
    Withdrawal,
    open_document,
)
from tallystick.delegation.offer import Offer
from tallystick.delegation.outcome import Fate, Outcome
from tallystick.errors import CounterpartyError, UsageError

Received = Acceptance | Withdrawal | Alarm


@dataclass(frozen=True)
class Book:
    """An offer, and its receipted documents, each with the time of its earliest receipt.

    `unreceipted` came without a receipt of one of the offer's referees: they have no effect.
    """

    offer: Offer
    received: tuple[tuple[int, Received], ...]
    unreceipted: tuple[Received, ...] = ()

    @property
    def digests(self) -> tuple[bytes, ...]:
        """The digests of the receipted documents, ascending."""
        return tuple(sorted(document.digest for _, document in self.received))

    def of(self, kind: type[Received]) -> list[tuple[int, Received]]:
        """The receipted documents of a kind, by time and then by key."""
        found = [(time, d) for time, d in self.received if isinstance(d, kind)]
        return sorted(found, key=lambda item: (item[0], item[1].signer.raw))


def open_book(envelopes: Iterable[bytes]) -> Book:
    """The book in untrusted envelopes: one offer, and documents of it, in any order.

    Raises CounterpartyError where an envelope is no document, or a referee's receipts contradict
    each other (14.3.1); UsageError where they are not of one offer.
    """
    documents = [open_document(data) for data in envelopes]
    offers = {d.digest: d for d in documents if isinstance(d, Offer)}
    if len(offers) != 1:
        raise UsageError(f"There are {len(offers)} offers here, not one.", "Give one offer.")
    ((digest, offer),) = offers.items()
    times: dict[bytes, dict[bytes, int]] = {}
    others: dict[bytes, Received] = {}
    for document in documents:
        if isinstance(document, Offer):
            continue
        if document.offer != digest:
            raise UsageError(
                f"The {document.NAME} of {document.signer.key_id[:16]}... is of another offer.",
                "Leave it out.",
            )
        if not isinstance(document, Receipt):
            others[document.digest] = document
        elif document.referee in offer.referees:
            _note(times.setdefault(document.document, {}), document)
    received = [(min(times[d].values()), others[d]) for d in sorted(others) if d in times]
    rest = tuple(others[d] for d in sorted(others) if d not in times)
    return Book(offer, tuple(received), rest)


def _note(times: dict[bytes, int], receipt: Receipt) -> None:
    if times.setdefault(receipt.referee.raw, receipt.time) != receipt.time:
        raise CounterpartyError(
            f"Referee {receipt.referee.key_id[:16]}... has signed two times for one document.",
            "Keep both receipts: they show its fault. Make no settlement from them (14.3.1).",
        )


@dataclass(frozen=True)
class Providers:
    """What acceptances and withdrawals make of an offer (14.3.2, 14.4).

    `taken` are the keys whose acceptances count, in the order of 14.3.2. Of these `withdrawn` have
    withdrawn in time and pay for it, and `standing` are the others, ascending. `held` says whether
    the offer has a session.
    """

    taken: tuple[PublicKey, ...]
    withdrawn: tuple[PublicKey, ...]
    standing: tuple[PublicKey, ...]
    client_withdrew: bool
    held: bool


def providers_of(book: Book) -> Providers:
    """The providers of the book's offer."""
    offer, at = book.offer, book.offer.deadlines
    left = [(t, d) for t, d in book.of(Withdrawal) if t <= at.withdraw]
    ends = min((t for t, d in left if d.signer == offer.client), default=None)
    before = [key.raw for t, d in left if (ends is None or t < ends) for key in (d.signer,)]
    taken = [
        d.signer
        for t, d in book.of(Acceptance)
        if t <= at.accept and (ends is None or t < ends) and may_provide(offer, d.signer)
    ][: offer.providers]
    withdrawn = tuple(key for key in taken if key.raw in before)
    standing = sorted((key for key in taken if key.raw not in before), key=lambda key: key.raw)
    held = ends is None and len(standing) >= offer.least
    return Providers(tuple(taken), withdrawn, tuple(standing), ends is not None, held)


def may_provide(offer: Offer, key: PublicKey) -> bool:
    """Whether `key` may accept the offer (14.3.2)."""
    allowed = not offer.keys or key in offer.keys
    return allowed and key != offer.client and key not in offer.referees


@dataclass(frozen=True)
class Challenge:
    """The challenge session that alarms demand (14.7.1, 14.7.2).

    `names` is the digest that its rules name, `begins` the end of the time for alarms in
    milliseconds. `providers` and `auditors` are those called, in the order of calling.
    """

    names: bytes
    begins: int
    providers: tuple[PublicKey, ...]
    auditors: tuple[PublicKey, ...]

    @property
    def keys(self) -> tuple[PublicKey, ...]:
        """The keys that may take part, ascending."""
        return tuple(sorted((*self.providers, *self.auditors), key=lambda key: key.raw))


def alarms_until(offer: Offer, session: Outcome) -> int:
    """The last time at which an alarm is in time, in milliseconds (14.7)."""
    return session.ended + offer.deadlines.challenge


def challenge_of(book: Book, session: Outcome) -> Challenge | None:
    """The challenge session after `session`; None where no alarm takes effect."""
    offer = book.offer
    if session.accepted is None:
        return None
    barred = {*providers_of(book).standing, *offer.referees}
    alarms = [
        alarm
        for time, alarm in book.of(Alarm)
        if isinstance(alarm, Alarm)
        and time <= alarms_until(offer, session)
        and (alarm.session, alarm.claim) == (session.session, session.accepted)
        and alarm.auditor not in barred
    ]
    if not alarms:
        return None
    remain = [m.key for m in session.members if m.fate is Fate.REMAINING]
    called = tuple(remain[: offer.most_parties - 1])
    auditors = tuple(a.auditor for a in alarms[: offer.most_parties - len(called)])
    return Challenge(alarms[0].digest, alarms_until(offer, session), called, auditors)
