"""The plots of docs/SCALE.md as PNG, where matplotlib is installed (extra `report`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tallystick_bench.ovt.results.plots import saved
from tallystick_bench.scale.checking import caught_within
from tallystick_bench.scale.jobs import GROWTH, ScaleJob
from tallystick_bench.scale.simulate.scenarios import CATCHING, WORKERS
from tallystick_bench.scale.step_parts import StepParts
from tallystick_bench.scale.units import Measured

# One colour for a cause, on every plot.
COLORS = {
    "compute": "0.75",
    "uneven shares": "C8",
    "stragglers": "C1",
    "network": "C0",
    "messages": "C9",
    "fold": "C2",
    "checksums": "C7",
    "digests": "C3",
    "rank 0": "C4",
    "checkpoints": "C5",
    "failures": "C6",
}
_SIMULATED = {
    "steps cut off": "failures",
    "steps done again after failures": "failures",
    "restarts": "failures",
    "waiting for checkpoints": "checkpoints",
}


def draw(given: tuple[Measured, Mapping[str, Any]], directory: Path) -> list[Path]:
    """Every plot, as `scale-*.png` in `directory`; their paths."""
    import matplotlib

    matplotlib.use("Agg")
    found, outcomes = given
    return [
        _parts(found, directory / "scale-step.png"),
        _growth(outcomes["growth"], directory / "scale-growth.png"),
        _catching(outcomes["catching"], directory / "scale-liars.png"),
        _audits(outcomes["audits"], directory / "scale-audit.png"),
    ]


def _parts(found: Measured, path: Path) -> Path:
    """Seconds of a step by part, over the workers."""
    from matplotlib import pyplot as plt

    figure, grid = plt.subplots(2, 2, figsize=(11, 8.6), layout="constrained")
    for axes, job in zip(grid.flat, GROWTH, strict=True):
        steps = {w: StepParts(job, found, w).parts() for w in WORKERS}
        for name, color in COLORS.items():
            line = [steps[w][name] for w in WORKERS]
            if any(x > 0 for x in line):
                axes.plot(
                    WORKERS, [max(x, 1e-6) for x in line], "o-", ms=3, color=color, label=name
                )
        _limit(axes, found, job)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(WORKERS[::2], WORKERS[::2])
        axes.set_ylim(1e-3, 1e5)
        gpus = "one GPU" if job.gpus == 1 else f"{job.gpus} GPUs"
        axes.set(xlabel=f"workers W, each {gpus}", ylabel="seconds of a step", title=_title(job))
    _legend(figure, grid.flat[0])
    return saved(figure, path)


def _legend(figure: Any, axes: Any) -> None:
    """One legend under both halves, in room that is kept for it."""
    drawn, names = axes.get_legend_handles_labels()
    figure.legend(drawn, names, ncol=5, fontsize=8, loc="outside lower center")


def _title(job: ScaleJob) -> str:
    return job.name.split(",")[0] + (", tensors cut" if job.cut else ", as built")


def _limit(axes: Any, found: Measured, job: ScaleJob) -> None:
    most = found.shapes[job.shape].most_micro_batches
    axes.axvline(most, color="black", ls=":", lw=1)
    axes.annotate(
        f" V ≤ {most} today", (most, 0.97), xycoords=("data", "axes fraction"), fontsize=8, va="top"
    )


def _growth(runs: Sequence[Mapping[str, Any]], path: Path) -> Path:
    """Shares of the simulated time, over the workers."""
    from matplotlib import pyplot as plt

    figure, grid = plt.subplots(2, 2, figsize=(11, 8.6), sharey=True, layout="constrained")
    for axes, job in zip(grid.flat, GROWTH, strict=True):
        mine = [run for run in runs if run["job"] == job.name]
        places, foot = range(len(mine)), [0.0] * len(mine)
        for cause, color in COLORS.items():
            height = [_share(run, cause) for run in mine]
            axes.bar(places, height, bottom=foot, color=color, label=cause, width=0.85)
            foot = [a + b for a, b in zip(foot, height, strict=True)]
        axes.set_xticks(places, [run["workers"] for run in mine], rotation=60, fontsize=8)
        axes.set(xlabel="workers W", title=f"simulated: {_title(job)}", ylim=(0, 100))
    for axes in grid[:, 0]:
        axes.set_ylabel("share of the time, %")
    _legend(figure, grid.flat[0])
    return saved(figure, path)


def _share(run: Mapping[str, Any], cause: str) -> float:
    lost = run["lost"]
    if cause == "compute":
        return 100 * float(run["goodput"])
    names = [name for name in lost if _SIMULATED.get(name, name) == cause]
    return 100 * sum(float(lost[name]) for name in names) / float(run["seconds"])


def _catching(run: Mapping[str, Any], path: Path) -> Path:
    """How many liars are caught after n steps, beside the formula."""
    from matplotlib import pyplot as plt

    steps = sorted(liar["steps"] for liar in run["liars"] if liar["caught"])
    total = len(run["liars"])
    figure, axes = plt.subplots(figsize=(7.5, 4.2))
    caught = [(i + 1) / total for i in range(len(steps))]
    axes.step(steps, caught, where="post", label=f"simulated: {total} liars")
    over = range(1, steps[-1] + 1)
    formula = [caught_within(n, CATCHING.drawn, 1, CATCHING.lies) for n in over]
    axes.plot(over, formula, "--", color="C3", label="1 − (1 − f·q)ⁿ")
    axes.set(
        xlabel="steps n that a liar took part in",
        ylabel="share of the liars caught",
        title=f"f = {CATCHING.lies:g} of the steps are false, q = {CATCHING.drawn:g} drawn",
        ylim=(0, 1.02),
    )
    axes.legend(fontsize=8)
    return saved(figure, path)


def _audits(audits: Sequence[Mapping[str, Any]], path: Path) -> Path:
    """Days of a parallel audit over the number of auditors."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7.5, 4.2))
    count = [a["auditors"] for a in audits]
    axes.plot(count, [a["seconds"] / 86400 for a in audits], "o-", label="simulated")
    whole = audits[0]["segments"] * audits[0]["segment_s"] / 86400
    axes.plot(count, [whole / k for k in count], "--", color="grey", label="whole audit / auditors")
    axes.axhline(
        audits[0]["segment_s"] / 86400, color="C3", ls=":", label="one segment: no audit is shorter"
    )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(count, count)
    axes.set(xlabel="auditors, machines of 8 GPUs", ylabel="days until the audit has ended")
    axes.legend(fontsize=8)
    return saved(figure, path)
