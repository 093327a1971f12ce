"""The version of this build: for manifests and `doctor`, never for a digest."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def tallystick_version() -> str:
    """The installed distribution's version, or `source` when run from a checkout."""
    try:
        return version("tallystick")
    except PackageNotFoundError:
        return "source"
