"""Plots of `bench ovt` as PNG, where matplotlib is installed (extra `report`)."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tallystick_bench.ovt.results.paper import BITS
from tallystick_bench.ovt.results.rows import EXACT_ARMS, can_show, corrections_of, totals
from tallystick_bench.ovt.results.store import PartFile

ARMS = {
    "float32": ("plain float32", "C3"),
    "round": ("float64, rounded after each operator", "C1"),
    "published": ("replay/1, published form", "C0"),
    "bounded": ("replay/1, bounded form", "C2"),
    "rounded": ("rounded/1", "C4"),
}
_STYLES = ("-", "--", ":", "-.")


def have_matplotlib() -> bool:
    """True where plots can be drawn."""
    return importlib.util.find_spec("matplotlib") is not None


def draw(parts: Mapping[tuple[str, str], PartFile], directory: Path) -> list[Path]:
    """Every plot that `parts` give, as `ovt-*.png` in `directory`; their paths."""
    import matplotlib

    matplotlib.use("Agg")
    drawn = {"divergence": _divergence, "storage": _storage, "corrections": _corrections}
    return [
        drawn[part](found, directory / f"ovt-{part}-{model}.png")
        for (part, model), found in parts.items()
        if part in drawn and can_show(found)
    ]


def saved(figure: Any, path: Path) -> Path:
    """Write `figure` to `path`, and close it."""
    from matplotlib import pyplot as plt

    if figure.get_layout_engine() is None:  # a figure may have its own
        figure.tight_layout()
    # The file depends on the drawing alone: it has no date and no version.
    figure.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(figure)
    return path


def _divergence(part: PartFile, path: Path) -> Path:
    """Distance of the weights over the steps; zero at the foot, below the logarithmic axis."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7.5, 4.2))
    positive = [
        d
        for entry in part.entries.values()
        for pair in entry["pairs"].values()
        for d in pair["l2"]
        if d > 0
    ]
    floor = min(positive, default=1.0) / 30
    for arm, (label, color) in ARMS.items():
        for number, data in enumerate(part.entries.get(arm, {"pairs": {}})["pairs"].values()):
            low = floor * 0.8 ** EXACT_ARMS.index(arm) if arm in EXACT_ARMS else floor
            axes.plot(
                [max(d, low) for d in data["l2"]],
                color=color,
                ls=_STYLES[number % len(_STYLES)],
                lw=2.5 if arm in EXACT_ARMS else 1.2,
                alpha=0.8,
                label=label if number == 0 else None,
            )
    axes.set_yscale("log")
    axes.axhline(floor, color="grey", lw=0.5)
    axes.annotate("exactly 0", (0, floor), textcoords="offset points", xytext=(2, 4), fontsize=8)
    title = f"{part.model}, every pair of {', '.join(part.about['hardware'])}"
    axes.set(xlabel="step", ylabel="l2 distance of the weights", title=title)
    axes.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncol=3)
    return saved(figure, path)


def _storage(part: PartFile, path: Path) -> Path:
    from matplotlib import pyplot as plt

    sums = {**totals(part), "weights": part.entries["weights"]["bytes"]}
    figure, axes = plt.subplots(figsize=(6, 3.2))
    axes.bar(list(sums), [max(v, 1) / 1e6 for v in sums.values()], color="C0")
    for x, value in enumerate(sums.values()):
        shown = f"{value / 1e6:,.0f}" if value >= 1e8 else f"{value / 1e6:.3g}"
        axes.annotate(shown, (x, max(value, 1) / 1e6), ha="center", va="bottom")
    axes.set_yscale("log")
    axes.margins(y=0.15)
    axes.set(ylabel="MB a step", title=f"{part.model}: log of one step (rounded/1: 0)")
    return saved(figure, path)


def _corrections(part: PartFile, path: Path) -> Path:
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 3.2))
    most = 1.0
    for direction, color in (("forward", "C0"), ("backward", "C1")):
        means = []
        for bits in BITS:
            counts = corrections_of(part, bits, direction)
            means.append(sum(counts) / len(counts) if counts else float("nan"))
        most = max([most, *(m for m in means if m == m)])
        axes.plot(BITS, means, marker="o", color=color, label=direction)
    axes.invert_xaxis()
    axes.set_yscale("symlog", linthresh=1)
    axes.set_ylim(-0.1, 2 * most)
    axes.set(xlabel="bits kept", ylabel="corrections a step", title=part.model)
    axes.legend()
    return saved(figure, path)
