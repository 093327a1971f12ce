"""Alterations of a referee's log, made with the referee's key (PROTOCOL 12.5)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from reference.judge.encoding import Reader, blob, sha, u8, u64
from reference.session.layout import ENTRY, cut, read_entry, write_entry
from unit.delegation.players import REFEREE

from tallystick.commit.signed import sign_compact
from tallystick.protocol.forfeit import Forfeit, sign_forfeit


@dataclass(frozen=True)
class Said:
    """What an entry says besides its place."""

    time: int
    kind: int
    fields: bytes


Words = list[Said]


def taken_apart(log: Sequence[bytes]) -> Words:
    entries = [read_entry(cut(message, len(message))[0]) for message in log]
    return [Said(e.time, e.kind, e.fields) for e in entries]


def put_together(words: Sequence[Said], like: Sequence[bytes] = ()) -> list[bytes]:
    """The words signed and chained; the entries of `like` are kept as long as they are equal."""
    out: list[bytes] = []
    previous = bytes(32)
    for index, said in enumerate(words):
        data = write_entry(index, previous, said.time, said.kind, said.fields)
        kept = index < len(like) and like[index][8:-64] == data
        out.append(like[index] if kept else sign_compact(REFEREE, ENTRY, data))
        previous = sha(data)
    return out


def _place(words: Words, rng: random.Random) -> int:
    return rng.randrange(1, len(words)) if len(words) > 1 else 0


def _of(words: Words, rng: random.Random, *kinds: int) -> int:
    """A place of one of these kinds, else any."""
    found = [i for i, w in enumerate(words) if w.kind in kinds]
    return rng.choice(found) if found else _place(words, rng)


def dropped(words: Words, rng: random.Random) -> Words:
    i = _place(words, rng)
    return words[:i] + words[i + 1 :]


def doubled(words: Words, rng: random.Random) -> Words:
    i = _place(words, rng)
    later = rng.randint(i + 1, len(words))
    copy = replace(words[i], time=words[later - 1].time)
    return [*words[:later], copy, *words[later:]]


def swapped(words: Words, rng: random.Random) -> Words:
    i = _place(words, rng)
    j = min(i + rng.choice([1, 1, 1, 2, 5]), len(words) - 1)
    out = list(words)
    out[i], out[j] = replace(words[j], time=words[i].time), replace(words[i], time=words[j].time)
    return out


def retimed(words: Words, rng: random.Random) -> Words:
    i = _place(words, rng)
    by = rng.choice([-100, -1, 1, 1, 30, 100, 1000, 2**53])
    out = list(words)
    out[i] = replace(words[i], time=max(0, words[i].time + by))
    if rng.random() < 0.7:  # all later ones with it, so that times do not decrease
        out[i:] = [replace(w, time=max(0, w.time + by)) for w in words[i:]]
    return out


def flipped(words: Words, rng: random.Random) -> Words:
    i = rng.randrange(len(words))
    fields = bytearray(words[i].fields)
    if not fields:
        return swapped(words, rng)
    at = rng.randrange(len(fields)) if rng.random() < 0.5 else rng.randrange(min(18, len(fields)))
    fields[at] ^= 1 << rng.randrange(8)
    return [*words[:i], replace(words[i], fields=bytes(fields)), *words[i + 1 :]]


def longer(words: Words, rng: random.Random) -> Words:
    i = rng.randrange(len(words))
    fields = words[i].fields
    other = rng.choice([fields + b"\0", fields[:-1], b""])
    return [*words[:i], replace(words[i], fields=other), *words[i + 1 :]]


def of_another_kind(words: Words, rng: random.Random) -> Words:
    i = rng.randrange(len(words))
    out = list(words)
    out[i] = replace(words[i], kind=rng.randint(0, 13))
    return out


def ended_early(words: Words, rng: random.Random) -> Words:
    return words[: rng.randint(1, len(words))]


def moved(words: Words, rng: random.Random) -> Words:
    """A party's message or the clock's entry, somewhere else."""
    i = _of(words, rng, *rng.choice([(2,), (4,), (7,), (7,), (8,), (3, 5), (10,), (6,)]))
    rest = words[:i] + words[i + 1 :]
    j = rng.randint(1, len(rest)) if rng.random() < 0.6 else min(len(rest), i + rng.choice([1, 2]))
    near = rest[min(j, len(rest)) - 1].time if rest else 0
    return [*rest[:j], replace(words[i], time=near), *rest[j:]]


def inserted(words: Words, rng: random.Random) -> Words:
    """A return, a closing, a verdict or a result that the referee makes up."""
    j = rng.randint(1, len(words))
    time = words[j - 1].time + rng.choice([0, 0, 1, 50, 400, 1100])
    kind = rng.choice([9, 9, 9, 3, 5, 11, 12, 10])
    fields = {11: u64(rng.randint(0, 2)) + u8(0) + u8(rng.randint(0, 3)), 12: bytes(33),
              10: u64(0) + REFEREE.public.raw * 2}.get(kind, b"")  # fmt: skip
    later = [replace(w, time=max(w.time, time)) for w in words[j:]]
    return [*words[:j], Said(time, kind, fields), *later]


def other_outcome(words: Words, rng: random.Random) -> Words:
    i = _of(words, rng, 11, 12)
    fields = bytearray(words[i].fields or b"\0")
    fields[rng.choice([-1, -1, 0, min(8, len(fields) - 1)])] ^= rng.randint(1, 4)
    return [*words[:i], replace(words[i], fields=bytes(fields)), *words[i + 1 :]]


def another_seat(words: Words, rng: random.Random) -> Words:
    """A message of a game under the other party's number, or another game's."""
    i = _of(words, rng, 7, 7, 8, 6)
    if words[i].kind not in (6, 7, 8):
        return moved(words, rng)
    r = Reader(words[i].fields)
    game, party = r.u64(), r.u8()
    where = (game, 1 - party) if rng.random() < 0.5 else (rng.randint(0, 3), party)
    fields = u64(where[0]) + u8(where[1]) + words[i].fields[9:]
    return [*words[:i], replace(words[i], fields=fields), *words[i + 1 :]]


def forfeited(words: Words, rng: random.Random) -> Words:
    """A forfeit of a question that is in the log, at any time after it."""
    i = _of(words, rng, 6)
    if words[i].kind != 6:
        return inserted(words, rng)
    r = Reader(words[i].fields)
    game, party, query = r.u64(), r.u8(), r.blob(65536)
    roots = _roots(words, game)
    job = words[0].fields[:32]
    word = Forfeit(job, roots, party, query, REFEREE.public)
    fields = u64(game) + u8(party) + blob(sign_forfeit(REFEREE, word))
    j = rng.randint(i + 1, min(len(words), i + 4))
    time = words[j - 1].time + rng.choice([0, 1, 5, 50, 51, 100, 120, 121, 520, 521, 522, 5000])
    later = [replace(w, time=max(w.time, time)) for w in words[j:]]
    if rng.random() < 0.3:
        later = later[1:]
    return [*words[:j], Said(time, 8, fields), *later]


def _roots(words: Words, game: int) -> tuple[bytes, bytes]:
    """The run roots of the parties of a game, from their openings in the log."""
    import json
    from base64 import b64decode

    found: dict[bytes, bytes] = {}
    for w in words:
        if w.kind == 4:
            opening = Reader(cut(Reader(w.fields).blob(70000), 70000)[0])
            opening.tag("opening/1")
            _, key, _ = opening.hash(), opening.hash(), opening.hash()
            run = json.loads(b64decode(json.loads(opening.blob(65536))["payload"]))
            found[key] = bytes.fromhex(run["run_root"])
    for w in words:
        if w.kind == 10 and w.fields[:8] == u64(game):
            keys = w.fields[8:40], w.fields[40:72]
            return found.get(keys[0], bytes(32)), found.get(keys[1], bytes(32))
    return bytes(32), bytes(32)


def another_rule(words: Words, rng: random.Random) -> Words:
    """Another number in entry 0; the messages stay those of the first session."""
    fields = bytearray(words[0].fields)
    fields[96 + 8 * rng.randrange(9) + rng.choice([0, 0, 1, 5, 7])] ^= 1 << rng.randrange(8)
    return [replace(words[0], fields=bytes(fields)), *words[1:]]


CHANGES: tuple[Callable[[Words, random.Random], Words], ...] = (
    dropped, doubled, swapped, retimed, retimed, flipped, longer, of_another_kind, ended_early,
    moved, moved, inserted, other_outcome, another_seat, forfeited, forfeited, another_rule,
)  # fmt: skip


def _unchained(log: Sequence[bytes], other: Sequence[bytes], rng: random.Random) -> list[bytes]:
    """What a person without the referee's key can do to signed entries."""
    out = list(log)
    i = rng.randrange(len(out))
    what = rng.randrange(5)
    if what == 0:
        del out[i]
    elif what == 1:
        out.insert(rng.randint(0, len(out)), out[i])
    elif what == 2:
        j = rng.randrange(len(out))
        out[i], out[j] = out[j], out[i]
    elif what == 3:
        out[i] = rng.choice(other)
    else:
        at = rng.randrange(len(out[i]))
        out[i] = out[i][:at] + bytes([out[i][at] ^ 1 << rng.randrange(8)]) + out[i][at + 1 :]
    return out


def _of_another_session(words: Words, other: Sequence[bytes], rng: random.Random) -> Words:
    """A party's message of another session of the same parties, in the place of this one's."""
    theirs = [w for w in taken_apart(other) if w.kind in (2, 4, 7)]
    i = _of(words, rng, 2, 4, 7)
    if not theirs:
        return words
    chosen = rng.choice([w for w in theirs if w.kind == words[i].kind] or theirs)
    return [*words[:i], replace(words[i], fields=chosen.fields, kind=chosen.kind), *words[i + 1 :]]


def altered(
    log: Sequence[bytes], others: Sequence[Sequence[bytes]], count: int, rng: random.Random
) -> Iterator[tuple[str, list[bytes]]]:
    """(name, log) of `count` alterations."""
    words = taken_apart(log)
    for _ in range(count):
        chance = rng.random()
        if chance < 0.08:
            yield "unchained", _unchained(log, rng.choice(others), rng)
        elif chance < 0.16:
            changed = _of_another_session(words, rng.choice(others), rng)
            yield "another session's", put_together(changed, log)
        else:
            change = rng.choice(CHANGES)
            yield change.__name__, put_together(change(list(words), rng), log)
