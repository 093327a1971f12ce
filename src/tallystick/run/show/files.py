"""A file of ours by itself: what it is, what it claims, what that proves, and what to do next.

It is read as its first bytes say, with the checks that it carries in itself: digests, layouts,
signatures by the keys that it names. No job, run or list of trusted keys stands beside it, so no
claim is taken for true.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from tallystick.commit.encoding import JsonValue, parse_canonical_json, sha256
from tallystick.commit.members import Members
from tallystick.commit.signed import PAYLOAD_TYPE
from tallystick.commit.signing import RUN_COMMITMENT_TYPE, Envelope, verify_run
from tallystick.delegation.documents import open_document
from tallystick.delegation.entries import (
    ENTRY_TAG,
    RESULTS,
    SessionBegun,
    open_entry,
    read_entry,
)
from tallystick.delegation.offer import Offer
from tallystick.delegation.seals import SEAL_TAG, open_seal
from tallystick.delegation.statement import OLD_TYPE as OLD_SETTLEMENT_TYPE
from tallystick.delegation.statement import PREDICATE_TYPE as SETTLEMENT_TYPE
from tallystick.delegation.statement import read_outcome
from tallystick.disk.keys import load_public_key
from tallystick.disk.regular import open_beginning, os_errors, read_file
from tallystick.disk.tensorfile import open_tensors
from tallystick.errors import CorruptFileError
from tallystick.limits import LIMITS
from tallystick.protocol.evidence import EVIDENCE_TAG, Evidence

_BEGINNING = 64
_PREFIX = "tallystick."
_LENGTH_BYTES = 8  # of a signed message's frame (PROTOCOL 13.1)

_LOG_CHECK = "tallystick fsck DIR --job JOB, where DIR is the directory of the session's referee"

Claims = dict[str, str | int | None]


@dataclass(frozen=True)
class FileSaid:
    """What a file of ours is and says.

    `claims` are its own words, `proves` what follows from the file alone, `next_action` what a
    person does with it.
    """

    kind: str
    what: str
    claims: Claims
    proves: str
    next_action: str
    signed_by: tuple[str, ...] = field(default=())


def say_of(path: Path) -> FileSaid | None:
    """What the file at `path` is, None for none of ours. Raises CounterpartyError for one of ours
    that is damaged, StorageError, CannotCheckError."""
    file, size = open_beginning(path, "file", _BEGINNING)
    with os_errors(path), file:
        first = file.read(_BEGINNING)
    for begins, reader in _READERS.items():
        if first.startswith(begins):
            return reader(path)
    for tag, reader in _FRAMED.items():
        if first[_LENGTH_BYTES:].startswith(tag):
            return reader(path)
    # safetensors: the length of the header, then the header, which is a JSON object.
    if size > 8 and first[8:9] == b"{" and int.from_bytes(first[:8], "little") < size:
        return _model(path)
    return None


# -- keys ------------------------------------------------------------------------------------------
def _key(path: Path) -> FileSaid:
    key = load_public_key(path)
    return FileSaid(
        "key",
        "a key that signs runs, or the public half of one",
        {"key_id": key.key_id, "public_key": key.raw.hex()},
        "That these bytes are a key. They do not say whose it is.",
        "Ask its owner for the key id another way; then pass the public half with --trust.",
    )


# -- evidence (PROTOCOL 8) -------------------------------------------------------------------------
def _evidence(path: Path) -> FileSaid:
    data = read_file(path, LIMITS.evidence_bytes, "evidence file")
    found = Evidence.from_bytes(data)
    claims: Claims = {
        "job_digest": found.job_digest.hex(),
        "arity": found.arity,
        "messages": len(found.messages),
        "forfeits": len(found.forfeits),
        "evidence_digest": sha256(data).hex(),
    }
    signers = []
    for name, envelope in zip("AB", found.commitments, strict=True):
        run, _ = verify_run(Envelope.from_bytes(envelope, LIMITS.commitment_bytes))
        claims[f"run_root_{name}"] = run.run_root.hex()
        claims[f"steps_{name}"] = run.final_step
        signers.append(run.signer.key_id)
    return FileSaid(
        "evidence",
        "the evidence of a dispute between two runs of one job",
        claims,
        "That the file is whole and that each party has signed its run. Who is right follows when "
        "the game is played again with your own copy of the job.",
        f"tallystick judge {path} --job JOB",
        tuple(signers),
    )


# -- envelopes (COMMITMENTS 9.3) -------------------------------------------------------------------
def _envelope(path: Path) -> FileSaid:
    data = read_file(path, LIMITS.envelope_bytes, "envelope")
    envelope = Envelope.from_bytes(data)
    if envelope.payload_type == RUN_COMMITMENT_TYPE:
        return _commitment(path, envelope)
    if envelope.payload_type == PAYLOAD_TYPE:
        return _statement(path, envelope)
    return _document(path, data)


def _commitment(path: Path, envelope: Envelope) -> FileSaid:
    run, _ = verify_run(envelope)
    claims: Claims = {
        "job_digest": run.job_digest.hex(),
        "run_root": run.run_root.hex(),
        "steps": run.final_step,
        "final_state_root": run.final_state_root.hex(),
        "checkpoints": run.checkpoints,
    }
    return FileSaid(
        "commitment",
        "the signed commitment of a run",
        claims,
        "That the owner of the key has signed these numbers. Only a repetition or a dispute shows "
        "whether the run is right.",
        f"tallystick audit RUN, where RUN is the run that {path.name} belongs to",
        (run.signer.key_id,),
    )


def _statement(path: Path, envelope: Envelope) -> FileSaid:
    whole = Members(
        parse_canonical_json(envelope.payload, "statement", LIMITS.envelope_bytes), _malformed
    )
    kind, predicate = whole.of("predicateType", str), whole.child("predicate").value
    settles = kind in (SETTLEMENT_TYPE, OLD_SETTLEMENT_TYPE)
    return FileSaid(
        "settlement" if settles else "statement",
        "a signed settlement of an offer" if settles else f"a signed statement of type {kind}",
        _plain(predicate),
        "Nothing by itself: the signature is checked with the signer's key, and the claim by "
        "computing it again.",
        f"tallystick settle OFFER DOCUMENT... --check {path}"
        if settles
        else f"tallystick claim check {path} --trust KEY, with its signer's public key",
        tuple(s.key_id for s in envelope.signatures),
    )


def _plain(members: Mapping[str, JsonValue]) -> Claims:
    """The members that are no objects or lists."""
    return {k: v for k, v in members.items() if v is None or isinstance(v, (str, int))}


def _malformed(why: str) -> NoReturn:
    raise CorruptFileError(f"The statement is malformed: {why}.", "Ask for an intact copy.")


def _document(path: Path, data: bytes) -> FileSaid:
    document = open_document(data)
    payload = parse_canonical_json(document.payload(), "document", LIMITS.commitment_bytes)
    claims = _plain(Members(payload, _malformed).value)
    claims.pop("kind", None)
    is_offer = isinstance(document, Offer)
    return FileSaid(
        document.NAME,
        "an offer to train a job, signed by its client"
        if is_offer
        else f"a signed document of an offer: {document.NAME}",
        {"digest": document.digest.hex(), **claims},
        "That the owner of the key has signed it. The offer says whether that key may do so.",
        f"tallystick offer show {path}",
        (document.signer.key_id,),
    )


# -- sessions (PROTOCOL 10.2, 12.1, 14.6) ----------------------------------------------------------
def _outcome(path: Path) -> FileSaid:
    found = read_outcome(read_file(path, LIMITS.envelope_bytes, "outcome"))
    words = RESULTS.get(found.result)
    return FileSaid(
        "outcome",
        "the outcome of a session, for a settlement",
        {
            "offer": found.offer.hex(),
            "session": found.session.hex(),
            "result": found.result if words is None else words.name,
            "accepted": None if found.accepted is None else found.accepted.hex(),
            "ended": found.ended,
            "parties": len(found.members),
            "games": len(found.games),
        },
        "Nothing by itself: nobody has signed it. It follows from the log of the session.",
        f"tallystick settle OFFER DOCUMENT... --outcome {path}, or --log with the log itself",
    )


def _seal(path: Path) -> FileSaid:
    seal = open_seal(read_file(path, LIMITS.seal_bytes, "seal"))
    return FileSaid(
        "seal",
        "a party's seal in a session",
        {"session": seal.session.hex(), "digest": seal.digest.hex()},
        "That the owner of the key has bound itself to one run commitment. It does not show which.",
        _LOG_CHECK,
        (seal.key.key_id,),
    )


def _entry(path: Path) -> FileSaid:
    data = read_file(path, LIMITS.entry_bytes, "log entry")
    entry = read_entry(data)
    claims: Claims = {
        "index": entry.index,
        "event": re.sub(r"\B(?=[A-Z])", " ", type(entry.event).__name__).lower(),
        "time": entry.time,
        "previous": entry.previous.hex(),
        "digest": entry.digest().hex(),
    }
    if not isinstance(entry.event, SessionBegun):
        what = "an entry of a referee's log"
        proves = "Nothing by itself: only the log's first entry names the key that must sign it."
        return FileSaid("entry", what, claims, proves, _LOG_CHECK)
    open_entry(data)
    rules = entry.event.rules
    return FileSaid(
        "entry",
        "the first entry of a referee's log: the rules of a session",
        {**claims, "job_digest": rules.job_digest.hex()},
        "That the owner of the referee's key has signed these rules.",
        _LOG_CHECK,
        (rules.referee.key_id,),
    )


# -- models (DESIGN 9) -----------------------------------------------------------------------------
def _model(path: Path) -> FileSaid | None:
    with open_tensors(path, "model file", strict=False) as found:
        types, metadata = found.types, found.metadata
    own = {k[len(_PREFIX) :]: v for k, v in metadata.items() if k.startswith(_PREFIX)}
    if "run_root" not in own:
        return None
    return FileSaid(
        "model",
        "weights that say which run they are of",
        {"tensors": len(types), **own},
        "Nothing by itself: anyone can write these names into a file.",
        f"tallystick verify-model {path} RUN",
    )


_READERS: dict[bytes, Callable[[Path], FileSaid | None]] = {
    b"-----BEGIN ": _key,
    EVIDENCE_TAG: _evidence,
    b'{"payload":': _envelope,
    b'{"accepted":': _outcome,
}
# Messages that are signed without an envelope begin with their length (PROTOCOL 13.1).
_FRAMED: dict[bytes, Callable[[Path], FileSaid | None]] = {SEAL_TAG: _seal, ENTRY_TAG: _entry}
