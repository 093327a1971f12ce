"""docs/HISTORY.md and its plots, from the entries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tallystick_bench.history.entries import Entry
from tallystick_bench.history.kept import BENCHMARKS, Benchmark, Figure
from tallystick_bench.history.plot import draw

HEAD = """# Figures over time

*Written by `benchmarks/history_page.py` from `benchmarks/results/history.json`; do not edit.*

This page lists every committed result of the benchmarks that are run repeatedly. The current
figures are in [Figures](FIGURES.md).

**The rows of a table may come from different machines. Do not compare seconds between such rows.**
All machines were temporary virtual machines. A result records the number of cores, the instruction
set, the compiler and the load, but not the processor. Compare the ratios instead: both sides of a
ratio ran on one machine within minutes. Counts do not depend on the machine. Further notes follow
the machine's record, and [history.json](../benchmarks/results/history.json) has all details.

The column `commit` names the commit before the one that added the result. A result that changes no
figure of its table has no row. To add the present results in `benchmarks/results`:

```
python benchmarks/history_page.py --add
```
"""


def page(entries: Sequence[Entry]) -> str:
    """The page, whole."""
    parts = [HEAD]
    for benchmark in BENCHMARKS:
        own = [entry for entry in entries if entry.benchmark == benchmark.name]
        if own:
            parts += _section(benchmark, own)
    return "\n".join(parts)


def plots(entries: Sequence[Entry]) -> dict[str, str]:
    """The SVG of each plot, by the name of its file."""
    found = {}
    for benchmark in BENCHMARKS:
        own = [entry for entry in entries if entry.benchmark == benchmark.name]
        if benchmark.plotted and own:
            found[_plot_file(benchmark)] = draw(
                benchmark.plot_title,
                benchmark.axis,
                [(entry.date, entry.commit) for entry in own],
                {name: [entry.figures.get(name) for entry in own] for name in benchmark.plotted},
                benchmark.mark,
            )
    return found


def _plot_file(benchmark: Benchmark) -> str:
    return f"history-{benchmark.name}.svg"


def _section(benchmark: Benchmark, entries: Sequence[Entry]) -> list[str]:
    headings = [figure.heading for figure in benchmark.figures]
    lines = [f"## {benchmark.title}\n", f"{benchmark.about} Command: `{benchmark.command}`.\n"]
    if benchmark.plotted:
        lines.append(f"![{benchmark.plot_title}](images/{_plot_file(benchmark)})\n")
    names = ["date", "commit", "machine", *headings]
    lines.append(f"| {' | '.join(names)} |")
    lines.append("|" + "---|" * len(names))
    for entry in entries:
        cells = [
            entry.date,
            entry.commit,
            _machine(entry),
            *(_cell(figure, entry.figures) for figure in benchmark.figures),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, ""]


def _cell(figure: Figure, figures: Mapping[str, float]) -> str:
    value = figures.get(figure.name)
    return "" if value is None else format(value * figure.scale, figure.form)


def _machine(entry: Entry) -> str:
    """A machine in a few words: as its record has them, then as a person has noted."""
    machine = entry.machine
    said = [f"{machine['cores']} cores"] if "cores" in machine else []
    said += [str(machine["isa"])] if "isa" in machine else []
    if entry.load:
        said.append("load " + ", then ".join(f"{value:g}" for value in entry.load))
    facts = ", ".join(said) or "not recorded"
    return f"{facts}; {entry.note}" if entry.note else facts
