"""The decoders of a counterparty's bytes, one target each, with what must hold of each input.

A target takes any bytes. It returns where the decoder took them, and raises a typed error where
the decoder refused them. What a decoder took must encode to the same bytes again, where its format
has one form. Where a signature or a digest stands in front of a decoder the target makes it anew,
so that changed content is reached.

`UsageError` is our own caller's mistake, so it is a finding too, but where the target says so.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from adversary.fuzzing.checks import Check, lenient
from adversary.fuzzing.session_targets import IN_WORLD, PURE
from adversary.fuzzing.world import JOB, KEY, KEYS, LOGGED, TRACED, TWO, World

from tallystick.commit import merkle
from tallystick.commit.data import parse_record
from tallystick.commit.encoding import (
    Reader,
    Writer,
    canonical_json,
    float_hex,
    parse_canonical_json,
    parse_float_hex,
    sha256,
)
from tallystick.commit.log import BLOCK_ELEMENTS, BOUNDED, Section
from tallystick.commit.signed import sign_compact
from tallystick.commit.signing import (
    RUN_COMMITMENT_TYPE,
    Envelope,
    PublicKey,
    RunCommitment,
    private_key_of,
    public_key_of,
    sign_envelope,
    verify_run,
)
from tallystick.commit.tensor import TensorOpening
from tallystick.contracts.replay import entries as logged
from tallystick.contracts.replay.sections import LoggedProgram
from tallystick.disk.manifest import DIGEST_KEY, manifest_bytes
from tallystick.disk.tensorfile import read_tensors
from tallystick.errors import (
    CannotCheckError,
    CounterpartyError,
    DigestMismatchError,
    MachineFaultError,
    TallystickError,
    UsageError,
)
from tallystick.job.job_file import load_terms
from tallystick.numerics.contracts import parse_contract
from tallystick.program.terms import Terms
from tallystick.program.text import parse_text, to_text
from tallystick.protocol import queries as q
from tallystick.protocol.evidence import EVIDENCE_TAG, Evidence
from tallystick.protocol.forfeit import FORFEIT_TYPE, open_forfeit
from tallystick.protocol.judge import judge
from tallystick.protocol.messages import ANSWER_TYPE, open_answer
from tallystick.prover.prover import Prover
from tallystick.run.logs.reader import LogReader, expected_of
from tallystick.run.logs.writer import MAGIC
from tallystick.run.store.journal import parse_journal
from tallystick.run.store.unsigned import load_trace, read_declaration

REFUSALS: tuple[type[TallystickError], ...] = (CounterpartyError, CannotCheckError)
# A person's key file, and a query that no referee of this job asks: these are misuse by contract.
MISUSE = frozenset({"raw-key", "ask", "ask-two", "words"})
SCRATCH = Path("/dev/shm") if os.path.isdir("/dev/shm") else Path(tempfile.gettempdir())


def refused(target: str, error: TallystickError) -> bool:
    """True if `error` is one with which the target's decoder may refuse bytes."""
    if isinstance(error, UsageError):
        return target in MISUSE
    return isinstance(error, REFUSALS) and not isinstance(error, MachineFaultError)


# --- commitments and signatures -------------------------------------------------------------------
def _json(data: bytes) -> None:
    assert canonical_json(parse_canonical_json(data)) == data


def _envelope(data: bytes) -> None:
    envelope = Envelope.from_bytes(data)
    assert envelope.to_bytes() == data
    verify_run(envelope)


def _commitment(data: bytes) -> None:
    payload = lenient(data)
    assert RunCommitment.from_payload(payload).payload() == payload
    verify_run(sign_envelope(KEY, RUN_COMMITMENT_TYPE, payload))


def _forfeit(data: bytes) -> None:
    payload = lenient(data)
    found = open_forfeit(sign_envelope(KEY, FORFEIT_TYPE, payload).to_bytes())
    assert found.payload() == payload


def _key(data: bytes) -> None:
    public = public_key_of(data, "key")
    assert public_key_of(public.pem(), "key") == public
    private_key_of(data, "key").sign(b"")


def _raw_key(data: bytes) -> None:
    PublicKey(data[:32]).verifies(data[32:], b"message")


def _words(data: bytes) -> None:
    text = data.decode("latin-1")
    try:
        value = parse_float_hex(text, "number")
    except CounterpartyError:
        parse_contract(text)
    else:
        assert float_hex(value) == text


# --- the game -------------------------------------------------------------------------------------
def _query(data: bytes) -> None:
    assert q.encode_query(q.decode_query(data)) == data


def _answer(data: bytes) -> None:
    assert open_answer(sign_compact(KEY, ANSWER_TYPE, data), KEY.public).to_bytes() == data


def _body(data: bytes) -> None:
    """A query, whose layout the body must have, and the body."""
    source = Reader(data, "query and body")
    layout, body = q.decode_query(source.blob(1 << 16)).layout, source.raw(source.left)
    assert layout.encode(layout.decode(body)) == body


def _evidence(data: bytes) -> None:
    whole = data + sha256(data)
    assert Evidence.from_bytes(whole).to_bytes() == whole


def _judge(world: World) -> Check:
    return _judging(world.job.terms)


def _judge_two(world: World) -> Check:
    return _judging(world.two.terms)


def _judging(terms: Terms) -> Check:
    def check(data: bytes) -> None:
        whole = _signed(data)
        judge(terms, whole, None, [key.public for key in KEYS])

    return check


def _signed(data: bytes) -> bytes:
    """Evidence whose messages have no signature: each gets its party's, and all their hash."""
    source, out = Reader(data, "evidence"), Writer(EVIDENCE_TAG)
    try:
        source.expect(EVIDENCE_TAG)
        out.hash(source.hash()).u64(source.u64()).blob(source.blob(1 << 16))
        count = out.blob(source.blob(1 << 16)) and source.count(1 << 12, "messages")
        out.u64(count)
        for _ in range(count):
            party, inner = source.u8(), source.blob(1 << 16)
            out.u8(party).blob(sign_compact(KEYS[party & 1], ANSWER_TYPE, inner))
        body = out.raw(source.raw(source.left)).finish()
    except CounterpartyError:
        body = data
    return body + sha256(body)


def _ask(world: World) -> Check:
    return _asking(world.prover)


def _ask_two(world: World) -> Check:
    return _asking(world.prover_two)


def _asking(prover: Prover) -> Check:
    return lambda data: prover.answer(data) and None


# --- tensors, records, logs -----------------------------------------------------------------------
def _opening(data: bytes) -> None:
    found = TensorOpening.from_bytes(data)
    assert found.to_bytes() == data
    if found.leaves:
        size = found.header.itemsize
        found.read(0, min(found.header.elements, 4096 // size))
    try:
        found.verify(bytes(32))
    except DigestMismatchError:
        return
    raise AssertionError("an opening gives a digest of zeros")


def _record(world: World) -> Check:
    schema = world.job.schema
    return lambda data: parse_record(schema, data) and None


def _block(data: bytes) -> None:
    kind, rest = (data[0] % 3 if data else 0), data[1:]
    if kind == 0:
        logged.decode_block(3, rest)
    elif kind == 1:
        section = Section(0, 0, 2 * BLOCK_ELEMENTS + 7, BOUNDED)
        found = logged.from_payload(section, rest)
        assert found.payload() == rest
        logged.decode(section, found)
        found.root()
    else:
        count = 5 * len(rest) - (data[0] >> 2) % 5
        entries = logged.unpack(rest, max(count, 0))
        assert logged.pack(entries) == rest


def _merkle(data: bytes) -> None:
    """Wrong proofs are false, and never an error (COMMITMENTS 2.5 to 2.8)."""
    if len(data) < 12:
        return
    size, index = int.from_bytes(data[:4], "little"), int.from_bytes(data[4:8], "little")
    width = 32 if data[8] & 7 else 31
    hashes = [data[at : at + width] for at in range(12, len(data), width)]
    first, rest = (hashes[0], hashes[1:]) if hashes else (b"", [])
    assert not merkle.verify_inclusion(first, index, size, rest, b"x" * 32)
    merkle.verify_consistency(index, size, first, first, rest)
    leaves = {index + i * (data[9] % 5): h for i, h in enumerate(rest[: data[10] % 4])}
    assert not merkle.verify_multi(leaves, size, rest, b"x" * 32)
    if size:
        merkle.combine_parts(size, 5, hashes)


def _journal(data: bytes) -> None:
    parse_journal(data, Path("journal"))


# --- files ----------------------------------------------------------------------------------------
def _program(data: bytes) -> None:
    assert to_text(parse_text(data)).encode() == data


def _scratch(name: str) -> Path:
    directory = Path(tempfile.mkdtemp(prefix="tallystick-fuzz-", dir=SCRATCH))
    return directory / name


def _job(world: World) -> Check:
    """A manifest whose own digest is right, beside the true programs."""
    path = _scratch("job.json")
    for text in (world.directory / TWO).glob("program-*.txt"):
        (path.parent / text.name).write_bytes(text.read_bytes())
    (path.parent / "program.txt").write_bytes((world.directory / JOB / "program.txt").read_bytes())

    def check(data: bytes) -> None:
        try:
            body = parse_canonical_json(lenient(data))
            assert isinstance(body, dict)
            body.pop(DIGEST_KEY, None)
            data = manifest_bytes(body)
        except (AssertionError, TallystickError):
            pass
        path.write_bytes(data)
        load_terms(path.parent)

    return check


def _tensors(_: World) -> Check:
    path = _scratch("tensors.safetensors")

    def check(data: bytes) -> None:
        path.write_bytes(data)
        strict = not len(data) & 1
        found, metadata = read_tensors(path, "tensor file", strict=strict, copy=True)
        assert sum(array.nbytes for array in found.values()) <= len(data)
        assert all(isinstance(value, str) for value in metadata.values())

    return check


def _trace(world: World) -> Check:
    path, job = _scratch("trace.bin"), world.job
    digest, nodes = job.commitment.program_digest, len(job.program.nodes)

    def check(data: bytes) -> None:
        path.write_bytes(data + sha256(data))
        load_trace(path, digest, TRACED, nodes)

    return check


def _log(world: World) -> Check:
    job, path = world.logged, _scratch("step.log")
    expected = expected_of(LoggedProgram(job.program), job.digest)
    assert (world.directory / LOGGED).is_dir()

    def check(data: bytes) -> None:
        path.write_bytes(data)
        step = int.from_bytes(data[len(MAGIC) : len(MAGIC) + 8], "little")
        with LogReader(path, step, expected) as reader:
            reader.verify()

    return check


def _declaration(_: World) -> Check:
    path = _scratch("override.json")

    def check(data: bytes) -> None:
        path.write_bytes(data)
        read_declaration(path)

    return check


# --- all ------------------------------------------------------------------------------------------
_PURE: dict[str, Check] = {
    **PURE,
    "answer": _answer,
    "block": _block,
    "body": _body,
    "commitment": _commitment,
    "envelope": _envelope,
    "evidence": _evidence,
    "forfeit": _forfeit,
    "journal": _journal,
    "json": _json,
    "key": _key,
    "merkle": _merkle,
    "opening": _opening,
    "program": _program,
    "query": _query,
    "raw-key": _raw_key,
    "words": _words,
}
_IN_WORLD: dict[str, Callable[[World], Check]] = {
    **IN_WORLD,
    "ask": _ask,
    "ask-two": _ask_two,
    "declaration": _declaration,
    "job": _job,
    "judge": _judge,
    "judge-two": _judge_two,
    "log": _log,
    "record": _record,
    "tensors": _tensors,
    "trace": _trace,
}
TARGETS = sorted({*_PURE, *_IN_WORLD})


def target(name: str, world: World) -> Check:
    """The check of target `name`: raises a typed error, or what is a finding."""
    return _PURE[name] if name in _PURE else _IN_WORLD[name](world)


def tried(name: str, check: Check, data: bytes) -> bool:
    """True if the decoder took `data`, False if it refused with a typed error.

    Raises anything else: a finding.
    """
    try:
        with np.errstate(all="ignore"):
            check(data)
    except TallystickError as error:
        if not refused(name, error):
            raise
        return False
    return True
