"""Plots of `bench paper` as PNG, where matplotlib is installed (extra `report`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tallystick_bench.ovt.results.plots import saved
from tallystick_bench.paper.results.row import Row, shown

Rows = Sequence[Row]


def draw(rows: Rows, directory: Path) -> list[Path]:
    """Every plot that `rows` give, as `paper-*.png` in `directory`; their paths."""
    import matplotlib

    matplotlib.use("Agg")
    drawn: dict[str, tuple[str, Callable[[Rows, Path], Path]]] = {
        "runs": ("runs", _runs),
        "ovt-table-2": ("storage", _storage),
        "ovt-figure-5-bits": ("bits", _bits),
        "verde-tables": ("verde", _verde),
        "verde-figure-3": ("products", _products),
        "proofs": ("proofs", _proofs),
    }
    made = []
    for section, (name, make) in drawn.items():
        mine = [row for row in rows if row.section == section]
        if mine:
            made.append(make(mine, directory / f"paper-{name}.png"))
    return made


def _bars(axes: Any, names: Sequence[str], values: Sequence[float], color: Any, unit: str) -> None:
    """Horizontal bars from the top, each with its value."""
    places = range(len(names))
    axes.barh(places, values, color=color)
    axes.set_yticks(places, names, fontsize=8)
    axes.invert_yaxis()
    for place, value in zip(places, values, strict=True):
        axes.annotate(" " + shown(value, unit), (max(value, 0), place), va="center", fontsize=8)


def _runs(rows: Rows, path: Path) -> Path:
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 0.32 * len(rows) + 1.4))
    colors = {"gpt2-124m": "C0", "resnet50": "C1"}
    _bars(
        axes, [row.name for row in rows], [row.value for row in rows],
        [colors.get(row.name.split(",")[0], "C2") for row in rows], "",
    )  # fmt: skip
    axes.axvline(1, color="grey", lw=0.8)
    axes.margins(x=0.12)
    axes.set(xlabel="a step's time over plain PyTorch float32, same CPU and threads")
    return saved(figure, path)


def _storage(rows: Rows, path: Path) -> Path:
    from matplotlib import pyplot as plt

    mine = [row for row in rows if row.value > 0 and "all that is logged" not in row.name]
    figure, axes = plt.subplots(figsize=(8.5, 0.42 * len(mine) + 1.2))
    names = [row.name.replace(": layer outputs and input gradients", "") for row in mine]
    _bars(axes, names, [row.value for row in mine], "C0", "bytes")
    theirs = [(row.paper, place) for place, row in enumerate(mine) if row.paper is not None]
    axes.plot([x for x, _ in theirs], [y for _, y in theirs], "D", color="C3", label="OVT")
    axes.set_xscale("log")
    axes.margins(x=0.15)
    axes.set(xlabel="bytes of a step's log: layer outputs and input gradients")
    axes.legend(fontsize=8)
    return saved(figure, path)


def _bits(rows: Rows, path: Path) -> Path:
    from matplotlib import pyplot as plt

    models = list(dict.fromkeys(row.name.split(",")[0] for row in rows))
    figure, grid = plt.subplots(len(models), 2, figsize=(9, 3 * len(models)), squeeze=False)
    for line, model in zip(grid, models, strict=True):
        for axes, what in zip(line, ("test loss", "a step's time"), strict=True):
            mine = [r for r in rows if r.name.startswith(f"{model}, ") and r.name.endswith(what)]
            kept = [r for r in mine if ", b = " in r.name]
            bits = [int(r.name.split("b = ")[1].split(":")[0]) for r in kept]
            axes.plot(bits, [r.value for r in kept], "o-", label="replay/1, published form")
            plain = next(r.value for r in mine if "plain float64" in r.name)
            axes.axhline(plain, color="grey", ls="--", label="plain float64")
            axes.invert_xaxis()
            axes.set(xlabel="bits kept", ylabel=what, title=model)
            if what != "test loss":
                axes.set_ylim(0)
            else:
                axes.margins(y=0.4)
            axes.legend(fontsize=7)
    return saved(figure, path)


def _verde(rows: Rows, path: Path) -> Path:
    from matplotlib import pyplot as plt

    groups = list(dict.fromkeys(row.name.rsplit(", ", 1)[0] for row in rows))
    ours = list(dict.fromkeys(row.name.rsplit(", ", 1)[1] for row in rows))
    gpus = list(dict.fromkeys(row.paper_hardware for row in rows if row.paper is not None))
    figure, axes = plt.subplots(figsize=(10, 4.2))
    width = 0.8 / (len(ours) + len(gpus))
    for number, name in enumerate([*ours, *gpus]):
        found = {}
        for row in rows:
            group, contract = row.name.rsplit(", ", 1)
            if contract == name:
                found[group] = row.value
            elif row.paper_hardware == name and row.paper is not None:
                found[group] = row.paper
        places = [groups.index(g) + number * width for g in found]
        label = f"{name}, here" if name in ours else f"Verde, {name.removeprefix('NVIDIA ')}"
        hatch = None if name in ours else "//"
        axes.bar(places, [100 * v for v in found.values()], width, label=label, hatch=hatch)
    axes.axhline(0, color="black", lw=0.8)
    axes.set_xticks([i + 0.4 - width / 2 for i in range(len(groups))], groups, fontsize=8)
    axes.set(ylabel="overhead over PyTorch, %", title="CPU here, GPUs in the paper")
    axes.legend(fontsize=7)
    return saved(figure, path)


def _products(rows: Rows, path: Path) -> Path:
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7.5, 4.2))
    for name in dict.fromkeys(row.name.split(", ")[1] for row in rows):
        mine = [row for row in rows if row.name.endswith(f", {name}")]
        sides = [int(row.name.split("³")[0]) for row in mine]
        axes.plot(sides, [100 * row.value for row in mine], "o-", label=f"{name}, CPU here")
    axes.axhline(35, color="grey", ls="--", label="Verde, large, T4")
    axes.axhspan(60, 70, color="grey", alpha=0.3, label="Verde, large, RTX 3090")
    axes.plot([256], [200], "D", color="grey", label="Verde, about, at 256")
    axes.set_xscale("log", base=2)
    axes.set_yscale("symlog", linthresh=100)
    axes.set(xlabel="dimension", ylabel="overhead over torch.mm, %")
    axes.legend(fontsize=7)
    return saved(figure, path)


def _proofs(rows: Rows, path: Path) -> Path:
    from matplotlib import pyplot as plt

    lines: dict[str, tuple[float, str]] = {}
    for row in rows:
        lines[row.name] = (row.value, "C0")
        for who, (seconds, _) in row.more["theirs"].items():
            lines[f"{row.name.split(':')[0]}: {who}"] = (seconds, "C3")
    names = sorted(lines, key=lambda name: (name.split(":")[0], lines[name][0]))
    figure, axes = plt.subplots(figsize=(10, 0.3 * len(names) + 1.2))
    colors = [lines[name][1] for name in names]
    _bars(axes, names, [lines[name][0] for name in names], colors, "seconds")
    axes.set_xscale("log")
    axes.margins(x=0.15)
    axes.set(xlabel="seconds (here: training and audit, on a CPU)")
    return saved(figure, path)
