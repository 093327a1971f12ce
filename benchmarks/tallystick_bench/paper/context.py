"""The context of every part of `bench paper`: the amount of work, the data, the directories."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tallystick_bench.ovt import context as ovt


@dataclass
class Context(ovt.Context):
    """As `bench ovt`'s. `scratch` outlives a cut-off measurement where results are kept.

    `models` limits a part to these models; none is all.
    """

    scratch: Path = Path()
    models: tuple[str, ...] = ()
