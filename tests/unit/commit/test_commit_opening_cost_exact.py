"""benchmarks/opening_cost_exact.py counts what disputes under `exact/1` really cost (ADR 0015)."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tallystick.commit import tensor
from tallystick.numerics.contracts import find_contract

CONTRACT = find_contract("exact/1;b=22").text


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[3] / "benchmarks"))
    for name in ("opening_cost", "opening_cost_exact"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module("opening_cost_exact")


def test_the_openings_are_as_long_as_real_ones(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a product whose first operand is stored the other way round."""
    counted = []

    def opening_bytes(of: object, elements: list[int], leaf: int) -> int:
        shape: tuple[int, ...] = of.shape  # type: ignore[attr-defined]
        a = np.zeros(shape, np.float32)
        real = len(tensor.open_tensor(a, [(e, e + 1) for e in sorted(elements)]).to_bytes())
        counted.append((shape, len(elements)))
        assert real == whole(of, elements, leaf)
        return real

    whole = bench.opening_bytes
    monkeypatch.setattr(bench, "opening_bytes", opening_bytes)
    operator = importlib.import_module("opening_cost").mm("x", 30, 300, 7, strided_a=True)
    size, leaves = bench.worst(operator, CONTRACT, tensor.LEAF_BYTES)
    assert {shape for shape, _ in counted} == {(300, 30), (300, 7)}
    assert max(n for _, n in counted) == 128
    # A link's rows of 120 bytes and of 28 bytes.
    links = [range(first, min(first + 128, 300)) for first in (0, 128, 256)]
    spans = [{(row, k * row // 2048) for k in link for row in (120, 28)} for link in links]
    assert leaves in map(len, spans) and 2048 * leaves < size < 2048 * leaves + 20_000


@pytest.mark.parametrize(
    "name",
    [
        "aten.mm dw, both operands strided",
        pytest.param("aten.mm logits dx", marks=pytest.mark.long),
        "aten.bmm q k^T",
    ],
)
def test_the_aim_of_two_megabytes(bench: ModuleType, name: str) -> None:
    operators = {op.name: op for op in bench.gpt2_124m(8, 64)}
    dots = {n for n, op in operators.items() if op.product is not None}
    assert dots == {n for n in operators if ".mm" in n or ".bmm" in n or ".addmm" in n}
    size, leaves = bench.worst(operators[name], CONTRACT, tensor.LEAF_BYTES)
    plain, _ = bench.worst_cost(operators[name], tensor.LEAF_BYTES)
    assert 0.9 * plain < size < 1.1 * plain + 10_000 < bench.TARGET_BYTES and leaves <= 256
