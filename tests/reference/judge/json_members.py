"""Members of a JSON object, each taken by its kind (COMMITMENTS 7.5)."""

from __future__ import annotations

import re
from typing import Any

from reference.judge.encoding import RefusedError

CONTRACT = re.compile(
    r"(ordered/1-draft\.1|rounded/1-draft\.1(;b=\d\d)?|replay/1-draft\.1;b=\d\d;form="
    r"(bounded|published;scale=(binary|decimal)(;tau(\.[\w.]+)?=\d+)*))"
    r"|exact/1-draft\.1;b=(8|15|22)"
)


def members(value: Any, names: Any, what: str) -> dict[str, Any]:
    """An object with exactly these members."""
    if not isinstance(value, dict) or set(value) != set(names):
        raise RefusedError(f"{what}: other members")
    return value


def whole(value: Any, low: int, high: int, what: str) -> int:
    if type(value) is not int or not low <= value <= high:
        raise RefusedError(f"{what} is {value!r}")
    return value


def word(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise RefusedError(f"{what} is no string")
    return value


def decimal(value: Any, high: int, what: str) -> int:
    """A decimal string (7.5.2)."""
    if not re.fullmatch(r"0|[1-9][0-9]{0,19}", word(value, what)) or int(value) > high:
        raise RefusedError(f"{what} is {value[:30]!r}")
    return int(value)


def contract_of(value: Any) -> str:
    """An identifier of a contract (NUMERICS 13.1, 14.1, 17.1)."""
    found = CONTRACT.fullmatch(word(value, "contract"))
    b = None if value.startswith("exact/") else re.search(r";b=(\d+)", value)
    if not found or (b and not 20 <= int(b[1]) <= 32):
        raise RefusedError("no contract")
    return str(value)
