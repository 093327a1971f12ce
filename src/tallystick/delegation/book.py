"""The documents of one offer with the times of their receipts, and what they make of it: also the
sessions that it orders, with their rules (PROTOCOL 14.3 to 14.5, 14.7).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NoReturn

from tallystick.commit.signing import PublicKey
from tallystick.delegation.documents import Acceptance, Alarm, Receipt, Withdrawal, open_document
from tallystick.delegation.offer import Offer
from tallystick.delegation.outcome import Fate, Outcome
from tallystick.delegation.rules import MIN_PARTIES, Rules
from tallystick.errors import CounterpartyError, MismatchError, UsageError

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


def session_rules(book: Book, referee: PublicKey, nonce: bytes) -> Rules:
    """The rules of the offer's session (14.5). Raises UsageError where there is none."""
    providers = providers_of(book)
    if not providers.held:
        raise UsageError("The offer has no session: it has ended or lapsed.", "Settle it.")
    return _rules(book.offer, referee, nonce, providers.standing)


def challenge_rules(book: Book, session: Outcome, referee: PublicKey, nonce: bytes) -> Rules:
    """The rules of the challenge session (14.7.1). Raises UsageError where no alarm asks for it."""
    called = challenge_of(book, session)
    if called is None:
        raise UsageError("No alarm takes effect, so there is no challenge.", "Settle the offer.")
    rules = _rules(book.offer, referee, nonce, called.keys)
    sealing = called.begins + book.offer.rules.opening
    return replace(rules, sealing=sealing, offer=called.names)


def check_session(book: Book, rules: Rules, session: Outcome | None = None) -> None:
    """Raise MismatchError unless `rules` are those that the offer orders.

    With `session`, the outcome of the offer's session, they are those of its challenge session.
    """
    try:
        made = (
            session_rules(book, rules.referee, rules.nonce)
            if session is None
            else challenge_rules(book, session, rules.referee, rules.nonce)
        )
    except UsageError as error:
        _other(error.message)
    if made != rules:
        _other("its rules, or the keys that may take part, are others")


def check_ordered(offer: Offer, key: PublicKey, rules: Rules) -> None:
    """Raise MismatchError unless a provider that has accepted `offer` may seal under `rules`.

    It does not know which other keys stand, and takes any that may (14.3.2).
    """
    if key not in rules.allowed or not all(may_provide(offer, other) for other in rules.allowed):
        _other("the keys that may take part are not those of its providers")
    if not offer.least <= len(rules.allowed) <= offer.providers:
        _other("it has too many or too few providers")
    if rules.referee not in offer.referees:
        _other("the offer does not name its referee")
    if rules != _rules(offer, rules.referee, rules.nonce, rules.allowed):
        _other("its rules are others")


def _rules(offer: Offer, referee: PublicKey, nonce: bytes, keys: tuple[PublicKey, ...]) -> Rules:
    if referee not in offer.referees:
        raise UsageError("The offer does not name this referee.", "Choose one that it names.")
    numbers = offer.rules
    return Rules(
        job_digest=offer.job_digest,
        nonce=nonce,
        referee=referee,
        arity=numbers.arity,
        most=max(MIN_PARTIES, len(keys)),
        sealing=offer.deadlines.seal,
        opening=numbers.opening,
        budget=numbers.budget,
        step=numbers.step,
        steps=numbers.steps,
        extension=numbers.extension,
        allowed=keys,
        offer=offer.digest,
    )


def _other(why: str) -> NoReturn:
    raise MismatchError(f"This session is not the one that the offer orders: {why}.", "Refuse it.")
