"""A party's answers: the layout around a body, and the signed form (PROTOCOL 2.3 to 2.8)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tallystick.commit.compact import SIGNATURE_BYTES as SIGNATURE_BYTES
from tallystick.commit.compact import open_compact, sign_compact
from tallystick.commit.encoding import HASH_BYTES, Reader, Writer, tag
from tallystick.commit.signing import PrivateKey, PublicKey
from tallystick.errors import CannotCheckError
from tallystick.limits import LIMITS
from tallystick.protocol.bodies import Body
from tallystick.protocol.queries import encode_query
from tallystick.protocol.query import Query

ANSWER_TAG = tag("answer/1")
ANSWER_TYPE = "application/vnd.tallystick.answer.v1"
ANSWERED, UNABLE = 0, 1


@dataclass(frozen=True)
class Answer:
    """A party's answer to `query`; `body` is the encoded body, empty when `status` is UNABLE."""

    job_digest: bytes
    run_root: bytes
    query: bytes
    status: int
    body: bytes

    def to_bytes(self) -> bytes:
        """The signed layout (PROTOCOL 2.3)."""
        out = Writer(ANSWER_TAG).hash(self.job_digest).hash(self.run_root)
        return out.blob(self.query).u8(self.status).raw(self.body).finish()


def sign_answer(key: PrivateKey, answer: Answer) -> bytes:
    """The signed answer (PROTOCOL 2.5)."""
    return sign_compact(key, ANSWER_TYPE, answer.to_bytes())


def make_answer(
    key: PrivateKey, job_digest: bytes, run_root: bytes, query: Query[Any], body: Body | None
) -> bytes:
    """Sign `body` as the answer to `query`; None says that the party is unable.

    Raises CannotCheckError, and signs nothing, for an answer over the limit. A referee would ignore
    such an answer (PROTOCOL 2.6), and no referee asks for one (2.6.1).
    """
    status = UNABLE if body is None else ANSWERED
    data = b"" if body is None else query.layout.encode(body)
    answer = Answer(job_digest, run_root, encode_query(query), status, data)
    size = len(answer.to_bytes()) + 8 + SIGNATURE_BYTES
    if size > LIMITS.answer_bytes:
        raise CannotCheckError(
            f"The answer to this query has {size} bytes, over the limit of {LIMITS.answer_bytes}.",
            "Nothing was signed. Let a referee of this build or a newer one ask.",
        )
    return sign_answer(key, answer)


def open_answer(message: bytes, signer: PublicKey) -> Answer:
    """The answer in a message, its signature verified.

    Raises CorruptFileError where the message is no signed answer of `signer` at all: then no party
    has stated anything (PROTOCOL 2.6).
    """
    data = open_compact(message, ANSWER_TYPE, signer, LIMITS.answer_bytes, "signed answer")
    inner = Reader(data, "answer")
    inner.expect(ANSWER_TAG)
    job, run, query = inner.hash(), inner.hash(), inner.blob(LIMITS.query_bytes)
    status = inner.u8()
    head = len(ANSWER_TAG) + 2 * HASH_BYTES + 8 + len(query) + 1
    return Answer(job, run, query, status, data[head:])
