"""Every node of a training step on every instruction set against the scalar path, by tiles.

The same check as `benchmarks/check_tiles.py` makes of GPT-2 124M, on a small model.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

pytest.importorskip("torch")

from tallystick import _core
from tallystick.job.recipes.base import Built
from tallystick.job.recipes.gpt2 import Gpt2Settings, build
from tallystick.kernels.evaluate import view
from tallystick.program.ir import COMMIT, Node

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SETTINGS = Gpt2Settings(
    n_layer=1, n_head=2, n_embd=36, vocab_size=261, block_size=19, batch_size=3, dropout=0.2
)
FAST = [isa for isa in _core.supported_isas() if isa != "scalar"]


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


tiles = _load("tiles")
check = _load("check_tiles")


@pytest.fixture(scope="module")
def built() -> Built:
    return build(SETTINGS, {}, 1, 0)


def _checked(built: Built, isa: str) -> object:
    shape = (SETTINGS.batch_size, SETTINGS.block_size + 1)
    tokens = np.random.default_rng(1).integers(0, SETTINGS.vocab_size, shape)
    state = {name: array.copy() for name, array in built.initial_state.items()}
    sampler = tiles.Sampler(np.random.default_rng(2))
    program = built.captured.program
    return check.check_step(program, state, {"tokens": tokens}, {"lr": 1e-3}, isa, 2, sampler)


@pytest.mark.parametrize("isa", FAST)
def test_every_node_has_the_bits_of_the_scalar_path(built: Built, isa: str) -> None:
    report = _checked(built, isa)
    assert report.wrong == []
    assert report.nodes == len(built.captured.program.nodes)
    for op, count in report.counts.items():
        assert count.checked > 0, op
        assert op == COMMIT or op in view or count.tiles >= count.nodes, op


class _LastBits(check.Checker):
    """Reports what a fault would leave: the last bit of every float output of `op` flipped."""

    op = ""

    def tap(
        self,
        index: int,
        node: Node,
        inputs: Sequence[np.ndarray | None],
        outputs: Sequence[np.ndarray],
    ) -> None:
        if node.op == self.op:
            outputs = [np.array(out, order="C") for out in outputs]
            for out in outputs:
                out.reshape(-1).view(np.uint8)[:: out.itemsize] ^= 1
        super().tap(index, node, inputs, outputs)


def test_a_last_bit_is_seen_in_every_operator(
    built: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "Checker", _LastBits)
    for op in sorted({node.op for node in built.captured.program.nodes} - {COMMIT}):
        monkeypatch.setattr(_LastBits, "op", op)
        report = _checked(built, FAST[0] if FAST else "scalar")
        nodes = [i for i, node in enumerate(built.captured.program.nodes) if node.op == op]
        wrong = set(report.wrong)
        assert wrong == {f"node {i} ({op})" for i in nodes}, op
