"""Signed messages in the two forms that DSSE's pre-authentication encoding has.

In the *compact* form of turns and answers (PROTOCOL 2.5, 13.1) a signature stands behind the data.
It converts into an envelope. in-toto Statements in *envelopes* are the form in which other tools
read claims (CLAIMS 1).

`sha256` in a subject is the digest of one whole file, which any tool computes. Roots and job
digests stand under names of their own, so that no reader takes them for the digest of a file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

from tallystick.commit.encoding import (
    JsonValue,
    Reader,
    Writer,
    canonical_json,
    check_hash,
    parse_canonical_json,
    sha256,
)
from tallystick.commit.members import Members
from tallystick.commit.signing import (
    Envelope,
    PrivateKey,
    PublicKey,
    pae,
    sign_envelope,
    verify_envelope,
)
from tallystick.errors import CorruptFileError, SignatureInvalidError, UsageError
from tallystick.limits import LIMITS

SIGNATURE_BYTES = 64


class Compact(NamedTuple):
    """The two parts of a message. The data is untrusted until `verified` has returned True."""

    data: bytes
    signature: bytes

    def verified(self, payload_type: str, signer: PublicKey) -> bool:
        """Whether `signer` has signed the data as a message of `payload_type`."""
        return signer.verifies(self.signature, pae(payload_type, self.data))


def same_words(one: bytes, two: bytes) -> bool:
    """Whether two whole messages have the same data, whatever their signatures (PROTOCOL 2.9)."""
    return one[:-SIGNATURE_BYTES] == two[:-SIGNATURE_BYTES]


def sign_compact(key: PrivateKey, payload_type: str, data: bytes) -> bytes:
    """`data` signed as a message of `payload_type`."""
    return Writer().blob(data).raw(key.sign(pae(payload_type, data))).finish()


def split_compact(message: bytes, limit: int, what: str) -> Compact:
    """The parts of a message of at most `limit` bytes. Raises CorruptFileError naming `what`."""
    if len(message) > limit:
        raise CorruptFileError(f"A {what} is longer than the limit.", "Refuse it.")
    source = Reader(message, what)
    found = Compact(source.blob(limit), source.raw(SIGNATURE_BYTES))
    source.end()
    return found


def open_compact(
    message: bytes, payload_type: str, signer: PublicKey, limit: int, what: str
) -> bytes:
    """The data of a message that `signer` has signed.

    Raises CorruptFileError where the message is none of `signer`: then it states nothing.
    """
    found = split_compact(message, limit, what)
    if not found.verified(payload_type, signer):
        raise CorruptFileError(f"The signature of a {what} does not verify.", "Refuse it.")
    return found.data


STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PAYLOAD_TYPE = "application/vnd.in-toto+json"
# A name that nobody fetches (CLAIMS 1.2).
CLAIMS = "https://tallystick.dev/claims/"

# Names of digests (CLAIMS 1.4, 1.5).
FILE, JOB = "sha256", "tallystickJob"
RUN_ROOT, STATE_ROOT = "tallystickRunRoot", "tallystickStateRoot"
DOCUMENT, ENTRY = "tallystickDocument", "tallystickEntry"


def claim_type(name: str, version: int = 1) -> str:
    """The `predicateType` of a claim of ours (CLAIMS 1.2)."""
    return f"{CLAIMS}{name}/v{version}"


@dataclass(frozen=True)
class Subject:
    """What a claim is about: a name for people, and digests by the names of CLAIMS 1.4 and 1.5.

    Raises UsageError for a name or a digest that no claim may have.
    """

    name: str
    digests: Mapping[str, bytes]

    def __post_init__(self) -> None:
        encoded = self.name.encode("utf-8", "surrogatepass")
        steps = self.name.split("/")
        if not 0 < len(encoded) <= LIMITS.name_bytes or ".." in steps or not steps[0]:
            raise UsageError(
                f"A claim cannot name {self.name[:80]!r}.",
                "Name a file below the directory that the claim is about.",
            )
        for name, digest in self.digests.items():
            check_hash(digest, f"digest {name}")

    @staticmethod
    def of_bytes(name: str, data: bytes) -> Subject:
        """The file `name` whose whole content is `data`."""
        return Subject(name, {FILE: sha256(data)})

    def as_json(self) -> dict[str, JsonValue]:
        return {
            "digest": {name: digest.hex() for name, digest in self.digests.items()},
            "name": self.name,
        }


def statement_payload(
    predicate_type: str, subjects: Sequence[Subject], predicate: dict[str, JsonValue]
) -> bytes:
    """The payload of a claim, canonical JSON (CLAIMS 1.1).

    Raises UsageError where two subjects have one name: a reader could not say which is meant.
    """
    names = [subject.name for subject in subjects]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UsageError(f"A claim would name {twice!r} twice.", "Rename one of the files.")
    return canonical_json(
        {
            "_type": STATEMENT_TYPE,
            "predicate": predicate,
            "predicateType": predicate_type,
            "subject": [subject.as_json() for subject in subjects],
        }
    )


def sign_statement(key: PrivateKey, payload: bytes) -> Envelope:
    """The Statement in an envelope signed with `key`."""
    return sign_envelope(key, PAYLOAD_TYPE, payload)


@dataclass(frozen=True)
class Statement:
    """A Statement whose signature has been verified by a key that the reader knows.

    `subjects` has the digests of each subject by name, as hexadecimal text: digests of other tools
    may have any length. `predicate` is its maker's word.
    """

    signer: PublicKey
    predicate_type: str
    subjects: tuple[tuple[str, dict[str, str]], ...]
    predicate: dict[str, JsonValue]

    def names_of(self, digest: bytes) -> list[str]:
        """The subjects that are the file with this SHA-256 (CLAIMS 9.2)."""
        return [name for name, digests in self.subjects if digests.get(FILE) == digest.hex()]


def read_statement(data: bytes, trust: Sequence[PublicKey]) -> Statement:
    """The Statement in untrusted bytes, signed by exactly one key, which is among `trust`.

    Old and new types are read alike: a predicate is returned as it stands. Raises CorruptFileError,
    and SignatureInvalidError for another signer or another kind of envelope.
    """
    envelope = Envelope.from_bytes(data)
    if len(envelope.signatures) != 1:
        raise SignatureInvalidError(
            f"The claim has {len(envelope.signatures)} signatures instead of one.", "Refuse it."
        )
    verified = verify_envelope(envelope, PAYLOAD_TYPE, (), trust)
    limit = LIMITS.envelope_bytes
    whole = Members(parse_canonical_json(verified.payload, "claim", limit), _malformed)
    whole.only("_type", "predicate", "predicateType", "subject")
    if whole.of("_type", str) != STATEMENT_TYPE:
        _malformed("it is no in-toto Statement of version 1")
    subjects = [_subject(Members(item, _malformed)) for item in whole.of("subject", list)]
    if len({name for name, _ in subjects}) != len(subjects):
        _malformed("two subjects have one name")
    return Statement(
        verified.signer,
        whole.of("predicateType", str),
        tuple(subjects),
        whole.child("predicate").value,
    )


def _subject(one: Members) -> tuple[str, dict[str, str]]:
    one.only("digest", "name")
    digests = one.child("digest")
    return one.of("name", str), {name: digests.of(name, str) for name in digests.value}


def _malformed(why: str) -> NoReturn:
    raise CorruptFileError(f"The claim is malformed: {why}.", "Ask its sender for an intact copy.")
