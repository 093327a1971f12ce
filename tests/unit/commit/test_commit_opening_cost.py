"""benchmarks/opening_cost.py counts what openings really cost (COMMITMENTS 3.6, ADR 0004)."""

from __future__ import annotations

import importlib.util
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tallystick.commit import merkle, tensor


@pytest.fixture(scope="module")
def bench() -> Iterator[ModuleType]:
    path = Path(__file__).resolve().parents[3] / "benchmarks" / "opening_cost.py"
    spec = importlib.util.spec_from_file_location("opening_cost", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["opening_cost"] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    yield module
    del sys.modules["opening_cost"]


def test_proof_lengths(bench: ModuleType) -> None:
    draw = random.Random(0)
    for _ in range(400):
        size = draw.randrange(1, 400)
        wanted = tuple(sorted(draw.sample(range(size), draw.randrange(1, min(size, 40) + 1))))
        assert bench.proof_hashes(wanted, size) == merkle.multi_proof_length(wanted, size)


def test_opening_sizes(bench: ModuleType) -> None:
    draw = random.Random(1)
    a = np.zeros((300, 777), dtype=np.float32)
    for _ in range(20):
        elements = [draw.randrange(a.size) for _ in range(draw.randrange(1, 90))]
        real = tensor.open_tensor(a, [(e, e + 1) for e in elements]).to_bytes()
        assert len(real) == bench.opening_bytes(bench.Tensor(a.shape), elements, tensor.LEAF_BYTES)


def test_the_aim_of_two_megabytes(bench: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["--json", "--leaf", str(tensor.LEAF_BYTES)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["bench"] == "opening_cost" and len(found["rows"]) > 70
    for row in found["rows"]:
        assert row["value"] <= row["target"] == 2_000_000, row
