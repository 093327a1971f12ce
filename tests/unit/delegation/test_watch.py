"""A referee that lies is convicted by its log, and an honest one never is (PROTOCOL 12.5)."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

import pytest
from unit.delegation.players import REFEREE, Player, Silent, Time, play, rules
from unit.protocol.simulator import Party

from tallystick.commit.compact import sign_compact
from tallystick.commit.encoding import sha256
from tallystick.commit.signing import PrivateKey
from tallystick.delegation import entries as e
from tallystick.delegation.arbiter import Arbiter
from tallystick.delegation.deviation import DeviationError
from tallystick.delegation.entries import Entry, Event, open_entry, sign_entry
from tallystick.delegation.rules import Rules
from tallystick.delegation.seals import sign_opening, sign_seal
from tallystick.delegation.session import Session
from tallystick.delegation.watch import contradiction, replayed
from tallystick.errors import (
    CannotCheckError,
    CorruptFileError,
    EnvironmentRefusedError,
    MachineFaultError,
    StorageError,
    UsageError,
)
from tallystick.job.job import Job
from tallystick.job.recipes import new_job
from tallystick.protocol.answers import Answer, sign_answer
from tallystick.protocol.forfeit import sign_forfeit
from tallystick.protocol.judge import judge
from tallystick.protocol.referee import Referee

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


@pytest.fixture(scope="module")
def world(game_job: Job, honest: Party, lies: list[Party]) -> World:
    players = [Player(honest, 11), Player(lies[4], 12), Player(lies[2], 13),
               Silent(lies[1], 14, since=3, words=1), Player(honest, 15)]  # fmt: skip
    log: list[bytes] = []
    time = Time()
    fixed = rules(game_job, players)
    arbiter = Arbiter(game_job.terms, REFEREE, log, time, fixed)
    play(arbiter, players, time)
    assert len(arbiter.session.matches) >= 3 and len(log) > 60
    return World(game_job, players, fixed, log)


# --- lies: each gives a log and the index of the entry that convicts ------------------------------
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


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.__name__)
def test_a_deviation_convicts_the_referee(lie: Callable[[World], Lie], world: World) -> None:
    # PROTOCOL 12.5
    log, index = lie(world)
    replayed(world.job.terms, log[:index])  # up to there it is honest
    with pytest.raises(DeviationError) as caught:
        replayed(world.job.terms, log)
    assert (caught.value.index, caught.value.clause) == (index, LIES[lie])
    assert caught.value.exit_code == 1


def test_no_other_entry_of_a_determined_kind_fits_anywhere(world: World) -> None:
    """12.4: of the kinds that follow, and of the clock's, there is one right entry at a time."""
    determined = (e.SealingClosed, e.OpeningClosed, e.Asked, e.Forfeited, e.GameBegun, e.GameEnded,
                  e.Result)  # fmt: skip
    pool = {x.event for x in world.entries if isinstance(x.event, determined)}
    session, tried = Session(world.job.terms), 0
    for entry in world.entries:
        for event in pool - {entry.event}:
            if entry.index == 0:
                continue
            with pytest.raises(DeviationError) as caught:
                session.apply(replace(entry, event=event))
            assert caught.value.index == entry.index
            tried += 1
        session.apply(entry)  # a refused entry has changed nothing
    assert session.result is not None and tried > 2000


def test_two_forfeits_in_the_wrong_order(game_job: Job, honest: Party, lies: list[Party]) -> None:
    """12.4: of equal deadlines party 0's entry stands first."""
    players: list[Player] = [Silent(honest, 11, since=3), Silent(lies[0], 12, since=3)]
    log: list[bytes] = []
    time = Time()
    fixed = rules(game_job, players)
    play(Arbiter(game_job.terms, REFEREE, log, time, fixed), players, time)
    w = World(game_job, players, fixed, log)
    index = w.first(e.Forfeited)
    second = w.entries[index + 1].event
    assert isinstance(second, e.Forfeited) and second.party == 1
    with pytest.raises(DeviationError) as caught:
        replayed(game_job.terms, w.lie(index, second))
    assert (caught.value.index, caught.value.clause) == (index, "12.4")


def test_three_parties_under_a_contract_with_logs(tmp_path_factory: pytest.TempPathFactory) -> None:
    """10.1, 10.1.2: such rules begin no session, and convict no one."""
    pairs = {"features": "2", "classes": "2", "records": "16", "batch_size": "2"}
    job = new_job(
        "logreg", tmp_path_factory.mktemp("watch") / "job", pairs, steps=2, contract="replay/1",
        checkpoint_interval=2, evaluate_every=0,
    )  # fmt: skip
    for most in (2, 3):
        entry = Entry(0, e.FIRST, 0, e.SessionBegun(rules(job, most=most)))
        log = [sign_entry(REFEREE, entry)]
        if most == 2:
            assert replayed(job.terms, log).length == 1
            continue
        with pytest.raises(UsageError, match="only two parties"):
            replayed(job.terms, log)


# --- two copies of a log (12.5.1) -----------------------------------------------------------------
def test_two_entries_with_one_index(world: World) -> None:
    index = world.first(e.Answered)
    other = world.lie(index, world.entries[index].event, world.entries[index].time + 1)
    found = contradiction(world.log, other)
    assert found is not None and (found.index, found.clause) == (index, "12.5.1")
    assert contradiction(world.log, world.log) is None
    assert contradiction(world.log[:7], world.log) is None


def test_a_mixed_log_convicts_no_referee(world: World) -> None:
    """12.5.3: the same referee holds two sessions, and a person mixes their entries."""
    log: list[bytes] = []
    time = Time()
    fixed = rules(world.job, world.players, nonce=b"2" * 32)
    play(Arbiter(world.job.terms, REFEREE, log, time, fixed), world.players, time)
    for index in (1, 5, world.first(e.Answered), len(log) - 1):
        mixed = [*world.log[:index], *log[index:]]
        with pytest.raises(CorruptFileError, match="does not continue"):
            replayed(world.job.terms, mixed)
        with pytest.raises(CorruptFileError, match="does not continue"):
            contradiction(world.log, mixed)
    with pytest.raises(CorruptFileError, match="two sessions"):
        contradiction(world.log, log)


# --- no honest referee is convicted ---------------------------------------------------------------
def test_a_log_with_an_entry_taken_out_convicts_no_referee(world: World) -> None:
    for index in range(0, len(world.log) - 1, 4):
        with pytest.raises(CorruptFileError):
            replayed(world.job.terms, [*world.log[:index], *world.log[index + 1 :]])


def test_entries_that_the_referee_has_not_signed(world: World) -> None:
    index = world.first(e.Asked)
    forged = sign_entry(OTHER, replace(world.entries[index], time=5))
    for message in (forged, b"", world.log[index][:-1], world.log[index] + b"\0", bytes(80)):
        with pytest.raises(CorruptFileError):
            replayed(world.job.terms, [*world.log[:index], message])


def test_the_log_of_another_job(world: World, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The watcher's own mistake says nothing about the referee."""
    pairs = {"features": "2", "classes": "2", "records": "16", "batch_size": "2"}
    path = tmp_path_factory.mktemp("watch") / "other"
    other = new_job("logreg", path, pairs, steps=2, checkpoint_interval=2, evaluate_every=0)
    with pytest.raises(UsageError, match="another job"):
        replayed(other.terms, world.log)


def test_a_return_stands_anywhere(world: World) -> None:
    """11.5.2: a referee may stop at any entry, and its log does not say whether it had to."""
    for index in range(1, len(world.log), 7):
        time = world.entries[index - 1].time + 10**9
        log = world.lie(index, e.Resumed(), time)
        assert replayed(world.job.terms, log).length == index + 1


class Hasty(Time):
    """A clock that goes on with every look at it."""

    def __call__(self) -> int:
        self.now += 1
        return self.now


@pytest.mark.parametrize("seed", range(20))
def test_honest_logs_of_random_sessions(
    seed: int, game_job: Job, honest: Party, lies: list[Party]
) -> None:
    """Silence anywhere, restarts anywhere, a clock that never stands still."""
    rng = random.Random(seed)
    players: list[Player] = []
    for number in range(rng.randint(2, 6)):
        party = rng.choice([honest, *lies])
        silent = Silent(party, 11 + number, rng.choice([1, 2, 3]), rng.randint(0, 5))
        players.append(silent if rng.random() < 0.5 else Player(party, 11 + number))
    log: list[bytes] = []
    time = rng.choice([Time, Hasty])()
    fixed = rules(game_job, players, budget=rng.choice([3, 500]), extension=rng.choice([0, 9]))
    arbiter = Arbiter(game_job.terms, REFEREE, log, time, fixed)
    for _ in range(rng.randint(0, 3)):
        with suppress(StoppedError):
            play(arbiter, players, time, stopping_after(rng.randint(1, 30)))
        time.now += rng.choice([0, 5, 10**6])
        arbiter = Arbiter(game_job.terms, REFEREE, log, time, fixed)
    play(arbiter, players, time)
    session = replayed(game_job.terms, log)
    assert session.result == arbiter.session.result is not None


class StoppedError(Exception):
    """The referee's process ends here."""


def stopping_after(messages: int) -> Callable[[], None]:
    left = [messages]

    def watch() -> None:
        left[0] -= 1
        if not left[0]:
            raise StoppedError

    return watch


# --- the referee's own driver ---------------------------------------------------------------------
def playing(job: Job, players: list[Player], time: Time) -> Arbiter:
    """A session whose games have begun."""
    arbiter = Arbiter(job.terms, REFEREE, [], time, rules(job, players))
    digest = arbiter.session.session
    for player in players:
        arbiter.take(sign_seal(player.key, job.digest, player.opening(digest)))
    for player in players:
        arbiter.take(sign_opening(player.key, player.opening(digest)))
    return arbiter


def test_a_deadline_that_passes_while_an_answer_is_taken(
    game_job: Job, honest: Party, lies: list[Party]
) -> None:
    """12.4: the answer has come in time. The entry has the time of its arrival."""

    class Passing(Time):
        left = 10**9

        def __call__(self) -> int:
            self.left -= 1
            return self.now + (self.left < 0)

    players, time = [Player(honest, 11), Player(lies[0], 12)], Passing()
    arbiter = playing(game_job, players, time)
    (match,) = arbiter.session.matches
    deadline = match.clocks[0].deadline
    assert deadline is not None
    time.now, time.left = deadline, 1
    player = next(p for p in players if p.key.public == match.members[0].key)
    arbiter.take(player.party.answer(match.owed[0]))
    assert 0 not in match.forfeits


def test_a_game_that_has_ended_has_no_deadline(
    game_job: Job, honest: Party, lies: list[Party]
) -> None:
    """2.9 ends a game while the other party owes an answer; another game goes on."""
    players = [Player(honest, 11), *(Player(lie, 12 + i) for i, lie in enumerate(lies[:3]))]
    time = Time()
    arbiter = playing(game_job, players, time)
    first, second = arbiter.session.matches
    liar = next(p for p in players if p.key.public == first.members[0].key)
    query = first.owed[0]
    for status in (0, 1):
        arbiter.take(_answered(liar, query, status))
    assert first.ended and 1 not in first.forfeits and second.ending is None
    time.now += 10**6
    arbiter.tick()
    assert second.forfeits and not first.forfeits
    assert judge(game_job.terms, first.evidence().to_bytes()).verdict.convicted[0].clause == "2.9"


def _answered(player: Player, query: bytes, status: int) -> bytes:
    run = player.party.run
    return sign_answer(player.key, Answer(run.job_digest, run.run_root, query, status, b""))


def test_a_referee_stops_after_a_write_that_failed(
    game_job: Job, honest: Party, lies: list[Party]
) -> None:
    """12.5.1: whether the entry is in the log is unknown, so no other one takes its place."""

    class Failing(list[bytes]):
        fails = False

        def append(self, entry: bytes) -> None:
            super().append(entry)  # it may be there
            if self.fails:
                raise StorageError("The disk is full.")

    players, time, log = [Player(honest, 11), Player(lies[0], 12)], Time(), Failing()
    arbiter = Arbiter(game_job.terms, REFEREE, log, time, rules(game_job, players))
    seals = [sign_seal(p.key, game_job.digest, p.opening(arbiter.session.session)) for p in players]
    log.fails = True
    with pytest.raises(StorageError):
        arbiter.take(seals[0])
    log.fails, length = False, len(log)
    with pytest.raises(CannotCheckError, match="has stopped"):
        arbiter.take(seals[1])
    assert len(log) == length
    again = Arbiter(game_job.terms, REFEREE, log, time)
    play(again, players, time)
    assert replayed(game_job.terms, log).result == again.session.result


@pytest.mark.parametrize("error", [MachineFaultError, EnvironmentRefusedError])
def test_a_readers_own_machine_convicts_no_referee(
    error: type[CannotCheckError], world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2.8.1: what this machine cannot judge is no game without a verdict (2.6.1)."""

    def fail(*_: object) -> None:
        raise error("This machine cannot execute that.")

    monkeypatch.setattr(Referee, "_judge_round", fail)
    with pytest.raises(error):
        replayed(world.job.terms, world.log)
