"""`tallystick bench NAME`: measurements with their targets, as one object."""

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
from tallystick.run.recipes.settings import parse_pairs

# Benchmark -> the module whose `rows()` gives its rows; loaded when called, since each needs torch.
BENCHES: dict[str, str] = {
    "gemm": "tallystick.cli.bench_gemm",
    "step": "tallystick.cli.bench_step",
    "dispute": "tallystick.cli.bench_dispute",
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


@click.command(short_help="Measure NAME: gemm, step (against torch float32) or dispute.")
@click.argument("name")
@click.option("--threads", type=click.IntRange(1, 1024), default=None)
@click.option("--operator", "operators", multiple=True, help="dispute: over this; repeatable.")
@click.option("--set", "pairs", multiple=True, metavar="KEY=VALUE", help="dispute: as `job new`.")
@json_option
def bench(
    name: str,
    threads: int | None,
    operators: tuple[str, ...],
    pairs: tuple[str, ...],
    as_json: bool,
) -> None:
    """Measure NAME: gemm or step against torch float32, or a dispute over one false number.

    Prints rows with their targets.
    """
    known = [n for n, module in BENCHES.items() if importlib.util.find_spec(module)]
    if name not in known:
        raise UsageError(f"There is no benchmark {name!r}.", f"Choose one of: {', '.join(known)}.")
    more: dict[str, Any] = {}
    if name == "dispute":
        more = {"settings": parse_pairs(list(pairs)), "operators": operators}
    elif operators or pairs:
        raise UsageError(f"bench {name} takes no --operator and no --set.", "Leave them out.")
    check_environment()
    if not have_torch():
        raise CannotCheckError(
            "Benchmarks need PyTorch: they compare with it, or capture a model.",
            "pip install 'tallystick[train]'.",
        )
    if threads is not None:
        _core.set_threads(threads)
    rows = importlib.import_module(BENCHES[name]).rows(threads, **more)
    if as_json:
        print_json({"bench": name, "machine": machine(), "rows": rows})
        return
    for row in rows:
        target = f"  target {row['target']}" if row.get("target") is not None else ""
        say(f"{row['name']:44}{row['value']:>12.4g} {row.get('unit', '')}{target}")
