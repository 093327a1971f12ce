"""`tallystick bench NAME`: measurements against PyTorch, as one object."""

from __future__ import annotations

import importlib
import importlib.util
import os
import platform
from typing import Any

import click

from tallystick import _core
from tallystick.cli.doctor import have_torch
from tallystick.cli.output import json_option, print_json, say
from tallystick.errors import CannotCheckError, UsageError
from tallystick.numerics.environment import check_environment

# Benchmark -> the module whose `rows()` gives its rows; loaded when called, since each needs torch.
BENCHES: dict[str, str] = {
    "gemm": "tallystick.cli.bench_gemm",
    "step": "tallystick.cli.bench_step",
}


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    return {
        "platform": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "isa": _core.isa(),
        "threads": _core.threads(),
        "compiler": _core.compiler(),
        "python": platform.python_version(),
    }


@click.command(short_help="Measure NAME (gemm, step) against torch float32.")
@click.argument("name")
@click.option("--threads", type=click.IntRange(1, 1024), default=None)
@json_option
def bench(name: str, threads: int | None, as_json: bool) -> None:
    """Measure NAME (gemm, step) against torch float32; prints rows with their targets."""
    known = [n for n, module in BENCHES.items() if importlib.util.find_spec(module)]
    if name not in known:
        raise UsageError(f"There is no benchmark {name!r}.", f"Choose one of: {', '.join(known)}.")
    check_environment()
    if not have_torch():
        raise CannotCheckError(
            "Benchmarks compare with PyTorch.", "pip install 'tallystick[train]'."
        )
    if threads is not None:
        _core.set_threads(threads)
    rows = importlib.import_module(BENCHES[name]).rows(threads)
    if as_json:
        print_json({"bench": name, "machine": machine(), "rows": rows})
        return
    for row in rows:
        target = f"  target {row['target']}" if row.get("target") is not None else ""
        say(f"{row['name']:44}{row['value']:>12.4g} {row.get('unit', '')}{target}")
