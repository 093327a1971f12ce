"""The offer: one job, its price, stakes, deadlines and rules, signed by the client (PROTOCOL 14.2).

Amounts are integers of a unit that the offer names (14.1.1). Times are milliseconds since 1970 by
the referee's clock (11.1).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum
from typing import ClassVar, NoReturn

from tallystick.commit.encoding import JsonValue, canonical_json, check_hash, sha256
from tallystick.commit.members import Members
from tallystick.commit.signing import PublicKey
from tallystick.errors import CorruptFileError, UsageError
from tallystick.limits import LIMITS
from tallystick.protocol.referee import MAX_ARITY, MIN_ARITY

MOST_AMOUNT = 1 << 40
LATEST = 1 << 52  # of a deadline: a duration more is still exact in JSON
MOST_REFEREES = 16
MOST_UNIT = 64  # characters
NONCE_BYTES = 32


class Payer(Enum):
    """Who pays for steps executed again (PROTOCOL 14.8.4)."""

    CLIENT = "client"
    LOSER = "loser"
    EACH = "each"


def refuse(why: str) -> NoReturn:
    """An offer or document that breaks its clause, as our own caller's mistake."""
    raise UsageError(f"This breaks PROTOCOL 14: {why}.", "Choose other values.")


def within(name: str, value: int, least: int, most: int) -> None:
    """Raises UsageError where `value` is outside of [least, most]."""
    if not least <= value <= most:
        refuse(f"{name} is {value}, not {least} to {most}")


class _Group:
    """Integers under one member of the offer, by the names of the fields."""

    def numbers(self) -> dict[str, int]:
        return {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]

    def check(self, most: int) -> None:
        for name, value in self.numbers().items():
            within(name, value, 0, most)


@dataclass(frozen=True)
class Withdrawing(_Group):
    """What a withdrawal costs the client, for each provider, and a provider (14.4)."""

    client: int = 0
    provider: int = 0


@dataclass(frozen=True)
class Deadlines(_Group):
    """Times in milliseconds (11.1); `challenge` is a duration after the result."""

    accept: int
    withdraw: int
    seal: int
    challenge: int


@dataclass(frozen=True)
class SessionNumbers(_Group):
    """The numbers of the session's rules (10.1.1, 11.2): milliseconds; `steps` is a count."""

    arity: int
    opening: int
    budget: int
    step: int
    steps: int
    extension: int


@dataclass(frozen=True)
class Reexecution:
    """The payer of steps executed again, the price of one, and how many one party is paid for."""

    payer: Payer = Payer.EACH
    unit_price: int = 0
    most_steps: int = 0


@dataclass(frozen=True)
class Offer:
    """The client's offer; the clause of each member is PROTOCOL 14.2. Raises UsageError."""

    client: PublicKey
    job_digest: bytes
    nonce: bytes
    unit: str
    providers: int
    least: int
    most_parties: int
    referees: tuple[PublicKey, ...]
    price: int
    provider_stake: int
    client_stake: int
    alarm_stake: int
    absence: int
    silence: int
    reward: int
    deadlines: Deadlines
    rules: SessionNumbers
    withdrawal: Withdrawing = Withdrawing()
    reexecution: Reexecution = Reexecution()
    keys: tuple[PublicKey, ...] = ()

    NAME: ClassVar[str] = "offer"

    def __post_init__(self) -> None:
        check_hash(self.job_digest, "job digest")
        check_hash(self.nonce, "nonce")
        if not (
            0 < len(self.unit) <= MOST_UNIT and self.unit.isascii() and self.unit.isprintable()
        ):
            refuse(f"the unit is not 1 to {MOST_UNIT} printable ASCII characters")
        within("most_parties", self.most_parties, 2, LIMITS.parties)
        within("providers", self.providers, 1, self.most_parties)
        within("least", self.least, 1, self.providers)
        _check_keys("keys", self.keys, 0, LIMITS.parties)
        _check_keys("referees", self.referees, 1, MOST_REFEREES)
        if self.client in self.referees or set(self.keys) & set(self.referees):
            refuse("a referee's key is a party's (14.2.1)")
        self._check_amounts()
        self._check_times()

    def _check_amounts(self) -> None:
        for name in _AMOUNTS:
            within(name, getattr(self, name), 0, MOST_AMOUNT)
        for name in ("absence", "silence", "reward"):
            within(name, getattr(self, name), 0, self.provider_stake)
        self.withdrawal.check(MOST_AMOUNT)
        within("withdrawal.provider", self.withdrawal.provider, 0, self.provider_stake)
        if self.withdrawal.client * self.providers > self.client_stake:
            refuse("the client's stake does not cover its withdrawal")
        again = self.reexecution
        within("unit_price", again.unit_price, 0, MOST_AMOUNT)
        within("most_steps", again.most_steps, 0, LIMITS.steps)
        most = again.unit_price * again.most_steps * self.providers
        if again.payer is Payer.CLIENT and most > self.client_stake:
            refuse("the client's stake does not cover re-execution")

    def _check_times(self) -> None:
        at = self.deadlines
        at.check(LATEST)
        within("challenge", at.challenge, 0, LIMITS.duration_ms)
        if not at.accept <= at.withdraw < at.seal:
            refuse("its deadlines are not in order: accept, withdraw, seal")
        self.rules.check(LIMITS.duration_ms)
        within("arity", self.rules.arity, MIN_ARITY, MAX_ARITY)
        spent = self.rules.budget + self.rules.step * self.rules.steps
        within("budget + step * steps", spent, 0, LIMITS.duration_ms)

    @property
    def signer(self) -> PublicKey:
        return self.client

    @property
    def digest(self) -> bytes:
        """H of the payload: the name of the offer (14.1)."""
        return sha256(self.payload())

    def payload(self) -> bytes:
        """The signed canonical JSON."""
        again = self.reexecution
        value: dict[str, JsonValue] = {
            "client": self.client.raw.hex(),
            "deadlines": {**self.deadlines.numbers()},
            "job_digest": self.job_digest.hex(),
            "keys": [key.raw.hex() for key in self.keys],
            "kind": f"tallystick/{self.NAME}/1",
            "nonce": self.nonce.hex(),
            "reexecution": {
                "most_steps": again.most_steps,
                "payer": again.payer.value,
                "unit_price": again.unit_price,
            },
            "referees": [key.raw.hex() for key in self.referees],
            "rules": {**self.rules.numbers()},
            "unit": self.unit,
            "withdrawal": {**self.withdrawal.numbers()},
        }
        value.update({name: getattr(self, name) for name in (*_COUNTS, *_AMOUNTS)})
        return canonical_json(value)

    @staticmethod
    def from_members(members: Members) -> Offer:
        """The offer in an untrusted object. Raises CorruptFileError and UsageError."""
        members.only(
            "client", "deadlines", "job_digest", "keys", "kind", "nonce", "reexecution", "referees",
            "rules", "unit", "withdrawal", *_COUNTS, *_AMOUNTS,
        )  # fmt: skip
        again = members.child("reexecution")
        again.only("most_steps", "payer", "unit_price")
        if (payer := again.of("payer", str)) not in {p.value for p in Payer}:
            members.fail("its payer of re-execution is not client, loser or each")
        return Offer(
            client=key_of(members, "client"),
            job_digest=members.hex("job_digest"),
            nonce=members.hex("nonce", NONCE_BYTES),
            unit=members.of("unit", str),
            keys=_keys_of(members, "keys", LIMITS.parties),
            referees=_keys_of(members, "referees", MOST_REFEREES),
            deadlines=Deadlines(**_numbers_of(members, "deadlines", Deadlines)),
            rules=SessionNumbers(**_numbers_of(members, "rules", SessionNumbers)),
            withdrawal=Withdrawing(**_numbers_of(members, "withdrawal", Withdrawing)),
            reexecution=Reexecution(
                Payer(payer), again.of("unit_price", int), again.of("most_steps", int)
            ),
            **{name: members.of(name, int) for name in (*_COUNTS, *_AMOUNTS)},
        )


_COUNTS = ("least", "most_parties", "providers")
_AMOUNTS = (
    "absence", "alarm_stake", "client_stake", "price", "provider_stake", "reward", "silence",
)  # fmt: skip


def _check_keys(name: str, keys: tuple[PublicKey, ...], least: int, most: int) -> None:
    raw = [key.raw for key in keys]
    if raw != sorted(set(raw)):
        refuse(f"{name} are not in ascending order")
    within(f"the number of {name}", len(raw), least, most)


def key_of(members: Members, name: str) -> PublicKey:
    """The key at member `name`. Raises CorruptFileError where it is none (COMMITMENTS 9.1.1)."""
    return _key(members.hex(name))


def _key(raw: bytes) -> PublicKey:
    try:
        return PublicKey(raw)
    except UsageError as error:
        raise CorruptFileError(
            f"A document names what is not a valid key: {error.message}", "Refuse it."
        ) from error


def _keys_of(members: Members, name: str, most: int) -> tuple[PublicKey, ...]:
    found = members.of(name, list)
    if len(found) > most:
        members.fail(f"{name!r} has more than {most} keys")
    return tuple(_key(members.hex_of(item, name)) for item in found)


def _numbers_of(members: Members, name: str, group: type[_Group]) -> dict[str, int]:
    child = members.child(name)
    names = [f.name for f in fields(group)]  # type: ignore[arg-type]
    child.only(*names)
    return {n: child.of(n, int) for n in names}
