"""Kinds of hardware that one machine can emulate (DESIGN 4.2), for `calibrate sample --kind`.

They differ as GPUs differ: in the order in which a library adds, and in its instructions.

A kind is a name and its settings. *Reordered* kinds work in any process: they permute and cut the
index of every contraction and sum, and leave each part to the library. *Restricted* kinds take
instructions away from torch, MKL, oneDNN and OpenBLAS. These libraries read their environment as
they are loaded, so such a kind needs a subprocess.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tallystick.errors import UsageError

if TYPE_CHECKING:
    from tallystick.contracts.replay.stock.stock import Stock


@dataclass(frozen=True)
class Hardware:
    """One kind of hardware.

    `seed` and `parts` give its order of additions; without a seed the order is the library's own.
    `environment` has the variables that take instructions away.
    """

    name: str
    seed: int | None = None
    parts: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def settings(self) -> str:
        """The settings of this kind, in a line."""
        order = [] if self.seed is None else [f"order by seed {self.seed}, {self.parts} parts"]
        said = order + [f"{key}={value}" for key, value in sorted(self.environment.items())]
        return ", ".join(said) or "the libraries' own order and instructions"

    @property
    def is_here(self) -> bool:
        """True if this process can emulate the kind. Otherwise a process with `environment` can."""
        return all(os.environ.get(key) == value for key, value in self.environment.items())

    def stock(self) -> Stock:
        """torch's kernels on this kind. Raises UsageError in a process of another kind."""
        self.check_here()
        from tallystick.contracts.replay.stock.order import DrawnOrder
        from tallystick.contracts.replay.stock.stock import Stock

        order = None if self.seed is None else DrawnOrder(self.seed, self.parts)
        return Stock(order=order)

    def check_here(self) -> None:
        """Raise UsageError, which names the missing settings, if this process cannot emulate it."""
        if not self.is_here:
            raise UsageError(
                f"Kind {self.name} needs a process with {self.settings}.",
                "Set these variables before the process starts.",
            )


# Each library's names for the instructions that it may use.
_SSE = {
    "ATEN_CPU_CAPABILITY": "default",
    "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
    "MKL_CBWR": "COMPATIBLE",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "OPENBLAS_CORETYPE": "Nehalem",
}
_AVX2 = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "MKL_CBWR": "AVX2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "OPENBLAS_CORETYPE": "Haswell",
}


def kinds() -> tuple[Hardware, ...]:
    """The kinds that this machine can emulate; the first three in any process."""
    reordered = (
        Hardware("plain"),
        Hardware("split-k", seed=1, parts=4),
        Hardware("permuted", seed=2),
    )
    return (*reordered, Hardware("avx2", environment=_AVX2), Hardware("sse", environment=_SSE))


def kind_named(name: str) -> Hardware:
    """The kind called `name`. Raises UsageError, which lists the kinds."""
    for kind in kinds():
        if kind.name == name:
            return kind
    raise UsageError(
        f"There is no kind of hardware {name!r}.", f"Use {', '.join(k.name for k in kinds())}."
    )
