"""Kinds of hardware that one machine can play (DESIGN 4.2): what differs between them is what
differs between GPUs, the order in which a library adds and the instructions it has.

A kind is a name and its settings. *Reordered* kinds live in any process: the index of every
contraction and sum is permuted and cut, and each part left to the library. *Restricted* kinds take
instructions away from torch, MKL, oneDNN and OpenBLAS; those read their environment as they are
loaded, so such a kind is a subprocess.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tallystick.errors import UsageError
from tallystick.numerics.rounded.engines import DEFAULT, ProductEngine
from tallystick.rounding import orders

if TYPE_CHECKING:
    from tallystick.rounding.torch_stock import Stock

Array = np.ndarray


@dataclass(frozen=True)
class PermutedEngine:
    """Binary64 products and sums in another order: an admissible kernel (NUMERICS 14.3)."""

    seed: int
    parts: int = 3

    @property
    def name(self) -> str:
        return f"numpy, permuted by seed {self.seed}, split in {self.parts}"

    def mm(self, a: Array, b: Array, out: Array) -> None:
        """out = a·b, see ProductEngine."""
        part = np.empty_like(out)
        for number, piece in enumerate(orders.pieces(self.seed, a.shape[-1], self.parts)):
            target = part if number else out
            DEFAULT.mm(np.take(a, piece, axis=-1), np.take(b, piece, axis=-2), target)
            if number:
                with np.errstate(all="ignore"):
                    np.add(out, part, out=out)

    def sums(self, x: Array) -> Array:
        """f64[R]: row sums, see ProductEngine."""
        total: Array | None = None
        for piece in orders.pieces(self.seed, x.shape[1], self.parts):
            part = DEFAULT.sums(np.take(x, piece, axis=1))
            with np.errstate(all="ignore"):
                total = part if total is None else total + part
        assert total is not None
        return total


@dataclass(frozen=True)
class Kind:
    """One kind of hardware: `seed` and `parts` of its order (no seed: the library's own), and the
    environment variables that take instructions away."""

    name: str
    seed: int | None = None
    parts: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def settings(self) -> str:
        """What makes this kind, in a line."""
        order = [] if self.seed is None else [f"order by seed {self.seed}, {self.parts} parts"]
        said = order + [f"{key}={value}" for key, value in sorted(self.environment.items())]
        return ", ".join(said) or "the libraries' own order and instructions"

    @property
    def is_here(self) -> bool:
        """Whether this process can play the kind; otherwise `python` starts one that can."""
        return all(os.environ.get(key) == value for key, value in self.environment.items())

    def engine(self) -> ProductEngine:
        """Binary64 products for rounded/1 and bounded logs. Raises UsageError elsewhere."""
        self._check_here()
        return DEFAULT if self.seed is None else PermutedEngine(self.seed, self.parts)

    def stock(self, precision: str = "float64") -> Stock:
        """torch's kernels: float64 for published logs and for rounding alone, float32 for
        ordinary training. Raises UsageError in a process of another kind."""
        self._check_here()
        from tallystick.rounding.torch_order import Order
        from tallystick.rounding.torch_stock import Stock

        order = None if self.seed is None else Order(self.seed, self.parts)
        return Stock(order=order, precision=precision)

    def python(self, arguments: Sequence[str], timeout: float | None = None) -> str:
        """Run this interpreter with `arguments` as a process of this kind: its standard output.

        Raises UsageError with its last words where it fails.
        """
        environment = {**os.environ, **self.environment}
        done = subprocess.run(
            [sys.executable, *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if done.returncode:
            raise UsageError(
                f"A process of kind {self.name} ended with {done.returncode}: "
                f"{done.stderr.strip()[-400:]}",
                "Run it by hand with the kind's settings.",
            )
        return done.stdout

    def _check_here(self) -> None:
        if not self.is_here:
            raise UsageError(
                f"Kind {self.name} needs a process with {self.settings}.",
                "Set these variables before the process starts.",
            )


# What each library calls the instructions that it may use.
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


def kinds() -> tuple[Kind, ...]:
    """The kinds this machine can play; the first three in any process."""
    reordered = (Kind("plain"), Kind("split-k", seed=1, parts=4), Kind("permuted", seed=2))
    return (*reordered, Kind("avx2", environment=_AVX2), Kind("sse", environment=_SSE))


def kind_named(name: str) -> Kind:
    """The kind called `name`. Raises UsageError with those there are."""
    for kind in kinds():
        if kind.name == name:
            return kind
    raise UsageError(
        f"There is no kind of hardware {name!r}.", f"Use {', '.join(k.name for k in kinds())}."
    )
