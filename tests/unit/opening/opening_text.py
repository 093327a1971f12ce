"""spec/OPENING.md as tests read it: tables, formulas, and golden calls to hold them against."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

from unit.opening.disputes import sites, some_elements
from vectors.kernel_format import Case, groups, load

from tallystick.numerics.registry import all_ops, lookup
from tallystick.opening.quantity import Site

TEXT = (Path(__file__).resolve().parents[3] / "spec" / "OPENING.md").read_text()
KINDS = {name: {a: rule.kind for a, rule in spec.attrs.items()} for name, spec in all_ops().items()}
CONTRACTS = {
    "ordered": "ordered/1-draft.1",
    "rounded": "rounded/1-draft.1;b=27",
    "bounded": "replay/1-draft.1;b=28;form=bounded",
    "published": "replay/1-draft.1;b=28;form=published;scale=binary;tau=0",
    "exact": "exact/1-draft.1;b=8",
}


# --- tables ---------------------------------------------------------------------------------------
Row = tuple[str, ...]


def tables(*head: str) -> list[list[Row]]:
    """The rows of every table whose header begins with `head`; cells without their padding."""
    found: list[list[Row]] = []
    current: list[Row] | None = None
    for line in TEXT.splitlines():
        if not line.startswith("|"):
            current = None
            continue
        cells = [c.strip().replace(r"\|", "|") for c in re.split(r"(?<!\\)\|", line)[1:-1]]
        if current is not None:
            if not set(line) <= set("|- "):
                current.append(tuple(cells))
        elif tuple(cells[: len(head)]) == head:
            current = []
            found.append(current)
    return found


def table(*head: str) -> list[Row]:
    (only,) = tables(*head)
    assert only
    return only


def code(cell: str) -> list[str]:
    """What stands in backticks."""
    return re.findall(r"`([^`]*)`", cell)


@cache
def block(clause: str) -> tuple[str, ...]:
    """The lines of the formulas that follow a clause."""
    start = TEXT.index(f"\n{clause} ")
    found = re.compile(r"```\n(.*?)```", re.S).search(TEXT, start)
    assert found is not None
    return tuple(found[1].splitlines())


# --- golden calls ---------------------------------------------------------------------------------
@cache
def cases() -> list[Case]:
    return [case for group in groups() for case in load(group, KINDS)]


@cache
def evaluated() -> tuple[tuple[Site, Case, int], ...]:
    """Element 0 of every output of every golden call, with the output's number of elements."""
    return tuple(
        (site, case, output.size)
        for case in cases()
        for site, output in sites(case.op, dict(case.attrs), case.inputs)
    )


def golden_sites(contract: str, most: int = 3, op: str = "") -> Iterator[tuple[Site, Case]]:
    """Some elements of every output that has elements, of the golden calls (of `op`)."""
    for site, case, size in evaluated():
        if size and site.op.startswith(op) and lookup(site.op).is_under(contract):
            for element in some_elements(size, most):
                yield replace(site, element=element, contract=contract), case
