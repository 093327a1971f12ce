"""`tallystick calibrate`: thresholds of the published form, from several machines' results."""

from __future__ import annotations

from pathlib import Path

import click

from tallystick.cli.output import (
    json_option,
    overwrite_option,
    print_json,
    say,
    threads_option,
)
from tallystick.cli.places import PLACE
from tallystick.contracts.replay.calibration import ELEMENTS, Threshold
from tallystick.contracts.replay.stock.emulated import kinds
from tallystick.devices.context import ExecutionContext
from tallystick.disk.regular import present
from tallystick.errors import UsageError
from tallystick.job.job_file import load_job
from tallystick.run.execute.calibration import merge_samples, take_sample

_KINDS = ", ".join(kind.name for kind in kinds())


@click.group()
def calibrate() -> None:
    """Measure the thresholds of published rounding logs."""


@calibrate.command("sample")
@click.argument("path", metavar="JOB", type=PLACE)
@click.option("--out", required=True, type=click.Path(), help="Sample file to write.")
@click.option(
    "--steps",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Number of steps to sample. Use the same number on every machine.",
)
@click.option(
    "--elements",
    type=click.IntRange(1, 1 << 26),
    default=ELEMENTS,
    show_default=True,
    help="Number of elements to sample from each output. Use the same number on every machine.",
)
@click.option(
    "--kind", default="plain", show_default=True, help=f"Kind of hardware to imitate: {_KINDS}."
)
@threads_option
@overwrite_option
@json_option
def sample(
    path: str,
    out: str,
    steps: int,
    elements: int,
    kind: str,
    threads: int | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Write the results of this machine's kernels on JOB's first steps. Needs PyTorch."""
    if present(Path(out)) and not overwrite:
        raise UsageError(f"{out} already exists.", "Choose another file, or pass --overwrite.")
    context = ExecutionContext(threads)
    taken = take_sample(load_job(Path(path)), Path(out), steps, elements, kind, context)
    if as_json:
        print_json({"sample": taken.path, "results": len(taken.sample.x), "kind": taken.kind})
        return
    say(f"sample      {taken.path}: {len(taken.sample.x):,} results near a rounding boundary")
    say(f"kind        {taken.kind}")
    say(f"next        tallystick calibrate merge {path} {out} OTHER... --out JOB2")


@calibrate.command("merge")
@click.argument("path", metavar="JOB", type=PLACE)
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path())
@click.option("--out", required=True, type=click.Path(), help="Directory for the new job.")
@overwrite_option
@json_option
def merge(path: str, files: tuple[str, ...], out: str, overwrite: bool, as_json: bool) -> None:
    """Compare samples of JOB from two or more machines, and make a job with their thresholds."""
    made, found = merge_samples(
        load_job(Path(path)), [Path(f) for f in files], Path(out), overwrite
    )
    if as_json:
        rows = [
            {
                "operator": t.operator,
                "threshold": t.number,
                "tau": t.number * 2.0**-40,
                "pairs": t.pairs,
                "missed": t.missed,
                "compared": t.compared,
            }
            for t in found
        ]
        contract = made.commitment.contract
        print_json({"job": made.directory, "contract": contract, "thresholds": rows})
        return
    for threshold in found:
        say(_line(threshold))
    say(f"job         {made.directory}")
    say(f"job digest  {made.digest.hex()}")
    say(f"contract    {made.commitment.contract}")


def _line(t: Threshold) -> str:
    text = f"{t.operator:44}{t.number * 2.0**-17:8.3f}·2^-23{t.pairs:8,} of {t.compared:,} differ"
    return text + (f"; {t.missed} beyond the smallest threshold" if t.missed else "")
