"""The context of every part of `bench paper`: the amount of work, the data, the directories."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tallystick_bench.ovt import context as ovt
from tallystick_bench.ovt.models import Model


@dataclass
class Context(ovt.Context):
    """As `bench ovt`'s. `scratch` outlives a cut-off measurement where results are kept.

    `models` limits a part to these models; none is all.
    """

    scratch: Path = Path()
    models: tuple[str, ...] = ()

    def data(self, model: Model) -> str:
        """The source of a model's data, in words without a path."""
        return "synthetic clusters" if model.recipe == "logreg" else super().data(model)
