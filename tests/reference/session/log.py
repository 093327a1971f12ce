"""A referee's log, read and judged (PROTOCOL 12)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from reference.judge.encoding import MalformedError, Reader, signed
from reference.judge.terms import Terms
from reference.session.fold import DeviatesError, Session
from reference.session.layout import ENTRY, ENTRY_BYTES, Entry, cut, read_entry, read_rules


@dataclass
class Outcome:
    """What a log says. Keys are hexadecimal.

    `wrong` says what ended the reading: `convicted` (the referee, at `index`, by `clause`),
    `damaged` (no statement of any one from `index` on, 12.3.1, 12.5.3), `refused` (its entry 0
    begins no session of this job, 10.1.2), or nothing. The other members are as they were before
    that entry.
    """

    state: str
    members: list[str] = field(default_factory=list)
    sides: list[list[str]] = field(default_factory=list)
    removed: dict[str, str] = field(default_factory=dict)
    games: list[tuple[str, str, int, int]] = field(default_factory=list)
    rounds: int = 0
    result: tuple[int, str] | None = None
    wrong: str = ""
    index: int = -1
    clause: str = ""
    why: str = ""


def _outcome(s: Session) -> Outcome:
    games = []
    for m in s.judged():
        assert m.verdict is not None
        games.append((m.keys[0].hex(), m.keys[1].hex(), m.verdict[0], m.bits))
    return Outcome(
        s.state,
        [k.hex() for k in sorted(s.members)],
        [[k.hex() for k in side] for side in s.sides],
        {k.hex(): why for k, why in sorted(s.removed.items())},
        games,
        s.rounds,
        (s.result[0], s.result[1].hex()) if s.result else None,
    )


def _is_cut(data: bytes) -> bool:
    """Whether these bytes are the beginning of an entry."""
    return len(data) < 8 or len(data) < 8 + Reader(data).u64() + 64


def _entry(data: bytes, key: bytes | None) -> Entry:
    """A signed entry; MalformedError where it is no statement of the key, DeviatesError where the
    key has signed what is no entry.

    Without a key it is entry 0, whose own fields name the key.
    """
    inner, signature = cut(data, ENTRY_BYTES)
    if key is None:
        key = read_rules(read_entry(inner).fields).referee
    if not signed(key, signature, ENTRY, inner):
        raise MalformedError("a signature that does not verify")
    try:
        return read_entry(inner)
    except MalformedError as why:
        raise DeviatesError(str(why)) from why  # 12.5.3


@lru_cache(maxsize=4)
def _terms(job_json: bytes, program_text: bytes | tuple[bytes, ...]) -> Terms:
    return Terms(job_json, program_text)


def read(
    job_json: bytes, program_text: bytes | tuple[bytes, ...], entries: Sequence[bytes]
) -> Outcome:
    """The session of a log: its signed entries from index 0 on (12.1). The text, or of a job of
    format 2 the texts in the order of its programs."""
    terms = _terms(job_json, program_text)
    rest = list(entries)
    if rest and _is_cut(rest[-1]):
        rest.pop()  # 12.3.1
    if not rest:
        return Outcome("none")
    try:
        first = _entry(rest[0], None)
        if (first.index, first.previous, first.kind) != (0, bytes(32), 1):
            raise MalformedError("no entry 0")
    except MalformedError as why:
        return Outcome("none", wrong="refused", index=0, why=str(why))
    rules = read_rules(first.fields)
    if rules.job != terms.digest or ("replay/" in terms.contract and rules.most > 2):
        return Outcome("none", wrong="refused", index=0, why="another job, or rules of no session")
    session, before = Session(terms, rules, first), first
    for index, data in enumerate(rest[1:], 1):
        wrong = why = clause = ""
        try:
            entry = _entry(data, rules.referee)
            if (entry.index, entry.previous) != (index, before.digest):
                raise MalformedError("not chained")
            session.take(entry)
        except MalformedError as error:
            wrong, why = "damaged", str(error)
        except DeviatesError as error:
            wrong, why, clause = "convicted", str(error), "12.5"
        if wrong:
            found = _outcome(session)
            found.wrong, found.index, found.clause, found.why = wrong, index, clause, why
            return found
        before = entry
    return _outcome(session)


def forked(a: bytes, b: bytes, referee: bytes) -> bool:
    """Whether two signed entries convict by 12.5.1.

    One `previous` shows that they are of one session: an entry does not name its session.
    """
    try:
        x, y = _entry(a, referee), _entry(b, referee)
    except (MalformedError, DeviatesError):
        return False
    same = (x.index, x.previous) == (y.index, y.previous)
    return same and x.index > 0 and x.data != y.data
