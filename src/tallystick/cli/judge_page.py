"""`tallystick judge-page`: the judge as a page, for people who have a browser and nothing else."""

from __future__ import annotations

from pathlib import Path

import click

from tallystick.cli.output import json_option, overwrite_option, print_json, say
from tallystick.commit.encoding import sha256
from tallystick.disk.files import write_file
from tallystick.disk.regular import mode_of
from tallystick.errors import UsageError
from tallystick.report.built_judge import judge_page as page_of_judge


@click.command("judge-page")
@click.option("-o", "--out", required=True, type=click.Path(path_type=Path), help="The file.")
@overwrite_option
@json_option
def judge_page(out: Path, overwrite: bool, as_json: bool) -> None:
    """Write the judge as one page that works in any browser, from a disk and without a network.

    Drop evidence and a job onto it: it judges them in the browser, and sends nothing.
    """
    page = page_of_judge()
    if mode_of(out) and not overwrite:
        raise UsageError(f"{out} exists.", "Choose another name, or pass --overwrite.")
    write_file(out, [page])
    digest = sha256(page).hex()
    if as_json:
        print_json({"page": str(out), "bytes": len(page), "sha256": digest})
    else:
        say(f"{out}: open it in a browser, and drop evidence and a job onto it.")
        say(f"SHA-256 {digest}")
