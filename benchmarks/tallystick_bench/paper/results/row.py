"""A row of `bench paper`: one figure of ours beside the paper's, with both sides' conditions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tallystick_bench.ovt.results.store import PartFile

_ISA = {"avx512": "AVX-512", "avx2": "AVX2", "neon": "NEON", "scalar": "scalar"}


@dataclass(frozen=True)
class Machine:
    """Where a row was measured, and the machine's highest load average while it was."""

    words: str
    load: float | None = None


@dataclass(frozen=True)
class Row:
    """`value` in `unit` beside `paper`, the paper's; None where the paper gives a plot or nothing.

    `less_is_better` says whether a larger value than the paper's is a miss. `size` and `steps` are
    ours; `note` names what differs from the paper's measurement.
    """

    section: str
    name: str
    value: float
    unit: str
    size: str
    steps: str
    hardware: Machine
    paper: float | None = None
    paper_hardware: str = ""
    less_is_better: bool = False
    note: str = ""
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def missed(self) -> bool:
        """True where the paper's figure is the better one."""
        return self.less_is_better and self.paper is not None and self.value > self.paper

    def as_dict(self) -> dict[str, Any]:
        """The row of `bench paper --json`."""
        return {
            "name": f"paper/{self.section}/{self.name}",
            "value": self.value,
            "unit": self.unit,
            "target": None,
            "paper": self.paper,
            "size": self.size,
            "steps": self.steps,
            "hardware": self.hardware.words,
            "load": self.hardware.load,
            "paper_hardware": self.paper_hardware,
            "missed": self.missed,
            "note": self.note,
            **self.more,
        }


def hardware(part: PartFile, load: Any = None) -> Machine:
    """The machine of a part: `load` is a number, or those before and after. Emulated kinds of
    hardware are named."""
    machine = part.about["machine"]
    isa = _ISA.get(machine["isa"], machine["isa"])
    words = f"CPU, {machine['cores']} cores x86-64 {isa}, {machine['threads']} threads"
    if "hardware" in part.about:
        words += f", as {', '.join(part.about['hardware'])}"
    loads = [x for x in (load if isinstance(load, list) else [load]) if x is not None]
    return Machine(words, max(loads, default=None))


def shown(value: float | None, unit: str) -> str:
    """A value for a person; a dash for none."""
    if value is None:
        return "–"
    if unit == "bytes":
        for size, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "KB")):
            if value >= size:
                return (
                    f"{value / size:.3g} {name}"
                    if value < 1e3 * size
                    else f"{value / size:,.0f} {name}"
                )
        return f"{value:.0f} B"
    if unit == "overhead":
        return f"{value:+.0%}"
    if unit == "seconds":
        if value >= 120:
            return f"{value / 60:.3g} min"
        return f"{value:.3g} s" if value >= 0.1 else f"{value * 1e3:.3g} ms"
    number = f"{value:.4g}"
    return number if unit in ("", "count") else f"{number} {unit}"
