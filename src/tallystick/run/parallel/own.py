"""What an auditor signs for itself: the state of an audit that it takes up again.

The key lies with the user's caches, once for all audits, and never beside a state. So a directory
that came with a run, or was planted, is none of this auditor's, whoever owns its files.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from tallystick.commit.encoding import JsonValue, canonical_json
from tallystick.commit.signing import PrivateKey, pae
from tallystick.disk.files import make_directory
from tallystick.disk.keys import load_private_key, save_private_key
from tallystick.disk.manifest import Manifest, manifest_bytes
from tallystick.disk.objects.cache import cache_directory
from tallystick.disk.private import require_own
from tallystick.disk.regular import present
from tallystick.errors import StorageError, UsageError

_TYPE = "application/vnd.tallystick.audit-state.v1+json"
_MEMBER = "signature"


def own_key() -> PrivateKey:
    """This user's key for states of audits, made where there is none. Raises StorageError,
    CannotCheckError, UsageError where others may write it."""
    path = cache_directory() / "audits.pem"
    if not present(path):
        make_directory(path.parent)
        with suppress(StorageError):  # another auditor has just made it; else reading it says why
            save_private_key(PrivateKey.generate(), path)
    require_own(path)
    return load_private_key(path)


def signed_manifest(key: PrivateKey, body: Manifest) -> bytes:
    """The file of `body`, signed."""
    signature: JsonValue = key.sign(pae(_TYPE, canonical_json(body))).hex()
    return manifest_bytes({**body, _MEMBER: signature})


def require_signed(key: PrivateKey, path: Path, found: Manifest) -> None:
    """Raise UsageError unless `found`, read from `path`, is what `key` has signed."""
    body = {name: value for name, value in found.items() if name != _MEMBER}
    try:
        signature = bytes.fromhex(str(found.get(_MEMBER)))
    except ValueError:
        signature = b""
    if not key.public.verifies(signature, pae(_TYPE, canonical_json(body))):
        raise UsageError(
            f"{path} was not written by an audit of yours, so its author could have written the "
            "verdict.",
            "Choose another directory with --state. The audit then repeats everything. (The key "
            "that signs your own results is in the directory of TALLYSTICK_CACHE.)",
        )
