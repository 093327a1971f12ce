"""What `bench ovt` and `bench paper` have in common: the choice of parts, plots, written pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from tallystick.cli.output import note
from tallystick.errors import UsageError
from tallystick_bench.ovt.results.plots import have_matplotlib

Found = TypeVar("Found")


def check_parts(bench: str, wanted: Iterable[str], parts: Sequence[str]) -> None:
    """Raise UsageError for a part that the benchmark does not have."""
    odd = [part for part in wanted if part not in parts]
    if odd:
        raise UsageError(f"{bench} has no part {odd[0]!r}.", f"Choose from {', '.join(parts)}.")


def plots(draw: Callable[[Found, Path], Iterable[Path]], found: Found, directory: Path) -> set[str]:
    """Draw what was found into `directory`; the names of the plots. Without matplotlib the plots
    there stay, and none is named."""
    if not have_matplotlib():
        note("No plots: matplotlib is not installed (pip install matplotlib).")
        return set()
    directory.mkdir(parents=True, exist_ok=True)
    return {path.name for path in draw(found, directory)}
