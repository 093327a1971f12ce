"""Signatures taken from one message and put under another: of another type, form or session
(PROTOCOL 2.5, 10.2, 12.2, 13.1; COMMITMENTS 9.2). A signature is over the type and the bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random

import pytest
from unit.delegation.offers import CLIENT, OFFER, P, accepted, book, outcome
from unit.delegation.offers import REFEREE as OFFERS_REFEREE
from unit.delegation.players import REFEREE, Player, Time, play, playing, rules
from unit.protocol.conftest import PAIRS
from unit.protocol.scenarios import SCENARIOS, liar
from unit.protocol.simulator import Party

from tallystick.commit.encoding import Writer, sha256, tag
from tallystick.commit.signed import PAYLOAD_TYPE, sign_statement, split_compact
from tallystick.commit.signing import (
    RUN_COMMITMENT_TYPE,
    Envelope,
    PrivateKey,
    RunCommitment,
    Signature,
    pae,
    sign_run,
    verify_run,
)
from tallystick.delegation.arbiter import Arbiter
from tallystick.delegation.documents import (
    Acceptance,
    Alarm,
    Document,
    Receipt,
    Withdrawal,
    open_document,
    payload_type,
    sign_document,
)
from tallystick.delegation.entries import ENTRY_TYPE, Entry, Resumed, open_entry, sign_entry
from tallystick.delegation.outcome import Fate
from tallystick.delegation.rules import Rules
from tallystick.delegation.seals import (
    OPENING_TYPE,
    SEAL_TYPE,
    SealOpening,
    open_opening,
    open_seal,
    sign_opening,
    sign_seal,
)
from tallystick.delegation.session import ENDED
from tallystick.delegation.statement import Settled, check_settlement, sign_settlement
from tallystick.delegation.turns import TURN_TYPE, AskSeal, Turn, open_turn, sign_turn
from tallystick.errors import CounterpartyError
from tallystick.job.job import Job
from tallystick.job.recipes import new_job
from tallystick.limits import LIMITS
from tallystick.protocol.forfeit import FORFEIT_TYPE, Forfeit, open_forfeit, sign_forfeit
from tallystick.protocol.messages import ANSWER_TYPE, Answer, open_answer, sign_answer

KEY = OFFERS_REFEREE  # it signs all of these: a party, a referee and a provider at once
PUBLIC = KEY.public
JOB, ROOT, STATE, SESSION = (sha256(word) for word in (b"job", b"root", b"state", b"session"))
RUN = RunCommitment(JOB, ROOT, 20, STATE, 3, PUBLIC)
SEALED = SealOpening(SESSION, PUBLIC, b"n" * 32, sign_run(KEY, RUN).to_bytes())
BOOK = book(OFFER, accepted(OFFER, P[:2]))
OUTCOME = outcome(OFFER.digest, dict.fromkeys(P[:2], (Fate.REMAINING, b"\xc1" * 32)))
IN_TOTO = json.dumps(
    {"_type": "https://in-toto.io/Statement/v1", "predicate": {}, "predicateType": "x",
     "subject": []},
    separators=(",", ":"),
).encode()  # fmt: skip

# name: the signed message, the type under its signature, and what opens it.
Kind = tuple[bytes, str, Callable[[bytes], object]]
COMPACT: dict[str, Kind] = {
    "answer": (
        sign_answer(KEY, Answer(JOB, ROOT, b"query", 0, b"body")), ANSWER_TYPE,
        lambda data: open_answer(data, PUBLIC),
    ),
    "seal": (sign_seal(KEY, JOB, SEALED), SEAL_TYPE, open_seal),
    "opening": (sign_opening(KEY, SEALED), OPENING_TYPE, open_opening),
    "entry": (
        sign_entry(KEY, Entry(7, ROOT, 99, Resumed())), ENTRY_TYPE,
        lambda data: open_entry(data, PUBLIC),
    ),
    "turn": (
        sign_turn(KEY, Turn(SESSION, AskSeal(b"entry"))), TURN_TYPE,
        lambda data: open_turn(data, (PUBLIC,)),
    ),
}  # fmt: skip
_DOCUMENTS = (
    Acceptance(OFFER.digest, PUBLIC), Withdrawal(OFFER.digest, PUBLIC),
    Alarm(OFFER.digest, SESSION, ROOT, PUBLIC), Receipt(OFFER.digest, ROOT, 5, PUBLIC),
)  # fmt: skip
ENVELOPES: dict[str, Kind] = {
    "run": (
        sign_run(KEY, RUN).to_bytes(), RUN_COMMITMENT_TYPE,
        lambda data: verify_run(Envelope.from_bytes(data)),
    ),
    "forfeit": (
        sign_forfeit(KEY, Forfeit(JOB, (ROOT, STATE), 0, b"query", PUBLIC)), FORFEIT_TYPE,
        open_forfeit,
    ),
    "settlement": (
        sign_settlement(KEY, Settled(BOOK, PUBLIC, 1 << 40, OUTCOME)), PAYLOAD_TYPE,
        lambda data: check_settlement(data, BOOK, OUTCOME),
    ),
    "offer": (
        sign_document(CLIENT, OFFER), payload_type("offer"),
        lambda data: _a("offer", open_document(data)),
    ),
    **{
        document.NAME: (
            sign_document(KEY, document), payload_type(document.NAME),
            lambda data, name=document.NAME: _a(name, open_document(data)),
        )
        for document in _DOCUMENTS
    },
}  # fmt: skip
KINDS = COMPACT | ENVELOPES


def _a(name: str, found: Document) -> Document:
    if name != found.NAME:
        raise CounterpartyError("It is another document.", "Refuse it.")
    return found


def parts(name: str) -> tuple[bytes, bytes]:
    """The bytes that are signed, but for their type, and the signature."""
    if name in COMPACT:
        found = split_compact(KINDS[name][0], LIMITS.answer_bytes, "message")
        return found.data, found.signature
    envelope = Envelope.from_bytes(KINDS[name][0])
    return envelope.payload, envelope.signatures[0].signature


def put(name: str, data: bytes, signature: bytes) -> bytes:
    """A message in the form and of the type of `name`."""
    if name in COMPACT:
        return Writer().blob(data).raw(signature).finish()
    signer = CLIENT.public if name == "offer" else PUBLIC
    return Envelope(KINDS[name][1], data, (Signature(signer.key_id, signature),)).to_bytes()


@pytest.mark.parametrize("name", KINDS)
def test_the_messages_are_sound(name: str) -> None:
    message, _, opens = KINDS[name]
    opens(message)
    assert put(name, *parts(name)) == message


def test_no_two_kinds_have_one_type() -> None:
    """But for settlements and statements about runs, which in-toto gives one payload type: these
    differ by their predicate."""
    assert len({kind for _, kind, _ in KINDS.values()}) == len(KINDS)


@pytest.mark.parametrize("other", KINDS)
@pytest.mark.parametrize("name", KINDS)
def test_a_signature_of_another_type_is_none(name: str, other: str) -> None:
    """The message as it is; its words and its signature in the other's form; its signature under
    the other's words. The last one is also tried for the message itself, with one word changed."""
    opens, (data, signature) = KINDS[other][2], parts(name)
    forged = [put(other, parts(other)[0], signature)]
    if name != other:
        forged += [KINDS[name][0], put(other, data, signature)]
    else:
        forged = [put(other, data, signature[:32] + bytes(32)), put(other, data[:-1], signature)]
    for message in forged:
        with pytest.raises(CounterpartyError):
            opens(message)


def test_a_statement_about_a_run_is_no_settlement() -> None:
    for payload in (IN_TOTO, b"{}"):
        with pytest.raises(CounterpartyError):
            check_settlement(sign_statement(KEY, payload).to_bytes(), BOOK, OUTCOME)


def test_what_makes_a_nonce_is_no_message() -> None:
    """A party's nonce is a digest of a signature: no signature that it sends is of that type."""
    sent = {kind for _, kind, _ in KINDS.values()}
    assert "application/vnd.tallystick.seal-nonce.v1" not in sent
    # The pre-authentication encoding says the lengths of type and words: nothing slips over.
    assert pae("ab", b"c") != pae("a", b"bc") and pae("a 1 b", b"") != pae("a", b"b 0 ")


# --- sessions -------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    path = tmp_path_factory.mktemp("replayed") / "job"
    pairs = {**PAIRS, "lr": "0.0001"}
    return new_job("logreg", path, pairs, steps=13, checkpoint_interval=4, evaluate_every=0)


@pytest.fixture(scope="module")
def runs(job: Job) -> list[Party]:
    return [Party(job), *(liar(job, SCENARIOS[n]) for n in ("another genesis", "a wrong product"))]


class Recorded(Player):
    """Keeps all that it sends."""

    def __init__(self, party: Party, seed: int) -> None:
        super().__init__(party, seed)
        self.sent: list[bytes] = []

    def replies(self, turn: Turn) -> list[bytes]:
        found = super().replies(turn)
        self.sent += found
        return found


def _rules(job: Job, players: list[Recorded], nonce: bytes) -> Rules:
    return rules(job, players, nonce=nonce * 32)


def _first(job: Job, runs: list[Party]) -> tuple[list[Recorded], list[bytes], Arbiter]:
    """A session to its end: the parties, all that they sent, and its arbiter."""
    players = [Recorded(run, n) for n, run in enumerate(runs, 11)]
    log: list[bytes] = []
    time = Time()
    arbiter = Arbiter(job.terms, REFEREE, log, time, _rules(job, players, b"1"))
    play(arbiter, players, time)
    sent = [message for player in players for message in player.sent]
    assert len(sent) > 20
    return players, [*sent, *log], arbiter


def _words(message: bytes) -> bytes:
    return split_compact(message, LIMITS.entry_bytes, "message").data


@pytest.mark.parametrize("seed", range(3))
def test_all_of_one_session_is_sent_again_in_another(
    seed: int, job: Job, runs: list[Party]
) -> None:
    """Seals and openings name their session, and are refused. An answer names job, run and query:
    it is the same true statement in every session, and whoever sends it changes no outcome."""
    players, sent, before = _first(job, runs)
    rng = Random(seed)
    again = [Recorded(run, n) for n, run in enumerate(runs, 11)]
    time, log = Time(), list[bytes]()
    arbiter = Arbiter(job.terms, REFEREE, log, time, _rules(job, again, b"2"))
    taken: list[bytes] = []

    def replay() -> None:
        for message in rng.sample(sent, 8):
            length = arbiter.session.length
            try:
                arbiter.take(message, rng.choice([None, *(p.key.public for p in again)]))
            except CounterpartyError:
                assert arbiter.session.length == length
            else:
                taken.append(message)

    play(arbiter, again, time, replay)
    assert arbiter.session.state == ENDED and arbiter.session.result is not None
    assert before.session.result is not None
    assert arbiter.session.result.outcome == before.session.result.outcome
    assert arbiter.session.result.accepted == sha256(again[0].party.commitment)
    assert arbiter.session.removed == before.session.removed
    assert all(m in players[0].sent + players[1].sent + players[2].sent for m in taken)
    for message in taken:
        assert _words(message).startswith(tag("answer/1"))


def test_an_old_log_is_no_new_session(job: Job, runs: list[Party]) -> None:
    """Each entry names the one before it, and so the session: none fits into another log."""
    _, sent, before = _first(job, runs)
    del before
    time, log = Time(), list[bytes]()
    players = [Recorded(run, n) for n, run in enumerate(runs, 11)]
    playing(job, players, time, log, nonce=b"2" * 32)
    entries = [
        m
        for m in sent
        if split_compact(m, LIMITS.entry_bytes, "m").data[:21] == tag("log-entry/1")[:21]
    ]
    for entry in entries[:20]:
        with pytest.raises(CounterpartyError):
            Arbiter(job.terms, REFEREE, [*log, entry], time)


def test_a_key_of_a_party_signs_nothing_for_the_referee() -> None:
    """The parts are kept apart by keys as well: a turn that a party has signed is no turn."""
    party = PrivateKey(bytes([44]) * 32)
    turn = sign_turn(party, Turn(SESSION, AskSeal(b"entry")))
    with pytest.raises(CounterpartyError):
        open_turn(turn, (PUBLIC, REFEREE.public))
