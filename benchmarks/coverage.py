"""Which models, losses and layers capture takes: a table, each row in a process of its own.

    python benchmarks/coverage.py [--json] [--only TEXT] [--skip-slow] [--jobs 2] [--rows FILE]

A row is captured where five steps' losses and the first step's gradients lie within float32's own
error of torch in float64: |ours - float64| <= 8 * |torch float32 - float64| + a floor, which
`tallystick_bench/coverage/measure.py` states. A row whose library is absent is left out.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from tallystick_bench.apart import in_a_process, load_first
from tallystick_bench.coverage.case import Case
from tallystick_bench.coverage.table import all_cases, missing_operators, show

LIMIT_S = 240.0


def in_its_process(case: Case) -> dict[str, Any]:
    """The case's row; a crash or a run over the limit makes a row too."""
    from tallystick_bench.coverage.measure import measure

    return in_a_process(
        lambda: measure(case), {"family": case.family, "name": case.name}, LIMIT_S
    )  # fmt: skip


def rows(cases: list[Case], jobs: int) -> Iterator[dict[str, Any]]:
    """The rows in the cases' order, as they are done."""
    importlib.import_module("tallystick_bench.coverage.measure")
    load_first({case.needs for case in cases})
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(in_its_process, cases)


def _captured_in(file: Path | None) -> dict[str, dict[str, Any]]:
    """The captured rows of an earlier run that was cut, by title."""
    lines = file.read_text().splitlines() if file and file.exists() else []
    found = [json.loads(line) for line in lines]
    return {f"{r['family']}: {r['name']}": r for r in found if r["status"] == "captured"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", default="", help="rows whose family or name contains this")
    parser.add_argument("--skip-slow", action="store_true")
    parser.add_argument("--jobs", type=int, default=1, help="rows measured at a time")
    parser.add_argument(
        "--rows",
        type=Path,
        help="each row is added to this file, as JSON; rows captured there are taken over",
    )
    args = parser.parse_args()
    chosen, absent = all_cases()
    chosen = [c for c in chosen if args.only in c.title and not (args.skip_slow and c.slow)]
    torch.set_num_threads(1)
    kept = _captured_in(args.rows)
    found = [kept[c.title] for c in chosen if c.title in kept]
    for row in rows([c for c in chosen if c.title not in kept], args.jobs):
        found.append(row)
        if args.rows:
            with args.rows.open("a") as file:
                file.write(json.dumps(row) + "\n")
        print(f"{len(found)}/{len(chosen)} {row['family']}: {row['name']}: {row['status']} "
              f"({row['total_s']:.1f} s)",
              file=sys.stderr, flush=True)  # fmt: skip
    totals = Counter(row["status"] for row in found)
    if args.json:
        print(json.dumps({"bench": "coverage", "torch": torch.__version__, "totals": totals,
                          "absent": absent, "rows": found,
                          "missing": missing_operators(found)}, indent=1))  # fmt: skip
    else:
        show(found, absent)
    return 1 if totals["wrong"] or totals["crashed"] or totals["broken"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
