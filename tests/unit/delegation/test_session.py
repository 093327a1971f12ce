"""Sessions of k parties: seals, sides, games, clocks, the result (PROTOCOL 10, 11)."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace

import pytest
from unit.delegation.players import REFEREE, Player, Silent, Time, play, rules
from unit.protocol.simulator import Party

from tallystick.commit.encoding import sha256
from tallystick.commit.signing import PrivateKey
from tallystick.delegation import session as s
from tallystick.delegation.arbiter import Arbiter
from tallystick.delegation.entries import (
    ALONE,
    CONTESTED,
    NONE_ACCEPTED,
    UNCONTESTED,
    Asked,
    Forfeited,
    NoEffectError,
    open_entry,
)
from tallystick.delegation.seals import SealOpening, sign_opening, sign_seal
from tallystick.delegation.session import Session
from tallystick.delegation.watch import replayed
from tallystick.errors import CounterpartyError, UsageError
from tallystick.job.job import Job
from tallystick.protocol.judge import judge


def begun(job: Job, players: list[Player], time: Time | None = None, **changed: object) -> Arbiter:
    return Arbiter(job.terms, REFEREE, [], time or Time(), rules(job, players, **changed))


def played(job: Job, players: list[Player], **changed: object) -> tuple[Arbiter, list[bytes]]:
    """A session of `players` to its end, and its log; the log is judged."""
    log: list[bytes] = []
    time = Time()
    arbiter = Arbiter(job.terms, REFEREE, log, time, rules(job, players, **changed))
    play(arbiter, players, time)
    again = replayed(job.terms, log)
    assert again.result == arbiter.session.result and again.removed == arbiter.session.removed
    return arbiter, log


def accepted(session: Session) -> bytes:
    assert session.result is not None
    return session.result.accepted


def test_two_honest_parties_agree(game_job: Job, honest: Party) -> None:
    """10.6: equal claims are one side, and no game is played."""
    players = [Player(honest, 11), Player(honest, 12)]
    arbiter, _ = played(game_job, players)
    session = arbiter.session
    assert session.result is not None and session.result.outcome == UNCONTESTED
    assert session.matches == [] and session.removed == {}
    first = min(players, key=lambda p: p.key.public.raw)
    assert accepted(session) == sha256(first.party.commitment)


@pytest.mark.parametrize("seats", list(itertools.permutations(range(3))))
def test_the_honest_claim_wins_in_any_order_of_arrival(
    game_job: Job, honest: Party, lies: list[Party], seats: tuple[int, ...]
) -> None:
    """P1, P2, P10: the same games and the same result, whichever party comes first."""
    players = [Player(honest, 11), Player(lies[0], 12), Player(lies[1], 13)]
    session = played(game_job, [players[i] for i in seats])[0].session
    assert session.result is not None and session.result.outcome == CONTESTED
    assert accepted(session) == sha256(players[0].party.commitment)
    assert session.removed == {p.key.public: s.LOST for p in players[1:]}
    in_order = played(game_job, players)[0].session
    assert [m.members for m in session.matches] == [m.members for m in in_order.matches]


def test_every_conviction_is_judged_offline(
    game_job: Job, honest: Party, lies: list[Party]
) -> None:
    """P3: the evidence of each game stands without the session."""
    players = [Player(honest, 11)] + [Player(lie, 12 + i) for i, lie in enumerate(lies)]
    session = played(game_job, players)[0].session
    assert len(session.matches) >= 3
    for match in session.matches:
        data = match.evidence().to_bytes()
        found = judge(game_job.terms, data, trust_referees=[REFEREE.public])
        bits = sum(1 << c.party for c in found.verdict.convicted)
        assert match.ending is not None and match.ending.convicted == bits != 0
        assert found.verdict.terms <= 256  # P5
    assert accepted(session) == sha256(players[0].party.commitment)


def test_sybils_on_the_honest_claim_may_throw_their_games(
    game_job: Job, honest: Party, lies: list[Party]
) -> None:
    """10.5.1: a loss removes the signer, and another signer of the claim steps in."""
    sybils: list[Player] = [Silent(honest, 20 + i, since=3, words=i % 3) for i in range(3)]
    players = [*sybils, Player(honest, 11), Player(lies[0], 12)]
    session = played(game_job, players)[0].session
    assert session.removed[players[-1].key.public] == s.LOST
    assert players[3].key.public not in session.removed
    winner = next(m for m in session.members.values() if sha256(m.commitment) == accepted(session))
    assert winner.claim == session.members[players[3].key.public].claim
    k, sides = len(players), 2
    assert len(session.matches) <= k - 1
    assert session.rounds <= (k - sides) + math.ceil(math.log2(sides))  # 10.7


def test_many_false_claims_take_logarithmic_rounds(
    game_job: Job, honest: Party, lies: list[Party]
) -> None:
    """10.7: s parties on s false claims, ⌈log₂(s + 1)⌉ games for the honest one."""
    players = [Player(honest, 11)] + [Player(lie, 12 + i) for i, lie in enumerate(lies)]
    session = played(game_job, players)[0].session
    own = [m for m in session.matches if players[0].key.public in [x.key for x in m.members]]
    assert len(own) <= math.ceil(math.log2(len(players)))
    assert session.rounds <= math.ceil(math.log2(len(players)))


def test_all_dishonest(game_job: Job, lies: list[Party]) -> None:
    """P11: at least one is convicted; the one that is left was only not shown wrong."""
    session = played(game_job, [Player(lies[0], 11), Player(lies[1], 12)])[0].session
    assert session.result is not None and session.removed
    assert session.result.outcome in (CONTESTED, NONE_ACCEPTED)


def test_a_party_alone_was_compared_with_none(game_job: Job, honest: Party) -> None:
    players: list[Player] = [Player(honest, 11), Silent(honest, 12, since=1)]
    session = played(game_job, players)[0].session
    assert session.result is not None and session.result.outcome == ALONE
    assert players[1].key.public not in session.seals


def test_a_party_that_never_opens_is_silent_and_no_liar(game_job: Job, honest: Party) -> None:
    players: list[Player] = [Player(honest, 11), Silent(honest, 12, since=2)]
    session = played(game_job, players)[0].session
    assert session.removed == {players[1].key.public: s.NEVER_OPENED}
    assert session.result is not None and session.result.outcome == ALONE


@pytest.mark.parametrize("words", [0, 1, 2, 4])
def test_silence_in_a_game_forfeits(
    game_job: Job, honest: Party, lies: list[Party], words: int
) -> None:
    """P7: the forfeit is the referee's signed word, and the honest claim is accepted."""
    players = [Player(honest, 11), Silent(lies[1], 12, since=3, words=words)]
    arbiter, log = played(game_job, players)
    (match,) = arbiter.session.matches
    assert match.forfeits and match.referee is not None and match.referee.verdict is not None
    assert match.referee.verdict.forfeit
    assert accepted(arbiter.session) == sha256(players[0].party.commitment)
    kinds = [open_entry(e, REFEREE.public).event for e in log]
    assert sum(isinstance(e, Forfeited) for e in kinds) == 1


def test_two_silent_parties_both_lose(game_job: Job, honest: Party, lies: list[Party]) -> None:
    """2.10.2: neither goes on."""
    players: list[Player] = [Silent(honest, 11, since=3), Silent(lies[0], 12, since=3)]
    session = played(game_job, players)[0].session
    assert session.result is not None and session.result.outcome == NONE_ACCEPTED
    assert set(session.removed.values()) == {s.LOST} and len(session.removed) == 2
    evidence = session.matches[0].evidence()
    assert len(evidence.forfeits) == 2
    found = judge(game_job.terms, evidence.to_bytes(), trust_referees=[REFEREE.public])
    assert [c.party for c in found.verdict.convicted] == [0, 1]


# -- seals (10.2, 10.3) ----------------------------------------------------------------------------


def test_seals_that_have_no_effect(game_job: Job, honest: Party) -> None:
    players = [Player(honest, 11), Player(honest, 12)]
    time = Time()
    arbiter = begun(game_job, players, time)
    session = arbiter.session.session
    digest = game_job.digest

    def seal(player: Player, **changed: object) -> bytes:
        opening = replace(player.opening(session), **changed)  # type: ignore[arg-type]
        return sign_seal(player.key, digest, opening)

    stranger = Player(honest, 99)
    for message in (seal(stranger), seal(players[0], session=b"x" * 32), b"", b"garbage"):
        with pytest.raises(CounterpartyError):
            arbiter.take(message)
    before = arbiter.session.length
    arbiter.take(seal(players[0]))
    with pytest.raises(NoEffectError):
        arbiter.take(seal(players[0]))  # word for word
    assert arbiter.session.length == before + 1
    time.now = 1001
    with pytest.raises(NoEffectError, match="late"):
        arbiter.take(seal(players[1]))
    assert arbiter.session.state == s.OPENING and list(arbiter.session.seals) == [
        players[0].key.public
    ]


def test_a_seal_at_the_deadline_is_in_time(game_job: Job, honest: Party) -> None:
    players = [Player(honest, 11), Player(honest, 12)]
    time = Time()
    arbiter = begun(game_job, players, time)
    time.now = 1000
    opening = players[0].opening(arbiter.session.session)
    arbiter.take(sign_seal(players[0].key, game_job.digest, opening))
    assert players[0].key.public in arbiter.session.seals


@pytest.mark.parametrize("what", ["seal", "opening"])
def test_two_different_messages_for_one_slot_exclude(
    game_job: Job, honest: Party, lies: list[Party], what: str
) -> None:
    """P8, 10.2.1, 10.3.1: both are in the log, and the key is out."""
    two_faced, other = Player(honest, 11), Player(honest, 12)
    time = Time()
    arbiter = begun(game_job, [two_faced, other], time)
    session = arbiter.session.session
    opening = two_faced.opening(session)
    second = replace(opening, nonce=b"2" * 32)
    arbiter.take(sign_seal(two_faced.key, game_job.digest, opening))
    if what == "seal":
        arbiter.take(sign_seal(two_faced.key, game_job.digest, second))
    arbiter.take(sign_seal(other.key, game_job.digest, other.opening(session)))
    if what == "opening":
        arbiter.take(sign_opening(two_faced.key, opening))
        arbiter.take(sign_opening(two_faced.key, second))
    play(arbiter, [two_faced, other], time)
    assert arbiter.session.removed == {two_faced.key.public: s.EXCLUDED}
    assert arbiter.session.result is not None and arbiter.session.result.outcome == ALONE


def test_a_copied_commitment_excludes_the_copier(game_job: Job, honest: Party) -> None:
    """10.2.2: a copier has nothing to seal before the opening, and no way to open after it."""
    first, copier = Player(honest, 11), Player(honest, 12)
    time = Time()
    arbiter = begun(game_job, [first, copier], time)
    session = arbiter.session.session
    copied_seal = first.opening(session).sealed(game_job.digest)
    arbiter.take(sign_seal(first.key, game_job.digest, first.opening(session)))
    from tallystick.commit.signed import sign_compact
    from tallystick.delegation.seals import SEAL_TYPE, Seal

    seal = Seal(session, copier.key.public, copied_seal)
    arbiter.take(sign_compact(copier.key, SEAL_TYPE, seal.to_bytes()))
    arbiter.take(sign_opening(first.key, first.opening(session)))
    stolen = SealOpening(
        session, copier.key.public, first.opening(session).nonce, first.party.commitment
    )
    arbiter.take(sign_opening(copier.key, stolen))
    assert arbiter.session.removed == {copier.key.public: s.EXCLUDED}


def test_open_registration_takes_the_first_keys_only(game_job: Job, honest: Party) -> None:
    """10.2.1: a seal that would be more than the most parties is none; excluded ones count."""
    time = Time()
    arbiter = begun(game_job, [], time, most=2)
    session = arbiter.session.session
    players = [Player(honest, 11 + i) for i in range(3)]
    for player in players[:2]:
        arbiter.take(sign_seal(player.key, game_job.digest, player.opening(session)))
    with pytest.raises(NoEffectError, match="all its parties"):
        arbiter.take(sign_seal(players[2].key, game_job.digest, players[2].opening(session)))
    assert arbiter.session.state == s.SEALING  # no list of keys: time closes it
    time.now = 1001
    arbiter.tick()
    assert arbiter.session.state == s.OPENING


def test_no_party_is_the_referee(game_job: Job, honest: Party) -> None:
    arbiter = begun(game_job, [])
    player = Player(honest, 11)
    player.key = REFEREE
    opening = SealOpening(arbiter.session.session, REFEREE.public, b"n" * 32, b"")
    with pytest.raises(NoEffectError, match="may not take part"):
        arbiter.take(sign_seal(REFEREE, game_job.digest, opening))


# -- the referee restarts anywhere (12.3, P9) ------------------------------------------------------


def test_a_restart_after_any_entry_changes_nothing_but_times(
    game_job: Job, honest: Party, lies: list[Party]
) -> None:
    def players() -> list[Player]:
        return [Player(honest, 11), Player(lies[2], 12), Player(lies[1], 13)]

    whole, log = played(game_job, players())
    for cut in range(1, len(log), 3):
        time, left = Time(), list(log[:cut])
        time.now = replayed(game_job.terms, left).time
        arbiter = Arbiter(game_job.terms, REFEREE, left, time)
        play(arbiter, players(), time)
        again = replayed(game_job.terms, left)
        assert again.result == whole.session.result and again.removed == whole.session.removed
        for one, two in zip(again.matches, whole.session.matches, strict=True):
            assert one.evidence() == two.evidence()


def test_parties_are_asked_only_what_the_log_holds(
    game_job: Job, honest: Party, lies: list[Party]
) -> None:
    """12.3: a turn's query stands in the log before the turn is made."""
    players = [Player(honest, 11), Player(lies[2], 12)]
    time = Time()
    log: list[bytes] = []
    arbiter = Arbiter(game_job.terms, REFEREE, log, time, rules(game_job, players))
    seen = 0

    def watch() -> None:
        nonlocal seen
        asked = {
            e.message
            for e in (open_entry(x, REFEREE.public).event for x in log)
            if isinstance(e, Asked)
        }
        for match in arbiter.session.matches:
            assert set(match.owed.values()) <= asked
            seen += len(match.owed)

    play(arbiter, players, time, watch)
    assert seen > 3


# -- rules -----------------------------------------------------------------------------------------


def test_a_session_begins_only_by_rules_that_fit(game_job: Job, honest: Party) -> None:
    terms, time = game_job.terms, Time()
    with pytest.raises(UsageError, match="no session"):
        Arbiter(terms, REFEREE, [], time)
    with pytest.raises(UsageError, match="another job"):
        Arbiter(terms, REFEREE, [], time, rules(game_job, job_digest=b"x" * 32))
    with pytest.raises(UsageError, match="another referee"):
        Arbiter(terms, PrivateKey(b"o" * 32), [], time, rules(game_job))
    log: list[bytes] = []
    Arbiter(terms, REFEREE, log, time, rules(game_job))
    with pytest.raises(UsageError, match="other rules"):
        Arbiter(terms, REFEREE, log, time, rules(game_job, arity=7))
    with pytest.raises(UsageError, match="another referee's"):
        Arbiter(terms, PrivateKey(b"o" * 32), log, time)


def test_random_sessions(game_job: Job, honest: Party, lies: list[Party]) -> None:
    """P1, P2, 10.7: any mixture of signers; the honest key is never removed, its claim accepted."""
    for seed in range(12):
        rng = random.Random(seed)
        k = rng.randint(2, 9)
        players: list[Player] = [Player(honest, 11)]
        for i in range(1, k):
            party = rng.choice([honest, *lies])
            since = rng.choice([1, 2, 3, 5])
            silent = rng.random() < 0.5
            players.append(
                Silent(party, 11 + i, since, rng.randint(0, 4)) if silent else Player(party, 11 + i)
            )
        rng.shuffle(players)
        key = next(p.key.public for p in players if p.key == p.key and type(p) is Player
                   and p.party.run.run_root == honest.run.run_root)  # fmt: skip
        session = played(game_job, players)[0].session
        members = len(session.members)
        sides = len({m.claim for m in session.members.values()})
        assert key not in session.removed
        winner = next(
            m for m in session.members.values() if sha256(m.commitment) == accepted(session)
        )
        assert winner.claim == session.members[key].claim
        assert len(session.matches) <= members - 1
        assert session.rounds <= (members - sides) + math.ceil(math.log2(sides))
