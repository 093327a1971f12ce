"""From the raw results of `bench ovt` to its rows, with targets and the paper's figures.

A row's name ends in the kind of its value (DESIGN 9): `ovt/gpt2-124m/log/bounded_bytes`.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from typing import Any

from tallystick_bench.ovt.results import paper
from tallystick_bench.ovt.results.store import PartFile

Row = dict[str, Any]
EXACT_ARMS = ("published", "bounded", "rounded")
BITS_TARGET, BOUNDED_TARGET, BOUNDED_AIM = 1.6, 1 / 100, 1 / 200
TIME_TARGETS = {
    "trainer": 1.2,
    "auditor": 1.2,
    "published-trainer": 1.2,
    "published-auditor": 1.2,
    "rounded": 1.3,
}
TIME_AIM, MEMORY_TARGET = 1.05, 1.3
FORMS = ("naive", "packed", "zstd", "bounded")
# The entries to which a part compares all others. A measurement may be cut off before them.
_BASES = {"storage": "classes", "memory": "float64"}


def row(name: str, value: float, unit: str, target: float | None = None, **more: Any) -> Row:
    """One row; `more` stands beside the value."""
    return {"name": f"ovt/{name}", "value": value, "unit": unit, "target": target, **more}


def can_show(part: PartFile) -> bool:
    """True if the results so far are enough for rows, a table and a plot."""
    return bool(part.entries) and _BASES.get(part.part, next(iter(part.entries))) in part.entries


def first_apart(l2: list[float]) -> int | None:
    """The first step after which the weights differ; None if they never do."""
    return next((step for step, d in enumerate(l2) if d > 0), None)


def divergence_rows(part: PartFile) -> list[Row]:
    """For every arm and pair: the last distance, or the largest where it must be 0."""
    found = []
    for arm, entry in part.entries.items():
        for pair, data in entry["pairs"].items():
            exact = arm in EXACT_ARMS
            more = (
                {"corrections": sum(data["forward"] + data["backward"])} if data["forward"] else {}
            )
            found.append(
                row(
                    f"{part.model}/divergence/{arm}/{pair}/{'max_l2' if exact else 'final_l2'}",
                    max(data["l2"]) if exact else data["l2"][-1],
                    "l2",
                    0.0 if exact else None,
                    steps=len(data["l2"]),
                    equal_steps=data["equal"],
                    first_step_apart=first_apart(data["l2"]),
                    **more,
                )
            )
    return found


def totals(part: PartFile) -> dict[str, int]:
    """Bytes of a step's log in each form that was measured."""
    classes = part.entries["classes"].values()
    return {
        form: sum(c.get(form, 0) for c in classes)
        for form in FORMS
        if any(form in c for c in classes)
    }


def storage_rows(part: PartFile) -> list[Row]:
    """Bytes of one step's log in every form, by operator class, and against the targets."""
    sums, classes = totals(part), part.entries["classes"]
    theirs = paper.TABLE_2[paper.family(part.model)]
    found = [
        row(
            f"{part.model}/log/{form}_bytes",
            value,
            "bytes",
            anchor=theirs.get(form),
            classes={name: c[form] for name, c in classes.items() if form in c},
        )
        for form, value in sums.items()
    ]
    found.append(row(f"{part.model}/log/rounded_bytes", 0, "bytes", 0.0))
    weights = part.entries["weights"]
    found.append(
        row(
            f"{part.model}/log/weights_bytes",
            weights["bytes"],
            "bytes",
            anchor=paper.WEIGHTS.get(paper.family(part.model)),
            state_bytes=weights["state_bytes"],
        )
    )
    # Exactly 1.6 but for the last byte of each section.
    bits = round(8 * sums["packed"] / sums["naive"], 3)
    found.append(row(f"{part.model}/log/packed_bits_per_entry", bits, "bits", BITS_TARGET))
    if "bounded" in sums:
        found.append(
            row(
                f"{part.model}/log/bounded_to_packed_ratio",
                sums["bounded"] / sums["packed"],
                "ratio",
                BOUNDED_TARGET,
                aim=BOUNDED_AIM,
                of_rounded_operators=part.entries["rounded_ratio"],
            )
        )
    return found


def corrections_of(part: PartFile, bits: int, direction: str) -> list[int]:
    """Corrections of every step of every pair that was measured with `bits`."""
    entry = part.entries.get(f"b{bits}", {"pairs": {}})
    return [count for pair in entry["pairs"].values() for count in pair[direction]]


def corrections_rows(part: PartFile) -> list[Row]:
    """Corrections a step for each number of bits, beside the paper's Table 3."""
    found = []
    for position, bits in enumerate(paper.BITS):
        entry = part.entries.get(f"b{bits}")
        if entry is None:
            continue
        for direction in ("forward", "backward"):
            counts = corrections_of(part, bits, direction)
            found.append(
                row(
                    f"{part.model}/corrections/b{bits}/{direction}_per_step",
                    statistics.fmean(counts),
                    "corrections",
                    anchor=paper.TABLE_3[paper.family(part.model)][direction][position][0],
                    deviation=statistics.pstdev(counts),
                    steps=len(counts),
                    entries=entry["entries"],
                )
            )
    return found


def thresholds_rows(part: PartFile) -> list[Row]:
    """Calibrated thresholds in units of 2^-23, beside the paper's Table 4."""
    return [
        row(
            f"thresholds/{layer}/{name}",
            entry[name],
            "2^-23",
            anchor=paper.TABLE_4.get(layer),
            disagreements=entry["disagreements"],
            elements=entry["elements"],
        )
        for layer, entry in part.entries.items()
        for name in ("tau", "tau_decimal")
    ]


def escalation_rows(part: PartFile) -> list[Row]:
    """The share of `rounded/1`'s elements that are summed exactly, and its cost."""
    found = []
    for key, entry in part.entries.items():
        elements = sum(c["elements"] for c in entry["classes"].values())
        escalated = sum(c["escalated"] for c in entry["classes"].values())
        found += [
            row(
                f"{part.model}/escalation/{key}/share",
                escalated / elements,
                "of the elements",
                classes={n: c["escalated"] / c["elements"] for n, c in entry["classes"].items()},
            ),
            row(
                f"{part.model}/escalation/{key}/time_share",
                entry["exact_seconds"] / entry["seconds"],
                "of the step",
            ),
        ]
    return found


def time_rows(part: PartFile) -> list[Row]:
    """Median seconds of a step of each side over those of a plain float64 torch step.

    The float64 step took its turns with the sides of its group.
    """
    theirs = paper.TABLE_5[paper.family(part.model)]
    published = {
        "published-trainer": theirs[1] / theirs[0],
        "published-auditor": theirs[2] / theirs[0],
    }
    found = []
    for entry in part.entries.values():
        medians = {side: statistics.median(values) for side, values in entry["seconds"].items()}
        anchor = medians.pop("float64")
        for side, seconds in medians.items():
            found.append(
                row(
                    f"{part.model}/time/{side}_ratio",
                    seconds / anchor,
                    "ratio",
                    TIME_TARGETS.get(side),
                    aim=TIME_AIM if side in TIME_TARGETS else None,
                    seconds=seconds,
                    anchor="torch eager float64, the same step in the same process",
                    anchor_seconds=anchor,
                    paper=published.get(side),
                    repeats=len(entry["seconds"][side]),
                    load=entry["load"],
                )
            )
    return found


def memory_rows(part: PartFile) -> list[Row]:
    """Peak resident memory of each side over that of a plain float64 torch step."""
    anchor = part.entries["float64"]["peak"]
    return [
        row(
            f"{part.model}/memory/{side}_ratio",
            entry["peak"] / anchor,
            "ratio",
            MEMORY_TARGET if side in TIME_TARGETS else None,
            bytes=entry["peak"],
            anchor="torch eager float64, a process of its own",
            anchor_bytes=anchor,
        )
        for side, entry in part.entries.items()
        if side != "float64"
    ]


ROWS: dict[str, Callable[[PartFile], list[Row]]] = {
    "divergence": divergence_rows,
    "storage": storage_rows,
    "corrections": corrections_rows,
    "thresholds": thresholds_rows,
    "escalation": escalation_rows,
    "time": time_rows,
    "memory": memory_rows,
}
PARTS = tuple(ROWS)


def rows_of(parts: Mapping[tuple[str, str], PartFile]) -> list[Row]:
    """All rows that the results give, part by part."""
    return [
        made
        for name, make in ROWS.items()
        for (part, _), found in parts.items()
        if part == name and can_show(found)
        for made in make(found)
    ]
