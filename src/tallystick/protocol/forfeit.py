"""A forfeit: the referee's signed word that a party was silent (PROTOCOL 2.10)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from tallystick.commit.encoding import canonical_json, parse_canonical_json
from tallystick.commit.members import Members
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
    members = Members(value, _malformed)
    members.only("job_digest", "kind", "party", "query", "referee", "run_roots")
    if members.value["kind"] != FORFEIT_KIND:
        members.fail(f"it is no {FORFEIT_KIND}")
    party, roots = members.of("party", int), members.of("run_roots", list)
    if party not in (0, 1) or len(roots) != 2:
        members.fail("it names no party, or not two runs")
    first, second = (members.hex_of(root, "run root") for root in roots)
    try:
        referee = PublicKey(members.hex("referee"))
    except UsageError as error:
        raise CorruptFileError(
            f"The forfeit's referee has no key: {error.message}", "Refuse the forfeit."
        ) from error
    verify_envelope(envelope, FORFEIT_TYPE, [referee], None)
    return Forfeit(
        members.hex("job_digest"), (first, second), party, members.hex("query", None), referee
    )


def _malformed(why: str) -> NoReturn:
    raise CorruptFileError(
        f"The forfeit is malformed: {why}.", "Ask the referee for an intact copy."
    )
