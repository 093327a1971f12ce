"""All cases, and the table made from their rows."""

from __future__ import annotations

import importlib.util
import re
from collections import Counter, defaultdict
from typing import Any

from rich.console import Console
from rich.table import Table

from tallystick_bench.coverage import (
    activations,
    diffusion,
    hf_other,
    hf_text,
    image_nets,
    layers,
    losses,
    nets,
    peft_methods,
)
from tallystick_bench.coverage.case import Case

_SOURCES = (
    ("transformers", hf_text.cases),
    ("transformers", hf_other.cases),
    ("peft", peft_methods.cases),
    ("diffusers", diffusion.cases),
    ("torch", image_nets.cases),
    ("torch", nets.cases),
    ("torch", layers.cases),
    ("torch", activations.cases),
    ("torch", losses.cases),
)
_MISSING = re.compile(
    r"((?:aten|tallystick|prims|torch)\.[\w.]+?)(?: with [^()]*?)? (?:is not|needs)"
)
_COLOURS = {"captured": "green", "refused": "yellow"}


def all_cases() -> tuple[list[Case], list[str]]:
    """Every case whose library is here, and the absent libraries."""
    found: list[Case] = []
    absent: list[str] = []
    for library, cases in _SOURCES:
        if importlib.util.find_spec(library) is None:
            absent.append(library)
        else:
            found += cases()
    return found, sorted(set(absent))


def missing_operators(rows: list[dict[str, Any]]) -> list[tuple[str, int, str]]:
    """ATen operators that refusals name: with the number of rows, and one of them; most first."""
    count: Counter[str] = Counter()
    where: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        if row["status"] == "refused":
            for name in sorted(set(_MISSING.findall(row["why"]))):
                count[name] += 1
                where[name].append(row["name"])
    return [(name, n, where[name][0]) for name, n in count.most_common()]


def show(rows: list[dict[str, Any]], absent: list[str]) -> None:
    """The rows, the totals, and the operators that are missing."""
    table = Table("family", "name", "status", "nodes", "capture s", "loss error", "float32's",
                  "gradient / bound", "why")  # fmt: skip
    for row in rows:
        status = row["status"]
        colour = _COLOURS.get(status, "red")
        why = (row.get("why") or "").strip().splitlines()
        table.add_row(
            row["family"],
            row["name"],
            f"[{colour}]{status}[/]",
            str(row.get("nodes", "")),
            f"{row['seconds']:.1f}" if "seconds" in row else "",
            f"{row['loss_error']:.1e}" if "loss_error" in row else "",
            f"{row['float32_error']:.1e}" if "float32_error" in row else "",
            f"{row['gradient_of_bound']:.2f}" if "gradient_of_bound" in row else "",
            why[0].replace("[", "\\[") if why else "",
        )
    console = Console(width=None if Console().is_terminal else 200)
    console.print(table)
    totals = Counter(row["status"] for row in rows)
    parts = ", ".join(f"{n} {status}" for status, n in totals.most_common())
    console.print(f"{len(rows)} rows: {parts}.")
    if absent:
        console.print(f"Left out, because absent: {', '.join(absent)}.")
    for name, n, row_name in missing_operators(rows):
        console.print(f"  {name}: {n} rows, e.g. {row_name}")
