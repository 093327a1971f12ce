"""Command lines in this process, for tests of their outcomes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

# Exit code, standard output, standard error of a command line.
Outcome = tuple[int, str, str]
Run = Callable[..., Outcome]


def as_json(outcome: Outcome, code: int = 0) -> Any:
    """What the command printed, if it ended with `code`."""
    assert outcome[0] == code, outcome
    return json.loads(outcome[1])
