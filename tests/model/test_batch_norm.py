"""Batch normalisation in captured programs: running statistics, evaluation, what is refused."""

from __future__ import annotations

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import torch.nn.functional as F  # noqa: E402
from capture_models import CASES, Residual, classify  # noqa: E402
from torch import nn  # noqa: E402

import tallystick  # noqa: E402
from tallystick import _core  # noqa: E402
from tallystick.errors import TallystickError, UnsupportedOperatorError, UsageError  # noqa: E402
from tallystick.program.capture import capture  # noqa: E402
from tallystick.program.capture.api import capture_eval  # noqa: E402
from tallystick.program.executor import Executor  # noqa: E402
from tallystick.program.optimizers import SGD  # noqa: E402

CASE = CASES["resnet"]


def test_running_statistics_follow_torchs_over_five_steps() -> None:
    torch.manual_seed(1)
    module = CASE.build()
    step = capture(module, classify, CASE.schema(), SGD(0.1))
    state = step.initial_state
    assert state is not None
    double, executor = copy.deepcopy(module).double(), Executor(step.program)
    optimizer = torch.optim.SGD(double.parameters(), 0.1)
    for seed in range(5):
        batch = CASE.example(seed)
        executor.run_step(state, {k: v.numpy() for k, v in batch.items()}, {"lr": 0.1})
        optimizer.zero_grad()
        classify(double, {"x": batch["x"].double(), "y": batch["y"]}).backward()
        optimizer.step()
    buffers = dict(double.named_buffers())
    assert set(buffers) == {k[7:] for k in state if k.startswith("buffer.")}
    for name, buffer in buffers.items():
        np.testing.assert_allclose(state[f"buffer.{name}"], buffer.numpy(), rtol=2e-5, atol=2e-6)
    assert state["buffer.norm.num_batches_tracked"] == 5
    assert state["buffer.norm.num_batches_tracked"].dtype == np.int64
    # And evaluation reads them.
    batch = CASE.example(9)
    arrays = {k: v.numpy() for k, v in batch.items()}
    program = capture_eval(module, classify, CASE.schema())
    operators = {node.op for node in program.nodes}
    assert "aten._native_batch_norm_legit_no_training" in operators
    result = Executor(program).run_step({k: state[k] for k in program.state_types}, arrays)
    assert result.loss is not None
    double.eval()
    exact = classify(double, {"x": batch["x"].double(), "y": batch["y"]}).item()
    assert abs(float(result.loss) - exact) < 1e-4


def test_a_module_used_twice_updates_its_statistics_twice() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.head = nn.BatchNorm1d(20), nn.Linear(20, 10)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.head(self.norm(2 * self.norm(x) + 1))
            return out

    case = CASES["mlp"]
    module, batch = Twice(), case.example(3)
    step = capture(module, classify, case.schema(), SGD(0.1))
    state = step.initial_state
    assert state is not None
    Executor(step.program).run_step(state, {k: v.numpy() for k, v in batch.items()}, {"lr": 0.1})
    module(batch["x"])
    for name, buffer in module.named_buffers():
        np.testing.assert_allclose(state[f"buffer.{name}"], buffer.numpy(), rtol=1e-5, atol=1e-6)
    assert state["buffer.norm.num_batches_tracked"] == 2


def test_frozen_statistics_stay() -> None:
    case = CASES["resnet-frozen"]
    step = capture(case.build(), classify, case.schema(), SGD(0.1))
    assert step.initial_state is not None
    before = {k: v.copy() for k, v in step.initial_state.items()}
    arrays = {k: v.numpy() for k, v in case.example(1).items()}
    Executor(step.program).run_step(step.initial_state, arrays, {"lr": 0.1})
    for name, value in step.initial_state.items():
        if name.startswith("buffer.norm."):
            assert value.tobytes() == before[name].tobytes()
    assert not np.array_equal(step.initial_state["param.norm.weight"], before["param.norm.weight"])


class One(nn.Module):
    """A single normalisation in front of a linear layer."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm, self.head = norm, nn.Linear(20, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.norm(x))
        return out


def test_what_cannot_be_is_refused_in_words() -> None:
    lone = {"x": ((1, 20), "f32"), "y": ((1,), "i64")}
    with pytest.raises(UsageError, match=r"one value per channel|more than 1 value"):
        capture(One(nn.BatchNorm1d(20)), classify, lone, SGD(0.1))
    cumulative = nn.BatchNorm1d(20, momentum=None)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="values of tensors"):
        capture(One(cumulative), classify, CASES["mlp"].schema(), SGD(0.1))


def test_statistics_changed_in_place_are_refused() -> None:
    class Direct(One):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            n = self.norm
            y = torch.batch_norm(
                x, n.weight, n.bias, n.running_mean, n.running_var, True, 0.1, 1e-5, False
            )
            out: torch.Tensor = self.head(y)
            return out

    with pytest.raises(UnsupportedOperatorError, match="in place"):
        capture(Direct(nn.BatchNorm1d(20)), classify, CASES["mlp"].schema(), SGD(0.1))


def test_a_pool_without_an_element_to_look_at_is_refused() -> None:
    class Pools(One):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            planes = F.max_pool2d(x.view(-1, 4, 5, 1), (1, 2), 1, (0, 1), (1, 2))
            out: torch.Tensor = self.head(planes.reshape(x.shape[0], 20))
            return out

    with pytest.raises(TallystickError, match="no element"):
        capture(Pools(nn.Identity()), classify, CASES["mlp"].schema(), SGD(0.1))


def eager_steps(isa: str, threads: int) -> bytes:
    """Parameters and buffers after three steps of plain PyTorch under the contract."""
    _core.set_isa(isa)
    _core.set_threads(threads)
    torch.manual_seed(2)
    module = Residual()
    optimizer = torch.optim.SGD(module.parameters(), 0.1, foreach=False)
    batches = [CASE.example(seed) for seed in range(3)]
    with tallystick.reproducible("ordered/1"):
        for batch in batches:
            optimizer.zero_grad()
            classify(module, batch).backward()
            optimizer.step()
    return b"".join(t.detach().numpy().tobytes() for t in module.state_dict().values())


def test_eager_code_has_one_result_on_every_path() -> None:
    found = {eager_steps(isa, 1 + k % 2) for k, isa in enumerate(_core.supported_isas())}
    assert len(found) == 1


def test_eager_and_captured_statistics_are_the_same_bits() -> None:
    torch.manual_seed(2)
    module, batch = Residual(), CASE.example(0)
    step = capture(module, classify, CASE.schema(), SGD(0.1))
    assert step.initial_state is not None
    arrays = {k: v.numpy() for k, v in batch.items()}
    Executor(step.program).run_step(step.initial_state, arrays, {"lr": 0.1})
    with tallystick.reproducible("ordered/1"):
        module(batch["x"])
    for name, buffer in module.named_buffers():
        assert step.initial_state[f"buffer.{name}"].tobytes() == buffer.numpy().tobytes(), name
