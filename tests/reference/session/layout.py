"""Layouts of a session: log entries, rules, seals, openings (PROTOCOL 10.2, 10.3, 12.1, 12.2)."""

from __future__ import annotations

from dataclasses import dataclass

from reference.judge.encoding import (
    MalformedError,
    Reader,
    blob,
    good_point,
    sha,
    signed,
    tag,
    u8,
    u64,
)

SEAL = "application/vnd.tallystick.seal.v1"
OPENING = "application/vnd.tallystick.opening.v1"
ENTRY = "application/vnd.tallystick.log-entry.v1"
TURN = "application/vnd.tallystick.turn.v1"

# COMMITMENTS 11.1.
SEAL_BYTES, OPENING_BYTES, ENTRY_BYTES = 1024, 67584, 4259840
COMMITMENT_BYTES, FORFEIT_BYTES, ANSWER_BYTES, QUERY_BYTES = 65536, 262144, 4194304, 65536
DURATION, LATEST = 2**40, 2**53 - 1
PARTIES = 64


def cut(data: bytes, limit: int) -> tuple[bytes, bytes]:
    """Data and signature of a signed form (13.1)."""
    if len(data) > limit:
        raise MalformedError("over its limit")
    r = Reader(data)
    inner, signature = r.blob(limit), r.take(64)
    r.end()
    return inner, signature


@dataclass(frozen=True)
class Entry:
    """A log entry: its header, and the bytes of its fields (12.1)."""

    data: bytes
    index: int
    previous: bytes
    time: int
    kind: int
    fields: bytes

    @property
    def digest(self) -> bytes:
        return sha(self.data)


def read_entry(data: bytes) -> Entry:
    r = Reader(data)
    r.tag("log-entry/1")
    index, previous, time, kind = r.u64(), r.hash(), r.u64(), r.u8()
    if time > LATEST:
        raise MalformedError("a time that is none")
    entry = Entry(data, index, previous, time, kind, data[r.at :])
    check_fields(r, kind)
    r.end()
    return entry


def key_of(r: Reader) -> bytes:
    key = r.hash()
    if not good_point(key):
        raise MalformedError("a key that is none")
    return key


BLOBS = {2: SEAL_BYTES, 4: OPENING_BYTES, 6: QUERY_BYTES, 7: ANSWER_BYTES, 8: FORFEIT_BYTES}


def check_fields(r: Reader, kind: int) -> None:
    """The fields of 12.2 are there, and nothing else; raises MalformedError."""
    if kind == 1:
        rules_of(r)
    elif kind in BLOBS:
        if kind > 4:
            r.u64()
            if r.u8() > 1:
                raise MalformedError("no such party")
        r.blob(BLOBS[kind])
    elif kind == 10:
        r.u64(), key_of(r), key_of(r)
    elif kind == 11:
        r.u64(), r.u8(), r.u8()
    elif kind == 12:
        r.u8(), r.hash()
    elif kind not in (3, 5, 9):
        raise MalformedError("no such kind")


def write_entry(index: int, previous: bytes, time: int, kind: int, fields: bytes) -> bytes:
    return tag("log-entry/1") + u64(index) + previous + u64(time) + u8(kind) + fields


@dataclass(frozen=True)
class Rules:
    """The fields of kind 1 (10.1.1, 11.2)."""

    job: bytes
    nonce: bytes
    referee: bytes
    arity: int
    most: int
    sealing: int
    opening: int
    budget: int
    step: int
    steps: int
    extension: int
    allowed: list[bytes]
    offer: bytes

    def sound(self) -> bool:
        """Whether a session may have these rules (4.3, 10.1, 10.1.1, 11.1, 11.2)."""
        durations = (self.opening, self.budget, self.step, self.steps, self.extension)
        return (
            2 <= self.arity <= 256
            and 2 <= self.most <= PARTIES
            and self.sealing <= LATEST
            and all(d <= DURATION for d in (*durations, self.budget + self.step * self.steps))
            and self.allowed == sorted(set(self.allowed))
            and self.referee not in self.allowed
        )


def rules_of(r: Reader) -> Rules:
    job, nonce, referee = r.hash(), r.hash(), key_of(r)
    numbers = [r.u64() for _ in range(8)]
    count = r.u64()
    if count > PARTIES:
        raise MalformedError("too many keys")
    allowed = [key_of(r) for _ in range(count)]
    rules = Rules(job, nonce, referee, *numbers, allowed, r.hash())
    if not rules.sound():
        raise MalformedError("rules of no session")
    return rules


def read_rules(fields: bytes) -> Rules:
    """The fields of kind 1; raises MalformedError."""
    r = Reader(fields)
    rules = rules_of(r)
    r.end()
    return rules


def write_rules(rules: Rules) -> bytes:
    numbers = (rules.arity, rules.most, rules.sealing, rules.opening)
    numbers += (rules.budget, rules.step, rules.steps, rules.extension)
    listed = u64(len(rules.allowed)) + b"".join(rules.allowed)
    head = rules.job + rules.nonce + rules.referee
    return head + b"".join(map(u64, numbers)) + listed + rules.offer


@dataclass(frozen=True)
class Seal:
    session: bytes
    key: bytes
    sealed: bytes


@dataclass(frozen=True)
class Opening:
    session: bytes
    key: bytes
    nonce: bytes
    commitment: bytes

    def sealed(self, job: bytes) -> bytes:
        """The hash that a seal of this opening has (10.2)."""
        head = tag("sealed/1") + job + self.session + self.key + self.nonce
        return sha(head + blob(self.commitment))


def read_seal(message: bytes) -> Seal:
    """A signed seal whose signature is that of the key in it; MalformedError otherwise."""
    data, signature = cut(message, SEAL_BYTES)
    r = Reader(data)
    r.tag("seal/1")
    seal = Seal(r.hash(), r.hash(), r.hash())
    r.end()
    if not signed(seal.key, signature, SEAL, data):
        raise MalformedError("a signature that does not verify")
    return seal


def read_opening(message: bytes) -> Opening:
    """A signed opening, as `read_seal`."""
    data, signature = cut(message, OPENING_BYTES)
    r = Reader(data)
    r.tag("opening/1")
    opening = Opening(r.hash(), r.hash(), r.hash(), r.blob(COMMITMENT_BYTES))
    r.end()
    if not signed(opening.key, signature, OPENING, data):
        raise MalformedError("a signature that does not verify")
    return opening


def write_seal(session: bytes, key: bytes, sealed: bytes) -> bytes:
    return tag("seal/1") + session + key + sealed


def write_opening(o: Opening) -> bytes:
    return tag("opening/1") + o.session + o.key + o.nonce + blob(o.commitment)
