"""vectors/elementary/*.bin (special, hard and random inputs, expected values by MPFR) against every
instruction set: NUMERICS 5.1, 5.8."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tallystick import _core

VECTORS = Path(__file__).resolve().parents[2] / "vectors" / "elementary"
NAMES = _core.elementary_names()
ISAS = _core.supported_isas()


def load(name: str, columns: int) -> list[np.ndarray]:
    words = np.fromfile(VECTORS / f"{name}.bin", "<u4").reshape(-1, columns)
    return [np.ascontiguousarray(words[:, c]).view(np.float32) for c in range(columns)]


def check(name: str, inputs: list[np.ndarray], out: np.ndarray, want: np.ndarray) -> None:
    got_bits, want_bits = out.view(np.uint32), want.view(np.uint32)
    bad = np.flatnonzero(got_bits != want_bits)
    lines = [f"{name}: {bad.size} of {out.size} wrong on {_core.isa()}"]
    for i in bad[:5]:
        args = ", ".join(f"{x.view(np.uint32)[i]:08x}" for x in inputs)
        lines.append(f"  ({args}): {got_bits[i]:08x}, want {want_bits[i]:08x}")
    assert bad.size == 0, "\n".join(lines)


def test_every_function_has_vectors() -> None:
    assert {p.stem for p in VECTORS.glob("*.bin")} == {*NAMES, "pow"}


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", NAMES)
def test_unary_vectors(name: str, isa: str) -> None:
    x, want = load(name, 2)
    assert x.size > 5000
    _core.set_isa(isa)
    out = np.full_like(x, 12345.0)
    _core.elementary(name, x, out)
    check(name, [x], out, want)


@pytest.mark.parametrize("isa", ISAS)
def test_pow_vectors(isa: str) -> None:
    x, y, want = load("pow", 3)
    assert x.size >= 6000
    _core.set_isa(isa)
    out = np.full_like(x, 12345.0)
    _core.pow(x, y, out)
    check("pow", [x, y], out, want)
