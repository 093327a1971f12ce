"""The fields of a JSON request, each honoured or refused by name; and refusals as OpenAI's clients
expect them: a status, and an error object.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from tallystick.errors import TallystickError, UsageError

INVALID, SERVER = "invalid_request_error", "server_error"


class ApiError(Exception):
    """End a request with this status and error object. `param` is the field at fault."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = INVALID,
        param: str | None = None,
        code: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.kind = status, message, kind
        self.param, self.code, self.retry_after = param, code, retry_after

    def members(self) -> dict[str, Any]:
        """The error object."""
        return {
            "error": {
                "message": self.message,
                "type": self.kind,
                "param": self.param,
                "code": self.code,
            }
        }


def refused(param: str, why: str) -> ApiError:
    """A field that this server does not honour."""
    return ApiError(400, f"{param}: {why}", param=param, code="unsupported_parameter")


def invalid(param: str, why: str) -> ApiError:
    """A field whose value is out of range, or of another type."""
    return ApiError(400, f"{param}: {why}", param=param, code="invalid_value")


def busy(why: str, code: str = "rate_limit_exceeded", after: int = 1) -> ApiError:
    """A bound of this server: the client asks again later."""
    return ApiError(429, why, kind="requests", code=code, retry_after=after)


def no_room() -> ApiError:
    """Receipts could not be kept: nothing is answered."""
    why = "This server has no room to keep further receipts for now."
    return ApiError(503, why, kind=SERVER, code="receipts_full", retry_after=60)


def ending() -> ApiError:
    """What whoever still waits gets at the end of the server."""
    return ApiError(503, "This server is ending.", kind=SERVER, retry_after=5)


def of_error(error: TallystickError) -> ApiError:
    """What a client learns of an error: a fault of its request whole, and of ours nothing."""
    if isinstance(error, UsageError):
        return ApiError(400, str(error))
    return ApiError(500, "A fault of this server.", kind=SERVER)


def of_guard(status: int, why: str) -> bytes:
    """The body of a refusal at the door (service/guard.py)."""
    kind = SERVER if status >= 500 else "requests" if status == 429 else INVALID
    return json.dumps(ApiError(status, why, kind=kind).members()).encode()


T = TypeVar("T")
_DEPTH = 32


def parse_body(data: bytes) -> dict[str, Any]:
    """The object in a body. Raises ApiError."""
    try:
        found = json.loads(data.decode("utf-8"), parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise ApiError(400, "The body is no JSON in UTF-8.") from None
    if not isinstance(found, dict) or _deeper(found, _DEPTH):
        raise ApiError(400, f"The body is no JSON object of at most {_DEPTH} levels.")
    return found


def _no_number(text: str) -> float:
    raise ValueError(text)


def _deeper(value: Any, levels: int) -> bool:
    if not isinstance(value, (dict, list)):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_deeper(one, levels - 1) for one in inner)


class Fields:
    """The fields that nothing has read yet. null is as good as no field."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        self._left = {name: value for name, value in body.items() if value is not None}

    def __contains__(self, name: str) -> bool:
        return name in self._left

    def raw(self, name: str) -> Any:
        """The value as it came; None where there is none."""
        return self._left.pop(name, None)

    def of(self, name: str, kind: type[T], default: T) -> T:
        """A `kind` and nothing else: true is no integer."""
        value = self.raw(name)
        if value is None:
            return default
        if type(value) is not kind:
            raise invalid(name, f"it must be {_KINDS[kind]}")
        return value

    def number(self, name: str, low: float, high: float, default: float) -> float:
        value = self.raw(name)
        if value is None:
            return default
        if type(value) not in (int, float) or not math.isfinite(value) or not low <= value <= high:
            raise invalid(name, f"it must be a number from {low:g} to {high:g}")
        return float(value)

    def whole(self, name: str, low: int, high: int, default: int) -> int:
        value = self.of(name, int, default)
        if not low <= value <= high:
            raise invalid(name, f"it must be a whole number from {low} to {high}")
        return value

    def hex(self, name: str, length: int) -> bytes | None:
        """`length` bytes in hexadecimal."""
        text = self.raw(name)
        if text is None:
            return None
        try:
            found = (
                bytes.fromhex(text) if isinstance(text, str) and len(text) == 2 * length else b""
            )
        except ValueError:
            found = b""
        if len(found) != length:
            raise invalid(name, f"it must be {length} bytes in hexadecimal")
        return found

    def neutral(self, table: Mapping[str, Sequence[Any]], why: Mapping[str, str]) -> None:
        """Drop fields whose value asks for nothing; refuse them by name where it does."""
        for name, values in table.items():
            if name in self._left:
                value = self.raw(name)
                if not any(type(value) is type(v) and value == v for v in values):
                    raise refused(name, why.get(name, "this server does not honour it"))

    def end(self) -> None:
        """Refuse what nobody has read."""
        if self._left:
            name = min(self._left)[:80]
            raise ApiError(400, f"Unknown field: {name}", param=name, code="unknown_parameter")


def texts_or_tokens(name: str, given: Any, most: int, what: str) -> list[dict[str, Any]]:
    """A text or a list of tokens, or at most `most` of these, each as the member `text` or `tokens`
    of an input (ANSWERS 5.1). `what` says what is done with them at once."""
    several = isinstance(given, list) and given and not all(type(t) is int for t in given)
    found: list[dict[str, Any]] = []
    for one in given if several else [given]:
        if isinstance(one, str) and one:
            found.append({"text": one})
        elif isinstance(one, list) and one and all(type(t) is int for t in one):
            found.append({"tokens": tuple(one)})
        else:
            raise invalid(name, "it must be a text or a list of tokens, or a list of these")
    if len(found) > most:
        raise invalid(name, f"at most {most} {what} at once")
    return found


_KINDS = {
    str: "a string",
    int: "a whole number",
    bool: "true or false",
    dict: "an object",
    list: "a list",
}
