"""Logs of referees that lie, each with the index of the entry that convicts (PROTOCOL 12.5)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from unit.delegation.players import REFEREE, Player

from tallystick.commit.encoding import sha256
from tallystick.commit.signed import sign_compact
from tallystick.commit.signing import PrivateKey
from tallystick.delegation import entries as e
from tallystick.delegation.entries import Entry, Event, open_entry, sign_entry
from tallystick.delegation.rules import Rules
from tallystick.delegation.seals import sign_opening, sign_seal
from tallystick.delegation.session import Session
from tallystick.delegation.watch import replayed
from tallystick.job.job import Job
from tallystick.protocol.forfeit import sign_forfeit

OTHER = PrivateKey(b"o" * 32)


@dataclass
class World:
    """An honest referee's log of a session: five parties, three sides, one of them silent."""

    job: Job
    players: list[Player]
    rules: Rules
    log: list[bytes]

    @property
    def entries(self) -> list[Entry]:
        return [open_entry(message, REFEREE.public) for message in self.log]

    @property
    def session_digest(self) -> bytes:
        return self.entries[0].digest()

    def first(self, kind: type, after: int = 0, nth: int = 0) -> int:
        """The index of an entry of `kind`, at `after` or later."""
        found = [x.index for x in self.entries if isinstance(x.event, kind) and x.index >= after]
        return found[nth]

    def before(self, index: int) -> Session:
        return replayed(self.job.terms, self.log[:index])

    def lie(self, index: int, event: Event, time: int | None = None) -> list[bytes]:
        """The log up to `index`, and there `event`, signed and linked as it should be."""
        last = self.entries[index - 1]
        now = self.entries[min(index, len(self.log) - 1)].time if time is None else time
        entry = Entry(index, last.digest(), now, event)
        return [*self.log[:index], sign_entry(REFEREE, entry)]

    def message(self, kind: type, key: PrivateKey) -> bytes:
        """The seal or the opening of a player's key, as it stands in the log."""
        for entry in self.entries:
            if isinstance(entry.event, kind) and key.public.raw in entry.event.message:
                return bytes(entry.event.message)
        raise LookupError


# A log and the index of the entry that convicts.
Lie = tuple[list[bytes], int]


def _early_forfeit(w: World, late: int = 0, **changed: object) -> Lie:
    """A forfeit of the party whose answer stands there, `late` ms after its deadline."""
    index = w.first(e.Answered, nth=4)
    event = w.entries[index].event
    assert isinstance(event, e.Answered)
    session = w.before(index)
    match = session.matches[event.game]
    word = replace(match.forfeit(event.party), **changed)  # type: ignore[arg-type]
    key = OTHER if word.referee == OTHER.public else REFEREE
    time = match.clocks[event.party].deadline
    assert time is not None
    forfeit = e.Forfeited(event.game, event.party, sign_forfeit(key, word))
    return w.lie(index, forfeit, time + late), index


def early_forfeit(w: World) -> Lie:
    return _early_forfeit(w)


def forfeit_of_another_query(w: World) -> Lie:
    return _early_forfeit(w, 1, query=b"q")


def forfeit_of_other_runs(w: World) -> Lie:
    return _early_forfeit(w, 1, run_roots=(bytes(32), bytes(32)))


def forfeit_by_another_key(w: World) -> Lie:
    return _early_forfeit(w, 1, referee=OTHER.public)


def forfeit_of_a_party_that_has_answered(w: World) -> Lie:
    index = next(
        x.index + 1
        for x in w.entries
        if isinstance(x.event, e.Answered) and isinstance(w.entries[x.index + 1].event, e.Answered)
    )
    done = w.entries[index - 1].event
    assert isinstance(done, e.Answered)
    match = w.before(index - 1).matches[done.game]
    message = sign_forfeit(REFEREE, match.forfeit(done.party))
    return w.lie(index, e.Forfeited(done.game, done.party, message), 10**6), index


def late_answer_accepted(w: World) -> Lie:
    index = w.first(e.Answered, nth=4)
    event = w.entries[index].event
    assert isinstance(event, e.Answered)
    deadline = w.before(index).matches[event.game].clocks[event.party].deadline
    assert deadline is not None
    return w.lie(index, event, deadline + 1), index


def skipped_query(w: World) -> Lie:
    index = w.first(e.Asked, nth=2)
    return w.lie(index, w.entries[index + 1].event), index


def query_of_another_round(w: World) -> Lie:
    index = w.first(e.Asked)
    event, later = w.entries[index].event, w.entries[w.first(e.Asked, nth=6)].event
    assert isinstance(event, e.Asked) and isinstance(later, e.Asked)
    return w.lie(index, replace(event, message=later.message)), index


def query_to_the_other_party(w: World) -> Lie:
    index = w.first(e.Asked)
    event = w.entries[index].event
    assert isinstance(event, e.Asked)
    return w.lie(index, replace(event, party=1 - event.party)), index


def query_put_twice(w: World) -> Lie:
    index = w.first(e.Answered)
    return w.lie(index, w.entries[w.first(e.Asked)].event), index


def answer_put_in(w: World, **changed: object) -> Lie:
    index = w.first(e.Answered, nth=2)
    event = w.entries[index].event
    assert isinstance(event, e.Answered)
    return w.lie(index, replace(event, **changed)), index  # type: ignore[arg-type]


def answer_of_the_other_party(w: World) -> Lie:
    event = w.entries[w.first(e.Answered, nth=2)].event
    assert isinstance(event, e.Answered)
    return answer_put_in(w, party=1 - event.party)


def answer_of_another_game(w: World) -> Lie:
    event = w.entries[w.first(e.Answered, nth=2)].event
    assert isinstance(event, e.Answered)
    return answer_put_in(w, game=1 - event.game)


def answer_of_a_game_that_is_not(w: World) -> Lie:
    return answer_put_in(w, game=77)


def answer_of_another_position(w: World) -> Lie:
    index = w.first(e.Answered, nth=2)
    event = w.entries[index].event
    later = next(
        x.event
        for x in w.entries[index + 1 :]
        if isinstance(x.event, e.Answered)
        and isinstance(event, e.Answered)
        and (x.event.game, x.event.party) == (event.game, event.party)
    )
    return w.lie(index, later), index


def answer_altered(w: World) -> Lie:
    event = w.entries[w.first(e.Answered, nth=2)].event
    assert isinstance(event, e.Answered)
    return answer_put_in(w, message=event.message[:-1] + bytes([event.message[-1] ^ 1]))


def answer_of_no_bytes(w: World) -> Lie:
    return answer_put_in(w, message=b"")


def answer_repeated(w: World) -> Lie:
    index = w.first(e.Answered)
    return w.lie(index + 1, w.entries[index].event), index + 1


def answer_after_the_games_end(w: World) -> Lie:
    index = w.first(e.GameEnded) + 1
    while w.before(index).follows() is not None:
        index += 1
    now = w.entries[index - 1].time
    return w.lie(index, w.entries[w.first(e.Answered)].event, now), index


def changed_verdict(w: World) -> Lie:
    index = w.first(e.GameEnded)
    event = w.entries[index].event
    assert isinstance(event, e.GameEnded)
    return w.lie(index, replace(event, convicted=3 - event.convicted)), index


def verdict_undecided(w: World) -> Lie:
    index = w.first(e.GameEnded)
    return w.lie(index, e.GameEnded(0, e.UNDECIDED)), index


def verdict_before_the_end(w: World) -> Lie:
    index = w.first(e.Answered, nth=2)
    return w.lie(index, w.entries[w.first(e.GameEnded)].event), index


def verdict_left_out(w: World) -> Lie:
    index = w.first(e.GameEnded)
    return w.lie(index, w.entries[index + 1].event), index


def changed_winner(w: World) -> Lie:
    loser = sha256(w.players[1].party.commitment)
    return w.lie(len(w.log) - 1, e.Result(e.CONTESTED, loser)), len(w.log) - 1


def no_winner(w: World) -> Lie:
    return w.lie(len(w.log) - 1, e.Result(e.NONE_ACCEPTED)), len(w.log) - 1


def not_contested(w: World) -> Lie:
    event = w.entries[-1].event
    assert isinstance(event, e.Result)
    return w.lie(len(w.log) - 1, replace(event, outcome=e.UNCONTESTED)), len(w.log) - 1


def result_before_the_end(w: World) -> Lie:
    index = w.first(e.GameBegun, nth=2)
    return w.lie(index, w.entries[-1].event), index


def seats_exchanged(w: World) -> Lie:
    index = w.first(e.GameBegun)
    event = w.entries[index].event
    assert isinstance(event, e.GameBegun)
    return w.lie(index, replace(event, keys=event.keys[::-1])), index


def pairing_in_another_order(w: World) -> Lie:
    index = w.first(e.GameBegun)
    one, two = (w.entries[w.first(e.GameBegun, nth=n)].event for n in (0, 1))
    assert isinstance(one, e.GameBegun) and isinstance(two, e.GameBegun)
    return w.lie(index, e.GameBegun(0, (one.keys[0], two.keys[0]))), index


def second_signer_before_the_first(w: World) -> Lie:
    index = w.first(e.GameBegun)
    pair = {w.players[0].key.public, w.players[4].key.public}
    event = w.entries[index].event
    while not (isinstance(event, e.GameBegun) and pair & set(event.keys)):
        index = w.first(e.GameBegun, after=index + 1)
        event = w.entries[index].event
    keys = [next(iter(pair - {key})) if key in pair else key for key in event.keys]
    return w.lie(index, e.GameBegun(event.game, (keys[0], keys[1]))), index


def game_left_out(w: World) -> Lie:
    index = w.first(e.GameBegun, nth=1)
    return w.lie(index, w.entries[index + 1].event), index


def seal_after_the_closing(w: World) -> Lie:
    index = w.first(e.SealingClosed) + 1
    opening = replace(w.players[0].opening(w.session_digest), nonce=b"x" * 32)
    return w.lie(index, e.Sealed(sign_seal(w.players[0].key, w.job.digest, opening))), index


def _seal(w: World, player: Player) -> Lie:
    opening = player.opening(w.session_digest)
    return w.lie(1, e.Sealed(sign_seal(player.key, w.job.digest, opening))), 1


def seal_of_a_key_that_is_not_allowed(w: World) -> Lie:
    return _seal(w, Player(w.players[0].party, 99))


def seal_of_the_referee(w: World) -> Lie:
    player = Player(w.players[0].party, 99)
    player.key = REFEREE
    return _seal(w, player)


def seal_of_another_session(w: World) -> Lie:
    opening = w.players[0].opening(b"x" * 32)
    return w.lie(1, e.Sealed(sign_seal(w.players[0].key, w.job.digest, opening))), 1


def seal_repeated(w: World) -> Lie:
    return w.lie(2, w.entries[1].event), 2


def opening_before_the_closing(w: World) -> Lie:
    opening = w.entries[w.first(e.SealOpened)].event
    return w.lie(w.first(e.SealingClosed) - 1, opening), w.first(e.SealingClosed) - 1


def opening_without_a_seal(w: World) -> Lie:
    index = w.first(e.SealOpened)
    stranger = Player(w.players[0].party, 99)
    opening = sign_opening(stranger.key, stranger.opening(w.session_digest))
    return w.lie(index, e.SealOpened(opening)), index


def opening_repeated(w: World) -> Lie:
    index = w.first(e.SealOpened)
    return w.lie(index + 1, w.entries[index].event), index + 1


def opening_as_a_seal(w: World) -> Lie:
    message = w.message(e.SealOpened, w.players[0].key)
    return w.lie(1, e.Sealed(message)), 1


def sealing_closed_early(w: World) -> Lie:
    return w.lie(2, e.SealingClosed()), 2


def sealing_not_closed(w: World) -> Lie:
    return w.lie(2, w.entries[2].event, w.rules.sealing + 1), 2


def allowed_party_left_out_of_the_opened(w: World) -> Lie:
    index = w.first(e.OpeningClosed) - 1
    return w.lie(index, e.OpeningClosed()), index


def opening_not_closed(w: World) -> Lie:
    index = w.first(e.OpeningClosed) - 1
    closed = w.entries[w.first(e.SealingClosed)].time
    return w.lie(index, w.entries[index].event, closed + w.rules.opening + 1), index


def time_backwards(w: World) -> Lie:
    index = w.first(e.Answered, nth=3)
    return w.lie(index, w.entries[index].event, w.entries[index - 1].time - 1), index


def rules_changed(w: World) -> Lie:
    index = w.first(e.SealingClosed)
    return w.lie(index, e.SessionBegun(replace(w.rules, budget=1))), index


def return_after_the_result(w: World) -> Lie:
    return w.lie(len(w.log), e.Resumed()), len(w.log)


def result_twice(w: World) -> Lie:
    return w.lie(len(w.log), w.entries[-1].event), len(w.log)


def signed_bytes_that_are_no_entry(w: World) -> Lie:
    index = w.first(e.Answered)
    good = w.entries[index].to_bytes()
    return [*w.log[:index], sign_compact(REFEREE, e.ENTRY_TYPE, good + b"\0")], index


LIES: dict[Callable[[World], Lie], str] = {
    early_forfeit: "12.4", forfeit_of_another_query: "12.4", forfeit_of_other_runs: "12.4",
    forfeit_by_another_key: "12.4", forfeit_of_a_party_that_has_answered: "12.4",
    late_answer_accepted: "12.4", skipped_query: "12.4", query_of_another_round: "12.4",
    query_to_the_other_party: "12.4", query_put_twice: "12.4", answer_of_the_other_party: "12.5",
    answer_of_another_game: "12.5", answer_of_a_game_that_is_not: "12.5",
    answer_of_another_position: "12.5", answer_altered: "12.5", answer_of_no_bytes: "12.5",
    answer_repeated: "12.5", answer_after_the_games_end: "12.5", changed_verdict: "12.4",
    verdict_undecided: "12.4", verdict_before_the_end: "12.4", verdict_left_out: "12.4",
    changed_winner: "12.4", no_winner: "12.4", not_contested: "12.4",
    result_before_the_end: "12.4", seats_exchanged: "12.4", pairing_in_another_order: "12.4",
    second_signer_before_the_first: "12.4", game_left_out: "12.4",
    seal_after_the_closing: "12.5", seal_of_a_key_that_is_not_allowed: "12.5",
    seal_of_the_referee: "12.5", seal_of_another_session: "12.5", seal_repeated: "12.5",
    opening_before_the_closing: "12.5", opening_without_a_seal: "12.5", opening_repeated: "12.5",
    opening_as_a_seal: "12.5", sealing_closed_early: "12.4", sealing_not_closed: "12.4",
    allowed_party_left_out_of_the_opened: "12.4", opening_not_closed: "12.4",
    time_backwards: "12.1", rules_changed: "12.2", return_after_the_result: "12.2",
    result_twice: "12.2", signed_bytes_that_are_no_entry: "12.1",
}  # fmt: skip
