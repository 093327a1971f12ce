"""The tables of `docs/OVT.md` as Markdown, from raw results."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from tallystick_bench.ovt.classes import CLASSES, PLACES
from tallystick_bench.ovt.results import paper
from tallystick_bench.ovt.results.plots import ARMS
from tallystick_bench.ovt.results.rows import (
    EXACT_ARMS,
    TIME_TARGETS,
    corrections_of,
    first_apart,
    totals,
)
from tallystick_bench.ovt.results.store import PartFile

_FORMS = {
    "naive": "naive (a byte an entry)",
    "packed": "packed (five to a byte)",
    "zstd": "packed + zstd",
    "bounded": "bounded",
}


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A Markdown table; every cell as given."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def megabytes(value: float | None) -> str:
    """Bytes as megabytes with three digits; a dash for none."""
    if value is None:
        return "–"
    return f"{value / 1e6:,.0f} MB" if value >= 1e8 else f"{value / 1e6:.3g} MB"


def divergence(part: PartFile) -> str:
    """Arm by pair: the step at which the weights part, their last distance, corrections."""
    lines = []
    for arm, (label, _) in ARMS.items():
        for pair, data in part.entries.get(arm, {"pairs": {}})["pairs"].items():
            apart = first_apart(data["l2"])
            corrections = data["forward"] and sum(data["forward"] + data["backward"])
            lines.append(
                (
                    label,
                    pair.replace("|", " → " if arm in ("published", "bounded") else " and "),
                    "never" if apart is None else f"step {apart + 1}",
                    "**0**" if max(data["l2"]) == 0 else f"{data['l2'][-1]:.3g}",
                    f"{data['equal']} of {len(data['l2'])}",
                    corrections if arm in EXACT_ARMS and data["forward"] else "–",
                )
            )
    head = ("arm", "pair", "apart since", "distance at the end", "steps with equal states",
            "roundings corrected")  # fmt: skip
    return table(head, lines)


def storage(part: PartFile) -> str:
    """Bytes of a step's log, by form, beside the paper's; and the part that the paper logs too."""
    theirs, sums = paper.TABLE_2[paper.family(part.model)], totals(part)
    weights, where = part.entries["weights"], part.entries["places"]
    lines = [
        (
            _FORMS[form],
            megabytes(value),
            megabytes(sum(where[place].get(form, 0) for place in PLACES[:2] if place in where)),
            megabytes(theirs.get(form)),
            f"{value / sums['packed']:.3g}",
        )
        for form, value in sums.items()
    ]
    lines.append(("`rounded/1`", "0", "0", "–", "0"))
    lines.append(
        (
            "weights of the step",
            megabytes(weights["bytes"]),
            "–",
            megabytes(paper.WEIGHTS.get(paper.family(part.model))),
            f"{weights['bytes'] / sums['packed']:.3g}",
        )
    )
    head = ("form", "bytes a step", "forward and input gradients", "the paper", "of packed")
    return table(head, lines)


def storage_classes(part: PartFile) -> str:
    """The same by operator class, and by place in the step."""
    sums = totals(part)
    lines = []
    for kind, names in (("classes", CLASSES), ("places", PLACES)):
        for name in names:
            found = part.entries[kind].get(name)
            if found is not None:
                lines.append((name, *(megabytes(found[f]) if f in found else "–" for f in sums)))
        if kind == "classes":
            lines.append(("**all**", *(f"**{megabytes(v)}**" for v in sums.values())))
    return table(("operators / place", *(_FORMS[form] for form in sums)), lines)


def corrections(part: PartFile) -> str:
    """Corrections a step for each number of bits kept, ours and the paper's."""
    lines = []
    for direction in ("forward", "backward"):
        mine, theirs = [], []
        for position, bits in enumerate(paper.BITS):
            counts = corrections_of(part, bits, direction)
            mine.append(
                f"{statistics.fmean(counts):.3g} ± {statistics.pstdev(counts):.2g}"
                if counts
                else "–"
            )
            mean, deviation = paper.TABLE_3[paper.family(part.model)][direction][position]
            theirs.append(f"{mean:g}" + (f" ± {deviation:g}" if deviation is not None else ""))
        lines.append((f"{direction}, here", *mine))
        lines.append((f"{direction}, the paper", *theirs))
    return table(("corrections a step", *(f"b = {bits}" for bits in paper.BITS)), lines)


def thresholds(part: PartFile) -> str:
    """Thresholds of Algorithm 4 beside the paper's Table 4."""
    return table(
        (
            "layer",
            "shape",
            "τ by powers of two, in 2⁻²³",
            "by powers of ten",
            "the paper",
            "elements rounded apart",
        ),
        (
            (
                layer.replace("_", " "),
                entry["shape"],
                f"{entry['tau']:.6f}",
                f"{entry['tau_decimal']:.6f}",
                paper.TABLE_4.get(layer, "–"),
                f"{entry['disagreements']} of {entry['elements']:,}",
            )
            for layer, entry in part.entries.items()
        ),
    )


def escalation(part: PartFile) -> str:
    """Elements that `rounded/1` sums exactly, by operator class, and the time that takes."""
    lines = []
    for key, entry in part.entries.items():
        for name, c in entry["classes"].items():
            share = c["escalated"] / c["elements"] if c["elements"] else 0.0
            lines.append((key, name, f"{c['elements']:,}", f"{c['escalated']:,}", f"{share:.2e}"))
        lines.append(
            (
                key,
                "time of the exact sums",
                f"{entry['exact_seconds']:.3g} s",
                f"of {entry['seconds']:.3g} s",
                f"{entry['exact_seconds'] / entry['seconds']:.1%}",
            )
        )
    return table(("contract", "operators", "elements", "summed exactly", "share"), lines)


def times(part: PartFile) -> str:
    """Median seconds of a step by side, each beside the float64 steps of its group."""
    lines = []
    for entry in part.entries.values():
        medians = {side: statistics.median(values) for side, values in entry["seconds"].items()}
        for side, value in medians.items():
            lines.append(
                (
                    "plain float64" if side == "float64" else side.replace("-", ", "),
                    f"{value:.3f}",
                    f"{min(entry['seconds'][side]):.3f}",
                    f"{value / medians['float64']:.3f}",
                    TIME_TARGETS.get(side, "–"),
                )
            )
    return table(("side", "median seconds", "least", "over plain float64", "target"), lines)


def memory(part: PartFile) -> str:
    """Peak resident memory by side."""
    anchor = part.entries["float64"]["peak"]
    return table(
        ("side", "peak", "over plain float64"),
        (
            (side, megabytes(entry["peak"]), f"{entry['peak'] / anchor:.3f}")
            for side, entry in part.entries.items()
        ),
    )


TABLES = {
    "divergence": (divergence,),
    "storage": (storage, storage_classes),
    "corrections": (corrections,),
    "thresholds": (thresholds,),
    "escalation": (escalation,),
    "time": (times,),
    "memory": (memory,),
}
