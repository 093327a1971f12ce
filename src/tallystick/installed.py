"""Which copy of the package this is: of a checkout of the project or installed, and its version."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def checkout() -> Path | None:
    """The checkout whose `src` holds this package; None for an installed copy."""
    source = Path(__file__).resolve().parents[1]
    return source.parent if source.name == "src" else None


def tallystick_version() -> str:
    """The installed distribution's version, or `source` when run from a checkout. It stands in
    manifests and in what `doctor` says, never in a digest."""
    try:
        return version("tallystick")
    except PackageNotFoundError:
        return "source"
