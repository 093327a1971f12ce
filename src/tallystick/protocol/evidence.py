"""The evidence file: two commitments and the signed answers of a game, in order (PROTOCOL 8.1).

It states no verdict. `docs/adr/0003-evidence-is-the-transcript.md` says why.
"""

from __future__ import annotations

from dataclasses import dataclass

from tallystick.commit.encoding import HASH_BYTES, Reader, Writer, sha256, tag
from tallystick.errors import CorruptFileError, UsageError
from tallystick.limits import LIMITS
from tallystick.protocol.game import BOTH
from tallystick.protocol.referee import Referee

EVIDENCE_TAG = tag("evidence/1")
MIN_MESSAGE = 128  # bytes; a signed answer has more (PROTOCOL 2.3, 2.5)


@dataclass(frozen=True)
class Evidence:
    """The record of a game.

    `messages` are (party, signed answer) in the order received. `forfeits` are the envelopes
    that ended the game, if silence ended it: at most one for each party, party 0's first.
    """

    job_digest: bytes
    arity: int
    commitments: tuple[bytes, bytes]
    messages: tuple[tuple[int, bytes], ...]
    forfeits: tuple[bytes, ...] = ()

    def to_bytes(self) -> bytes:
        """The layout of PROTOCOL 8.1. Raises UsageError over the size of 8.5."""
        out = Writer(EVIDENCE_TAG).hash(self.job_digest, "job digest").u64(self.arity)
        out.blob(self.commitments[0]).blob(self.commitments[1]).u64(len(self.messages))
        for party, message in self.messages:
            out.u8(party).blob(message)
        out.u64(len(self.forfeits))
        for forfeit in self.forfeits:
            out.blob(forfeit)
        body = out.finish()
        data = body + sha256(body)
        if len(data) > LIMITS.evidence_bytes:
            raise UsageError(
                f"The evidence has {len(data)} bytes, over the limit of {LIMITS.evidence_bytes}.",
                "Repeat the dispute with a smaller --arity.",
            )
        return data

    @staticmethod
    def from_bytes(data: bytes) -> Evidence:
        """Inverse of to_bytes for untrusted bytes. Raises CorruptFileError (PROTOCOL 8.3)."""
        return EvidenceHead.from_bytes(data).rest(LIMITS.evidence_bytes // MIN_MESSAGE)


@dataclass(frozen=True)
class EvidenceHead:
    """The beginning of evidence. It says how much may follow; the rest is not read yet."""

    job_digest: bytes
    arity: int
    commitments: tuple[bytes, bytes]
    source: Reader

    @staticmethod
    def from_bytes(data: bytes) -> EvidenceHead:
        """The beginning of untrusted bytes, their digest checked. Raises CorruptFileError."""
        if len(data) > LIMITS.evidence_bytes:
            raise CorruptFileError("The evidence file is over the size limit.", "Refuse it.")
        body = memoryview(data)[:-HASH_BYTES]
        if sha256(body) != data[-HASH_BYTES:]:
            raise CorruptFileError(
                "The evidence file was altered or cut off: its digest does not match.",
                "Ask for an intact copy; this one gives no verdict.",
            )
        source = Reader(body, "evidence file")
        source.expect(EVIDENCE_TAG)
        job_digest, arity = source.hash(), source.u64()
        limit = LIMITS.commitment_bytes
        return EvidenceHead(job_digest, arity, (source.blob(limit), source.blob(limit)), source)

    def rest(self, most: int) -> Evidence:
        """The whole evidence, of at most `most` messages; to be called once.

        Raises CorruptFileError (PROTOCOL 8.3).
        """
        source, messages = self.source, []
        for _ in range(source.count(most, "messages")):
            party = source.u8()
            if party not in (0, 1):
                source.fail(f"there is no party {party}")
            messages.append((party, source.blob(LIMITS.answer_bytes)))
        forfeits = [
            source.blob(LIMITS.forfeit_bytes) for _ in range(source.count(len(BOTH), "forfeits"))
        ]
        source.end()
        return Evidence(
            self.job_digest, self.arity, self.commitments, tuple(messages), tuple(forfeits)
        )


def evidence_of(
    referee: Referee,
    job_digest: bytes,
    arity: int,
    commitments: tuple[bytes, bytes],
    forfeits: tuple[bytes, ...] = (),
) -> Evidence:
    """The evidence of a finished game."""
    return Evidence(job_digest, arity, commitments, tuple(referee.transcript), forfeits)
