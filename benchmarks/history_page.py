"""Writes docs/HISTORY.md and its plots from benchmarks/results/history.json.

    python benchmarks/history_page.py [--add [--note TEXT]] [--from-git] [--json]

`--add` appends the present results where their figures are new, and `--note` says what their
machine was. `--from-git` makes all entries anew from the committed versions of the results, and
keeps the notes. Then the page is written. Without either, only the page is written. `--json` prints
what was added.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from tallystick.errors import TallystickError
from tallystick_bench.history.entries import add_present, from_git, read_entries, write_entries
from tallystick_bench.history.page import page, plots

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--add", action="store_true", help="append the present results")
    parser.add_argument("--note", default="", help="what is to be known of their machine")
    parser.add_argument("--from-git", action="store_true", help="make all entries anew")
    parser.add_argument("--json", action="store_true", help="print the new entries as JSON")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs")
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results")
    given = parser.parse_args()
    entries = before = read_entries(given.results)
    try:
        if given.from_git:
            entries = from_git(given.results, entries)
        if given.add:
            entries = entries + add_present(given.results, entries, given.note)
    except TallystickError as error:
        parser.exit(error.exit_code, f"{error}\n")
    if given.from_git or given.add:
        write_entries(given.results, entries)
    (given.docs / "HISTORY.md").write_text(page(entries), "utf-8")
    for name, svg in plots(entries).items():
        (given.docs / "images" / name).write_text(svg, "utf-8")
    added = [entry for entry in entries if entry not in before]
    if given.json:
        print(json.dumps([asdict(entry) for entry in added], indent=1))
    else:
        print(f"{len(entries)} entries, {len(added)} of them new")


if __name__ == "__main__":
    main()
