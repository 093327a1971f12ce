"""The tables of docs/PAPERS.md as Markdown, from rows."""

from __future__ import annotations

from collections.abc import Sequence

from tallystick_bench.ovt.results.tables import table
from tallystick_bench.paper.results.published import OVT_GPUS, UNSTATED
from tallystick_bench.paper.results.row import Row, shown


def _load(row: Row) -> str:
    return "–" if row.hardware.load is None else f"{row.hardware.load:g}"


class Key:
    """Short names for long cells of a table, explained below it."""

    def __init__(self, letter: str) -> None:
        self._letter = letter
        self._names: dict[str, str] = {}

    def of(self, words: str) -> str:
        """The short name of `words`: S1, S2, …"""
        return self._names.setdefault(words, f"{self._letter}{len(self._names) + 1}")

    def legend(self) -> str:
        """A line for each short name."""
        return "".join(f"\n- **{name}**: {words}" for words, name in self._names.items()) + "\n"


def beside(rows: Sequence[Row]) -> str:
    """Ours beside the paper's, with the conditions of both."""
    head = ("", "ours", "the paper", "size here", "steps", "here", "load", "there")
    lines = []
    sizes, machines, theirs = Key("S"), Key("H"), Key("P")
    for row in rows:
        mine = shown(row.value, row.unit)
        lines.append(
            (
                row.name,
                f"{mine} ✗" if row.missed else mine,
                shown(row.paper, row.unit),
                sizes.of(row.size),
                row.steps,
                machines.of(row.hardware.words),
                _load(row),
                theirs.of(row.paper_hardware) if row.paper_hardware else "–",
            )
        )
    return table(head, lines) + sizes.legend() + machines.legend() + theirs.legend()


def of_runs(rows: Sequence[Row]) -> str:
    """The runs: time beside plain PyTorch, roots, audits, bytes."""
    head = ("run", "steps", "a step", "plain float32", "ratio", "run root", "audited", "last loss",
            "log", "a checkpoint", "size", "hardware", "load")  # fmt: skip
    lines = []
    sizes, machines = Key("S"), Key("H")
    for row in rows:
        more = row.more
        accepted = {True: ", accepted", False: ", **refused**", None: ""}[more["accepted"]]
        lines.append(
            (
                row.name,
                row.steps,
                shown(more["seconds"], "seconds"),
                shown(more["plain_seconds"], "seconds"),
                f"{row.value:.2f}",
                f"`{more['run_root'][:16]}…`",
                more["audited"] + accepted,
                f"{more['final_loss']:.4f}",
                shown(more["log_bytes"], "bytes") if more["log_bytes"] else "none",
                shown(more["checkpoint_bytes"], "bytes"),
                sizes.of(row.size),
                machines.of(row.hardware.words),
                _load(row),
            )
        )
    return table(head, lines) + sizes.legend() + machines.legend()


def of_proofs(rows: Sequence[Row]) -> str:
    """Training with audit here, and what others need for the same task."""
    head = ("task", "who", "seconds", "log or proof", "size", "steps", "where", "load")
    lines: dict[tuple[str, str], tuple[str, ...]] = {}
    sizes, machines = Key("S"), Key("H")
    for row in rows:
        task, _, contract = row.name.partition(": ")
        size = shown(row.more["bytes"], "bytes") if row.more["bytes"] else "none"
        lines[task, contract] = (
            f"**{shown(row.value, row.unit)}**",
            size,
            sizes.of(row.size),
            row.steps,
            machines.of(row.hardware.words),
            _load(row),
        )
    for row in rows:
        task = row.name.partition(": ")[0]
        for who, (seconds, size) in row.more["theirs"].items():
            where = machines.of(OVT_GPUS if who == "OVT" else UNSTATED)
            cells = (shown(seconds, "seconds"), shown(size, "bytes"), "the task's", "–", where, "–")
            lines[task, who] = cells
    ordered = sorted(lines.items(), key=lambda line: line[0][0])
    return table(head, ((*key, *cells) for key, cells in ordered)) + (
        sizes.legend() + machines.legend()
    )


def missed(rows: Sequence[Row]) -> list[str]:
    """The rows in which the paper's figure is the better one, as sentences."""
    return [
        f"{row.name}: {shown(row.value, row.unit)} against {shown(row.paper, row.unit)} "
        f"({row.paper_hardware})"
        for row in rows
        if row.missed
    ]
