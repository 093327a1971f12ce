"""Rows of Verde's Tables 1 and 2 and Figure 3."""

from __future__ import annotations

import statistics
from typing import Any

from tallystick_bench.ovt.results.store import PartFile
from tallystick_bench.paper.results.ovt_rows import Parts
from tallystick_bench.paper.results.published import FIGURE_3, SMALL_PRODUCT, VERDE
from tallystick_bench.paper.results.row import Row, hardware

NAMES = {
    "ordered": "ordered/1",
    "exact-b22": "exact/1 b=22",
    "exact-b15": "exact/1 b=15",
    "exact-b8": "exact/1 b=8",
    "rounded": "rounded/1",
}


def whole(part: PartFile, contract: str) -> dict[str, Any] | None:
    """Seconds of the whole model under a contract: its pieces' medians, each times its number.

    None where a piece is not measured yet.
    """
    totals, loads = {"ours": 0.0, "plain": 0.0}, []
    for name, words in part.about["pieces"].items():
        entry = part.entries.get(f"{name}.{contract}")
        if entry is None:
            return None
        times = float(words.split(" × ")[0])
        for side in totals:
            totals[side] += times * statistics.median(entry["seconds"][side])
        loads += [x for x in entry["load"] if x is not None]
    return {**totals, "load": loads}


def models(parts: Parts) -> list[Row]:
    """Overheads of inference and training."""
    found = []
    for (kind, name), part in parts.items():
        if kind != "verde":
            continue
        model, _, task = name.partition(".")
        theirs = VERDE.get((model, task), {})
        for contract, words in NAMES.items():
            sums = whole(part, contract)
            if sums is None:
                continue
            pieces = "; ".join(part.about["pieces"].values())
            for gpu, overhead in theirs.items() or {"": None}.items():
                found.append(
                    Row(
                        "verde-tables", f"{model}, {task}, {words}",
                        sums["ours"] / sums["plain"] - 1, "overhead",
                        f"{pieces}; batch {part.about['batch']}; {part.about['optimizer']}",
                        str(part.about["repeats"]), hardware(part, sums["load"]), overhead, gpu,
                        True, more={"seconds": sums["ours"], "plain_seconds": sums["plain"]},
                    )
                )  # fmt: skip
    return found


def products(parts: Parts) -> list[Row]:
    """Overheads of square products, over the least of torch's medians at a dimension: its threads
    sometimes wait for ours, which flatters us."""
    part = parts.get(("products", "square"))
    found = []
    least: dict[str, float] = {}
    for key, entry in (part.entries if part else {}).items():
        n = key.partition(".")[2]
        least[n] = min(entry["plain"], least.get(n, entry["plain"]))
    for key, entry in (part.entries if part else {}).items():
        assert part is not None
        contract, _, n = key.partition(".")
        theirs, gpu = (SMALL_PRODUCT, "T4, RTX 3090") if int(n) == 256 else (None, "")
        if int(n) > 1024:
            theirs, gpu = FIGURE_3["T4"][0], "T4 (RTX 3090: 60 to 70 %)"
        more = {k: entry[k] for k in ("seconds", "plain", "error", "plain_error") if k in entry}
        found.append(
            Row(
                "verde-figure-3", f"{n}³, {NAMES[contract]}",
                entry["seconds"] / least[n] - 1, "overhead",
                f"{n} × {n} × {n}", str(part.about["repeats"]), hardware(part, entry["load"]),
                theirs, gpu, True, more=more,
            )
        )  # fmt: skip
    return found


def rows(parts: Parts) -> list[Row]:
    """All rows beside Verde."""
    return models(parts) + products(parts)
