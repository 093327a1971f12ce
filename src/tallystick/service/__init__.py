"""A dispute over a network: the servers, the client, the driver of a session (PROTOCOL 13).

This module imports none of the packages of the extra `[service]`.
"""

from __future__ import annotations

import importlib

from tallystick.errors import UsageError

_PACKAGES = ("starlette", "uvicorn", "httpx2")


def require_packages(what: str) -> None:
    """Raise UsageError, which names the extra, unless `what` finds what it needs."""
    for name in _PACKAGES:
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise UsageError(
                f"{what} needs the package {name} ({error}).",
                "Run pip install 'tallystick[service]'.",
            ) from None
