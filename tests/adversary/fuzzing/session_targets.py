"""The decoders of sessions and offers, one target each (PROTOCOL 10 to 14)."""

from __future__ import annotations

import json
from collections.abc import Callable

from adversary.fuzzing.checks import Check, lenient
from adversary.fuzzing.world import CLIENT, KEY, SIGNERS, World

from tallystick.commit.encoding import canonical_json
from tallystick.commit.signed import PAYLOAD_TYPE, sign_compact
from tallystick.commit.signing import sign_envelope
from tallystick.delegation.book import open_book
from tallystick.delegation.documents import open_document, payload_type
from tallystick.delegation.entries import ENTRY_TYPE, open_entry
from tallystick.delegation.seals import (
    OPENING_TYPE,
    SEAL_TYPE,
    Seal,
    is_sealed_by,
    open_opening,
    open_seal,
    opened_run,
)
from tallystick.delegation.statement import check_settlement, outcome_json, read_outcome
from tallystick.delegation.turns import TURN_TYPE, decode_reply, open_turn
from tallystick.errors import UsageError


def _seal(data: bytes) -> None:
    assert open_seal(sign_compact(KEY, SEAL_TYPE, data)).to_bytes() == data


def _sealed(world: World) -> Check:
    """An opening, and whether it opens a seal of its own digest."""
    job = world.job.digest

    def check(data: bytes) -> None:
        opening = open_opening(sign_compact(KEY, OPENING_TYPE, data))
        assert opening.to_bytes() == data
        seal = Seal(opening.session, opening.key, opening.sealed(job))
        assert is_sealed_by(seal, opening, job)
        run = opened_run(seal, opening, job)
        assert run is None or (run.signer, run.job_digest) == (opening.key, job)

    return check


def _entry(data: bytes) -> None:
    message = sign_compact(KEY, ENTRY_TYPE, data)
    assert open_entry(message, KEY.public).to_bytes() == data
    open_entry(message)


def _document(data: bytes) -> None:
    """A document of an offer, whatever kind its payload names, signed anew (14.1)."""
    payload = lenient(data)
    try:
        kind = json.loads(payload)["kind"].split("/")[1]
        key = SIGNERS.get(kind, CLIENT)
        message = sign_envelope(key, payload_type(kind), payload).to_bytes()
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, UsageError):
        message = data
    assert open_document(message).payload() == payload


def _outcome(data: bytes) -> None:
    payload = lenient(data)
    assert canonical_json(outcome_json(read_outcome(payload))) == payload


def _settled(world: World) -> Check:
    """A settlement's statement, signed anew, against its book."""
    envelopes = [path.read_bytes() for path in sorted((world.directory / "book").iterdir())]
    book = open_book(envelopes)

    def check(data: bytes) -> None:
        message = sign_envelope(KEY, PAYLOAD_TYPE, lenient(data)).to_bytes()
        check_settlement(message, book, stated=True)

    return check


def _reply(data: bytes) -> None:
    """A response of a party: two bytes of status, then its body (13.4)."""
    status, body = int.from_bytes(data[:2], "little"), data[2:]
    decode_reply((200, 202, 400, 401, 403, 409, status)[status % 7], body)


def _turn(data: bytes) -> None:
    turn, _ = open_turn(sign_compact(KEY, TURN_TYPE, data), (KEY.public,))
    assert turn.to_bytes() == data


PURE: dict[str, Check] = {
    "document": _document,
    "entry": _entry,
    "outcome": _outcome,
    "reply": _reply,
    "seal": _seal,
    "turn": _turn,
}
IN_WORLD: dict[str, Callable[[World], Check]] = {
    "sealed": _sealed,
    "settled": _settled,
}
