"""Other kinds of hardware, as far as binary64 products go: admissible kernels that add in other
orders (NUMERICS 14.3), for tests that need two machines.

`LeftToRight` gives the same bits on every machine: golden runs are made with it. `Shuffled` is
what another library may do. `Nudged` and `Perturbed` err by what the bound E allows (14.4), and so
make other choices at every element where there is one.
"""

from __future__ import annotations

import numpy as np

from tallystick.products import probe

Array = np.ndarray
_C = float.fromhex("0x1.00001p-53")


class LeftToRight:
    """Each product rounded once (exactly, that is), added in ascending order."""

    name = "left to right"

    def mm(self, a: Array, b: Array, out: Array) -> None:
        out[...] = 0
        for k in range(a.shape[-1]):
            out += a[..., :, k : k + 1] * b[..., k : k + 1, :]

    def sums(self, x: Array) -> Array:
        total = np.zeros(x.shape[0])
        for k in range(x.shape[1]):
            total += x[:, k]
        return total


class Shuffled:
    """The terms in an order drawn from `seed`, in `parts` partial sums."""

    def __init__(self, seed: int, parts: int = 3) -> None:
        self.name = f"shuffled {seed} in {parts}"
        self._seed, self._parts = seed, parts

    def _order(self, terms: int) -> list[Array]:
        order = np.random.default_rng(self._seed).permutation(terms)
        return np.array_split(order, self._parts)

    def mm(self, a: Array, b: Array, out: Array) -> None:
        out[...] = 0
        with np.errstate(all="ignore"):
            for part in self._order(a.shape[-1]):
                out += np.matmul(a[..., :, part], b[..., part, :])

    def sums(self, x: Array) -> Array:
        total = np.zeros(x.shape[0])
        with np.errstate(all="ignore"):
            for part in self._order(x.shape[1]):
                total += x[:, part].sum(axis=1)
        return total


class Nudged:
    """Results moved by up to half of E, by draws from `seed`: no two calls give the same.

    No kernel does that, and the probe would refuse it; but within E is all that is promised of
    one, so a log that can be followed on this engine can be followed on any.
    """

    def __init__(self, seed: int) -> None:
        self.name = f"{type(self).__name__.lower()} {seed}"
        self._rng = np.random.default_rng(seed)
        probe.probed.add((type(self), self.name))

    def _parts(self, shape: tuple[int, ...]) -> Array:
        """By what part of E each result is moved."""
        return self._rng.uniform(-0.5, 0.5, shape)

    def _nudge(self, exact: Array, bound: Array) -> Array:
        moved: Array = exact + self._parts(exact.shape) * bound
        return np.where(np.isfinite(moved), moved, exact)

    def mm(self, a: Array, b: Array, out: Array) -> None:
        with np.errstate(all="ignore"):
            rows = np.sqrt((a * a).sum(axis=-1))[..., :, None]
            columns = np.sqrt((b * b).sum(axis=-2))[..., None, :]
            out[...] = self._nudge(np.matmul(a, b), a.shape[-1] * _C * rows * columns)

    def sums(self, x: Array) -> Array:
        with np.errstate(all="ignore"):
            return self._nudge(x.sum(axis=1), x.shape[1] * _C * np.abs(x).sum(axis=1))


class Perturbed(Nudged):
    """Results that err by nearly all of E in both directions, or not at all."""

    def _parts(self, shape: tuple[int, ...]) -> Array:
        return self._rng.choice((-0.98, -0.7, 0.0, 0.3, 0.98), shape)
