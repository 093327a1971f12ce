"""The settlement: transfers computed from an offer, its documents and outcomes (PROTOCOL 14.8).

A pure function in integers. The only division is that into equal shares (14.8.8).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tallystick.commit.signing import PublicKey
from tallystick.delegation.book import Book, Challenge, Providers, challenge_of, providers_of
from tallystick.delegation.entries import NO_RESULT
from tallystick.delegation.offer import Payer
from tallystick.delegation.outcome import Fate, Outcome, PlayedGame, SealedMember
from tallystick.errors import UsageError

ABSENT = "absent"  # the fate of a key that did not seal
WITHDRAWAL, PRICE, AGAIN, REWARD, FALSE = (
    "withdrawal", "price", "re-execution", "reward", "false alarm",
)  # fmt: skip
REASONS = (
    WITHDRAWAL, PRICE, AGAIN, REWARD, FALSE,
    Fate.CONVICTED.value, Fate.EXCLUDED.value, Fate.SILENT.value, Fate.UNOPENED.value, ABSENT,
)  # fmt: skip
_FALSE_STATEMENT = (Fate.CONVICTED.value, Fate.EXCLUDED.value)


@dataclass(frozen=True)
class Transfer:
    """`payer` owes `payee` `amount` units, for `reason` (14.8)."""

    payer: PublicKey
    payee: PublicKey
    amount: int
    reason: str


@dataclass(frozen=True)
class Settlement:
    """The transfers in the order of 14.8.10, and the digest of the final claim (14.7.3)."""

    transfers: tuple[Transfer, ...]
    accepted: bytes | None

    def balance(self, key: PublicKey) -> int:
        """What `key` gains (or, negative, loses) in all."""
        got = sum(t.amount for t in self.transfers if t.payee == key)
        return got - sum(t.amount for t in self.transfers if t.payer == key)


def settle(
    book: Book, session: Outcome | None = None, challenge: Outcome | None = None
) -> Settlement:
    """The settlement of the book's offer.

    `session` is the outcome of the offer's session, None where there was none (14.4); `challenge`
    that of the challenge session. Raises UsageError where these do not fit the book.
    """
    ledger = _Ledger()
    providers = providers_of(book)
    _withdrawals(ledger, book, providers)
    if not providers.held:
        _demand(session is None and challenge is None, "there is no session: it has ended before")
        return Settlement(ledger.transfers(), None)
    if session is None:
        raise UsageError("The offer's session has no outcome.", "Give it when it has ended.")
    called = challenge_of(book, session)
    _check(book, providers, session, called, challenge)
    case = _Case(book, providers, session, called, challenge, ledger)
    case.settle()
    return Settlement(ledger.transfers(), case.accepted)


def shares(amount: int, keys: Sequence[PublicKey]) -> dict[PublicKey, int]:
    """`amount` in equal shares; the first keys, ascending, get the units left (14.8.8)."""
    each, left = divmod(amount, len(keys))
    ordered = sorted(keys, key=lambda key: key.raw)
    return {key: each + (i < left) for i, key in enumerate(ordered)}


class _Ledger:
    """Sums by reason, payer and payee."""

    def __init__(self) -> None:
        self._sums: Counter[tuple[str, PublicKey, PublicKey]] = Counter()

    def pay(self, reason: str, payer: PublicKey, payee: PublicKey, amount: int) -> None:
        if payer != payee:
            self._sums[reason, payer, payee] += amount

    def transfers(self) -> tuple[Transfer, ...]:
        found = [Transfer(a, b, amount, why) for (why, a, b), amount in self._sums.items()]
        found.sort(key=lambda t: (REASONS.index(t.reason), t.payer.raw, t.payee.raw))
        return tuple(t for t in found if t.amount)


def _withdrawals(ledger: _Ledger, book: Book, providers: Providers) -> None:
    offer = book.offer
    for key in providers.withdrawn:
        ledger.pay(WITHDRAWAL, key, offer.client, offer.withdrawal.provider)
    if providers.client_withdrew:
        for key in providers.standing:
            ledger.pay(WITHDRAWAL, offer.client, key, offer.withdrawal.client)


def _demand(fits: bool, why: str) -> None:
    if not fits:
        raise UsageError(f"This outcome is not of this offer: {why}.", "Give the right outcome.")


def _check(
    book: Book,
    providers: Providers,
    session: Outcome,
    called: Challenge | None,
    challenge: Outcome | None,
) -> None:
    _demand(session.offer == book.offer.digest, "its session names another one")
    members = {m.key for m in session.members}
    _demand(members <= set(providers.standing), "a key in it does not stand")
    if called is None:
        _demand(challenge is None, "no alarm takes effect, and there is a challenge session")
        return
    if challenge is None:
        raise UsageError(
            "An alarm takes effect, and its challenge session has no outcome.",
            "Give it when that session has ended.",
        )
    _demand(challenge.offer == called.names, "its challenge session names another alarm")
    _demand(challenge.session != session.session, "it has one session twice")
    _demand(challenge.ended >= called.begins, "its challenge session ended before it could begin")
    members = {m.key for m in challenge.members}
    _demand(members <= set(called.keys), "a key in its challenge session was not called")


@dataclass
class _Case:
    """One offer whose session was held."""

    book: Book
    providers: Providers
    session: Outcome
    called: Challenge | None
    challenge: Outcome | None
    ledger: _Ledger
    forfeits: dict[PublicKey, int] = field(default_factory=dict)
    counted: dict[tuple[int, int, PublicKey], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.accepted = self.session.accepted
        if self.challenge is not None and self.challenge.result != NO_RESULT:
            self.accepted = self.challenge.accepted
        self.first = {m.key: m for m in self.session.members}
        self.second = {m.key: m for m in self.challenge.members} if self.challenge else {}
        self.auditors = self.called.auditors if self.called else ()
        self.recalled = set(self.called.providers) if self.called else set()
        self.fates = {key: self._fate(key) for key in self.providers.standing}
        self.paid = [key for key in self.providers.standing if self._is_paid(key)]
        self.winners = [key for key in self.auditors if self._has_won(key)]

    # -- fates, paid providers, alarms that were true (14.8.1, 14.8.3, 14.8.5) ------------------

    def _claim(self, key: PublicKey) -> bytes | None:
        """The claim that a provider opened in the offer's session."""
        member = self.first.get(key)
        return None if member is None else member.claim

    def _fate(self, key: PublicKey) -> str:
        if key not in self.recalled:
            return _fate_of(self.first.get(key))
        again = self.second.get(key)
        if again is not None and again.claim not in (None, self._claim(key)):
            return Fate.EXCLUDED.value
        return _fate_of(again)

    def _is_final(self, key: PublicKey) -> bool:
        return self.accepted is not None and self._claim(key) == self.accepted

    def _is_paid(self, key: PublicKey) -> bool:
        return self.fates[key] == Fate.REMAINING.value and self._is_final(key)

    def _is_right(self, member: SealedMember | None) -> bool:
        """Whether an auditor's claim is the final one, and not that of the offer's session."""
        right = self.accepted is not None and self.accepted != self.session.accepted
        return right and member is not None and member.claim == self.accepted

    def _has_won(self, key: PublicKey) -> bool:
        member = self.second.get(key)
        return self._is_right(member) and _fate_of(member) == Fate.REMAINING.value

    # -- what is forfeited (14.8.2, 14.8.6) -----------------------------------------------------

    def _forfeit(self, key: PublicKey) -> int:
        offer, fate = self.book.offer, self.fates[key]
        if fate in _FALSE_STATEMENT:
            return offer.provider_stake
        if fate == Fate.REMAINING.value or self._is_final(key):
            return 0
        return offer.silence if fate == Fate.SILENT.value or key in self.recalled else offer.absence

    def _alarm_forfeit(self, key: PublicKey) -> int:
        assert self.challenge is not None
        member = self.second.get(key)
        fate = _fate_of(member)
        undecided = fate == Fate.REMAINING.value and self.challenge.result == NO_RESULT
        right = fate == Fate.SILENT.value and self._is_right(member)
        return 0 if key in self.winners or undecided or right else self.book.offer.alarm_stake

    # -- the transfers ----------------------------------------------------------------------------

    def settle(self) -> None:
        offer = self.book.offer
        self.forfeits = {key: self._forfeit(key) for key in self.providers.standing}
        self.forfeits.update({key: self._alarm_forfeit(key) for key in self.auditors})
        for key in self.paid:
            self.ledger.pay(PRICE, offer.client, key, offer.price)
        self._reexecution()
        for key in self.auditors:
            self._share(FALSE, key, self.paid or [offer.client], self.forfeits[key])
        for key in self.providers.standing:
            fate = self.fates[key]
            if self.winners and key in self.recalled and fate in _FALSE_STATEMENT:
                self._share(REWARD, key, self.winners, min(offer.reward, self.forfeits[key]))
            if fate != Fate.REMAINING.value:
                self._share(fate, key, [offer.client], self.forfeits[key])

    def _share(
        self, reason: str, payer: PublicKey, payees: Sequence[PublicKey], amount: int
    ) -> None:
        """From the payer's forfeit, which holds at least `amount`, in equal shares."""
        self.forfeits[payer] -= amount
        for payee, part in shares(amount, payees).items():
            self.ledger.pay(reason, payer, payee, part)

    def _reexecution(self) -> None:
        offer = self.book.offer
        again, spent = offer.reexecution, Counter[PublicKey]()
        games = list(self.session.games) + list(self.challenge.games if self.challenge else ())
        for game in games:
            for party, key in enumerate(game.keys):
                steps = min(game.executed[party], again.most_steps - spent[key])
                spent[key] += steps
                amount = again.unit_price * steps
                if again.payer is Payer.CLIENT and key in self.paid:
                    self.ledger.pay(AGAIN, offer.client, key, amount)
                elif again.payer is Payer.LOSER and self._beat(game, party):
                    loser = game.keys[1 - party]
                    self._share(AGAIN, loser, [key], min(amount, self.forfeits[loser]))

    def _beat(self, game: PlayedGame, party: int) -> bool:
        """Whether a paid provider, or an auditor that has won, removed its opponent.

        Neither was removed itself: it has remained.
        """
        won = game.keys[party] in self.paid or game.keys[party] in self.winners
        return won and game.removed[1 - party]


def _fate_of(member: SealedMember | None) -> str:
    return ABSENT if member is None else member.fate.value
