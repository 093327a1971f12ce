"""Programs under contracts with numbers, and whose kernels run them (NUMERICS 13, 14)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from program_samples import linear_inputs, linear_step

from tallystick.devices.device import Run
from tallystick.errors import CorruptFileError, UnsupportedOperatorError, UnsupportedVersionError
from tallystick.kernels.evaluate import evaluate
from tallystick.numerics.contracts import resolve_contract
from tallystick.numerics.registry import OpSpec
from tallystick.numerics.types import Attrs
from tallystick.program.build import Builder
from tallystick.program.check import check_program
from tallystick.program.executor import Executor
from tallystick.program.ir import Node
from tallystick.program.text import parse_text

LR = {"lr": 0.5}
KEY = np.array([7, 3], np.int64)


@pytest.mark.parametrize(
    "name",
    [
        "rounded/1", "rounded/1;b=28", "replay/1", "replay/1;b=26", "exact/1", "exact/1;b=8",
        "replay/1;form=published;tau=9;tau.aten.mm=3;tau.tallystick.adamw_step=0",
    ],
)  # fmt: skip
def test_the_text_carries_the_contract_and_its_numbers(name: str) -> None:
    program = replace(linear_step(), contract=resolve_contract(name))
    data = program.text().encode("ascii")
    assert f"contract {resolve_contract(name)}\n".encode() in data
    assert parse_text(data) == program
    assert program.digest() != linear_step().digest()


@pytest.mark.parametrize("line", ["rounded/1", "rounded/1-draft.1;b=32", "rounded/1-draft.1;b=19"])
def test_another_spelling_is_refused(line: str) -> None:
    text = linear_step().text().replace("ordered/1-draft.1", line)
    with pytest.raises(UnsupportedVersionError):
        parse_text(text.encode("ascii"))


@pytest.mark.parametrize("line", ["rounded/1-draft.1;b=28 ", "rounded/1-draft.1;B", ";b=28"])
def test_what_is_no_identifier_is_malformed(line: str) -> None:
    text = linear_step().text().replace("ordered/1-draft.1", line)
    with pytest.raises(CorruptFileError):
        parse_text(text.encode("ascii"))


def test_an_unknown_operator_is_refused_with_the_contract() -> None:
    contract = resolve_contract("rounded/1;b=28")
    with pytest.raises(UnsupportedOperatorError, match=r"rounded/1-draft\.1;b=28"):
        Builder(contract).emit("aten.nothing", [])
    program = replace(linear_step(), contract=contract)
    nodes = (replace(program.nodes[0], op="aten.nothing"), *program.nodes[1:])
    with pytest.raises(UnsupportedOperatorError, match=r"rounded/1-draft\.1;b=28"):
        check_program(replace(program, nodes=nodes))
    with pytest.raises(UnsupportedOperatorError, match=r"rounded/1"):
        evaluate("aten.nothing", np.zeros(1, np.float32), contract="rounded/1")


def _loss(contract: str, **named: object) -> bytes:
    state, batch = linear_inputs()
    program = replace(linear_step(), contract=resolve_contract(contract))
    result = Executor(program, **named).run_step(state, batch, LR, KEY)  # type: ignore[arg-type]
    assert result.loss is not None
    return result.loss.tobytes() + state["param.w"].tobytes()


def test_the_executor_runs_the_contracts_kernels() -> None:
    assert _loss("rounded/1;b=20") != _loss("ordered/1")
    assert _loss("exact/1;b=8") != _loss("ordered/1")
    # Logged steps bring their own kernels; without them the log is empty (14.5).
    assert _loss("replay/1;b=20") == _loss("rounded/1;b=20")


def test_a_hook_chooses_kernels_and_every_node_runs_in_every_step() -> None:
    asked: list[tuple[int, str]] = []
    ran: list[int] = []

    def zeros(index: int) -> Run:
        def run(
            attrs: Attrs, inputs: Sequence[np.ndarray | None], outputs: Sequence[np.ndarray]
        ) -> None:
            ran.append(index)
            outputs[0].fill(0)

        return run

    def hook(index: int, node: Node, spec: OpSpec) -> Run | None:
        assert spec.name == node.op
        asked.append((index, node.op))
        return zeros(index) if node.op in ("aten.mm", "aten.full") else None

    state, batch = linear_inputs()
    program = replace(linear_step(), contract=resolve_contract("replay/1"))
    before = state["param.w"].copy()
    executor = Executor(program, kernels=hook)
    for _ in range(2):
        assert executor.run_step(state, batch, LR, KEY).loss == 0
    # `aten.full` depends on nothing, and would be computed once.
    assert sorted(ran) == [2, 2, 4, 4, 6, 6]
    assert {op for _, op in asked} >= {"aten.mm", "aten.full", "tallystick.sgd_step"}
    assert not np.array_equal(before, state["param.w"]), "weight decay goes on"


def test_a_hook_serves_tapped_steps_too() -> None:
    calls: list[int] = []

    def hook(index: int, node: Node, spec: OpSpec) -> Run | None:
        return (
            (lambda attrs, inputs, outputs: calls.append(index)) if node.op == "aten.mm" else None
        )

    state, batch = linear_inputs()
    tap: Callable[..., None] = lambda *_: None  # noqa: E731
    program = replace(linear_step(), contract=resolve_contract("replay/1"))
    Executor(program, kernels=hook).run_step(state, batch, LR, KEY, tap, advance=False)
    assert calls == [2, 6]
