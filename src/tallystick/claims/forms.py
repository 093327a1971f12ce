"""How the files that state something begin: whoever writes one overwrites no other kind of file."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import Path

from tallystick.commit.statement import STATEMENT_TYPE
from tallystick.disk.regular import mode_of, open_beginning, os_errors
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
