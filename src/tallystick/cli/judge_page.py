"""`tallystick judge-page`: the judge as a page, for people who have a browser and nothing else."""

from __future__ import annotations

import click

from tallystick.cli.output import json_option, print_json, say, target_file
from tallystick.commit.encoding import sha256
from tallystick.disk.files import write_file
from tallystick.report.built_judge import judge_page as page_of_judge


@click.command("judge-page")
@click.option("-o", "--out", required=True, type=click.Path(), help="Page to write.")
@json_option
def judge_page(out: str, as_json: bool) -> None:
    """Write the judge as a single HTML page that works offline in any browser.

    To use the page, open it and drop evidence and a job onto it. The page judges them in the
    browser and sends nothing. An existing file is replaced.
    """
    target, page = target_file(out, "page"), page_of_judge()
    write_file(target, [page])
    digest = sha256(page)
    if as_json:
        print_json({"page": out, "bytes": len(page), "sha256": digest})
    else:
        say(f"{out}: {len(page):,} bytes, SHA-256 {digest.hex()}")
        say("Open it in a browser, and drop evidence and a job onto it.")
