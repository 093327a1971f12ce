"""PyTorch's own operator tests (op_db) through `tallystick.reproducible()` and `capture`.

    python benchmarks/coverage_operators.py [--only 'linalg.*'] [--jobs 2] [--json] [--out FILE]
        [--rows FILE]

An entry passes if all its float32 samples, forward and where supported backward (the gradient of
the sum of its outputs times fixed weights), lie within op_db's tolerance of float64, have the bits
of the captured program, and at least one kernel of the contract ran in the forward pass. Entries
that run none (views and factories) and entries that draw random numbers are counted apart.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
sys.path.insert(0, str(Path(__file__).parent))
import torch
from rich.console import Console
from rich.table import Table

from tallystick_bench.opdb.entries import name_of, op_db
from tallystick_bench.opdb.pool import run
from tallystick_bench.opdb.verdict import VERDICTS, Verdict, summary

TARGET = 0.60


def share(found: list[Verdict]) -> float:
    """The passing entries among all that are neither random nor views nor factories."""
    counts = summary(found)
    rest = len(found) - counts["view-or-factory"] - counts["random"]
    return counts["pass"] / rest if rest else 0.0


def refusals(found: list[Verdict]) -> list[tuple[str, int]]:
    """Each refused operator and the number of entries that it stops, the most first."""
    counts = Counter(name for v in found if v.verdict == "refused" for name in v.refused)
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def report_of(found: list[Verdict]) -> dict[str, Any]:
    """The object of `--json` and `--out`."""
    return {
        "bench": "coverage_operators",
        "torch": torch.__version__,
        "entries": len(found),
        "counts": summary(found),
        "share": share(found),
        "refused": refusals(found),
        "rows": [v.as_json() for v in sorted(found, key=lambda v: v.name)],
    }


def text_of(report: dict[str, Any]) -> str:
    """The report as JSON, a row of the table on each line."""
    head = json.dumps({k: v for k, v in report.items() if k != "rows"})
    rows = ",\n".join(json.dumps(row) for row in report["rows"])
    return f'{head[:-1]}, "rows": [\n{rows}\n]}}\n'


def show(found: list[Verdict], console: Console) -> None:
    """Every entry that does not pass, then how many there are of each verdict."""
    table = Table("entry", "verdict", "samples", "why", title="op_db, float32, CPU")
    for v in sorted(found, key=lambda v: (VERDICTS.index(v.verdict), v.name)):
        if v.verdict != "pass":
            table.add_row(v.name, v.verdict, f"{v.passed}/{v.samples}", v.why[:160])
    console.print(table)
    counts = summary(found)
    console.print("  ".join(f"{verdict} {counts[verdict]}" for verdict in reversed(VERDICTS)))
    console.print(f"{share(found):.1%} of the entries that compute pass (target {TARGET:.0%})")


def rows_in(file: Path | None) -> dict[str, Verdict]:
    """The verdicts of an earlier run, by the entry's name."""
    lines = file.read_text().splitlines() if file and file.exists() else []
    return {v.name: v for v in (Verdict(**json.loads(line)) for line in lines)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", action="append", default=[], help="an entry, or a pattern")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--seconds", type=float, default=120.0, help="processor time of an entry")
    parser.add_argument("--samples", type=int, help="at most so many samples of an entry")
    parser.add_argument("--out", type=Path, help="write the results here as JSON")
    parser.add_argument(
        "--rows",
        type=Path,
        help="each verdict is added to this file, as JSON; entries there are not run again",
    )
    args = parser.parse_args()
    known = op_db()
    chosen = [
        entry
        for entry in known
        if not args.only or any(fnmatch.fnmatch(name_of(entry), p) for p in args.only)
    ]
    if not chosen:
        print("No entry has such a name.", file=sys.stderr)
        return 3
    console = Console(stderr=args.json)
    kept = rows_in(args.rows)
    found = [kept[name_of(entry)] for entry in chosen if name_of(entry) in kept]
    chosen = [entry for entry in chosen if name_of(entry) not in kept]
    for verdict in run(chosen, args.jobs, args.seconds, args.samples):
        found.append(verdict)
        if args.rows:
            with args.rows.open("a") as file:
                file.write(json.dumps(verdict.as_json()) + "\n")
        if console.is_terminal or verdict.verdict in ("wrong", "error", "time"):
            console.print(f"{verdict.name}: {verdict.verdict} {verdict.why[:200]}", markup=False)
    report = report_of(found)
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(text_of(report))
    if args.json:
        print(json.dumps(report))
    else:
        show(found, console)
    return 1 if report["counts"]["wrong"] or report["counts"]["error"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
