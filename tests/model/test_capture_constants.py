"""Tensors with content are constants of the program, in the fewest nodes (PROGRAM 5.10)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from capture_checks import (
    Around,
    Function,
    agrees,
    example,
    first_step_agrees,
    step_of,
)
from torch import Tensor, nn

from tallystick.errors import UsageError
from tallystick.program.capture import capture_forward

HERE = r"test_capture_constants\.py:\d+"


def constant(make: Callable[[], Any]) -> tuple[np.ndarray, list[str]]:
    """The output of a forward program that returns `make()`, and the operators of its nodes."""

    class Gives(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            made: Tensor = make()
            return made

    program = capture_forward(Gives(), {"x": ((1,), "f32")})
    from tallystick.program.executor import Executor

    done = Executor(program).run_step({}, {"x": np.zeros(1, np.float32)})
    return done.outputs["logits"], [n.op for n in program.nodes]


ODD = torch.tensor([0.0, -0.0, float("inf"), float("-inf"), 1e-45, 3.4e38, 0.1, 0.1, 0.1])
CONTENT: dict[str, tuple[Callable[[], Tensor], list[str]]] = {
    "one": (lambda: torch.tensor([2.5]), ["aten.full"]),
    "run": (lambda: torch.tensor([7, 7, 7]), ["aten.full"]),
    "range": (lambda: torch.tensor([3, 5, 7, 9]), ["aten.arange"]),
    "falling": (lambda: torch.tensor([3.0, 2.0, 1.0, 0.0, -1.0]), ["aten.arange"]),
    "runs": (lambda: torch.tensor([True, True, False]), ["aten.full", "aten.full", "aten.cat"]),
    "mixed": (
        lambda: torch.tensor([0, 1, 2, 9, 9, 9]),
        ["aten.arange", "aten.full", "aten.cat"],
    ),
    "matrix": (lambda: torch.tensor([[1.5, 1.5], [1.5, 1.5]]), ["aten.full"]),
    "rows": (lambda: torch.tensor([[0, 1, 2]] * 4), ["aten.arange", "aten.view", "aten.expand"]),
    "repeated values": (
        lambda: torch.tensor([1.5, 2.5, 1.5, 2.5]),
        ["aten.full", "aten.full", "aten.cat"],
    ),
    "large integers": (
        lambda: torch.tensor([2**63 - 1, -(2**63), 2**53 + 1]),
        ["aten.full"] * 5 + ["aten.add.Tensor"] * 2 + ["aten.cat"],
    ),
    "empty": (lambda: torch.tensor([], dtype=torch.int64), ["aten.full"]),
}


@pytest.mark.parametrize("name", CONTENT)
def test_content_becomes_the_fewest_nodes(name: str) -> None:
    """PROGRAM 5.10: the same content gives the same nodes."""
    make, wanted = CONTENT[name]
    content = make()
    for again in (make, lambda: torch.as_tensor(content.numpy()), lambda: content):
        found, nodes = constant(again)
        assert sorted(nodes) == sorted(wanted)
        assert found.dtype == content.numpy().dtype and found.shape == tuple(content.shape)
        assert found.tobytes() == content.numpy().tobytes()


@pytest.mark.parametrize(
    "make",
    [
        lambda: ODD,
        lambda: torch.from_numpy(ODD.numpy()),
        lambda: torch.asarray(ODD.tolist()),
        lambda: torch.Tensor(ODD.tolist()),
        lambda: torch.ones(3).new_tensor(ODD.tolist()),
        lambda: torch.tensor(ODD.tolist(), device="cpu"),
        lambda: torch.stack([ODD[:5], ODD[4:]])[0],
        lambda: torch.tensor(np.float32(0.1)),
        lambda: torch.tensor([[[3]]]).bool(),
    ],
)
def test_every_way_to_content_keeps_its_bits(make: Callable[[], Tensor]) -> None:
    found, _ = constant(make)
    assert found.tobytes() == make().numpy().tobytes()


def test_a_constant_of_4096_elements_and_no_more() -> None:
    content = torch.rand(4096, generator=torch.Generator().manual_seed(4))
    found, _ = constant(lambda: content)
    assert found.tobytes() == content.numpy().tobytes()
    with pytest.raises(UsageError, match=f"4097 elements .*{HERE}.*register_buffer"):
        step_of(Around(lambda m, x: x * torch.tensor([0.5] * 4097).sum()))


def test_a_larger_one_that_is_kept_is_a_slot() -> None:
    """PROGRAM 5.20: its content is in the state, and no node makes it."""
    step = step_of(Around(lambda m, x: x * m.table.sum(), table=torch.ones(4097)))
    name = "buffer.outside.module.table"
    assert step.program.next_state[name].is_input
    assert step.initial_state is not None and step.initial_state[name].sum() == 4097


LOOKUP = torch.tensor([2, 0, 1])

CONSTANTS: dict[str, tuple[Function, dict[str, Any]]] = {
    "list": (lambda m, x: x * torch.tensor([1.0, 2.0, 3.0, 0.1]), {}),
    "attribute": (lambda m, x: x * m.scale + m.scale, {"scale": torch.tensor([0.3, 2.0, 3.0, 4])}),
    "outside": (lambda m, x: x[LOOKUP], {}),
    "array": (lambda m, x: x * torch.as_tensor(m.a), {"a": np.float32([1, 2, 3, 4])}),
    "conversion": (lambda m, x: x * torch.as_tensor(m.a).float(), {"a": np.int64([1, 2, 3, 4])}),
    "computed": (lambda m, x: x * (m.a * 2.0 + 1).exp(), {"a": torch.tensor([0.1, 0.2, 0.3, 0.4])}),
    "read": (lambda m, x: x[: int(m.n)] * m.n.item(), {"n": torch.tensor(2)}),
    "loop": (
        lambda m, x: sum(x[:h, :w].sum() for h, w in m.sizes.tolist()) * x,
        {"sizes": torch.tensor([[1, 2], [3, 4]])},
    ),
    "integers at once": (
        lambda m, x: x * int(torch.tensor([[1, 2], [3, 4]], device=x.device).prod(1).sum()),
        {},
    ),
    "choice": (
        lambda m, x: x * 2 if bool(m.flag.any()) else x,
        {"flag": torch.tensor([False, True])},
    ),
    "module": (lambda m, x: F.layer_norm(x, (4,), m.a, m.a), {"a": torch.tensor([1.0, 2, 3, 0.5])}),
    "where": (lambda m, x: torch.where(torch.tensor([True, False, True, True]), x, 0.0), {}),
    "needs a gradient": (
        lambda m, x: x * torch.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True),
        {},
    ),
    "on a device": (lambda m, x: x * torch.tensor([1.0, 2.0, 3.0, 4.0]).to(x.device), {}),
    "parameter by another name": (lambda m, x: x * m.also[0] ** 2, {}),
    "index": (lambda m, x: x[:, torch.tensor([0, 0, 3])] * x[torch.tensor(1)].sum(), {}),
    "assigned": (lambda m, x: _assigned(x), {}),
}


def _assigned(x: Tensor) -> Tensor:
    y = x.clone()
    y[0] = torch.tensor([1.0, 2.0, 3.0, 4.0])
    return y * x


@pytest.mark.parametrize("name", CONSTANTS)
def test_a_tensor_with_content_is_a_constant_of_the_program(name: str, tmp_path: Path) -> None:
    function, held = CONSTANTS[name]
    module = Around(function, **held)
    module.also = [module.weight]
    step = step_of(module)
    first_step_agrees(step, example(module), tmp_path)
    agrees(module)


def test_a_parameter_that_is_not_registered_is_refused() -> None:
    module = Around(lambda m, x: x * m.hidden[0])
    module.hidden = [nn.Parameter(torch.ones(4))]
    with pytest.raises(UsageError, match=f"requires a gradient but is not a registered.*{HERE}"):
        step_of(module)


def test_content_that_changes_between_forwards_is_refused() -> None:
    calls = [0.0]

    def counts(m: Any, x: Tensor) -> Tensor:
        calls[0] += 1
        return x * torch.tensor([1.0, calls[0], 2.0, 0.5])

    with pytest.raises(UsageError, match=rf"calls\[0\] .*changes at every forward.*{HERE}"):
        step_of(Around(counts))


def test_a_list_of_tensors_reads_values() -> None:
    with pytest.raises(UsageError, match=f"list of tensors.*{HERE}.*torch.stack"):
        step_of(Around(lambda m, x: x * torch.tensor([x.sum(), x.sum(), 1, 1])))
