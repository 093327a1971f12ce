"""Choosing an instruction set: by name, by environment, refused where it cannot run (DESIGN 9)."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from tallystick import _core
from tallystick.kernels.evaluate import evaluate

KNOWN = ("scalar", "avx2", "avx512", "neon")


def in_new_process(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **environment}
    return subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False
    )


def test_supported_paths() -> None:
    supported = _core.supported_isas()
    assert supported[0] == "scalar" and set(supported) <= set(KNOWN)
    assert not {"neon"} & set(supported) or not {"avx2", "avx512"} & set(supported)


@pytest.mark.parametrize("name", _core.supported_isas())
def test_a_path_is_forced_by_name_and_by_environment(name: str) -> None:
    _core.set_isa(name)
    assert _core.isa() == name
    found = in_new_process("from tallystick import _core; print(_core.isa())", TALLYSTICK_ISA=name)
    assert found.stdout.strip() == name


@pytest.mark.parametrize(
    "name", [*(n for n in KNOWN if n not in _core.supported_isas()), "sse9", ""]
)
def test_other_names_are_refused(name: str) -> None:
    before = _core.isa()
    with pytest.raises(ValueError, match="instruction set"):
        _core.set_isa(name)
    assert _core.isa() == before


def test_threads_are_clamped() -> None:
    for given, want in ((1, 1), (3, 3), (0, 1), (-5, 1), (10**6, 256)):
        _core.set_threads(given)
        assert _core.threads() == want
    _core.set_threads(2)


def test_paths_are_equal_where_roundings_are_many() -> None:
    """A long product whose every order or contraction would show (NUMERICS 1.8)."""
    k = np.arange(3000, dtype=np.float64)
    a = np.sin(k * k).astype(np.float32).reshape(3, 1000)
    b = np.cos(k * 1.7).astype(np.float32).reshape(1000, 3)
    results = set()
    for name in _core.supported_isas():
        for threads in (1, 2, 5):
            _core.set_isa(name)
            _core.set_threads(threads)
            product = evaluate("aten.mm", a, b)
            assert isinstance(product, np.ndarray)
            results.add(product.tobytes())
    assert len(results) == 1


def test_floating_point_environment_is_checked() -> None:
    assert _core.fp_environment_ok()
