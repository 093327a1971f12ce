"""The registry of declared cheats: `override.json` of a run, and the attack files it may name.

A cheating run is a signed run plus the name of the attack that produced it (DESIGN 7). The code
of an attack is always our own, from this installation; a run directory holds a name and numbers.
Each file `attacks/NAME.py` defines `ATTACK`, an `Attack`.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Protocol

from tallystick.checkout import checkout
from tallystick.commit.encoding import JsonValue, canonical_json, parse_canonical_json
from tallystick.disk.regular import present, read_file
from tallystick.errors import CorruptFileError, UsageError
from tallystick.job.job import Job
from tallystick.limits import LIMITS
from tallystick.run.execute.override import Override
from tallystick.run.store.directory import RunStore

Params = Mapping[str, JsonValue]

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}", re.ASCII)
_PACKAGE = "tallystick_attacks"


class Attack(Protocol):
    """What `ATTACK` of an attack file must offer; it may offer more."""

    def make(self, job: Job, params: Params) -> Override:
        """The cheat's hooks for `job`. Raises UsageError for parameters it does not know."""


@dataclass(frozen=True)
class Declaration:
    """What a cheating run says about itself. Numbers are integers, anything else text."""

    attack: str
    params: Params = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """The contents of override.json."""
        return canonical_json({"attack": self.attack, "params": dict(self.params)})

    def make(self, job: Job) -> Override:
        """The hooks it names. Raises UsageError where this installation has no such attack."""
        return load_attack(self.attack).make(job, self.params)


def read_declaration(path: Path) -> Declaration | None:
    """The declaration at `path`, None where there is no such file. Raises CorruptFileError."""
    if not present(path):
        return None
    data = read_file(path, LIMITS.key_file_bytes, "declared override", path.parent)
    value = parse_canonical_json(data, f"declared override {path}")
    if isinstance(value, dict) and set(value) == {"attack", "params"}:
        name, params = value["attack"], value["params"]
        if isinstance(name, str) and _NAME.fullmatch(name) and isinstance(params, dict):
            return Declaration(name, params)
    raise CorruptFileError(f"The declared override {path} is malformed.", "Restore it.")


def declared_override(store: RunStore, job: Job) -> Override:
    """The hooks of the cheat that the run at `store` declares. Raises UsageError where it declares
    none, or one that this installation does not have."""
    declared = read_declaration(store.override_path)
    if declared is None:
        raise UsageError(
            f"{store.directory} declares no cheat.",
            "Play it as the run that it is: no --as-attack.",
        )
    return declared.make(job)


def attacks_directory() -> Path:
    """Where attack files lie: beside `src` in a checkout, inside the package when installed."""
    home, installed = checkout(), Path(__file__).resolve().parents[1] / "attacks"
    return installed if home is None or installed.is_dir() else home / "attacks"


def attack_names() -> list[str]:
    """Names of all attacks of this installation, sorted."""
    names = (path.stem for path in attacks_directory().glob("*.py"))
    return sorted(name for name in names if _NAME.fullmatch(name))


def load_attack(name: str) -> Attack:
    """The attack `name`. Raises UsageError where there is none."""
    known = attack_names()
    if name not in known:
        raise UsageError(
            f"There is no attack {name[:80]!r}.", f"Choose one of: {', '.join(known) or 'none'}."
        )
    # Attack files form a package, so that they can share code by relative imports.
    directory = str(attacks_directory())
    package = sys.modules.get(_PACKAGE)
    if package is None or list(package.__path__) != [directory]:
        for stale in [m for m in sys.modules if m.split(".")[0] == _PACKAGE]:
            del sys.modules[stale]
        package = ModuleType(_PACKAGE)
        package.__path__ = [directory]
        sys.modules[_PACKAGE] = package
    attack: Attack = importlib.import_module(f"{_PACKAGE}.{name}").ATTACK
    return attack
