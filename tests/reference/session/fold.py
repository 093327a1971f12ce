"""A session as its log says it: one entry after the other (PROTOCOL 10, 11, 12)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reference.judge.encoding import MalformedError, Reader, blob, sha, u8, u64
from reference.judge.evidence import read_party
from reference.judge.rounds import Party
from reference.judge.terms import Terms
from reference.session.layout import (
    ANSWER_BYTES,
    FORFEIT_BYTES,
    OPENING_BYTES,
    SEAL_BYTES,
    Entry,
    Opening,
    Rules,
    Seal,
    read_opening,
    read_seal,
)
from reference.session.match import CONVICTIONS, Match

Claim = tuple[bytes, int, int, bytes]


class DeviatesError(Exception):
    """12.5."""


@dataclass
class Member:
    """A party that opened (10.3), and its run."""

    commitment: bytes
    claim: Claim

    def run(self, job: bytes) -> Party:
        """A fresh copy: a game keeps notes in it."""
        return read_party(self.commitment, job)


class Session:
    """Everything that the entries so far determine."""

    def __init__(self, terms: Terms, rules: Rules, first: Entry) -> None:
        self.terms, self.rules, self.digest, self.time = terms, rules, first.digest, first.time
        self.state = "sealing"
        self.deadline = rules.sealing
        self.seals: dict[bytes, Seal] = {}
        self.openings: dict[bytes, Opening] = {}
        self.members: dict[bytes, Member] = {}
        self.removed: dict[bytes, str] = {}
        self.sides: list[list[bytes]] = []
        self.matches: list[Match] = []
        self.told: set[int] = set()  # games whose verdict is in the log
        self.unbegun: list[tuple[bytes, bytes]] = []
        self.rounds = 0
        self.result: tuple[int, bytes] | None = None

    # What follows (12.4).

    def follows(self) -> tuple[int, bytes] | None:
        """Kind and fields of the entry that the ones before it determine."""
        if self.state == "sealing":
            listed = self.rules.allowed
            return (3, b"") if listed and all(k in self.seals for k in listed) else None
        if self.state == "opening":
            done = all(k in self.openings or k in self.removed for k in self.seals)
            return (5, b"") if done else None
        for m in self.running():
            if m.verdict:
                return 11, u64(m.number) + u8(m.verdict[0]) + u8(m.bits)
            if m.unasked:
                party = m.unasked[0]
                return 6, u64(m.number) + u8(party) + blob(m.queries[party])
        if self.unbegun:
            return 10, u64(len(self.matches)) + b"".join(self.unbegun[0])
        if not self.running():
            return 12, self.outcome()
        return None

    def running(self) -> list[Match]:
        return [m for m in self.matches if m.number not in self.told]

    def judged(self) -> list[Match]:
        return [m for m in self.matches if m.number in self.told]

    def undecided(self) -> bool:
        """10.5.2."""
        return any(m.verdict and m.verdict[0] != CONVICTIONS for m in self.judged())

    def left(self) -> list[list[bytes]]:
        """The signers that are left, of each side that has one."""
        sides = ([k for k in side if k not in self.removed] for side in self.sides)
        return [side for side in sides if side]

    def outcome(self) -> bytes:
        """10.6."""
        left = self.left()
        if self.undecided():
            return u8(4) + bytes(32)
        if not left:
            return u8(0) + bytes(32)
        named = sha(self.members[left[0][0]].commitment)
        alone = 3 if len(self.members) == 1 else 2
        return u8(1 if len(self.sides) > 1 else alone) + named

    def pair(self) -> None:
        """10.5."""
        firsts = [side[0] for side in self.left()]
        if len(firsts) > 1:
            self.rounds += 1
            self.unbegun = list(zip(firsts[::2], firsts[1::2], strict=False))

    # Entries.

    def take(self, entry: Entry) -> None:
        """One entry that is chained and signed; DeviatesError where it convicts."""
        if self.result is not None or entry.time < self.time:
            raise DeviatesError("after the result, or a time before the one before")
        try:
            if entry.kind == 9:
                self.returned(entry)
            else:
                self.other(entry)
        except MalformedError as why:
            raise DeviatesError(str(why)) from why
        self.time = entry.time

    def returned(self, entry: Entry) -> None:
        """11.5.2."""
        away = entry.time - self.time
        self.deadline += away
        for m in self.running():
            for party in m.deadlines:
                m.deadlines[party] += away

    def clocks(self) -> list[tuple[int, int, int]]:
        """(deadline, game, party) of each open deadline, in their order (12.4)."""
        if self.state in ("sealing", "opening"):
            return [(self.deadline, 0, 0)]
        found = [(d, m.number, p) for m in self.running() for p, d in m.deadlines.items()]
        return sorted(found)

    def other(self, entry: Entry) -> None:
        due = self.follows()
        if due is not None:
            if (entry.kind, entry.fields) != due:
                raise DeviatesError(f"kind {due[0]} follows")
            self.followed(entry)
            return
        late = [c for c in self.clocks() if c[0] < entry.time]
        closing = {"sealing": 3, "opening": 5}.get(self.state)
        if closing is not None and (late or entry.kind == closing):
            if (entry.kind, entry.fields) != (closing, b"") or not late:
                raise DeviatesError("the deadline has passed, or has not")
            self.close(entry)
        elif entry.kind == 8:
            self.forfeited(entry, late)
        elif late:
            raise DeviatesError("a forfeit is due")
        elif entry.kind == 2 and self.state == "sealing":
            self.seal(entry)
        elif entry.kind == 4 and self.state == "opening":
            self.opening(entry)
        elif entry.kind == 7 and self.state == "playing":
            self.answered(entry)
        else:
            raise DeviatesError("not now")

    def followed(self, entry: Entry) -> None:
        r = Reader(entry.fields)
        if entry.kind in (3, 5):
            self.close(entry)
        elif entry.kind == 6:
            self.matches[r.u64()].ask(r.u8(), entry.time)
        elif entry.kind == 10:
            keys = self.unbegun.pop(0)
            runs = [self.members[k].run(self.terms.digest) for k in keys]
            number = len(self.matches)
            self.matches.append(Match(self.terms, self.rules, number, keys, runs))
        elif entry.kind == 11:
            self.verdict(self.matches[r.u64()])
        else:
            self.result = (r.u8(), r.hash())
            self.state = "ended"

    def close(self, entry: Entry) -> None:
        if self.state == "sealing":
            self.state, self.deadline = "opening", entry.time + self.rules.opening
            return
        self.state = "playing"
        for key in self.seals:
            if key not in self.openings:
                self.removed.setdefault(key, "unopened")
        claims: dict[Claim, list[bytes]] = {}
        for key in sorted(self.members):
            claims.setdefault(self.members[key].claim, []).append(key)
        self.sides = [claims[c] for c in sorted(claims)]
        self.pair()

    def verdict(self, match: Match) -> None:
        """10.5.1."""
        self.told.add(match.number)
        assert match.verdict is not None
        for party, clause in match.verdict[1]:
            self.removed.setdefault(match.keys[party], f"game {match.number}: {clause}")
        if not self.running() and not self.unbegun and not self.undecided():
            self.pair()

    def seal(self, entry: Entry) -> None:
        """10.2.1."""
        seal = read_seal(_only_blob(entry.fields, SEAL_BYTES))
        key, listed = seal.key, self.rules.allowed
        if seal.session != self.digest or key == self.rules.referee:
            raise MalformedError("a seal of another session, or the referee's")
        if listed and key not in listed:
            raise MalformedError("a key that the rules do not allow")
        if key in self.removed:
            raise MalformedError("a seal of an excluded key")
        if key not in self.seals:
            if len(self.seals) == self.rules.most:
                raise MalformedError("more than the most parties")
            self.seals[key] = seal
        elif self.seals[key] != seal:
            self.removed[key] = "two seals"
        else:
            raise MalformedError("without effect")

    def opening(self, entry: Entry) -> None:
        """10.3, 10.3.1."""
        opening = read_opening(_only_blob(entry.fields, OPENING_BYTES))
        key = opening.key
        if opening.session != self.digest or key not in self.seals or key in self.removed:
            raise MalformedError("no opening of a sealed party")
        if key not in self.openings:
            self.openings[key] = opening
            member = self.member(opening)
            if member is None:
                self.removed[key] = "false opening"
            else:
                self.members[key] = member
        elif self.openings[key] != opening:
            self.removed[key] = "two openings"
            del self.members[key]
        else:
            raise MalformedError("without effect")

    def member(self, opening: Opening) -> Member | None:
        if opening.sealed(self.terms.digest) != self.seals[opening.key].sealed:
            return None
        try:
            run = read_party(opening.commitment, self.terms.digest)
        except MalformedError:
            return None
        if run.signer != opening.key:
            return None
        claim = (run.run_root, run.final, run.checkpoints, run.final_root)
        return Member(opening.commitment, claim)

    def of_game(self, entry: Entry, limit: int) -> tuple[Match, int, bytes]:
        r = Reader(entry.fields)
        number, party, message = r.u64(), r.u8(), r.blob(limit)
        r.end()
        if number not in {m.number for m in self.running()} or party > 1:
            raise MalformedError("no such game now, or no such party")
        return self.matches[number], party, message

    def answered(self, entry: Entry) -> None:
        match, party, message = self.of_game(entry, ANSWER_BYTES)
        match.answer(party, message, entry.time)

    def forfeited(self, entry: Entry, late: Sequence[tuple[int, int, int]]) -> None:
        if self.state != "playing":
            raise MalformedError("no game")
        match, party, word = self.of_game(entry, FORFEIT_BYTES)
        if late and late[0][1:] != (match.number, party):
            raise MalformedError("another forfeit is due")
        match.forfeit(party, word, entry.time)


def _only_blob(fields: bytes, limit: int) -> bytes:
    r = Reader(fields)
    data = r.blob(limit)
    r.end()
    return data
