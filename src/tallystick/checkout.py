"""Finds out whether this package runs from a checkout of the project or is installed."""

from __future__ import annotations

from pathlib import Path


def checkout() -> Path | None:
    """The checkout whose `src` holds this package; None for an installed copy."""
    source = Path(__file__).resolve().parents[1]
    return source.parent if source.name == "src" else None
