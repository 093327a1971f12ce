"""A model's directory, signed as OpenSSF Model Signing 1.0 has it (CLAIMS 7.3 and 7.4); and how
files that state something begin: whoever writes one overwrites no other kind of file.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import Path

from tallystick.commit.encoding import JsonValue, canonical_json, sha256
from tallystick.commit.p256 import P256Key
from tallystick.commit.signed import PAYLOAD_TYPE, STATEMENT_TYPE
from tallystick.commit.signing import pae
from tallystick.disk.manifest import file_digest, files_below
from tallystick.disk.regular import (
    is_directory,
    lies_in,
    mode_of,
    open_beginning,
    os_errors,
    same_file,
)
from tallystick.errors import UsageError

# The canonical form puts `_type` first, and base64 makes four characters of three bytes.
_TYPED = b'{"_type":"' + STATEMENT_TYPE.encode() + b'"'
_PAYLOAD = b'{"payload":"' + base64.b64encode(_TYPED[: len(_TYPED) // 3 * 3])


@dataclass(frozen=True)
class FileKind:
    """A kind of file, called `name`, whose bytes begin with `beginning`."""

    name: str
    beginning: bytes


CLAIM = FileKind("claim", _PAYLOAD)
SIGNATURE = FileKind("model signature", b'{"dsseEnvelope":' + _PAYLOAD)
BILL = FileKind("bill of materials", b'{\n "$schema": "http://cyclonedx.org/schema/bom-')


def require_replaceable(target: Path, kind: FileKind) -> None:
    """Raise UsageError where `target` has content of another kind, which writing would destroy."""
    if not mode_of(target):
        return
    file, size = open_beginning(target, kind.name, len(kind.beginning))
    with os_errors(target), file:
        found = file.read(len(kind.beginning))
    if size and found != kind.beginning:
        raise UsageError(
            f"{target} exists and is not a {kind.name}, so it is not overwritten.",
            "Choose another name, or remove it first.",
        )


SIGNATURE_TYPE = "https://model_signing/signature/v1.0"
BUNDLE_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
# What `model_signing verify` passes over by itself.
_GIT = (".git", ".gitattributes", ".github", ".gitignore")


def model_signature(key: P256Key, directory: Path, target: Path) -> bytes:
    """The bundle that signs every file below `directory`; it will be written to `target`.

    Raises UsageError for a directory without files and for a `target` that is another file already,
    and CorruptFileError for a link in the directory.
    """
    if not is_directory(directory):
        raise UsageError(f"{directory} is not a directory.", "Name the directory of a model.")
    require_replaceable(target, SIGNATURE)
    payload = canonical_json(_statement(directory, _ignored(directory, target)))
    public = key.public.pem()
    signature = key.sign(pae(PAYLOAD_TYPE, payload))
    bundle: dict[str, JsonValue] = {
        "dsseEnvelope": {
            "payload": _base64(payload),
            "payloadType": PAYLOAD_TYPE,
            "signatures": [{"keyid": "", "sig": _base64(signature)}],
        },
        "mediaType": BUNDLE_TYPE,
        "verificationMaterial": {
            "publicKey": {"hint": sha256(public).hex()},
            "tlogEntries": [],
        },
    }
    return canonical_json(bundle)


def _ignored(directory: Path, target: Path) -> tuple[str, ...]:
    """The names of 7.4: git's, and the signature's own where it lies in the directory."""
    own: tuple[str, ...] = ()
    if same_file(target.parent, directory):
        own = (target.name,)
    elif lies_in(target.parent, directory):
        raise UsageError(
            f"{target} would be among the files that it signs.",
            f"Write it beside {directory}, or at the top of it.",
        )
    return tuple(sorted({*_GIT, *own}))


def _statement(directory: Path, ignored: tuple[str, ...]) -> JsonValue:
    digests = {
        name: file_digest(directory / name, "file of the model", directory)
        for name in files_below(directory, frozenset(ignored))
    }
    if not digests:
        raise UsageError(
            f"{directory} contains no files to sign.", "Name the directory of a model."
        )
    resources: list[JsonValue] = [
        {"algorithm": "sha256", "digest": digest.hex(), "name": name}
        for name, digest in digests.items()
    ]
    return {
        "_type": STATEMENT_TYPE,
        "predicate": {
            "resources": resources,
            "serialization": {
                "allow_symlinks": False,
                "hash_type": "sha256",
                "ignore_paths": list[JsonValue](ignored),
                "method": "files",
            },
        },
        "predicateType": SIGNATURE_TYPE,
        "subject": [
            {
                "digest": {"sha256": sha256(b"".join(digests.values())).hex()},
                "name": directory.name or "model",
            }
        ],
    }


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
