"""The registry of attacks: the files of `attacks/` by name, and the cheat that a run declares.

The code of an attack is always our own, from this installation; a run directory holds a name and
numbers (`run.store.unsigned`). Each file `attacks/NAME.py` defines `ATTACK`, an `Attack`.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Protocol

from tallystick.commit.encoding import JsonValue
from tallystick.errors import UsageError
from tallystick.installed import checkout
from tallystick.job.job import Job
from tallystick.run.cheats.override import Override
from tallystick.run.store.directory import RunStore
from tallystick.run.store.unsigned import Declaration, Params, is_attack_name, read_declaration

_PACKAGE = "tallystick_attacks"
_OF_ANSWERS = "answers"  # the folder of the cheats of a model's answers
# What a cheat is about, in the order in which people are shown them.
KINDS = {
    "training": "trains on other data, weights or settings than the job says",
    "length": "saves steps",
    "validation": "lies about committed validation, or about the stop",
    "numbers": "gives a false number as the result of an operator",
    "records": "lies in what it commits to",
    "log": "lies in the rounding log (contract replay/1)",
    "answers": "gives no answer in the dispute",
    "model": "answers a request otherwise than the model does",
}
_TALLYSTICK = Path(__file__).resolve().parents[2]


class Attack(Protocol):
    """The interface of `ATTACK` in an attack file; the file may offer more."""

    name: str
    kind: str  # a key of KINDS
    summary: str
    defaults: dict[str, JsonValue]

    def make(self, job: Job, params: Params) -> Override:
        """Make the cheat's hooks for `job`. Raises UsageError for parameters that the attack does
        not know."""


def hooks_of(declared: Declaration, job: Job) -> Override:
    """The hooks that a declaration names. Raises UsageError where this installation has no such
    attack, or the attack does not take its parameters."""
    return load_attack(declared.attack).make(job, declared.params)


def declared_override(store: RunStore, job: Job) -> Override:
    """The hooks of the cheat that the run at `store` declares. Raises UsageError where it declares
    none, or one that this installation does not have."""
    declared = read_declaration(store.override_path)
    if declared is None:
        raise UsageError(
            f"{store.directory} declares no cheat.",
            "Play it as an honest run: leave --as-attack out.",
        )
    return hooks_of(declared, job)


def attacks_directory() -> Path:
    """The directory of attack files: beside `src` in a checkout, inside the package when
    installed."""
    home, installed = checkout(), _TALLYSTICK / "attacks"
    return installed if home is None or installed.is_dir() else home / "attacks"


def attack_names() -> list[str]:
    """The names of all attacks of this installation, sorted."""
    names = (path.stem for path in attacks_directory().glob("*.py"))
    return sorted(name for name in names if is_attack_name(name))


def answer_attack_names() -> list[str]:
    """The names of the attacks that are about a model's answer, sorted (attacks/answers)."""
    names = (path.stem for path in (attacks_directory() / _OF_ANSWERS).glob("*.py"))
    return sorted(name for name in names if is_attack_name(name))


def load_attack(name: str) -> Attack:
    """The attack `name`. Raises UsageError where there is none."""
    attack: Attack = _module(name).ATTACK
    return attack


def attack_text(name: str) -> str:
    """What the file of the attack `name` says of it: the gain, the way, and how it is caught.
    Raises UsageError where there is none."""
    return (_module(name).__doc__ or "").strip()


def _module(name: str) -> ModuleType:
    known, of_answers = attack_names(), answer_attack_names()
    if name not in (*known, *of_answers):
        raise UsageError(
            f"There is no attack {name[:80]!r}.",
            f"Choose one of: {', '.join([*known, *of_answers]) or 'none'}.",
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
    room = _PACKAGE if name in known else f"{_PACKAGE}.{_OF_ANSWERS}"
    return importlib.import_module(f"{room}.{name}")
