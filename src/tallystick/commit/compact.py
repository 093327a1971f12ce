"""A signed message in its compact form: data and a signature behind it (PROTOCOL 2.5, 13.1).

The signature is over DSSE's pre-authentication encoding, so the message converts into an envelope.
"""

from __future__ import annotations

from typing import NamedTuple

from tallystick.commit.encoding import Reader, Writer
from tallystick.commit.signing import PrivateKey, PublicKey, pae
from tallystick.errors import CorruptFileError

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
