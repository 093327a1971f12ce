"""`bench paper`: the tables of OVT and Verde at their sizes, beside ours.

Raw results are one file per part and model in `--out`, as `bench ovt`'s are, so that hours of
measurement can be cut off and taken up again. The part `ovt` is `bench ovt` itself, into the same
directory. Rows, plots and docs/PAPERS.md (benchmarks/paper_page.py) are made from those files.
"""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tallystick import _core
from tallystick_bench.ovt.results.store import PartFile, read_all
from tallystick_bench.paper.context import Context
from tallystick_bench.paper.results.plots import draw
from tallystick_bench.paper.results.sections import rows as rows_of
from tallystick_bench.papers import check_parts, plots

# Each is a module of `parts` whose `measure(out, context)` makes its raw results.
PARTS = (
    "runs",
    "steps",
    "ovt",
    "rounding",
    "storage",
    "corrections",
    "bits",
    "products",
    "verde",
    "proofs",
)


def results(*directories: Path) -> dict[tuple[str, str], PartFile]:
    """Every part's file of `bench ovt` and `bench paper` in `directories`, by (part, model).

    A file of `bench paper` that has the part and model of one of `bench ovt` stands beside it,
    with "paper:" before its part.
    """
    found: dict[tuple[str, str], PartFile] = {}
    for directory in directories:
        found |= read_all(directory)
    for directory in directories:
        for (part, model), file in read_all(directory, "paper").items():
            found[part if (part, model) not in found else f"paper:{part}", model] = file
    return found


def rows(
    threads: int | None = None,
    *,
    parts: Sequence[str] = (),
    models: Sequence[str] = (),
    quick: bool = False,
    out: Path | None = None,
    text: Path | None = None,
    cifar10: Path | None = None,
) -> list[dict[str, Any]]:
    """The rows of `bench paper`: of `parts`, or of all. With `out`, raw results and plots too.

    Raises UsageError for an unknown part or results made with other settings, StorageError where
    another process writes them, CannotCheckError where a process fails.
    """
    check_parts("bench paper", parts, PARTS)
    with tempfile.TemporaryDirectory(prefix="tallystick-bench-") as temporary:
        directory = out or Path(temporary) / "out"
        context = Context(
            quick,
            threads or int(_core.threads()),
            Path(temporary),
            text,
            cifar10,
            scratch=directory / "work",
            models=tuple(models),
        )
        with context.stack:
            for part in parts or PARTS:
                module = importlib.import_module(f"tallystick_bench.paper.parts.{part}")
                module.measure(directory, context)
        found = rows_of(results(directory))
        if out is not None:
            plots(draw, found, out)
        return [row.as_dict() for row in found]
