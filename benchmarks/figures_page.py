"""Writes docs/FIGURES.md from benchmarks/results.

    python benchmarks/figures_page.py [--docs docs] [--results benchmarks/results]

`figures.json` has the rows. A name in braces stands for a number that is computed here from the raw
results beside it, so the page cannot say otherwise than they do. Every other figure was recorded
from the command that stands in its row.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from string import Formatter
from typing import Any

from tallystick_bench.ovt.results.rows import rows_of
from tallystick_bench.ovt.results.store import read_all

ROOT = Path(__file__).resolve().parents[1]
HEAD = """# Figures

*Written by `benchmarks/figures_page.py` from `benchmarks/results/`; do not edit.*

Timings are of virtual machines with 2 cores (AMD EPYC, Intel Xeon) and torch 2.13.0; a record names
its own machine. The last column has the command that repeats the measurement, in a clone. What was
predicted, tried and dropped is in [the notes](../benchmarks/NOTES.md), and what was measured before
in [Figures over time](HISTORY.md).

None of these figures is from a GPU. Every operator has a CUDA kernel under `ordered/1`,
`rounded/1`, `exact/1` and the bounded form of `replay/1` ([GPU](GPU.md)), and `--device cuda` uses
them, but no GPU was to be had for this project yet. What is shown: the kernels' sources run in an
emulation and give every golden vector and the golden run roots, and the compiled code is read for
anything that could round otherwise. `make gpu-check` is the check for a machine with a GPU.
"""


class _Numbers(Formatter):
    """Names in braces may contain any character but a colon and braces."""

    def __init__(self, numbers: dict[str, float]) -> None:
        self._numbers = numbers

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> tuple[float, str]:
        return self._numbers[field_name], field_name

    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec != "MB":
            return format(value, format_spec)
        megabytes = value / 1e6
        return f"{megabytes:.2f} MB" if megabytes < 10 else f"{megabytes:.0f} MB"


def numbers(results: Path) -> dict[str, float]:
    """Every number that a row may name."""
    found = {str(row["name"]): row["value"] for row in rows_of(read_all(results / "ovt"))}
    models = json.loads((results / "coverage.json").read_text("utf-8"))
    status = Counter(row["status"] for row in models)
    causal = sum(row["family"] == "transformers causal" for row in models)
    found |= {"coverage/rows": len(models), "coverage/causal": causal}
    found |= {f"coverage/{name}": status[name] for name in ("captured", "wrong", "refused")}
    found["coverage/broken"] = status["broken"]
    answers = json.loads((results / "answers.json").read_text("utf-8"))
    found |= {f"answers/{case['case']}/ratio": case["ratio"] for case in answers["cases"]}
    return found


def page(results: Path) -> str:
    """The page, whole."""
    fill = _Numbers(numbers(results)).vformat
    lines = [HEAD]
    for group in json.loads((results / "figures.json").read_text("utf-8"))["groups"]:
        lines += [f"## {group['title']}\n", "| measurement | figure | command |", "|---|---|---|"]
        for row in group["rows"]:
            cells = [fill(row[name], (), {}) for name in ("measurement", "figure")]
            lines.append(f"| {cells[0]} | {cells[1]} | {row['command']} |")
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--docs", type=Path, default=ROOT / "docs")
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results")
    given = parser.parse_args()
    (given.docs / "FIGURES.md").write_text(page(given.results), "utf-8")


if __name__ == "__main__":
    main()
