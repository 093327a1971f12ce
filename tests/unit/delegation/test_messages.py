"""Messages of a session round-trip, and foreign bytes are refused by type (PROTOCOL 10 to 13)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.commit.signing import PrivateKey, PublicKey, RunCommitment, sign_run
from tallystick.delegation import entries as e
from tallystick.delegation.entries import Entry, open_entry, sign_entry
from tallystick.delegation.rules import Rules
from tallystick.delegation.seals import (
    SealOpening,
    open_opening,
    open_seal,
    opened_run,
    sign_opening,
    sign_seal,
)
from tallystick.delegation.turns import (
    AskOpening,
    AskSeal,
    Ended,
    Play,
    Turn,
    open_turn,
    sign_turn,
)
from tallystick.errors import CorruptFileError, CounterpartyError, UsageError

REFEREE, A, B = (PrivateKey(bytes([n]) * 32) for n in (1, 2, 3))
JOB, SESSION = b"j" * 32, b"s" * 32


def rules(**changed: object) -> Rules:
    allowed = tuple(sorted((A.public, B.public), key=lambda key: key.raw))
    base = Rules(JOB, b"n" * 32, REFEREE.public, 20, 3, 1000, 1000, 500, 2, 10, 50, allowed)
    return replace(base, **changed)  # type: ignore[arg-type]


def commitment(key: PrivateKey, job: bytes = JOB) -> bytes:
    run = RunCommitment(job, b"r" * 32, 10, b"f" * 32, 3, key.public)
    return sign_run(key, run).to_bytes()


EVENTS: list[e.Event] = [
    e.SessionBegun(rules()), e.Sealed(b"seal"), e.SealingClosed(), e.SealOpened(b"opening"),
    e.OpeningClosed(), e.Asked(1, 0, b"q"), e.Answered(2, 1, b"a"), e.Forfeited(3, 0, b"f"),
    e.Resumed(), e.GameBegun(4, (A.public, B.public)), e.GameEnded(4, e.CONVICTED, 2),
    e.Result(e.CONTESTED, b"c" * 32),
]  # fmt: skip


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_entries_round_trip_under_the_referees_key_only(event: e.Event) -> None:
    entry = Entry(7, b"p" * 32, 12345, event)
    message = sign_entry(REFEREE, entry)
    assert open_entry(message, REFEREE.public) == entry
    with pytest.raises(CorruptFileError, match="does not verify"):
        open_entry(message, A.public)
    if isinstance(event, e.SessionBegun):
        assert open_entry(message) == entry
    else:
        with pytest.raises(CorruptFileError, match="begin a session"):
            open_entry(message)


def test_every_kind_of_entry_has_a_number_of_its_own() -> None:
    assert sorted(event.KIND for event in EVENTS) == list(range(1, 13))


REQUESTS = [
    AskSeal(b"entry"),
    AskOpening((b"one", b"two")),
    Play(0, 1, (b"c0", b"c1"), 2, ((0, b"m"), (1, b"n")), b"q"),
    Ended(b"result"),
]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda r: type(r).__name__)
def test_turns_round_trip_under_a_believed_key_only(request_: object) -> None:
    turn = Turn(SESSION, request_)  # type: ignore[arg-type]
    message = sign_turn(REFEREE, turn)
    assert open_turn(message, (A.public, REFEREE.public)) == (turn, REFEREE.public)
    assert open_turn(message, (REFEREE.public, A.public)) == (turn, REFEREE.public)
    for believed in ((), (A.public,), (A.public, B.public)):
        with pytest.raises(CorruptFileError):
            open_turn(message, believed)


@given(st.binary(max_size=300))
def test_foreign_bytes_are_refused_by_type(data: bytes) -> None:
    for open_ in (open_seal, open_opening, open_entry):
        with pytest.raises(CounterpartyError):
            open_(data)
    with pytest.raises(CounterpartyError):
        open_turn(data, (REFEREE.public,))


@given(st.data())
def test_a_byte_changed_is_refused(data: st.DataObject) -> None:
    message = bytearray(sign_entry(REFEREE, Entry(0, e.FIRST, 5, EVENTS[0])))
    at = data.draw(st.integers(0, len(message) - 1))
    message[at] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(CounterpartyError):
        open_entry(bytes(message), REFEREE.public)


def test_an_opening_opens_its_own_seal_only() -> None:
    opening = SealOpening(SESSION, A.public, b"x" * 32, commitment(A))
    seal = open_seal(sign_seal(A, JOB, opening))
    again = open_opening(sign_opening(A, opening))
    assert again == opening
    run = opened_run(seal, again, JOB)
    assert run is not None and run.signer == A.public
    for changed in (
        replace(opening, nonce=b"y" * 32),
        replace(opening, session=b"t" * 32),
        replace(opening, commitment=commitment(B)),
        replace(opening, key=B.public),
    ):
        assert opened_run(seal, changed, JOB) is None
    assert opened_run(seal, opening, b"k" * 32) is None


def test_a_seal_of_anothers_commitment_opens_to_nothing() -> None:
    """A copy under one's own key: the opening fits the seal, and the commitment is another's."""
    copied = SealOpening(SESSION, B.public, b"x" * 32, commitment(A))
    seal = open_seal(sign_seal(B, JOB, copied))
    assert opened_run(seal, copied, JOB) is None
    other = SealOpening(SESSION, A.public, b"x" * 32, commitment(A, b"k" * 32))
    assert opened_run(open_seal(sign_seal(A, JOB, other)), other, JOB) is None


def test_a_seal_hides_its_commitment() -> None:
    """Equal commitments have different seals under other nonces, keys and sessions (10.2)."""
    base = SealOpening(SESSION, A.public, b"x" * 32, commitment(A))
    others = [
        base,
        replace(base, nonce=b"y" * 32),
        replace(base, key=B.public),
        replace(base, session=b"t" * 32),
    ]
    assert len({o.sealed(JOB) for o in others}) == len(others)


@pytest.mark.parametrize(
    "changed",
    [
        {"arity": 1}, {"arity": 257}, {"most": 1}, {"most": 65}, {"sealing": 1 << 53},
        {"budget": (1 << 40) + 1}, {"step": 1 << 30, "steps": 1 << 30},
        {"allowed": (A.public, A.public)}, {"allowed": (REFEREE.public,)},
        {"allowed": tuple(sorted((A.public, B.public), key=lambda k: k.raw))[::-1]},
    ],
)  # fmt: skip
def test_rules_out_of_range_are_refused(changed: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        rules(**changed)


def test_keys_are_public_keys() -> None:
    assert all(isinstance(key, PublicKey) for key in rules().allowed)
