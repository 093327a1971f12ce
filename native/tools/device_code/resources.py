"""What ptxas says about each kernel, and the table of it (docs/proofs/ptxas.md)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

_KERNEL = re.compile(r"Compiling entry function '(\w+)'")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers(.*)")
_SHARED = re.compile(r"(\d+) bytes smem")
# Kernels that must not spill: most of a step's time is theirs.
PRODUCTS = ("gemm", "conv", "digits")


@dataclass
class Resources:
    """Of one kernel on one architecture; bytes. `spilled` counts stores and loads, those of
    functions that it calls too."""

    registers: int = 0
    shared: int = 0
    stack: int = 0
    spilled: int = 0


def parse(said: str) -> dict[str, Resources]:
    """The kernels in what `ptxas -v` printed."""
    found: dict[str, Resources] = {}
    kernel = Resources()
    for line in said.splitlines():
        if match := _KERNEL.search(line):
            kernel = found[match[1]] = Resources()
        elif match := _STACK.search(line):
            kernel.stack = max(kernel.stack, int(match[1]))
            kernel.spilled += int(match[2]) + int(match[3])
        elif match := _USED.search(line):
            kernel.registers = int(match[1])
            shared = _SHARED.search(match[2])
            kernel.shared = int(shared[1]) if shared else 0
    return found


def spills(found: Mapping[str, Resources], products: tuple[str, ...] = PRODUCTS) -> list[str]:
    """The product kernels that spill."""
    return [
        f"{name} spills {r.spilled} bytes"
        for name, r in found.items()
        if name.startswith(products) and r.spilled
    ]


@dataclass(frozen=True)
class Row:
    """A kernel in the table; `by` in the order of the architectures."""

    kernel: str
    fmas: int
    by: tuple[Resources, ...]


def _numbers(values: Iterable[int]) -> str:
    values = list(values)
    return str(values[0]) if len(set(values)) == 1 else " / ".join(map(str, values))


def table(rows: Iterable[Row]) -> str:
    """Markdown; where the architectures differ, their numbers with slashes between them."""
    lines = ["| kernel | fma | registers | shared | stack | spilled |", "|---|---|---|---|---|---|"]
    for row in sorted(rows, key=lambda row: row.kernel):
        columns = [
            _numbers(getattr(r, name) for r in row.by)
            for name in ("registers", "shared", "stack", "spilled")
        ]
        lines.append(f"| `{row.kernel}` | {row.fmas} | {' | '.join(columns)} |")
    return "\n".join(lines) + "\n"


def listed(page: str) -> set[str]:
    """The kernels in a table that `table` made."""
    return set(re.findall(r"^\| `(\w+)` \|", page, re.M))


def merged(page: str, old: str, kept: Callable[[str], bool]) -> str:
    """`page` with the rows of `old` whose kernels it lacks and `kept` wants."""
    rows = {line.split("`")[1]: line for line in old.splitlines() if line.startswith("| `")}
    new = {line.split("`")[1]: line for line in page.splitlines() if line.startswith("| `")}
    every = {k: line for k, line in rows.items() if kept(k)} | new
    head = [line for line in page.splitlines() if not line.startswith("| `")]
    return "\n".join([*head, *(every[kernel] for kernel in sorted(every))]) + "\n"
