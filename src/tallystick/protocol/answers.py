"""What a party answers: bodies, their layouts, and the signed form (PROTOCOL 2.1 to 2.8)."""

from __future__ import annotations

from dataclasses import dataclass

from tallystick.commit.encoding import HASH_BYTES, Reader, Writer, tag
from tallystick.commit.signing import PrivateKey, PublicKey, pae
from tallystick.errors import CannotCheckError, CorruptFileError
from tallystick.limits import LIMITS
from tallystick.protocol.queries import (
    Checkpoints,
    Leaf,
    Log,
    LogBlock,
    LogHashes,
    Loss,
    NodeHashes,
    NodeRecord,
    Nodes,
    Opening,
    Query,
    Record,
    Slot,
    States,
    TensorHashes,
    Values,
    encode_query,
)

ANSWER_TAG = tag("answer/1")
ANSWER_TYPE = "application/vnd.tallystick.answer.v1"
SIGNATURE_BYTES = 64
ANSWERED, UNABLE = 0, 1
Hashes = tuple[bytes, ...]
_PROOF = 64  # hashes of an inclusion proof: a tree has fewer than 2^64 leaves


@dataclass(frozen=True)
class RootsBody:
    """State roots, and for checkpoints the multi-proof (kinds 1 and 2; kind 2 has no proof)."""

    roots: Hashes
    proof: Hashes = ()


@dataclass(frozen=True)
class LossBody:
    """Kind 3."""

    chain: bytes
    bits: int
    proof: Hashes


@dataclass(frozen=True)
class NodesBody:
    """Kind 4."""

    count: int
    root: bytes


@dataclass(frozen=True)
class HashesBody:
    """Kinds 5 and 8."""

    hashes: Hashes


@dataclass(frozen=True)
class NodeBody:
    """Kind 6: a node as executed."""

    operator: str
    attributes: bytes
    inputs: Hashes
    outputs: Hashes
    proof: Hashes


@dataclass(frozen=True)
class SlotBody:
    """Kind 7."""

    digest: bytes
    proof: Hashes


@dataclass(frozen=True)
class BytesBody:
    """Kinds 9 (a leaf), 10 (values) and 11 (a tensor opening's layout)."""

    data: bytes


@dataclass(frozen=True)
class RecordBody:
    """Kind 12."""

    record: bytes
    proof: Hashes


@dataclass(frozen=True)
class LogBody:
    """Kind 13: the log chain before the step, the section digests, and proofs of the chain."""

    chain: bytes
    before: Hashes
    sections: Hashes
    after: Hashes


@dataclass(frozen=True)
class BlocksBody:
    """Kind 14."""

    blocks: int
    hashes: Hashes


@dataclass(frozen=True)
class BlockBody:
    """Kind 15."""

    data: bytes
    proof: Hashes


Body = (
    RootsBody | LossBody | NodesBody | HashesBody | NodeBody | SlotBody | BytesBody | RecordBody
    | LogBody | BlocksBody | BlockBody
)  # fmt: skip


def _write_parts(out: Writer, hashes: Hashes) -> None:
    for h in hashes:
        out.hash(h)


def _write_hashes(out: Writer, hashes: Hashes) -> None:
    _write_parts(out.u64(len(hashes)), hashes)


def _read_parts(source: Reader, size: int) -> Hashes:
    """The hashes that end a body of `size` bytes; bytes left over are the caller's to refuse."""
    return tuple(source.hash() for _ in range(size // HASH_BYTES))


def _read_hashes(source: Reader, limit: int = _PROOF) -> Hashes:
    return tuple(source.hashes(limit))


def encode_body(query: Query, body: Body) -> bytes:
    """The layout of `body`, which is of `query`'s kind (PROTOCOL 2.1)."""
    out = Writer()
    if isinstance(body, RootsBody):
        _write_parts(out, body.roots)
        if isinstance(query, Checkpoints):
            _write_hashes(out, body.proof)
    elif isinstance(body, LossBody):
        _write_hashes(out.hash(body.chain).u32(body.bits), body.proof)
    elif isinstance(body, NodesBody):
        out.u64(body.count).hash(body.root)
    elif isinstance(body, HashesBody):
        _write_parts(out, body.hashes)
    elif isinstance(body, NodeBody):
        out.text(body.operator).blob(body.attributes)
        for hashes in (body.inputs, body.outputs, body.proof):
            _write_hashes(out, hashes)
    elif isinstance(body, SlotBody):
        _write_hashes(out.hash(body.digest), body.proof)
    elif isinstance(body, RecordBody):
        _write_hashes(out.blob(body.record), body.proof)
    elif isinstance(body, LogBody):
        out.hash(body.chain)
        for hashes in (body.before, body.sections, body.after):
            _write_hashes(out, hashes)
    elif isinstance(body, BlocksBody):
        _write_parts(out.u64(body.blocks), body.hashes)
    elif isinstance(body, BlockBody):
        _write_hashes(out.blob(body.data), body.proof)
    elif isinstance(query, Values):
        out.raw(body.data)
    else:
        out.blob(body.data)
    return out.finish()


def decode_body(query: Query, data: bytes) -> Body:
    """The body in untrusted bytes. Raises CorruptFileError (PROTOCOL 2.7).

    What a query alone does not tell, such as how long a leaf is, the referee checks.
    """
    source = Reader(data, "answer")
    body: Body
    if isinstance(query, Checkpoints | States):
        asked = query.indices if isinstance(query, Checkpoints) else query.steps
        roots = tuple(source.hash() for _ in asked)
        proof = isinstance(query, Checkpoints)
        body = RootsBody(roots, _read_hashes(source, LIMITS.proof_hashes) if proof else ())
    elif isinstance(query, Loss):
        body = LossBody(source.hash(), source.u32(), _read_hashes(source))
    elif isinstance(query, Nodes):
        body = NodesBody(source.u64(), source.hash())
    elif isinstance(query, NodeHashes | TensorHashes):
        body = HashesBody(_read_parts(source, len(data)))
    elif isinstance(query, NodeRecord):
        body = NodeBody(
            source.text(),
            source.blob(LIMITS.attribute_bytes),
            _read_hashes(source, LIMITS.node_inputs),
            _read_hashes(source, LIMITS.node_outputs),
            _read_hashes(source),
        )
    elif isinstance(query, Slot):
        body = SlotBody(source.hash(), _read_hashes(source))
    elif isinstance(query, Record):
        body = RecordBody(source.blob(LIMITS.record_bytes), _read_hashes(source))
    elif isinstance(query, Values):
        body = BytesBody(source.raw(len(data)))
    elif isinstance(query, Log):
        chain, before = source.hash(), _read_hashes(source)
        sections = _read_hashes(source, LIMITS.log_sections)
        body = LogBody(chain, before, sections, _read_hashes(source))
    elif isinstance(query, LogHashes):
        body = BlocksBody(source.u64(), _read_parts(source, len(data) - 8))
    elif isinstance(query, LogBlock):
        body = BlockBody(source.blob(LIMITS.log_block_bytes), _read_hashes(source))
    else:
        assert isinstance(query, Leaf | Opening)
        body = BytesBody(source.blob(LIMITS.answer_bytes))
    source.end()
    return body


@dataclass(frozen=True)
class Answer:
    """A party's answer to `query`; `body` is the encoded body, empty when `status` is UNABLE."""

    job_digest: bytes
    run_root: bytes
    query: bytes
    status: int
    body: bytes

    def to_bytes(self) -> bytes:
        """The layout that is signed (PROTOCOL 2.3)."""
        out = Writer(ANSWER_TAG).hash(self.job_digest).hash(self.run_root)
        return out.blob(self.query).u8(self.status).raw(self.body).finish()


def sign_answer(key: PrivateKey, answer: Answer) -> bytes:
    """The signed answer (PROTOCOL 2.5)."""
    data = answer.to_bytes()
    return Writer().blob(data).raw(key.sign(pae(ANSWER_TYPE, data))).finish()


def make_answer(
    key: PrivateKey, job_digest: bytes, run_root: bytes, query: Query, body: Body | None
) -> bytes:
    """Sign `body` as the answer to `query`; None says that the party is unable.

    Raises CannotCheckError, and signs nothing, for an answer over the limit: it would be taken for
    none (PROTOCOL 2.6). No referee asks for one (2.6.1).
    """
    status = UNABLE if body is None else ANSWERED
    data = b"" if body is None else encode_body(query, body)
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

    Raises CorruptFileError where the message is no signed answer of `signer` at all: then nobody
    has said anything (PROTOCOL 2.6).
    """
    if len(message) > LIMITS.answer_bytes:
        raise CorruptFileError("An answer is longer than the limit.", "Refuse it.")
    source = Reader(message, "signed answer")
    data = source.blob(LIMITS.answer_bytes)
    signature = source.raw(SIGNATURE_BYTES)
    source.end()
    if not signer.verifies(signature, pae(ANSWER_TYPE, data)):
        raise CorruptFileError("The signature of an answer does not verify.", "Refuse it.")
    inner = Reader(data, "answer")
    inner.expect(ANSWER_TAG)
    job, run, query = inner.hash(), inner.hash(), inner.blob(LIMITS.query_bytes)
    status = inner.u8()
    head = len(ANSWER_TAG) + 2 * HASH_BYTES + 8 + len(query) + 1
    return Answer(job, run, query, status, data[head:])
