"""`bench ovt`: measures the method of "Optimistic Verifiable Training", and ours beyond it.

The parts are divergence between kinds of hardware, storage, corrections, thresholds, exact sums,
time and memory. Each part of each model has a file of raw results in `--out`, so that a measurement
of an hour can be cut off and taken up again. Rows, plots and docs/OVT.md are made from those files.
"""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tallystick import _core
from tallystick_bench.machine import machine
from tallystick_bench.ovt.context import Context
from tallystick_bench.ovt.models import LARGE, LONG, MODELS, QUICK
from tallystick_bench.ovt.results.plots import draw
from tallystick_bench.ovt.results.rows import PARTS, rows_of
from tallystick_bench.ovt.results.store import part_file, read_all
from tallystick_bench.papers import check_parts, plots

# The part of each name is the module whose `measure(part, context)` makes its entries.
_MODELS: dict[str, tuple[str, ...]] = {
    "divergence": LONG,
    "storage": LARGE,
    "corrections": LONG,
    "thresholds": ("layers",),
    "escalation": LARGE,
    "time": LARGE,
    "memory": LARGE,
}


def models_of(part: str, quick: bool) -> tuple[str, ...]:
    """The models that a part measures."""
    if part == "thresholds":
        return _MODELS[part]
    if quick:
        return QUICK if part in ("divergence", "storage") else QUICK[:1]
    return _MODELS[part]


def _about(part: str, name: str, context: Context) -> dict[str, Any]:
    # The core's own thread count at this moment is not the measurement's.
    about: dict[str, Any] = {"machine": machine() | {"threads": context.threads}}
    if name in MODELS:
        model = MODELS[name]
        about |= {
            "recipe": model.recipe,
            "settings": dict(model.pairs),
            "data": context.data(model),
        }
    module = importlib.import_module(f"tallystick_bench.ovt.parts.{part}")
    return about | dict(module.about(context.quick))


def measure(parts: Sequence[str], out: Path, context: Context) -> None:
    """Measures the entries of `parts` that `out` does not hold yet, one by one."""
    for part in parts:
        module = importlib.import_module(f"tallystick_bench.ovt.parts.{part}")
        for name in models_of(part, context.quick):
            with part_file(out, part, name, _about(part, name, context)) as file:
                module.measure(file, context)


def rows(
    threads: int | None = None,
    *,
    parts: Sequence[str] = (),
    quick: bool = False,
    out: Path | None = None,
    text: Path | None = None,
    cifar10: Path | None = None,
) -> list[dict[str, Any]]:
    """The rows of `bench ovt`: of `parts`, or of all. With `out`, raw results and plots too.

    Raises UsageError for an unknown part or results made with other settings, StorageError where
    another process writes them, CannotCheckError where a process fails.
    """
    check_parts("bench ovt", parts, PARTS)
    with tempfile.TemporaryDirectory(prefix="tallystick-bench-") as temporary:
        directory = out or Path(temporary) / "out"
        context = Context(quick, threads or int(_core.threads()), Path(temporary), text, cifar10)
        with context.stack:
            measure(parts or PARTS, directory, context)
        results = read_all(directory)
        if out is not None:
            plots(draw, results, out)
        chosen = {key: file for key, file in results.items() if key[0] in (parts or PARTS)}
        return rows_of(chosen)
