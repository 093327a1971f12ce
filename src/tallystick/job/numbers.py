"""Numbers as people write them, for a job's words and for reports."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone

from tallystick.commit.encoding import float_decimal as decimal

__all__ = ["count", "decimal", "listed", "moment", "shape_of"]


def count(n: int, what: str = "", several: str = "") -> str:
    """1234567 as 1,234,567; with a noun, in its plural (`several`) where there are several."""
    if not what:
        return f"{n:,}"
    if several:
        return f"{n:,} {what if n == 1 else several}"
    ending = "" if n == 1 else "es" if what.endswith(("s", "x", "ch")) else "s"
    return f"{n:,} {what}{ending}"


def listed(names: Sequence[str], most: int = 6) -> str:
    """Names as "a, b and c"; of more than `most` the first ones, and how many there are besides."""
    if len(names) > most:
        return f"{', '.join(names[: most - 1])} and {len(names) - most + 1:,} more"
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def shape_of(dtype: str, shape: Sequence[int]) -> str:
    """A tensor's shape and type: "64 × 32 f32", and "one f32" for a number."""
    return f"{' × '.join(map(str, shape)) if shape else 'one'} {dtype}"


def moment(time: int) -> str:
    """Milliseconds since 1970 as a date and a time."""
    try:
        found = datetime.fromtimestamp(time / 1000, timezone.utc)
    except (OverflowError, ValueError, OSError):  # no calendar goes so far
        return f"{time} ms"
    return found.isoformat(sep=" ", timespec="milliseconds").replace("+00:00", " UTC")
