"""`override.json`: a cheating run's declaration of its cheat, a name and numbers (DESIGN 7).

An honest run has no such file. No signature covers the file, so anyone who may write to the
directory may put one there. Reading it plays no cheat.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tallystick.commit.encoding import JsonValue, canonical_json, parse_canonical_json
from tallystick.disk.regular import present, read_file
from tallystick.errors import CorruptFileError
from tallystick.limits import LIMITS

Params = Mapping[str, JsonValue]

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}", re.ASCII)


def is_attack_name(name: str) -> bool:
    """True if an attack may have this name, which is also the name of a file."""
    return _NAME.fullmatch(name) is not None


@dataclass(frozen=True)
class Declaration:
    """The attack that made a run, and its parameters: integers, and all others as text."""

    attack: str
    params: Params = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """The contents of override.json."""
        return canonical_json({"attack": self.attack, "params": dict(self.params)})


def read_declaration(path: Path) -> Declaration | None:
    """Read the declaration at `path`; None where there is no such file. Raises CorruptFileError."""
    if not present(path):
        return None
    data = read_file(path, LIMITS.key_file_bytes, "declared override", path.parent)
    value = parse_canonical_json(data, f"declared override {path}")
    if isinstance(value, dict) and set(value) == {"attack", "params"}:
        name, params = value["attack"], value["params"]
        if isinstance(name, str) and is_attack_name(name) and isinstance(params, dict):
            return Declaration(name, params)
    raise CorruptFileError(f"The declared override {path} is malformed.", "Restore the file.")
