"""How long answers and evidence may get, and that every conviction fits (PROTOCOL 2.6.1, 8.5)."""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from unit.protocol.scenarios import SCENARIOS, liar
from unit.protocol.simulator import Party

from tallystick.commit.checkpoint import checkpoint_count
from tallystick.commit.encoding import sha256
from tallystick.commit.signing import Envelope, PrivateKey, RunCommitment
from tallystick.commit.tensor import LEAF_BYTES
from tallystick.errors import CannotCheckError, CorruptFileError, UsageError
from tallystick.job.job import Job
from tallystick.limits import LIMITS
from tallystick.numerics.types import TensorType
from tallystick.protocol import sizes
from tallystick.protocol.bodies import BytesBody
from tallystick.protocol.evidence import Evidence, evidence_of
from tallystick.protocol.facts import Facts
from tallystick.protocol.forfeit import Forfeit, open_forfeit, sign_forfeit
from tallystick.protocol.judge import judge
from tallystick.protocol.messages import ANSWERED, Answer, make_answer, sign_answer
from tallystick.protocol.queries import Leaf, decode_query
from tallystick.protocol.referee import Referee
from tallystick.prover.local import play
from tallystick.run.store.directory import RunStore

REFEREE = PrivateKey(bytes([3]) * 32)


# --- true answers ---------------------------------------------------------------------------------
@pytest.mark.parametrize("arity", [2, 20])
@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_a_true_answer_is_never_longer_than_said(game_job: Job, honest: Party, name: str,
                                                 arity: int) -> None:  # fmt: skip
    """2.6.1: else an honest party would be asked for what counts as silence."""
    other = liar(game_job, SCENARIOS[name])
    referee = Referee(game_job.terms, (honest.commitment, other.commitment), arity)
    longest = 0
    while referee.verdict is None:
        for party, query in sorted(referee.pending.items()):
            answer = (honest, other)[party].answer(query)
            if party == 0:
                most = sizes.message_bytes(referee._game, 0, decode_query(query))
                assert len(answer) <= most
                longest = max(longest, most - len(answer))
            referee.receive(party, answer)
            if referee.verdict is not None:
                break
    assert longest < 9000  # the bound is one: a log block's or a leaf's slack at most
    assert len(referee.transcript) <= referee.bounds.messages
    commitments = (honest.commitment, other.commitment)
    evidence = evidence_of(referee, game_job.digest, arity, commitments)
    assert len(evidence.to_bytes()) <= referee.bounds.evidence_bytes < LIMITS.evidence_bytes


def test_no_answer_over_the_limit_is_signed(honest: Party) -> None:
    """2.6: it would be taken for silence, and the honest party would lose by it."""
    body = BytesBody(bytes(LIMITS.answer_bytes))
    with pytest.raises(CannotCheckError, match="limit"):
        make_answer(honest.key, bytes(32), bytes(32), Leaf(0, 0, 0, 0, 0), body)


@pytest.mark.parametrize(
    "limits",
    [
        {"answer_bytes": 400},
        {"query_bytes": 16},
        {"evidence_bytes": LIMITS.evidence_frame + 900},
    ],
    ids=str,
)
def test_what_would_be_too_long_is_not_asked(
    game_job: Job, honest: Party, cheat: Party, monkeypatch: pytest.MonkeyPatch,
    limits: dict[str, int],
) -> None:  # fmt: skip
    """2.6.1: the game ends without a verdict and without a forfeit."""
    monkeypatch.setattr(sizes, "LIMITS", replace(LIMITS, **limits))
    with pytest.raises(CannotCheckError, match=r"evidence of a conviction|an answer can hold"):
        play(game_job.terms, [honest, cheat], key=REFEREE)


def test_a_job_whose_records_are_too_long_has_no_game(
    game_job: Job, honest: Party, cheat: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A liar would choose the node that no answer can hold: no such game begins."""
    commitments = (honest.commitment, cheat.commitment)
    Referee(game_job.terms, commitments)
    monkeypatch.setattr(sizes, "LIMITS", replace(LIMITS, answer_bytes=400))
    with pytest.raises(CannotCheckError, match="No game about this job can be played"):
        Referee(game_job.terms, commitments)


def test_an_output_that_no_node_reads_counts(game_job: Job) -> None:
    """The game may descend into it: its leaves decide how long an opening gets."""
    program = game_job.program
    node = program.nodes[0]
    large = replace(node, out_types=(*node.out_types, TensorType("f32", (2**28,))))
    terms = game_job.terms
    longer = replace(terms, texts=(replace(program, nodes=(large, *program.nodes[1:])),))
    before, after = (sizes.game_bounds(Facts(t), 20) for t in (terms, longer))
    assert after.messages > before.messages and after.size > before.size + LEAF_BYTES


def test_the_judge_ends_where_the_referee_would(
    game_job: Job, honest: Party, cheat: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = play(game_job.terms, [honest, cheat]).evidence.to_bytes()
    monkeypatch.setattr(sizes, "LIMITS", replace(LIMITS, answer_bytes=400))
    with pytest.raises(CannotCheckError):
        judge(game_job.terms, data)


# --- every conviction fits ------------------------------------------------------------------------
def _maximal(party: Party, query: bytes, filler: int) -> bytes:
    """A signed answer of exactly the longest length."""
    empty = Answer(party.job.digest, party.run.run_root, query, ANSWERED, b"")
    room = LIMITS.answer_bytes - len(sign_answer(party.key, empty))
    message = sign_answer(party.key, replace(empty, body=bytes([filler]) * room))
    assert len(message) == LIMITS.answer_bytes
    return message


def test_an_equivocation_of_two_maximal_answers_is_evidence(
    game_job: Job, honest: Party, cheat: Party
) -> None:
    """8.4, 8.5: at the end of a whole game; what was written is judged alike."""
    commitments = (honest.commitment, cheat.commitment)
    whole, referee = Referee(game_job.terms, commitments), Referee(game_job.terms, commitments)
    while whole.verdict is None:
        for party, query in sorted(whole.pending.items()):
            whole.receive(party, (honest, cheat)[party].answer(query))
    last = max(n for n, (party, _) in enumerate(whole.transcript) if party == 1)
    for party, message in whole.transcript[:last]:
        referee.receive(party, message)
    query = referee.pending[1]
    # Without party 0's last answer: the round is not judged with the first of the two.
    again = Referee(game_job.terms, commitments)
    for party, message in [m for m in referee.transcript if m[1] != referee.transcript[-1][1]]:
        again.receive(party, message)
    assert again.pending[1] == query and 0 in again.pending
    again.receive(1, _maximal(cheat, query, 1))
    again.receive(1, _maximal(cheat, query, 2))
    evidence = evidence_of(again, game_job.digest, 20, commitments)
    data = evidence.to_bytes()
    assert 2 * LIMITS.answer_bytes < len(data) <= again.bounds.evidence_bytes
    verdict = judge(game_job.terms, data).verdict
    assert verdict == again.verdict
    assert [(c.party, c.clause) for c in verdict.convicted] == [(1, "2.9")]


@pytest.mark.parametrize("clause", ["2.9", "2.7"])
def test_two_answers_of_any_length_are_evidence(
    game_job: Job, honest: Party, cheat: Party, clause: str
) -> None:
    """8.5: an equivocation, and two malformed answers in one round."""
    commitments = (honest.commitment, cheat.commitment)
    referee = Referee(game_job.terms, commitments)
    query = referee.pending[1]
    referee.receive(1, _maximal(cheat, query, 1))
    if clause == "2.9":
        referee.receive(1, _maximal(cheat, query, 2))
    else:
        referee.receive(0, _maximal(honest, referee.pending[0], 1))  # this one lies as well
    evidence = evidence_of(referee, game_job.digest, 20, commitments)
    verdict = judge(game_job.terms, evidence.to_bytes()).verdict
    assert {c.clause for c in verdict.convicted} == {clause}


def test_the_limits_leave_room_for_every_conviction() -> None:
    """8.5: two maximal answers, both commitments and a forfeit, and then a game."""
    frame = 2 * LIMITS.commitment_bytes + 2 * LIMITS.answer_bytes + LIMITS.forfeit_bytes + 256
    assert LIMITS.evidence_frame == frame
    assert LIMITS.game_bytes == LIMITS.evidence_bytes - frame > 7 << 20
    # A forfeit carries a query in hexadecimal, and its envelope that in base64.
    assert LIMITS.query_bytes * 2 * 4 / 3 + 2048 < LIMITS.forfeit_bytes < LIMITS.answer_bytes


def test_the_longest_query_fits_a_forfeit(game_job: Job, honest: Party, cheat: Party) -> None:
    roots = (honest.run.run_root, cheat.run.run_root)
    word = Forfeit(game_job.digest, roots, 0, bytes(LIMITS.query_bytes), REFEREE.public)
    data = sign_forfeit(REFEREE, word)
    assert len(data) <= LIMITS.forfeit_bytes and open_forfeit(data) == word


def test_a_game_of_gpt2_fits(capsys: pytest.CaptureFixture[str]) -> None:
    """8.5, ADR 0004: the dearest operator of GPT-2 124M, after the dearest search there is."""
    path = Path(__file__).resolve().parents[3] / "benchmarks" / "opening_cost.py"
    spec = importlib.util.spec_from_file_location("opening_cost", path)
    assert spec is not None and spec.loader is not None
    bench = importlib.util.module_from_spec(spec)
    sys.modules["opening_cost"] = bench
    try:
        spec.loader.exec_module(bench)
        assert bench.main(["--json", "--leaf", "2048"]) == 0
    finally:
        del sys.modules["opening_cost"]
    rows = json.loads(capsys.readouterr().out)["rows"]
    worst = max(row["value"] for row in rows)
    assert 600_000 < worst < 700_000
    # Both parties, arity 256, as many checkpoints as a run may have: every proof hash there can be.
    steps = LIMITS.checkpoints * 1000
    height = checkpoint_count(steps, 1000).bit_length()
    proof = 255 * (32 + 32 * height + 8) + 300
    search = 2 * (3 + 2 * 3) * proof + 2 * 3 * 255 * 40
    assert worst + search < LIMITS.game_bytes
    assert worst < LIMITS.answer_bytes


# --- doors ----------------------------------------------------------------------------------------
TOO_LONG = b"[" * (LIMITS.commitment_bytes + 1)


def test_a_commitment_over_the_limit_is_parsed_nowhere(
    game_job: Job, honest: Party, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """8.5: its size is looked at first, at every door."""

    def parse(*_: object, **__: object) -> None:
        raise AssertionError("parsed")

    monkeypatch.setattr("tallystick.commit.encoding.json.loads", parse)
    with pytest.raises(UsageError, match="limit"):
        Referee(game_job.terms, (TOO_LONG, TOO_LONG))
    with pytest.raises(CorruptFileError, match="limit"):
        RunCommitment.from_payload(TOO_LONG)
    with pytest.raises(CorruptFileError, match="limit"):
        Envelope.from_bytes(bytes(LIMITS.envelope_bytes + 1))
    with pytest.raises(CorruptFileError, match="limit"):
        open_forfeit(bytes(LIMITS.forfeit_bytes + 1))
    evidence = Evidence(game_job.digest, 20, (TOO_LONG, TOO_LONG), ())
    with pytest.raises(CorruptFileError, match="limit"):
        judge(game_job.terms, evidence.to_bytes())
    (tmp_path / "commitment.json").write_bytes(TOO_LONG)
    with pytest.raises(CorruptFileError):
        RunStore(tmp_path).envelope()


def test_more_than_a_game_of_the_job_can_leave(game_job: Job, honest: Party, cheat: Party) -> None:
    """8.5: refused by the terms alone, before a message is looked at."""
    evidence = play(game_job.terms, [honest, cheat]).evidence
    bounds = Referee(game_job.terms, evidence.commitments).bounds
    longest = bytes(LIMITS.answer_bytes)
    for messages, why in (
        (((0, longest),) * 3, "no game of this job leaves more"),
        (((0, b""),) * (bounds.messages + 3), "messages, more than the limit"),
    ):
        with pytest.raises(CorruptFileError, match=why):
            judge(game_job.terms, replace(evidence, messages=messages).to_bytes())
    body = evidence.to_bytes()[:-32]
    start = body.index(len(evidence.messages).to_bytes(8, "little"), 60)
    hollow = body[:start] + (1 << 63).to_bytes(8, "little")
    with pytest.raises(CorruptFileError):
        judge(game_job.terms, hollow + sha256(hollow))
