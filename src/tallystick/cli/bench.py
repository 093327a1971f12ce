"""`tallystick bench NAME`: the door to the benchmarks, which are no part of this package.

They are the package `tallystick_bench` of `benchmarks/` (docs/adr/0008). The command takes it from
the checkout that this package runs from, or else the installed one.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from tallystick import _core
from tallystick.cli.doctor import have_torch
from tallystick.cli.output import json_option, print_json, say
from tallystick.devices.environment import check_environment
from tallystick.errors import CannotCheckError, UsageError
from tallystick.installed import checkout
from tallystick.job.recipes.settings import parse_pairs

BENCH_PACKAGE = "tallystick_bench"
# Each option belongs to one benchmark.
_OPTIONS = {
    "gemm": ("shapes", "device"),
    "step": ("models", "parts", "device"),
    "dispute": ("operators", "pairs"),
    "ovt": ("parts", "quick", "out", "text", "cifar10"),
    "paper": ("parts", "models", "quick", "out", "text", "cifar10"),
}
_SPELLING = {
    "operators": "operator",
    "pairs": "set",
    "parts": "part",
    "models": "model",
    "shapes": "shape",
}


def benchmarks() -> ModuleType:
    """The package of the benchmarks. Raises UsageError where there is none."""
    home = checkout()
    if home is not None and (home / "benchmarks" / BENCH_PACKAGE).is_dir():
        # The checkout's package comes first: an installed one may be another checkout's.
        beside = str(home / "benchmarks")
        if beside not in sys.path:
            sys.path.insert(0, beside)
    if importlib.util.find_spec(BENCH_PACKAGE) is None:
        raise UsageError(
            "The benchmarks are not installed. They are not part of the tallystick package.",
            "Run `pip install ./benchmarks` in a checkout of Tallystick's source.",
        )
    return importlib.import_module(BENCH_PACKAGE)


def _on_device(name: str) -> bool:
    return "device" in _OPTIONS.get(name, ())


@click.command()
@click.argument("name")
@click.option("--threads", type=click.IntRange(1, 1024), default=None, help="Number of threads.")
@click.option(
    "--device",
    default=None,
    metavar="DEVICE",
    help="gemm, step: measure on this GPU (cuda or cuda:N) and compare with torch on the same GPU.",
)
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="MxKxN",
    help="gemm: measure this product (repeatable).",
)
@click.option(
    "--operator",
    "operators",
    multiple=True,
    help="dispute: put the false number into this operator (repeatable).",
)
@click.option(
    "--set",
    "pairs",
    multiple=True,
    metavar="KEY=VALUE",
    help="dispute: a setting of the recipe, as in `job new`.",
)
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="MODEL",
    help="step: measure this model, or FILE.py:FUNCTION. paper: only this model. Repeatable.",
)
@click.option(
    "--part",
    "parts",
    multiple=True,
    metavar="PART",
    help="step, ovt, paper: measure only this part (repeatable).",
)
@click.option("--quick", is_flag=True, help="ovt, paper: use small models and few steps.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="ovt, paper: directory for raw results and plots.",
)
@click.option(
    "--text", type=click.Path(path_type=Path), help="ovt, paper: the data, as in `job new`."
)
@click.option(
    "--cifar10", type=click.Path(path_type=Path), help="ovt, paper: the data, as in `job new`."
)
@json_option
def bench(name: str, threads: int | None, as_json: bool, **options: Any) -> None:
    """Measure NAME: gemm, step, dispute, ovt or paper.

    gemm and step compare with float32 torch (step: eager and torch.compile), on the processor or
    on a GPU with --device. dispute measures a dispute over one false number. ovt measures the
    costs of `replay/1` and `rounded/1`. paper prints the tables of OVT and Verde beside ours. It
    takes hours, and resumes from the results in --out.

    Each row shows its target.
    """
    package = benchmarks()
    known: dict[str, str] = package.BENCHMARKS
    if name not in known:
        raise UsageError(f"There is no benchmark {name!r}.", f"Choose one of {', '.join(known)}.")
    own = _OPTIONS.get(name, ())
    if options["device"] is not None and "device" not in own:
        raise UsageError(
            f"bench {name} runs on the CPU only and takes no --device.",
            f"Leave --device out, or choose one of {', '.join(k for k in known if _on_device(k))}.",
        )
    for option, value in options.items():
        if value and option not in own:
            raise UsageError(
                f"bench {name} takes no --{_SPELLING.get(option, option)}.",
                "Leave that option out.",
            )
    more = {option: options[option] for option in own if options[option]}
    if name == "dispute":
        more["settings"] = parse_pairs(list(more.pop("pairs", ())))
    check_environment()
    if not have_torch():
        raise CannotCheckError(
            "Benchmarks need PyTorch.",
            "Run pip install 'tallystick[train]'.",
        )
    if threads is not None:
        _core.set_threads(threads)
    measured: dict[str, Any] = package.measure(name, threads, **more)
    if as_json:
        print_json(measured)
        return
    for row in measured["rows"]:
        target = f"  target {row['target']}" if row.get("target") is not None else ""
        say(f"{row['name']:44}{row['value']:>12.4g} {row.get('unit', '')}{target}")
