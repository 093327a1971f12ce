"""Attentions that are one call: the bits of the three nodes, and no array of all pairs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from program_samples import f32

from tallystick.devices.context import ExecutionContext
from tallystick.devices.cpu import CPU
from tallystick.devices.device import replaced
from tallystick.numerics.contracts import ORDERED_1, parse_contract
from tallystick.program import fused
from tallystick.program.build import Builder
from tallystick.program.executor import Executor
from tallystick.program.fused import SCORES, VALUES, WEIGHTS, closed
from tallystick.program.ir import Program, Value
from tallystick.program.plan import PlanOptions, make_plan


def _program(
    places: int = 40,
    *,
    causal: bool = True,
    window: int = 0,
    sinks: bool = False,
    shown: str = "",
    other: bool = False,
    contract: str = ORDERED_1,
) -> Program:
    """Two layers of attention. `shown`: what of the first is an output too. `other`: the second's
    weights see other keys than its scores."""
    b = Builder(contract)
    x, sink = b.batch("x", f32(1, places, 6, 8)), b.batch("sink", f32(6))
    slopes = b.batch("slopes", f32(6))
    k, v = b.batch("k", f32(1, 2, places, 8)), b.batch("v", f32(1, 2, places, 8))
    seen: dict[str, Any] = {"causal": causal, "first": 0, "window": window}
    outs: dict[str, Value] = {}
    for layer in range(2):
        q = b.one("aten.permute", [x], dims=(0, 2, 1, 3))  # the kernel takes a copy
        rule: dict[str, Any] = {"scale": 0.3, "softcap": 20.0 * layer}
        s = b.one(SCORES, [q, k, *([slopes] if layer else [])], **seen, **rule)
        weights_see = {**seen, "causal": not causal} if other and layer else seen
        p = b.one(WEIGHTS, [s, *([sink] if sinks else [])], **weights_see)
        y = b.one(VALUES, [p, v], **seen)
        if not layer:
            outs |= {name: value for name, value in (("s", s), ("p", p)) if name == shown}
        x = b.one("aten.permute", [y], dims=(0, 2, 1, 3))
    return b.finish({"y": b.one("aten.exp", [x]), **outs})


def _outputs(program: Program, executor: Executor, shown: bool = False) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    batch = {n: rng.standard_normal(t.shape).astype(np.float32)
             for n, t in program.batch_types.items()}  # fmt: skip
    seen: list[int] = []
    tap = (lambda index, *_: seen.append(index)) if shown else None
    found = executor.run_step({}, batch, tap=tap).outputs
    assert seen == (list(range(len(program.nodes))) if shown else [])
    return found


def _whole(executor: Executor) -> int:
    return sum(step.attention is not None for step in executor.plan.steps)


CASES: list[dict[str, Any]] = [
    {}, {"window": 7}, {"causal": False}, {"sinks": True}, {"places": 300, "window": 130},
    {"contract": "rounded/1-draft.1;b=28"},
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_one_call_has_the_bits_of_three_nodes(case: dict[str, Any]) -> None:
    program = _program(**case)
    for threads in (1, 3):
        executor = Executor(program, ExecutionContext(threads=threads))
        assert _whole(executor) == 2
        shown = _outputs(program, executor, shown=True)
        for _ in range(2):
            assert _outputs(program, executor)["y"].tobytes() == shown["y"].tobytes()


@pytest.mark.parametrize("name", ["s", "p"])
def test_what_somebody_reads_is_computed(name: str) -> None:
    program = _program(shown=name)
    executor = Executor(program)
    assert _whole(executor) == 1
    shown, found = _outputs(program, executor, shown=True), _outputs(program, executor)
    assert {n: a.tobytes() for n, a in found.items()} == {n: a.tobytes() for n, a in shown.items()}


def test_nodes_that_see_different_keys_are_three_calls() -> None:
    program = _program(other=True)
    executor = Executor(program)
    assert _whole(executor) == 1
    shown, found = _outputs(program, executor, shown=True), _outputs(program, executor)
    assert found["y"].tobytes() == shown["y"].tobytes()


def test_kernels_of_a_hook_are_called_for_every_node() -> None:
    asked: list[int] = []
    program = _program()
    executor = Executor(program, kernels=lambda index, *_: asked.append(index))
    assert _whole(executor) == 0
    _outputs(program, executor)
    named = [i for i, node in enumerate(program.nodes) if node.op != "aten.permute"]
    assert asked == named


def test_memory_grows_with_the_text() -> None:
    plans = [make_plan(_program(places)).arena_bytes for places in (128, 256, 1024)]
    assert plans[1] < 2.1 * plans[0]
    assert plans[2] < 8.1 * plans[0]
    every = make_plan(_program(1024), PlanOptions(blocks=False))
    assert every.arena_bytes > 8 * plans[2]


def test_a_contract_with_an_attention_of_its_own_has_no_whole_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program, ordinary = _program(), CPU.kernels(parse_contract(ORDERED_1))
    assert len(closed(program, ordinary, ())) == 6
    for op in (SCORES, WEIGHTS, VALUES):
        one = SimpleNamespace(own_operators=frozenset([op]))
        monkeypatch.setattr(fused, "parse_contract", lambda _, one=one: one)
        assert closed(program, ordinary, ()) == {}
    own = replaced(ordinary, frozenset([VALUES]), lambda _, run: run)
    assert ordinary[VALUES].attends is not None and own[VALUES].attends is None
