"""Self-digested manifests: canonical JSON whose last word binds all the others.

A manifest is for people and for finding files; what it says about the computation is bound by
the job digest. The self-digest is there so that no byte of it can rot unnoticed.
"""

from __future__ import annotations

from pathlib import Path

from tallystick.commit.encoding import (
    JsonValue,
    Writer,
    canonical_json,
    parse_canonical_json,
    tag,
)
from tallystick.disk.regular import read_file
from tallystick.errors import CorruptFileError, DigestMismatchError, UnsupportedVersionError
from tallystick.limits import LIMITS

MANIFEST_TAG = tag("manifest/1")
DIGEST_KEY = "manifest_digest"

Manifest = dict[str, JsonValue]


def manifest_digest(body: Manifest) -> str:
    """Hexadecimal self-digest of a manifest without its digest member."""
    return Writer(MANIFEST_TAG).blob(canonical_json(body)).digest().hex()


def manifest_bytes(body: Manifest) -> bytes:
    """The file: `body` with its self-digest, canonical."""
    return canonical_json({**body, DIGEST_KEY: manifest_digest(body)})


def load_manifest(path: Path, what: str, *kinds: str) -> Manifest:
    """The manifest at `path` without its digest member. Raises StorageError, and as
    `read_manifest`."""
    data = read_file(path, LIMITS.manifest_bytes, what, path.parent)
    return read_manifest(data, path, what, *kinds)


def read_manifest(data: bytes, path: Path, what: str, *kinds: str) -> Manifest:
    """The manifest in `data`, called `path`, without its digest member.

    Raises CorruptFileError, DigestMismatchError, and UnsupportedVersionError when its `format` is
    none of `kinds`, which are versions of one format (as `tallystick-job/1`).
    """
    value = parse_canonical_json(data, f"{what} {path}")
    if not isinstance(value, dict):
        raise CorruptFileError(
            f"The {what} {path} is not a JSON object.", "Restore it from an intact copy."
        )
    form = value.get("format")
    if form not in kinds:
        family, known = kinds[0].rsplit("/", 1)[0], " and ".join(map(repr, kinds))
        if isinstance(form, str) and form.startswith(family + "/"):
            raise UnsupportedVersionError(
                f"The {what} {path} has format {form[:80]!r}, but this build knows {known}.",
                "Use a build of Tallystick that knows this format.",
            )
        raise CorruptFileError(
            f"{path} is not a {what}.", f"Name a directory that contains a {kinds[0]} file."
        )
    claimed = value.pop(DIGEST_KEY, None)
    if claimed != manifest_digest(value):
        raise DigestMismatchError(
            f"The {what} {path} was altered: it does not match its own digest.",
            "Restore it from an intact copy.",
        )
    return value
