"""Refusals as OpenAI's clients expect them: a status, and an error object."""

from __future__ import annotations

import json
from typing import Any

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
