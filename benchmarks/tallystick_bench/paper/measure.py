"""`bench paper`: the tables of OVT and Verde beside ours."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tallystick import _core
from tallystick.errors import UsageError
from tallystick_bench.paper.context import Context

PARTS = ("runs", "rounding", "storage", "bits", "products", "verde", "proofs")


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
    odd = [part for part in parts if part not in PARTS]
    if odd:
        raise UsageError(f"bench paper has no part {odd[0]!r}.", f"Choose from {', '.join(PARTS)}.")
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
    return []
