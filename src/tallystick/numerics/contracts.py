"""Contracts: what one is to the rest of the house, and their identifiers (NUMERICS 13.1).

Jobs, programs and roots carry the identifier, so it has one spelling. A person may write less
(`rounded/1`, `replay/1`, `rounded/1;b=28`), and `find_contract` completes it. A contract is an
object of a class that its folder in `contracts` declares. Nothing outside of the folder compares
its name.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar, TypeVar

from tallystick.errors import UnsupportedVersionError
from tallystick.limits import LIMITS

if TYPE_CHECKING:
    from tallystick.devices.device import Device, Kernel
    from tallystick.opening.quantity import Quantity, Rule, Site
    from tallystick.program.ir import Program

# The default wherever a person names no contract.
ORDERED_1 = "ordered/1-draft.1"
# 13.2: B of a grid that holds every binary32 value.
MAX_BITS = 32
_ROOM = "tallystick.contracts"
_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)


class Contract(ABC):
    """A contract and its numbers; equal where the identifiers are.

    Every contract means what `ordered/1` means, except for its `own_operators`; one that keeps a
    log may round other results too (14.9). A subclass is a frozen dataclass of its numbers,
    declared by `@contract_family`.
    """

    # The name with its version, and the full name. NAME/1 means the current draft until the freeze;
    # a released version stays for ever.
    name: ClassVar[str]
    draft: ClassVar[str]
    # The section of NUMERICS about its own operators.
    clause: ClassVar[str] = ""
    # True if a step's results also depend on a rounding log (14.1).
    keeps_log: ClassVar[bool] = False

    # -- its numbers -------------------------------------------------------------------------------
    @classmethod
    def read(cls, settings: ContractSettings) -> Contract:
        """The contract with the numbers that a person gave, which this takes out of `settings`;
        the others are the defaults. Raises UnsupportedVersionError."""
        return cls()

    def numbers(self) -> list[str]:
        """Its numbers in the order of the identifier, as KEY=VALUE."""
        return []

    def refused(self) -> str:
        """Why these numbers make no contract; empty if they do."""
        if len(self.text) > LIMITS.name_bytes:
            return f"its identifier exceeds {LIMITS.name_bytes} bytes"
        return ""

    @property
    def text(self) -> str:
        """The canonical identifier (13.1, 14.1)."""
        return ";".join([self.draft, *self.numbers()])

    @property
    def short(self) -> str:
        """What a person may write for it."""
        return ";".join([self.name, *self.numbers()])

    def __str__(self) -> str:
        return self.text

    @property
    def bits(self) -> int:
        """B of the grid of results (13.2)."""
        return MAX_BITS

    @property
    def form(self) -> str:
        """The form of its rounding log (14.1); empty without a log."""
        return ""

    @property
    def coarseness(self) -> float:
        """The factor by which results may differ more from the real values than under
        `ordered/1`, for a comparison with another program's results."""
        return 1.0

    def without_log(self) -> Contract:
        """The contract whose values are those of an empty log (14.5)."""
        return self

    # -- what it means -----------------------------------------------------------------------------
    @property
    def own_operators(self) -> frozenset[str]:
        """The operators whose products or sums it computes in a way of its own, on f32 operands."""
        return frozenset()

    def rule(self, site: Site, ordinary: Rule) -> Quantity:
        """The quantity of the element at `site` (PROTOCOL 6); `ordinary` is the rule of
        `ordered/1`."""
        return ordinary(site)

    def check_program(self, program: Program) -> None:  # noqa: B027 (most have nothing to check)
        """Raise where `program` cannot be executed under this contract on this machine
        (UnsupportedOperatorError, CannotCheckError)."""

    # -- what computes it --------------------------------------------------------------------------
    @property
    def kind_on_gpu(self) -> str:
        """The kind of device (`Device.kind`) by which a GPU computes it."""
        return "cuda"

    @abstractmethod
    def kernels(self, device: Device) -> Mapping[str, Kernel]:
        """As Device.kernels, which keeps the answer; {} where none computes on such a device."""

    @abstractmethod
    def prepare(self, device: Device) -> None:
        """Prepare `device`; as Device.prepare."""


@dataclass
class ContractSettings:
    """What a person wrote after a contract's name: KEY=VALUE, each once."""

    name: str
    given: dict[str, str]

    @classmethod
    def of(cls, name: str, parts: Iterable[str]) -> ContractSettings:
        """Raises UnsupportedVersionError."""
        settings = cls(name, {})
        for part in parts:
            key, equals, value = part.partition("=")
            if not equals or key in settings.given:
                raise settings.refuse(f"{part[:40]!r} is not KEY=VALUE, or there twice")
            settings.given[key] = value
        return settings

    def take(self, key: str, default: object) -> str:
        return self.given.pop(key, str(default))

    def whole(self, key: str, default: int, low: int, high: int) -> int:
        """A whole number within its bounds. Raises UnsupportedVersionError."""
        text = self.take(key, default)
        if not _NUMBER.fullmatch(text) or not low <= int(text) <= high:
            raise self.refuse(f"{key} is {text[:20]!r}, not a number from {low} to {high}")
        return int(text)

    def refuse(self, why: str) -> UnsupportedVersionError:
        return UnsupportedVersionError(
            f"Contract {self.name[:80]!r} is not known to this build{why and ': ' + why}.",
            f"Use one of: {', '.join(families())}; with numbers as in rounded/1;b=28, "
            "replay/1;b=28;form=published or exact/1;b=15.",
        )


# --- the contracts of this build ------------------------------------------------------------------
_families: dict[str, type[Contract]] = {}
Family = TypeVar("Family", bound=type[Contract])


def contract_family(family: Family) -> Family:
    """Declare a contract: a decorator of its class."""
    for other in _families.values():
        shared = {other.name, other.draft} & {family.name, family.draft}
        if shared and other.__module__ != family.__module__:
            raise ValueError(f"contract {min(shared)} is declared twice")
    _families[family.name] = family
    find_contract.cache_clear()
    return family


def withdraw_family(name: str) -> None:
    """Take back the declaration of a contract, as tests do."""
    _families.pop(name, None)
    find_contract.cache_clear()


def families() -> Mapping[str, type[Contract]]:
    """The contracts that this build knows, by name: those of FOLDERS in its order, then others."""
    rooms = [f"{_ROOM}.{folder}.contract" for folder in import_module(_ROOM).FOLDERS]
    for room in rooms:
        import_module(room)

    def place(family: type[Contract]) -> int:
        return rooms.index(family.__module__) if family.__module__ in rooms else len(rooms)

    return {family.name: family for family in sorted(_families.values(), key=place)}


@lru_cache(maxsize=256)
def find_contract(name: str) -> Contract:
    """The contract that a person calls `name`. Raises UnsupportedVersionError if there is none.

    `name` is the short name or the full one, with any numbers in any order. The other numbers are
    the defaults.
    """
    called, *parts = name.split(";") if len(name) <= LIMITS.name_bytes else [name]
    family = next((f for f in families().values() if called in (f.name, f.draft)), None)
    if family is None:
        raise ContractSettings(name, {}).refuse("")
    settings = ContractSettings.of(name, parts)
    contract = family.read(settings)
    why = f"it has no {next(iter(settings.given))[:40]!r}" if settings.given else ""
    if why := why or contract.refused():
        raise settings.refuse(why)
    return contract


def find_without_log(name: str) -> Contract:
    """The contract called `name`, under which a value follows from the operands alone.

    Raises UnsupportedVersionError for an unknown contract, and for one that keeps a log.
    """
    contract = find_contract(name)
    if contract.keeps_log:
        raise UnsupportedVersionError(
            f"Under {contract.name} a value needs a step's rounding log, which is not here.",
            f"Use {contract.without_log().short} (the value of an element without an entry), "
            "or train a job.",
        )
    return contract


def parse_contract(text: str) -> Contract:
    """The contract with the canonical identifier `text`, as programs and jobs carry it.

    Raises UnsupportedVersionError for any other spelling, too.
    """
    contract = find_contract(text)
    if contract.text != text:
        raise ContractSettings(text, {}).refuse(f"its identifier is written {contract.text!r}")
    return contract


def is_contract(text: str) -> bool:
    """True if `text` is the canonical identifier of a contract of this build."""
    try:
        parse_contract(text)
    except UnsupportedVersionError:
        return False
    return True


def resolve_contract(name: str) -> str:
    """The canonical identifier of contract `name`. Raises UnsupportedVersionError if unknown."""
    return find_contract(name).text
