"""Contracts: their names, their numbers, and the identifier of both (NUMERICS 13.1, 14.1, 17.1).

Jobs, programs and roots carry the identifier, so it has one spelling. A person may write less
(`rounded/1`, `replay/1`, `rounded/1;b=28`), and `find_contract` completes it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache

from tallystick.errors import UnsupportedVersionError
from tallystick.limits import LIMITS
from tallystick.numerics.registry import dot_operators, rounded_operators

# NAME/1 means the current draft until the freeze. A released version stays here for ever.
DRAFTS = {
    "ordered/1": "ordered/1-draft.1",
    "rounded/1": "rounded/1-draft.1",
    "replay/1": "replay/1-draft.1",
    "exact/1": "exact/1-draft.1",
}
ORDERED_1 = DRAFTS["ordered/1"]
# The families this build knows, by their full names; numbers may follow (13.1, 14.1, 17.1).
CONTRACTS = tuple(DRAFTS.values())

MIN_BITS, MAX_BITS = 20, 32
# 17.1: B of the integers, and the length of a block. The default is the one nearest to binary32.
BLOCK_LENGTHS = {8: 256, 15: 1024, 22: 2048}
DEFAULT_WIDTH = 22
FORMS = ("bounded", "published")
SCALES = ("binary", "decimal")
# 14.9: τ = T·2⁻⁴⁰ is a part of a value's power of two; at T = 2⁴⁰ no element is ever logged.
MAX_THRESHOLD = 1 << 40

_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)
_OPERATOR = re.compile(r"[a-z][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)+", re.ASCII)


@dataclass(frozen=True)
class Contract:
    """A contract and its numbers.

    `name` is "ordered/1", "rounded/1", "replay/1" or "exact/1"; `bits` is B of 13.2; `form` is
    "bounded" or "published" under replay, else empty; `scale`, `threshold` (T by default) and
    `thresholds` (T of single operators, ascending) belong to the published form (14.9). `width` is
    B of 17.1 under exact, else 0.
    """

    name: str
    bits: int = MAX_BITS
    form: str = ""
    scale: str = ""
    threshold: int = 0
    thresholds: tuple[tuple[str, int], ...] = ()
    width: int = 0

    @property
    def keeps_log(self) -> bool:
        """True if a step's results also depend on a rounding log (14.1)."""
        return self.name == "replay/1"

    @property
    def rounded_operators(self) -> frozenset[str]:
        """The operators whose elements are R(v*) (13.1), or in V (14.5); none elsewhere.

        `aten.sum` and `aten.mean` and their overloads are among them on f32 operands only.
        """
        return rounded_operators() if self.name in ("rounded/1", "replay/1") else frozenset()

    @property
    def exact_operators(self) -> frozenset[str]:
        """The operators whose DOTs are sums of integers (17.1); none under other contracts."""
        return dot_operators() if self.width else frozenset()

    @property
    def coarseness(self) -> float:
        """How much wider than under `ordered/1` the difference from the real value may be, as a
        factor, for a comparison with another program's results."""
        # 2^8: a row's largest element may be 2^8 times the typical one, and the unit follows it.
        return 2.0 ** (32 - self.width if self.width else MAX_BITS - self.bits)

    def threshold_of(self, operator: str) -> int:
        """T of `operator` under the published form (14.9); τ = T·2⁻⁴⁰."""
        return dict(self.thresholds).get(operator, self.threshold)

    @property
    def text(self) -> str:
        """The canonical identifier (13.1, 14.1)."""
        parts = [DRAFTS[self.name]]
        if self.keeps_log or self.bits != MAX_BITS:
            parts.append(f"b={self.bits}")
        if self.width:
            parts.append(f"b={self.width}")
        if self.keeps_log:
            parts.append(f"form={self.form}")
        if self.form == "published":
            parts += [f"scale={self.scale}", f"tau={self.threshold}"]
            parts += [f"tau.{operator}={number}" for operator, number in self.thresholds]
        return ";".join(parts)

    def with_thresholds(self, threshold: int, thresholds: dict[str, int]) -> Contract:
        """This published contract with other thresholds, without those equal to the default.

        Raises UnsupportedVersionError where the numbers do not make an identifier.
        """
        own = tuple(sorted((op, t) for op, t in thresholds.items() if t != threshold))
        return _checked(replace(self, threshold=threshold, thresholds=own), self.text)

    def __str__(self) -> str:
        return self.text


def default_threshold(bits: int) -> int:
    """T where a person names none: half of the way from a value of the grid to a boundary.

    The error of stock kernels is far smaller, so a calibration (Algorithm 4) only saves log bytes.
    """
    return 1 << (47 - bits)


def _refuse(name: str, why: str) -> UnsupportedVersionError:
    return UnsupportedVersionError(
        f"Contract {name[:80]!r} is not known to this build{why and ': ' + why}.",
        f"Use one of: {', '.join(DRAFTS)}; with numbers as in rounded/1;b=28, "
        "replay/1;b=28;form=published or exact/1;b=15.",
    )


def _whole(name: str, key: str, text: str, low: int, high: int) -> int:
    if not _NUMBER.fullmatch(text) or not low <= int(text) <= high:
        raise _refuse(name, f"{key} is {text[:20]!r}, not a number from {low} to {high}")
    return int(text)


def _checked(contract: Contract, name: str) -> Contract:
    """`contract`, its members in range, no threshold without need. Raises."""
    if len(contract.text) > LIMITS.name_bytes:
        raise _refuse(name, f"its identifier exceeds {LIMITS.name_bytes} bytes")
    if not 0 <= contract.threshold <= MAX_THRESHOLD:
        raise _refuse(name, "tau is out of range")
    for operator, number in contract.thresholds:
        if not 0 <= number <= MAX_THRESHOLD or number == contract.threshold:
            raise _refuse(name, f"tau.{operator[:40]} is out of range, or repeats tau")
        if not _OPERATOR.fullmatch(operator):
            raise _refuse(name, f"tau.{operator[:40]} names no operator")
    return contract


@lru_cache(maxsize=256)
def find_contract(name: str) -> Contract:
    """The contract that a person calls `name`. Raises UnsupportedVersionError if there is none.

    `name` is the short name or the full one, with any numbers in any order. The other numbers are
    the defaults.
    """
    family, *settings = name.split(";") if len(name) <= LIMITS.name_bytes else [name]
    known = DRAFTS | {full: full for full in CONTRACTS}
    if family not in known:
        raise _refuse(name, "")
    family = next(short for short, full in DRAFTS.items() if full == known[family])
    given: dict[str, str] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or key in given:
            raise _refuse(name, f"{setting[:40]!r} is not KEY=VALUE, or there twice")
        given[key] = value
    bits, width = MAX_BITS, 0
    if family == "exact/1":
        width = _width(name, given.pop("b", str(DEFAULT_WIDTH)))
    elif family != "ordered/1":
        bits = _whole(name, "b", given.pop("b", str(MAX_BITS)), MIN_BITS, MAX_BITS)
    contract = Contract(family, bits, width=width)
    if family == "replay/1":
        contract = _replay(name, contract, given)
    if given:
        raise _refuse(name, f"it has no {next(iter(given))[:40]!r}")
    return _checked(contract, name)


def _width(name: str, text: str) -> int:
    known = [width for width in BLOCK_LENGTHS if str(width) == text]
    if not known:
        raise _refuse(name, f"b is {text[:20]!r}, not {', '.join(map(str, BLOCK_LENGTHS))}")
    return known[0]


def _replay(name: str, contract: Contract, given: dict[str, str]) -> Contract:
    """`contract` with the members of replay (14.1), which this function removes from `given`."""
    form = given.pop("form", "bounded")
    if form not in FORMS:
        raise _refuse(name, f"its form is one of {', '.join(FORMS)}")
    if form == "bounded":
        return replace(contract, form=form)
    scale = given.pop("scale", SCALES[0])
    if scale not in SCALES:
        raise _refuse(name, f"its scale is one of {', '.join(SCALES)}")
    default = given.pop("tau", str(default_threshold(contract.bits)))
    operators = sorted(key for key in given if key.startswith("tau."))
    return replace(
        contract,
        form=form,
        scale=scale,
        threshold=_whole(name, "tau", default, 0, MAX_THRESHOLD),
        thresholds=tuple(
            (key[4:], _whole(name, key, given.pop(key), 0, MAX_THRESHOLD)) for key in operators
        ),
    )


def without_log(name: str) -> Contract:
    """The contract called `name`, under which a value follows from the operands alone.

    Raises UnsupportedVersionError for an unknown contract, and for one that keeps a log.
    """
    contract = find_contract(name)
    if contract.keeps_log:
        raise UnsupportedVersionError(
            f"Under {contract.name} a value needs a step's rounding log, which is not here.",
            "Use rounded/1 (the value of an element without an entry), or train a job.",
        )
    return contract


def parse_contract(text: str) -> Contract:
    """The contract with the canonical identifier `text`, as programs and jobs carry it.

    Raises UnsupportedVersionError for any other spelling, too.
    """
    contract = find_contract(text)
    if contract.text != text:
        raise _refuse(text, f"its identifier is written {contract.text!r}")
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
