"""A forfeit: the referee's signed word that a party was silent (PROTOCOL 2.10)."""

from __future__ import annotations

from dataclasses import dataclass

from tallystick.commit.encoding import HASH_BYTES, canonical_json, parse_canonical_json
from tallystick.commit.signing import (
    Envelope,
    PrivateKey,
    PublicKey,
    sign_envelope,
    verify_envelope,
)
from tallystick.errors import CorruptFileError, UsageError
from tallystick.limits import LIMITS

FORFEIT_TYPE = "application/vnd.tallystick.forfeit.v1+json"
FORFEIT_KIND = "tallystick/forfeit/1"


@dataclass(frozen=True)
class Forfeit:
    """The statement of key `referee` that party `party` did not answer `query` in time."""

    job_digest: bytes
    run_roots: tuple[bytes, bytes]
    party: int
    query: bytes
    referee: PublicKey

    def payload(self) -> bytes:
        """The signed canonical JSON."""
        return canonical_json(
            {
                "job_digest": self.job_digest.hex(),
                "kind": FORFEIT_KIND,
                "party": self.party,
                "query": self.query.hex(),
                "referee": self.referee.raw.hex(),
                "run_roots": [root.hex() for root in self.run_roots],
            }
        )


def sign_forfeit(key: PrivateKey, forfeit: Forfeit) -> bytes:
    """The signed forfeit, an envelope's bytes; `key` is the one it names."""
    return sign_envelope(key, FORFEIT_TYPE, forfeit.payload()).to_bytes()


def open_forfeit(data: bytes) -> Forfeit:
    """The forfeit in an untrusted envelope, signed by exactly the key it names.

    Raises CounterpartyError. The caller decides whether it believes that key.
    """
    envelope = Envelope.from_bytes(data, LIMITS.forfeit_bytes)
    value = parse_canonical_json(envelope.payload, "forfeit", LIMITS.forfeit_bytes)
    names = {"job_digest", "kind", "party", "query", "referee", "run_roots"}
    if not isinstance(value, dict) or set(value) != names or value["kind"] != FORFEIT_KIND:
        raise _malformed()
    party, roots = value["party"], value["run_roots"]
    if type(party) is not int or party not in (0, 1):
        raise _malformed()
    if not isinstance(roots, list) or len(roots) != 2:
        raise _malformed()
    first, second = (_hex(root, HASH_BYTES) for root in roots)
    try:
        referee = PublicKey(_hex(value["referee"], 32))
    except UsageError as error:
        raise CorruptFileError(
            f"The forfeit's referee has no key: {error.message}", "Refuse the forfeit."
        ) from error
    verify_envelope(envelope, FORFEIT_TYPE, [referee], None)
    return Forfeit(
        _hex(value["job_digest"], HASH_BYTES),
        (first, second),
        party,
        _hex(value["query"], None),
        referee,
    )


def _hex(text: object, length: int | None) -> bytes:
    """Lower-case hexadecimal digits as bytes, `length` of them unless None."""
    if isinstance(text, str) and set(text) <= set("0123456789abcdef") and len(text) % 2 == 0:
        data = bytes.fromhex(text)
        if length is None or len(data) == length:
            return data
    raise _malformed()


def _malformed() -> CorruptFileError:
    return CorruptFileError("The forfeit is malformed.", "Ask the referee for an intact copy.")
