"""Evidence, judge, forfeits and statements (PROTOCOL 2.9, 2.10, 8, 9)."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from claim_schemas import fits
from unit.protocol.simulator import Party

from tallystick.commit.encoding import canonical_json, sha256
from tallystick.commit.signed import PAYLOAD_TYPE, sign_statement
from tallystick.commit.signing import Envelope, PrivateKey, sign_envelope, verify_envelope
from tallystick.errors import CannotCheckError, CorruptFileError, CounterpartyError, UsageError
from tallystick.job.job import Job
from tallystick.limits import LIMITS
from tallystick.protocol import forfeit as forfeits
from tallystick.protocol.evidence import Evidence, evidence_of
from tallystick.protocol.judge import judge
from tallystick.protocol.messages import (
    ANSWERED,
    Answer,
    open_answer,
    sign_answer,
)
from tallystick.protocol.queries import NodeHashes, TensorHashes, decode_query
from tallystick.protocol.referee import Referee
from tallystick.protocol.statement import conviction_statement, run_statement
from tallystick.prover.local import Played, SilenceError, play

OTHER = PrivateKey(bytes([77]) * 32)
REFEREE = PrivateKey(bytes([3]) * 32)


class Mute:
    """A party that answers `words` times and then keeps silent."""

    def __init__(self, party: Party, words: int, garbage: bool = False) -> None:
        self.party, self.words, self.garbage = party, words, garbage
        self.commitment = party.commitment

    def answer(self, query: bytes) -> bytes:
        self.words -= 1
        if self.words >= 0:
            return self.party.answer(query)
        if self.garbage:
            return b"not an answer"
        raise SilenceError("It says nothing.")


@pytest.fixture
def played(game_job: Job, honest: Party, cheat: Party) -> Played:
    """The whole game: cheat is party 1 and is convicted."""
    return play(game_job.terms, [honest, cheat])


@pytest.fixture
def silent(game_job: Job, honest: Party, cheat: Party) -> Evidence:
    """The cheat falls silent after three answers."""
    return play(game_job.terms, [honest, Mute(cheat, 3)], key=REFEREE).evidence


def refused(job: Job, evidence: Evidence, **more: object) -> str:
    with pytest.raises(CorruptFileError) as caught:
        judge(job.terms, evidence.to_bytes(), **more)  # type: ignore[arg-type]
    return str(caught.value)


def test_the_judge_finds_what_the_referee_found(
    game_job: Job, played: Played, honest: Party
) -> None:
    found = judge(game_job.terms, played.evidence.to_bytes())
    assert found.verdict == played.verdict
    assert [c.party for c in found.verdict.convicted] == [1]
    assert found.trusted == (None, None)
    assert found.run_roots[0] == honest.run.run_root
    assert judge(game_job.terms, played.evidence.to_bytes(), [honest.key.public]).trusted == (
        True,
        False,
    )


def test_evidence_survives_its_own_layout(played: Played) -> None:
    assert Evidence.from_bytes(played.evidence.to_bytes()) == played.evidence


def test_messages_missing_left_over_or_doubled(game_job: Job, played: Played) -> None:
    e = played.evidence
    assert "missing" in refused(game_job, replace(e, messages=e.messages[:-1]))
    assert "follow" in refused(game_job, replace(e, messages=(*e.messages, e.messages[-1])))
    assert "twice" in refused(game_job, replace(e, messages=(e.messages[0], *e.messages)))


def test_evidence_of_another_job(game_job: Job, played: Played) -> None:
    assert "another job" in refused(game_job, replace(played.evidence, job_digest=bytes(32)))


def test_evidence_that_lies_about_its_sizes(game_job: Job, played: Played) -> None:
    e, limit = played.evidence, LIMITS.evidence_bytes
    for arity in (0, 1, 257):
        assert "arity" in refused(game_job, replace(e, arity=arity))
    assert "party" in refused(game_job, replace(e, messages=((2, b""),)))
    with pytest.raises(UsageError, match="limit"):
        replace(e, messages=((0, bytes(limit)),)).to_bytes()
    with pytest.raises(CorruptFileError, match="limit"):
        Evidence.from_bytes(bytes(limit + 1))
    with pytest.raises(CorruptFileError, match="altered or cut"):
        Evidence.from_bytes(b"short")
    body = e.to_bytes()[:-32]
    with pytest.raises(CorruptFileError, match="follow"):
        Evidence.from_bytes(body + b"\0" + sha256(body + b"\0"))
    other = b"tallystick/evidence/2\0" + body[22:]
    with pytest.raises(CorruptFileError, match="begin"):
        Evidence.from_bytes(other + sha256(other))


def test_an_equivocation_is_evidence(game_job: Job, honest: Party, cheat: Party) -> None:
    commitments = (honest.commitment, cheat.commitment)
    referee = Referee(game_job.terms, commitments)
    query = referee.pending[1]
    referee.receive(1, cheat.answer(query))
    answer = Answer(game_job.digest, cheat.run.run_root, query, ANSWERED, b"other")
    referee.receive(1, sign_answer(cheat.key, answer))
    evidence = evidence_of(referee, game_job.digest, 20, commitments)
    verdict = judge(game_job.terms, evidence.to_bytes()).verdict
    assert [(c.party, c.clause) for c in verdict.convicted] == [(1, "2.9")]
    assert verdict.accepted == 0


# --- silence (2.10) -------------------------------------------------------------------------------
@pytest.mark.parametrize("garbage", [False, True])
def test_silence_forfeits(game_job: Job, honest: Party, cheat: Party, garbage: bool) -> None:
    played = play(game_job.terms, [honest, Mute(cheat, 3, garbage)], key=REFEREE)
    assert played.verdict.forfeit
    assert [c.party for c in played.verdict.convicted] == [1]
    found = judge(game_job.terms, played.evidence.to_bytes(), trust_referees=[REFEREE.public])
    assert found.verdict == played.verdict
    assert found.referee == REFEREE.public.key_id


def test_a_forfeit_is_the_referees_word_only(game_job: Job, silent: Evidence) -> None:
    for believed in ((), [PrivateKey(bytes(32)).public]):
        with pytest.raises(CannotCheckError, match="word of referee") as caught:
            judge(game_job.terms, silent.to_bytes(), trust_referees=believed)
        assert "--trust-referee" in caught.value.next_action


def test_trust_in_a_signer_is_no_trust_in_a_referee(game_job: Job, silent: Evidence) -> None:
    """2.10: whom we believe to sign runs is another question than whose word we take."""
    with pytest.raises(CannotCheckError, match="word of referee"):
        judge(game_job.terms, silent.to_bytes(), [REFEREE.public])


@pytest.mark.parametrize("by", [0, 1])
@pytest.mark.parametrize("against", [0, 1])
def test_a_party_signs_no_forfeit(
    game_job: Job, honest: Party, cheat: Party, by: int, against: int
) -> None:
    """2.10: no message, one party's own signature, and the honest one would be convicted."""
    parties = (honest, cheat)
    commitments = (honest.commitment, cheat.commitment)
    referee, key = Referee(game_job.terms, commitments), parties[by].key
    word = forfeits.Forfeit(
        game_job.digest, (honest.run.run_root, cheat.run.run_root), against,
        referee.pending[against], key.public,
    )  # fmt: skip
    envelope = forfeits.sign_forfeit(key, word)
    evidence = evidence_of(referee, game_job.digest, 20, commitments, (envelope,))
    for trust in (None, [key.public]):
        for believed in ((), [key.public]):
            found = refused(game_job, evidence, trust=trust, trust_referees=believed)
            assert "a party's key" in found


def test_both_silent_are_both_convicted(game_job: Job, honest: Party, cheat: Party) -> None:
    """2.10.2, 8.1, 8.3: a forfeit for each, of one referee, in order."""
    played = play(game_job.terms, [Mute(honest, 1), Mute(cheat, 1)], key=REFEREE)
    assert [c.party for c in played.verdict.convicted] == [0, 1]
    assert played.verdict.forfeit and played.verdict.accepted is None
    both = Evidence.from_bytes(played.evidence.to_bytes())
    assert both == played.evidence and len(both.forfeits) == 2
    found = judge(game_job.terms, both.to_bytes(), trust_referees=[REFEREE.public])
    assert found.verdict.convicted == played.verdict.convicted
    one = replace(both, forfeits=both.forfeits[1:])
    alone = judge(game_job.terms, one.to_bytes(), trust_referees=[REFEREE.public])
    assert [c.party for c in alone.verdict.convicted] == [1]
    word = replace(forfeits.open_forfeit(both.forfeits[1]), referee=OTHER.public)
    for wrong in (
        both.forfeits[::-1],
        (both.forfeits[0], both.forfeits[0]),
        (both.forfeits[0], forfeits.sign_forfeit(OTHER, word)),
    ):
        changed = replace(both, forfeits=wrong)
        assert "two forfeits" in refused(
            game_job, changed, trust_referees=[REFEREE.public, OTHER.public]
        )
    with pytest.raises(CannotCheckError, match="word of referee"):
        judge(game_job.terms, both.to_bytes())


def test_an_answer_in_the_silent_ones_round_is_kept(
    game_job: Job, honest: Party, cheat: Party
) -> None:
    """2.10.2: a party that has answered in the round is not silent, whichever is asked first."""
    for order in ((0, 1), (1, 0)):
        parties: list[Any] = [honest, Mute(cheat, 1)]
        played = play(game_job.terms, [parties[i] for i in order], key=REFEREE)
        assert [c.party for c in played.verdict.convicted] == [order.index(1)]
        assert played.verdict.accepted == order.index(0)


def test_no_game_is_played_with_a_partys_key(game_job: Job, honest: Party, cheat: Party) -> None:
    """2.10: it could not end by silence; said before the first query."""
    for party in (honest, cheat):
        with pytest.raises(UsageError, match="a party's key"):
            play(game_job.terms, [Mute(honest, 0), Mute(cheat, 0)], key=party.key)


def test_a_forfeit_fits_the_game_where_it_ended(
    game_job: Job, silent: Evidence, honest: Party, cheat: Party
) -> None:
    (forfeit,) = silent.forfeits
    believed = [REFEREE.public]
    word = forfeits.open_forfeit(forfeit)
    roots = (honest.run.run_root, cheat.run.run_root)
    assert word.run_roots == roots

    def signed(**changes: object) -> Evidence:
        changed = replace(word, **changes)  # type: ignore[arg-type]
        return replace(silent, forfeits=(forfeits.sign_forfeit(REFEREE, changed),))

    assert "another game" in refused(
        game_job, signed(job_digest=bytes(32)), trust_referees=believed
    )
    assert "another game" in refused(
        game_job, signed(run_roots=roots[::-1]), trust_referees=believed
    )
    assert "not open" in refused(game_job, signed(query=b"q"), trust_referees=believed)
    assert "not open" in refused(game_job, signed(party=0), trust_referees=believed)
    early = replace(silent, messages=silent.messages[:1])
    assert "not open" in refused(game_job, early, trust_referees=believed)


def test_a_forfeit_after_the_end(game_job: Job, played: Played, silent: Evidence) -> None:
    late = replace(played.evidence, forfeits=silent.forfeits)
    assert "follows" in refused(game_job, late, trust_referees=[REFEREE.public])


def test_malformed_forfeits(silent: Evidence) -> None:
    good = json.loads(Envelope.from_bytes(silent.forfeits[0]).payload)

    def fails(value: object) -> None:
        payload = canonical_json(value)  # type: ignore[arg-type]
        data = sign_envelope(REFEREE, forfeits.FORFEIT_TYPE, payload).to_bytes()
        with pytest.raises(CounterpartyError, match="malformed"):
            forfeits.open_forfeit(data)

    fails([])
    fails(list(good))
    fails({**good, "more": 1})
    for name, value in (
        ("kind", "tallystick/forfeit/2"), ("party", 2), ("party", True), ("party", "1"),
        ("run_roots", good["run_roots"][:1]), ("run_roots", "ab"),
        ("run_roots", dict.fromkeys(good["run_roots"], 0)), ("query", "abc"),
        ("query", "AB"), ("query", 7), ("job_digest", "00"),
    ):  # fmt: skip
        fails({**good, name: value})
    other = sign_envelope(PrivateKey(bytes(32)), forfeits.FORFEIT_TYPE, canonical_json(good))
    with pytest.raises(CounterpartyError):
        forfeits.open_forfeit(other.to_bytes())
    type_ = sign_envelope(REFEREE, "text/plain", canonical_json(good))
    with pytest.raises(CounterpartyError):
        forfeits.open_forfeit(type_.to_bytes())


# --- claims (9; CLAIMS 2, 4) ----------------------------------------------------------------------
def test_the_accepted_run_as_a_claim(game_job: Job, played: Played, honest: Party) -> None:
    data = played.evidence.to_bytes()
    contract = game_job.commitment.contract
    payload = run_statement(contract, honest.commitment, played.verdict, data)
    envelope = Envelope.from_bytes(sign_statement(REFEREE, payload).to_bytes())
    verify_envelope(envelope, PAYLOAD_TYPE, [REFEREE.public], None)
    value = json.loads(envelope.payload)
    fits(value, "run")
    assert {s["name"]: s["digest"] for s in value["subject"]} == {
        "commitment.json": {"sha256": sha256(honest.commitment).hex()},
        "run": {"tallystickRunRoot": honest.run.run_root.hex()},
        "final-state": {"tallystickStateRoot": honest.run.final_state_root.hex()},
    }
    assert value["predicate"]["evidence"] == sha256(data).hex()
    assert [c["party"] for c in value["predicate"]["convicted"]] == [1]
    assert value["predicate"]["disputed"] is True
    alone = json.loads(run_statement(contract, honest.commitment))
    fits(alone, "run")
    assert alone["predicate"]["disputed"] is False and alone["predicate"]["evidence"] is None


def test_no_claim_without_an_accepted_run(game_job: Job, played: Played, honest: Party) -> None:
    nobody = replace(played.verdict, accepted=None)
    with pytest.raises(UsageError, match="nothing to state"):
        run_statement(game_job.commitment.contract, honest.commitment, nobody, None)


def test_a_conviction_as_a_claim(played: Played, honest: Party, cheat: Party) -> None:
    data = played.evidence.to_bytes()
    value = json.loads(conviction_statement(played.verdict, data))
    fits(value, "conviction")
    assert value["subject"] == [
        {"digest": {"sha256": sha256(data).hex()}, "name": "evidence"},
        {"digest": {"sha256": sha256(cheat.commitment).hex()}, "name": "commitment-B"},
        {"digest": {"tallystickRunRoot": cheat.run.run_root.hex()}, "name": "run-B"},
    ]
    (one,) = value["predicate"]["convicted"]
    assert one["key"] == cheat.key.public.raw.hex()
    assert one["clause"] == played.verdict.convicted[0].clause
    assert value["predicate"]["accepted"] == honest.run.run_root.hex()
    assert value["predicate"]["forfeit"] is False
    both = replace(
        played.verdict,
        convicted=(replace(played.verdict.convicted[0], party=0), *played.verdict.convicted),
        accepted=None,
    )
    value = json.loads(conviction_statement(both, data))
    fits(value, "conviction")
    names = ["evidence", "commitment-A", "run-A", "commitment-B", "run-B"]
    assert [s["name"] for s in value["subject"]] == names
    with pytest.raises(UsageError, match="Nobody"):
        conviction_statement(replace(played.verdict, convicted=()), data)


# --- sizes (2.11) ---------------------------------------------------------------------------------
def test_an_answer_over_the_limit_is_not_even_read(game: Referee) -> None:
    with pytest.raises(CorruptFileError, match="longer than the limit"):
        game.receive(0, bytes(LIMITS.answer_bytes + 1))


def test_a_query_over_the_limit_is_not_even_read() -> None:
    with pytest.raises(CorruptFileError, match="longer than any query"):
        decode_query(bytes(LIMITS.query_bytes + 1))


def test_a_status_that_is_none_convicts(game: Referee, honest: Party, cheat: Party) -> None:
    """2.3, 2.7: a true body under an unknown status is no answer of the layout."""
    query = game.pending[1]
    true = open_answer(cheat.answer(query), cheat.key.public)
    game.receive(0, honest.answer(game.pending[0]))
    game.receive(1, sign_answer(cheat.key, replace(true, status=2)))
    assert game.verdict is not None
    assert [(c.party, c.clause) for c in game.verdict.convicted] == [(1, "2.7")]


@pytest.mark.parametrize("more", [b"\0", bytes(31), bytes(33)])
def test_bytes_after_a_body_convict(
    game: Referee, honest: Party, cheat: Party, more: bytes
) -> None:
    """2.7: the layout ends where it ends."""
    true = open_answer(cheat.answer(game.pending[1]), cheat.key.public)
    game.receive(0, honest.answer(game.pending[0]))
    game.receive(1, sign_answer(cheat.key, replace(true, body=true.body + more)))
    assert game.verdict is not None
    assert [(c.party, c.clause) for c in game.verdict.convicted] == [(1, "2.7")]


@pytest.mark.parametrize("query", [NodeHashes(6, 0, 12), TensorHashes(6, 6, 1, 0, 0, 3)])
def test_a_list_of_hashes_has_whole_hashes(query: NodeHashes | TensorHashes) -> None:
    with pytest.raises(CorruptFileError):
        query.layout.decode(bytes(33))
