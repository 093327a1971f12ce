"""What all targets share."""

from __future__ import annotations

import json
from collections.abc import Callable

from tallystick.commit.encoding import canonical_json
from tallystick.errors import UsageError

Check = Callable[[bytes], None]


def lenient(data: bytes) -> bytes:
    """The canonical form of JSON in any form; other bytes as they are."""
    try:
        return canonical_json(json.loads(data))
    except (ValueError, UsageError, RecursionError):
        return data
