"""Signs a run commitment with a key that has no secret: one signature fits every message.

    python attacks/around/key-without-a-secret.py COMMITMENT --out FILE

The public key is the neutral point of the curve, and the signature is that point and zero: the
equation of Ed25519 then holds for every message. Any party can sign in this signer's name, so no
signature binds the signer: each of its answers could be another party's. The library beneath
accepts the key.
COMMITMENTS 9.1.1 refuses such keys, and the thirteen others of small order, at every door.
"""

from __future__ import annotations

import argparse
import json
from hashlib import sha256
from pathlib import Path

from tallystick.commit.encoding import canonical_json
from tallystick.commit.signing import Envelope, Signature

NEUTRAL = bytes([1]) + bytes(31)


def forged(commitment: bytes) -> bytes:
    """The run commitment of an envelope, "signed" by the neutral point instead."""
    envelope = Envelope.from_bytes(commitment)
    payload = canonical_json({**json.loads(envelope.payload), "signer": NEUTRAL.hex()})
    signature = Signature(sha256(NEUTRAL).hexdigest(), NEUTRAL + bytes(32))
    return Envelope(envelope.payload_type, payload, (signature,)).to_bytes()


def main(arguments: list[str] | None = None) -> None:
    """Write the forged envelope."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("commitment", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(arguments)
    given.out.write_bytes(forged(given.commitment.read_bytes()))


if __name__ == "__main__":
    main()
