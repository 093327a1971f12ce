"""A party answers a believed referee, and only what is open for it (PROTOCOL 10.2, 10.3, 13)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from service.parties import OTHER_REFEREE, REFEREE, A, B, C, Player, Script, registered
from unit.protocol.simulator import Party

from tallystick.delegation import entries as e
from tallystick.delegation.entries import Entry, sign_entry
from tallystick.delegation.seals import (
    SealOpening,
    is_sealed_by,
    open_opening,
    open_seal,
    sign_seal,
)
from tallystick.delegation.turns import (
    IN_CONFLICT,
    MALFORMED,
    NOT_REGISTERED,
    UNBELIEVED,
    AskOpening,
    AskSeal,
    Ended,
    Message,
    Needs,
    Play,
    Refusal,
    Reply,
    Turn,
    Working,
    sign_turn,
)
from tallystick.errors import CannotCheckError, MachineFaultError, UsageError
from tallystick.job.job import Job
from tallystick.protocol import queries as q
from tallystick.protocol.queries import encode_query
from tallystick.protocol.referee import Referee
from tallystick.prover.registered import Registered

LONG = 30.0  # seconds that a test waits for an answer at most
Pair = tuple[Player, Player]


def said(reply: Reply) -> bytes:
    assert isinstance(reply, Message), reply
    return reply.data


def refused(reply: Reply) -> str:
    assert isinstance(reply, Refusal), reply
    return reply.kind


@pytest.fixture
def script(small_job: Job) -> Script:
    return Script(small_job)


def opened(script: Script, party: Registered, **rules: object) -> bytes:
    """Bring the party to the games of a session; the turn that it has opened for."""
    turn = script.opening(said(party.reply(script.begin(**rules))))
    said(party.reply(turn))
    return turn


def game_of(pair: Pair, party: Registered) -> tuple[Referee, tuple[bytes, bytes]]:
    commitments = (pair[0].commitment, pair[1].commitment)
    return Referee(party.terms, commitments, 4), commitments


# PROTOCOL 10.2, 13.4: the seal hides the commitment, and a restart signs the same one.
def test_seal_and_opening_are_the_same_after_a_restart(
    script: Script, party: Registered, pair: Pair, sessions: Path
) -> None:
    begin = script.begin()
    seal = said(party.reply(begin))
    assert said(party.reply(begin)) == seal
    assert pair[0].commitment not in seal and pair[0].party.run.run_root not in seal
    again = registered(pair[0], sessions)
    assert said(again.reply(begin)) == seal
    turn = script.opening(seal)
    opening = said(registered(pair[0], sessions).reply(turn))
    assert said(party.reply(turn)) == opening
    found = open_opening(opening)
    assert is_sealed_by(open_seal(seal), found, party.terms.digest)
    assert found.commitment == pair[0].commitment


# A lost directory must not make an honest party sign a second, different seal (10.2.1).
def test_a_party_without_its_directory_signs_the_same_seal(
    script: Script, party: Registered, pair: Pair, tmp_path: Path
) -> None:
    begin = script.begin()
    assert said(registered(pair[0], tmp_path / "new").reply(begin)) == said(party.reply(begin))


# 13.4: the session is durable before the seal is signed.
def test_a_session_is_kept_before_its_seal_is_signed(
    script: Script, pair: Pair, sessions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    party = registered(pair[0], sessions)
    monkeypatch.setattr("tallystick.prover.registered.sign_seal", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        party.reply(script.begin())
    assert (sessions / f"{script.session.hex()}.seal").stat().st_size > 0
    assert (sessions / f"{script.session.hex()}.seal").stat().st_mode & 0o077 == 0


def test_another_run_is_never_sealed_in_the_same_session(
    script: Script, party: Registered, honest_run: Party, cheat_run: Party, sessions: Path
) -> None:
    begin = script.begin()
    said(party.reply(begin))
    other = registered(Player(cheat_run, A), sessions)
    assert refused(other.reply(begin)) == IN_CONFLICT


def test_a_damaged_record_stops_the_party(
    script: Script, party: Registered, pair: Pair, sessions: Path
) -> None:
    party.reply(script.begin())
    path = sessions / f"{script.session.hex()}.seal"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CannotCheckError, match=script.session.hex()):
        registered(pair[0], sessions)


# 13.3: only believed referees, only the own job, only allowed keys, no second session of an offer.
def test_what_is_no_turn_of_a_believed_referee_is_refused(
    small_job: Job, party: Registered
) -> None:
    stranger = Script(small_job, OTHER_REFEREE)
    assert refused(party.reply(stranger.begin())) == UNBELIEVED
    for garbage in (b"", b"\0", b"x" * 1000, b"\xff" * 72):
        assert refused(party.reply(garbage)) == UNBELIEVED
    turn = bytearray(Script(small_job).begin())
    turn[len(turn) // 2] ^= 1
    assert refused(party.reply(bytes(turn))) == UNBELIEVED


def test_rules_that_do_not_fit_are_refused(small_job: Job, party: Registered) -> None:
    for changed in ({"job_digest": b"o" * 32}, {"allowed": (B.public,)}):
        assert refused(party.reply(Script(small_job).begin(**changed))) == NOT_REGISTERED
    script = Script(small_job)
    script.begin()
    other = sign_turn(REFEREE, Turn(b"x" * 32, AskSeal(script.log[0])))
    assert refused(party.reply(other)) == MALFORMED
    later = script.write(e.Resumed())
    assert refused(party.reply(script.turn(AskSeal(later)))) == MALFORMED


def test_a_second_session_of_one_offer_is_refused(small_job: Job, party: Registered) -> None:
    offer = b"o" * 32
    said(party.reply(Script(small_job).begin(offer=offer)))
    assert refused(party.reply(Script(small_job).begin(offer=offer, budget=1))) == IN_CONFLICT
    said(party.reply(Script(small_job).begin(budget=1)))
    said(party.reply(Script(small_job).begin(budget=2)))


def test_another_referee_has_no_part_in_a_session(
    pair: Pair, small_job: Job, sessions: Path
) -> None:
    party = registered(pair[0], sessions, (REFEREE, OTHER_REFEREE))
    script = Script(small_job)
    seal = said(party.reply(script.begin()))
    other = replace(script, key=OTHER_REFEREE, log=list(script.log))
    assert refused(party.reply(other.opening(seal))) == NOT_REGISTERED
    said(party.reply(script.opening(seal)))


# 10.3: the party opens only for a log that shows the closing, chained, with its own seal in it.
@pytest.mark.parametrize(
    "fault",
    ["no seal", "another's", "not closed", "not chained", "gap", "forged", "beyond", "empty"],
)
def test_a_party_opens_only_for_the_closed_log_with_its_seal(
    fault: str, script: Script, party: Registered, pair: Pair
) -> None:
    seal = said(party.reply(script.begin()))
    opening = SealOpening(script.session, B.public, b"n" * 32, pair[1].commitment)
    other = sign_seal(B, party.terms.digest, opening)
    copy = replace(script, log=list(script.log))
    if fault in ("no seal", "another's"):
        turn = copy.opening(*([other] if fault == "another's" else []))
    elif fault == "not closed":
        copy.write(e.Sealed(seal))
        turn = copy.turn(AskOpening(tuple(copy.log)))
    elif fault == "not chained":
        copy.last = b"x" * 32
        turn = copy.opening(seal)
    elif fault == "gap":
        copy.opening(seal)
        turn = copy.turn(AskOpening((copy.log[0], copy.log[2])))
    elif fault == "forged":
        copy.opening(seal)
        entry = Entry(
            2, e.open_entry(copy.log[1], REFEREE.public).digest(), 5000, e.SealingClosed()
        )
        turn = copy.turn(AskOpening((*copy.log[:2], sign_entry(C, entry))))
    elif fault == "beyond":
        copy.opening(seal)
        copy.write(e.OpeningClosed())
        turn = copy.turn(AskOpening(tuple(copy.log)))
    else:
        turn = copy.turn(AskOpening(()))
    assert isinstance(party.reply(turn), Refusal)
    said(party.reply(script.opening(other, seal)))


def test_a_party_opens_for_one_log_only(script: Script, party: Registered, sessions: Path) -> None:
    seal = said(party.reply(script.begin()))
    copy = replace(script, log=list(script.log))
    said(party.reply(script.opening(seal)))
    copy.write(e.Resumed())
    assert refused(party.reply(copy.opening(seal))) == IN_CONFLICT
    # The first of the two signed logs stays: it proves the referee's equivocation (12.5.1).
    kept = (sessions / f"{script.session.hex()}.open").read_bytes()
    assert all(entry in kept for entry in script.log)


# 13.3: a query is answered only if it is the one open now, in a game of a session that was opened.
def test_a_game_is_followed_to_its_end(script: Script, party: Registered, pair: Pair) -> None:
    opened(script, party)
    game, commitments = game_of(pair, party)
    first = 0
    while game.verdict is None:
        for seat, query in sorted(game.pending.items()):
            if seat == 1:
                game.receive(1, pair[1].answer(query))
                continue
            known = len(game.transcript)
            turn = script.play(game, 0, commitments, first)
            answer = said(party.reply(turn, LONG))
            assert said(party.reply(turn)) == answer  # 13.4: an equal turn, an equal reply
            game.receive(0, answer)
            first = known
    assert [c.party for c in game.verdict.convicted] == [1]
    assert len(pair[0].asked) == len(set(pair[0].asked))
    # An old turn, sent again after the end, still has its reply.
    assert said(party.reply(turn)) == answer


def test_a_query_that_is_not_the_open_one_is_refused(
    script: Script, party: Registered, pair: Pair
) -> None:
    opened(script, party)
    game, commitments = game_of(pair, party)
    for query in (
        encode_query(q.States((3,))),
        encode_query(q.Nodes(2)),
        encode_query(q.Checkpoints((0,))),
        b"garbage",
    ):
        turn = script.play(game, 0, commitments, query=query)
        assert refused(party.reply(turn, LONG)) == NOT_REGISTERED
    assert pair[0].asked == []


def test_an_unregistered_game_is_refused(script: Script, party: Registered, pair: Pair) -> None:
    game, commitments = game_of(pair, party)
    seal = said(party.reply(script.begin()))
    assert refused(party.reply(script.play(game, 0, commitments))) == NOT_REGISTERED  # not opened
    said(party.reply(script.opening(seal)))
    swapped = commitments[::-1]
    assert refused(party.reply(script.play(game, 0, swapped))) == NOT_REGISTERED  # not its run
    elsewhere = replace(script, session=b"x" * 32)
    assert refused(party.reply(elsewhere.play(game, 0, commitments))) == NOT_REGISTERED
    own = (pair[0].commitment,) * 2  # against itself
    assert refused(party.reply(script.play(game, 0, own, number=7))) == NOT_REGISTERED
    junk = (pair[0].commitment, b"junk")
    assert refused(party.reply(script.play(game, 0, junk, number=8))) == MALFORMED
    assert pair[0].asked == []
    said(party.reply(script.play(game, 0, commitments), LONG))
    third = Player(pair[1].party, C)  # another opponent under the same number
    other = (pair[0].commitment, third.commitment)
    assert refused(party.reply(script.play(game, 0, other))) == IN_CONFLICT


def test_messages_are_checked_and_asked_for(
    script: Script, party: Registered, pair: Pair, sessions: Path
) -> None:
    opened(script, party)
    game, commitments = game_of(pair, party)
    while len(game.transcript) < 6:
        for seat, query in sorted(game.pending.items()):
            game.receive(seat, pair[seat].answer(query))
    ahead = script.play(game, 0, commitments, first=4)
    assert party.reply(ahead) == Needs(0)
    brings = script.play(game, 0, commitments, query=b"")
    assert party.reply(brings) == Needs(len(game.transcript))
    answer = said(party.reply(ahead, LONG))
    # 13.5: a party that restarts needs no memory of the game, only its messages.
    again = registered(pair[0], sessions)
    assert again.reply(ahead) == Needs(0)
    assert said(again.reply(script.play(game, 0, commitments), LONG)) == answer
    # Messages that are none of the game, or others than before.
    bad = Play(1, 0, commitments, 0, ((1, b"junk"),), b"")
    assert refused(party.reply(script.turn(bad))) == MALFORMED
    changed = Play(0, 0, commitments, 0, (game.transcript[1],), b"")
    assert refused(party.reply(script.turn(changed))) == IN_CONFLICT


# 13.4: working, while one thread executes; 2.8.1: a fault of the machine signs nothing.
def test_a_party_says_that_it_is_working(script: Script, party: Registered, pair: Pair) -> None:
    opened(script, party)
    game, commitments = game_of(pair, party)
    turn = script.play(game, 0, commitments)
    pair[0].going.clear()
    assert isinstance(party.reply(turn), Working)
    assert isinstance(party.reply(turn, 0.01), Working)
    pair[0].going.set()
    said(party.reply(turn, LONG))
    assert len(pair[0].asked) == 1


def test_a_fault_of_the_machine_keeps_the_query_open(
    script: Script, party: Registered, pair: Pair
) -> None:
    opened(script, party)
    game, commitments = game_of(pair, party)
    pair[0].faults = 2
    turn = script.play(game, 0, commitments)
    replies = [party.reply(turn, LONG) for _ in range(3)]
    assert [type(reply) for reply in replies] == [Working, Working, Message]


# 2.8.1: a fault of the machine while the game is played along costs no more than time.
@pytest.mark.parametrize("fault", [MemoryError(), MachineFaultError("No thread.", "Wait.")])
def test_a_fault_while_the_game_is_followed_starves_no_party(
    script: Script, party: Registered, pair: Pair, fault: Exception,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    opened(script, party)
    game, commitments = game_of(pair, party)
    while len(game.transcript) < 4:
        for seat, query in sorted(game.pending.items()):
            game.receive(seat, pair[seat].answer(query))
    turn = script.play(game, 0, commitments)
    judge_round = Referee.judge_round

    def fails(_: Referee) -> None:
        raise fault

    monkeypatch.setattr(Referee, "judge_round", fails)
    with pytest.raises(type(fault)):
        party.reply(turn)
    monkeypatch.setattr(Referee, "judge_round", judge_round)
    assert said(party.reply(turn, LONG)) == pair[0].party.answer(game.pending[0])


def test_the_end_has_an_empty_reply(script: Script, party: Registered) -> None:
    opened(script, party)
    wrong = script.turn(Ended(script.log[-1]))
    assert refused(party.reply(wrong)) == MALFORMED
    end = script.turn(Ended(script.write(e.Result(e.NONE_ACCEPTED))))
    assert party.reply(end) == party.reply(end) == Message(b"")


def test_no_logs_without_a_contract_that_keeps_them(script: Script, party: Registered) -> None:
    opened(script, party)
    assert refused(party.log(encode_query(q.Log(0)))) == NOT_REGISTERED
    assert refused(party.commitment()) == NOT_REGISTERED


def test_keys_that_do_not_fit(pair: Pair, sessions: Path) -> None:
    terms = pair[0].party.job.terms
    for key, referees in ((A, []), (A, [A.public]), (B, [REFEREE.public])):
        with pytest.raises(UsageError):
            Registered(pair[0], key, terms, referees, sessions)
