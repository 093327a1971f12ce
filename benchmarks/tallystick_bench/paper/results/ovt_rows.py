"""Rows of OVT's Tables 1 to 5 and Figure 5, most from `bench ovt`'s raw results."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from tallystick_bench.ovt.classes import PLACES
from tallystick_bench.ovt.results import paper
from tallystick_bench.ovt.results.rows import EXACT_ARMS, corrections_of, totals
from tallystick_bench.ovt.results.store import PartFile
from tallystick_bench.paper.results.published import OVT_GPUS
from tallystick_bench.paper.results.row import Machine, Row, hardware

Parts = Mapping[tuple[str, str], PartFile]
# The places in the step whose outputs OVT logs.
_LOGGED = PLACES[:2]


def size(part: PartFile) -> str:
    """The model in words."""
    settings = part.about.get("settings", {})
    keys = ("size", "n_layer", "n_embd", "blocks", "width", "batch_size", "block_size")
    words = ", ".join(f"{k}={settings[k]}" for k in keys if k in settings)
    return f"{part.model} ({words}; {part.about.get('data', 'random')})"


def table_1(parts: Parts) -> list[Row]:
    """Sums in two orders that are apart, before and after a rounding."""
    part = parts.get(("rounding", "sums"))
    found = []
    for name, entry in (part.entries if part else {}).items():
        for key, words in (("apart", "before"), ("apart_after_rounding", "after the rounding")):
            found.append(
                Row(
                    "ovt-table-1", f"{name}, sums apart {words}",
                    entry[key] / entry["triples"], "of the sums",
                    f"{entry['triples']:,} sums of three", "1", Machine("any of IEEE-754"),
                    None, "an example",
                    more={"erased": entry["erased"], "survives": entry["survives"]},
                )
            )  # fmt: skip
    return found


def table_2(parts: Parts) -> list[Row]:
    """Bytes of one step's log."""
    found = []
    for (_, model), part in parts.items():
        if part.part != "storage" or part.bench != "ovt" or "classes" not in part.entries:
            continue
        theirs, where = paper.TABLE_2[paper.family(model)], part.entries["places"]
        for form in totals(part):
            both = sum(where[place].get(form, 0) for place in _LOGGED if place in where)
            inside = f"{model}, {form}: layer outputs and input gradients"
            found.append(_stored(inside, both, part, theirs.get(form)))
            whole = f"{model}, {form}: all that is logged here"
            found.append(_stored(whole, totals(part)[form], part, None))
        found.append(_stored(f"{model}, rounded/1, ordered/1, exact/1", 0, part, None))
    return found


def _stored(name: str, value: float, part: PartFile, published: float | None) -> Row:
    steps = str(part.about.get("steps logged", part.about.get("steps")))
    return Row(
        "ovt-table-2", name, value, "bytes", size(part), steps, hardware(part), published,
        OVT_GPUS if published is not None else "", True,
    )  # fmt: skip


def zipped(parts: Parts) -> list[Row]:
    """Zipped bytes of a step's published log at b = 32 and 26, by thresholds."""
    found = []
    for (_, model), part in parts.items():
        if part.part != "storage" or part.bench != "paper":
            continue
        theirs = paper.TABLE_2[paper.family(model)]
        for key, places in part.entries.items():
            value = sum(places[place]["zstd"] for place in _LOGGED if place in places)
            published = theirs["zstd" if key.startswith("b32") else "zstd_b26"]
            words = "thresholds near one half" if key.endswith("calibrated") else "least thresholds"
            name = f"{model}, b = {key[1:3]} zipped, {words}: layer outputs and input gradients"
            found.append(_stored(name, value, part, published))
    return found


def table_3(parts: Parts) -> list[Row]:
    """Corrections of an auditor in a step, by bits."""
    found = []
    for (_, model), part in parts.items():
        if part.part != "corrections":
            continue
        for direction in ("forward", "backward"):
            for position, bits in enumerate(paper.BITS):
                counts = corrections_of(part, bits, direction)
                if not counts:
                    continue
                theirs = paper.TABLE_3[paper.family(model)][direction][position][0]
                found.append(
                    Row(
                        "ovt-table-3", f"{model}, b = {bits}, {direction}",
                        statistics.fmean(counts), "a step", size(part), str(len(counts)),
                        hardware(part), theirs, OVT_GPUS, True,
                        more={"deviation": statistics.pstdev(counts)},
                    )
                )  # fmt: skip
        found += _parted(model, part)
    return found


def _parted(model: str, part: PartFile) -> list[Row]:
    """Steps after which trainer and auditor have other states, where there are any (NUMERICS
    14.9.2)."""
    found = []
    for bits in paper.BITS:
        pairs = part.entries.get(f"b{bits}", {}).get("pairs", {}).values()
        steps = sum(len(pair["l2"]) for pair in pairs)
        parted = steps - sum(pair["equal"] for pair in pairs)
        if parted:
            found.append(
                Row(
                    "ovt-table-3", f"{model}, b = {bits}: steps after which the states differ",
                    parted, f"of {steps}", size(part), str(steps),
                    hardware(part), 0.0, OVT_GPUS, True,
                    more={"findings": sum(pair.get("findings", 0) for pair in pairs)},
                )
            )  # fmt: skip
    return found


def table_4(parts: Parts) -> list[Row]:
    """Thresholds of Algorithm 4."""
    part = parts.get(("thresholds", "layers"))
    return [
        Row(
            "ovt-table-4", f"{layer.replace('_', ' ')}, {entry['shape']}: {words}", entry[key],
            "· 2⁻²³", f"{entry['elements']:,} random elements", "–", hardware(part),
            paper.TABLE_4.get(layer), OVT_GPUS,
            more={"disagreements": entry["disagreements"]},
        )
        for layer, entry in (part.entries if part else {}).items()
        for key, words in (("tau", "powers of two"), ("tau_decimal", "powers of ten"))
        if part is not None
    ]  # fmt: skip


_SIDES = {"published-trainer": ("trainer", 1), "published-auditor": ("auditor", 2)}


def table_5(parts: Parts) -> list[Row]:
    """A step of each side over one without rounding or log."""
    found = []
    for (_, model), part in parts.items():
        if part.part != "time" or part.bench != "ovt":
            continue
        theirs = paper.TABLE_5[paper.family(model)]
        for entry in part.entries.values():
            medians = {side: statistics.median(v) for side, v in entry["seconds"].items()}
            anchor = medians.pop("float64")
            for side, seconds in medians.items():
                place = _SIDES.get(side)
                published = theirs[place[1]] / theirs[0] if place else None
                found.append(
                    Row(
                        "ovt-table-5", f"{model}, {_side(side)}", seconds / anchor,
                        "of plain float64", size(part), str(len(entry["seconds"][side])),
                        hardware(part, entry["load"]), published, OVT_GPUS if place else "", True,
                        more={"seconds": seconds, "plain_seconds": anchor,
                              "paper_seconds": theirs[place[1]] if place else None},
                    )
                )  # fmt: skip
    return found


def _side(side: str) -> str:
    named = {"rounded": "rounded/1", "trainer": "replay/1, trainer", "auditor": "replay/1, auditor"}
    return named.get(side, f"replay/1 published, {side.removeprefix('published-')}")


_ARMS = {
    "float32": "plain float32",
    "round": "float64, rounded, no log",
    "published": "replay/1 published",
    "bounded": "replay/1",
    "rounded": "rounded/1",
}


def figure_5_divergence(parts: Parts) -> list[Row]:
    """The largest distance of any pair at the end: 0 where bits are the contract's."""
    found = []
    for (_, model), part in parts.items():
        if part.part not in ("divergence", "corrections"):
            continue
        for arm, words in _ARMS.items():
            pairs = part.entries.get(arm, {}).get("pairs", {})
            if not pairs:
                continue
            exact = arm in EXACT_ARMS
            far = max(max(p["l2"]) if exact else p["l2"][-1] for p in pairs.values())
            steps = len(next(iter(pairs.values()))["l2"])
            found.append(
                Row(
                    "ovt-figure-5-divergence", f"{model}, {words}", far, "l2",
                    size(part), str(steps),
                    hardware(part),
                    0.0 if exact else None, OVT_GPUS, exact,
                    more={"pairs": len(pairs)},
                )
            )  # fmt: skip
    return found


def figure_5_bits(parts: Parts) -> list[Row]:
    """Test loss and a trainer's time by bits kept."""
    found = []
    for (_, model), part in parts.items():
        if part.part != "bits" or "sides" not in part.entries:
            continue
        entry = part.entries["sides"]
        anchor = statistics.median(entry["seconds"]["float64"])
        for side, loss in entry["test_loss"].items():
            seconds = statistics.median(entry["seconds"][side])
            name = f"plain {side}" if side.startswith("float") else f"b = {side[1:]}"
            common = (size(part), str(part.about["steps"]), hardware(part, entry["load"]))
            found += [
                Row("ovt-figure-5-bits", f"{model}, {name}: test loss", float(loss), "", *common,
                    None, OVT_GPUS, more={"test_records": entry["test_records"]}),
                Row("ovt-figure-5-bits", f"{model}, {name}: a step's time", seconds / anchor,
                    "of plain float64", *common, None, OVT_GPUS, more={"seconds": seconds}),
            ]  # fmt: skip
    return found


def rows(parts: Parts) -> list[Row]:
    """All rows beside OVT."""
    made = (table_1, table_2, zipped, table_3, table_4, table_5, figure_5_divergence, figure_5_bits)
    return [row for make in made for row in make(parts)]
