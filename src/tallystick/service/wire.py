"""Replies as HTTP responses, for servers and clients alike (docs/adr/0013-http.md).

| reply | status | body |
|---|---|---|
| Message | 200 | the signed message, `application/octet-stream` |
| Working | 202 | `{"working": text}` |
| Needs | 409 | `{"needs": number}` |
| Refusal | 400, 401, 403 or 409 | `{"refused": sentence, "kind": name}` |
"""

from __future__ import annotations

import json
from typing import Any

from tallystick.commit.encoding import U64_MAX
from tallystick.errors import CorruptFileError
from tallystick.limits import LIMITS
from tallystick.prover.replies import (
    IN_CONFLICT,
    MALFORMED,
    NOT_REGISTERED,
    UNBELIEVED,
    Message,
    Needs,
    Refusal,
    Reply,
    Working,
)

TURN, PARTY, COMMITMENT, LOGS, LOG = (
    "/v1/turn", "/v1/party", "/v1/commitment", "/v1/logs/", "/v1/log/",
)  # fmt: skip
OCTETS, JSON = "application/octet-stream", "application/json"
CARD_FORMAT = "tallystick/party/1"
# A response is no longer than the longest signed message, and one in JSON far shorter.
MESSAGE_BYTES = LIMITS.entry_bytes
JSON_BYTES = 4096
_TEXT = 500  # characters of another party's sentence

_STATUS = {MALFORMED: 400, UNBELIEVED: 401, NOT_REGISTERED: 403, IN_CONFLICT: 409}


def encode_reply(reply: Reply) -> tuple[int, str, bytes]:
    """Status, content type and body."""
    if isinstance(reply, Message):
        return 200, OCTETS, reply.data
    if isinstance(reply, Working):
        return 202, JSON, _json({"working": reply.done})
    if isinstance(reply, Needs):
        return 409, JSON, _json({"needs": reply.first})
    return _STATUS[reply.kind], JSON, _json({"refused": reply.why, "kind": reply.kind})


def decode_reply(status: int, body: bytes) -> Reply:
    """The reply in an untrusted response. Raises CorruptFileError where it is none."""
    if status == 200:
        return Message(body)
    found = read_json(body)
    if status == 202:
        return Working(_text(found.get("working")))
    if status == 409 and "needs" in found:
        first = found["needs"]
        if isinstance(first, bool) or not isinstance(first, int) or not 0 <= first <= U64_MAX:
            raise CorruptFileError(
                "A party asks for a message without a valid number.", "Refuse it."
            )
        return Needs(first)
    kind = next((kind for kind, number in _STATUS.items() if number == status), None)
    if kind is None:
        raise CorruptFileError(f"A party responds with status {status}.", "Ask again later.")
    return Refusal(kind, _text(found.get("refused")))


def read_json(body: bytes) -> dict[str, Any]:
    """The members of a small untrusted JSON object. Raises CorruptFileError."""
    if len(body) > JSON_BYTES:
        raise CorruptFileError("A response in JSON is too long.", "Refuse it.")
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise CorruptFileError("A response is no JSON object.", "Check the address.")
    return found


def _text(value: object) -> str:
    return value[:_TEXT] if isinstance(value, str) else ""


def _json(value: dict[str, object]) -> bytes:
    return json.dumps(value).encode("ascii")
