"""Factories that name a device: the program has the contract's bits (PROGRAM 5.10)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._device import _device_constructors

import tallystick
from tallystick.errors import UsageError
from tallystick.program.capture import capture, capture_forward
from tallystick.program.executor import Executor
from tallystick.program.optimizers import SGD

SOME = torch.arange(6.0).reshape(2, 3)


class Gives(nn.Module):
    def __init__(self, make: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.make = make

    def forward(self, x: Tensor) -> Tensor:
        return self.make(x)


def captured(make: Callable[[Tensor], Tensor], x: Tensor = SOME) -> np.ndarray:
    program = capture_forward(Gives(make), {"x": (tuple(x.shape), "f32")})
    outputs = Executor(program).run_step({}, {"x": x.numpy()}, rng=(0, 0)).outputs
    found: np.ndarray = outputs["logits"]
    return found


FACTORIES: dict[str, Callable[..., Tensor]] = {
    "arange": lambda x, **k: torch.arange(0.1, 2.0, 0.3, **k),
    "arange of integers": lambda x, **k: torch.arange(2, 9, 3, **k),
    "range": lambda x, **k: torch.range(0.5, 4.1, 0.7, **k),
    "linspace": lambda x, **k: torch.linspace(-0.3, 7.1, 50, **k),
    "logspace": lambda x, **k: torch.logspace(-0.3, 1.1, 50, **k),
    "full": lambda x, **k: torch.full((3, 2), 0.1, **k),
    "eye": lambda x, **k: torch.eye(3, 4, **k),
    "zeros": lambda x, **k: torch.zeros(3, **k),
    "ones": lambda x, **k: torch.ones(3, **k),
    "empty": lambda x, **k: torch.empty(3, 400, **k),
    "empty_strided": lambda x, **k: torch.empty_strided((2, 3), (3, 1), **k),
    "empty_permuted": lambda x, **k: torch.empty_permuted((2, 3), (0, 1), **k),
    "tensor": lambda x, **k: torch.tensor([0.1, 0.2], **k),
    "as_tensor": lambda x, **k: torch.as_tensor([0.1, 0.2], **k),
    "asarray": lambda x, **k: torch.asarray([0.1, 0.2], **k),
    "scalar_tensor": lambda x, **k: torch.scalar_tensor(0.1, **k),
    "zeros_like": lambda x, **k: torch.zeros_like(x, **k),
    "ones_like": lambda x, **k: torch.ones_like(x, **k),
    "full_like": lambda x, **k: torch.full_like(x, 0.1, **k),
    "empty_like": lambda x, **k: torch.empty_like(x, **k),
    "new_zeros": lambda x, **k: x.new_zeros(3, **k),
    "new_ones": lambda x, **k: x.new_ones(3, **k),
    "new_full": lambda x, **k: x.new_full((3,), 0.1, **k),
    "new_empty": lambda x, **k: x.new_empty((3,), **k),
    "new_tensor": lambda x, **k: x.new_tensor([0.1, 0.2], **k),
    "rand": lambda x, **k: torch.rand(5, **k),
    "randn": lambda x, **k: torch.randn(5, **k),
    "randint": lambda x, **k: torch.randint(9, (5,), **k),
    "rand_like": lambda x, **k: torch.rand_like(x, **k),
    "tril_indices": lambda x, **k: torch.tril_indices(3, 4, **k),
    "triu_indices": lambda x, **k: torch.triu_indices(3, 4, **k),
    "fftfreq": lambda x, **k: torch.fft.fftfreq(7, 0.3, **k),
    "rfftfreq": lambda x, **k: torch.fft.rfftfreq(7, 0.3, **k),
    "bartlett_window": lambda x, **k: torch.bartlett_window(9, **k),
    "blackman_window": lambda x, **k: torch.blackman_window(9, **k),
    "hamming_window": lambda x, **k: torch.hamming_window(9, **k),
    "hann_window": lambda x, **k: torch.hann_window(9, **k),
    "kaiser_window": lambda x, **k: torch.kaiser_window(9, **k),
    **{
        f"signal.windows.{name}": (
            lambda x, name=name, **k: getattr(torch.signal.windows, name)(9, **k)
        )
        for name in ("bartlett", "blackman", "cosine", "exponential", "gaussian", "hamming", "hann",
                     "kaiser", "nuttall")
    },
    "random and refused": lambda x, **k: torch.randperm(5, **k),
}  # fmt: skip
DEVICES = {
    "named": lambda make, x: make(x, device="cpu"),
    "object": lambda make, x: make(x, device=torch.device("cpu", 0)),
    "around": lambda make, x: _around(make, x),
}


def _around(make: Callable[..., Tensor], x: Tensor) -> Tensor:
    with torch.device("cpu"):
        return make(x)


@pytest.mark.parametrize("name", FACTORIES)
def test_a_factory_on_a_named_device_has_the_bits_of_reproducible(name: str) -> None:
    """Or both refuse it. Torch's own kernels make no value of a program."""
    make = FACTORIES[name]
    for call in DEVICES.values():
        try:
            with tallystick.reproducible(seed=0):
                wanted = call(make, SOME).numpy()
        except UsageError as error:
            assert "aten." in str(error) or "torch." in str(error)
            with pytest.raises(UsageError):
                captured(lambda x, call=call: call(make, x))
            continue
        found = captured(lambda x, call=call: call(make, x))
        assert found.dtype == wanted.dtype and found.shape == wanted.shape
        assert found.tobytes() == wanted.tobytes()


def test_a_range_of_any_length_needs_no_constant() -> None:
    found = captured(lambda x: x.sum() + torch.arange(5000, device="cpu"))
    assert found.tolist() == (np.arange(5000, dtype=np.float32) + 15).tolist()


def test_a_range_on_a_named_device_can_be_read() -> None:
    """Python gets its values, in loops, as indices and as lists (PROGRAM 5.14)."""

    def made(x: Tensor) -> Tensor:
        places = torch.arange(3, device="cpu")
        total = sum(x[:, int(i)] * float(i) for i in places)
        return total + x[:, places].sum(1) + x[:, places.tolist()[-1]] + int(places.numpy()[1])

    wanted = made(SOME).numpy()
    assert captured(made).tolist() == wanted.tolist()


def test_numbers_that_python_reads_are_those_of_reproducible() -> None:
    """PROGRAM 5.14(a): a known tensor is computed by the contract, and not by torch's kernels."""

    def made(x: Tensor) -> Tensor:
        rates = torch.linspace(-0.3, 7.1, 50).tolist()
        powers = torch.linspace(0.0, 1.0, 9).exp().numpy()
        return torch.stack([x[0, 1] * v for v in (*rates, *powers.tolist())])

    with tallystick.reproducible(seed=0):
        wanted = made(SOME).numpy()
    assert captured(made).tobytes() == wanted.tobytes()


MOVES: dict[str, Callable[[Tensor], Tensor]] = {
    "to": lambda x: x.to("cpu") * torch.arange(3, device="cpu").to("cpu"),
    "to with a type": lambda x: x.to("cpu", torch.int64) + x.to(device="cpu", dtype=torch.float32),
    "to the other's": lambda x: torch.linspace(0, 1, 3, device="cpu").to(x.device) * x,
    "cpu": lambda x: x.cpu() * torch.linspace(0, 1, 3).cpu(),
    "read": lambda x: x * torch.arange(3).cpu().numpy().tolist()[1],
}


@pytest.mark.parametrize("name", MOVES)
def test_a_tensor_of_the_trace_stays_where_it_is(name: str) -> None:
    with tallystick.reproducible(seed=0):
        wanted = MOVES[name](SOME).numpy()
    assert captured(MOVES[name]).tobytes() == wanted.tobytes()


def test_a_parameter_held_by_another_name_stays_too() -> None:
    class Held(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))
            self.also = [self.weight]

        def forward(self, x: Tensor) -> Tensor:
            return x * self.also[0].cpu() + self.also[0].to("cpu")

    step = capture(Held(), lambda m, b: m(b["x"]).sum(), {"x": ((2, 3), "f32")}, SGD(0.1))
    assert step.initial_state is not None
    found = Executor(step.program).run_step(step.initial_state, {"x": SOME.numpy()}, {"lr": 0.1})
    assert float(found.loss) == float(Held()(SOME).sum())


def _changed_number(x: Tensor) -> Tensor:
    number = torch.tensor(3)
    number += 1
    return x * int(number)


def _changed_part(x: Tensor) -> Tensor:
    places = torch.arange(3)
    places[1:].add_(1)
    return x * int(places[2])


def _changed_whole(x: Tensor) -> Tensor:
    places = torch.arange(3)
    last = places[2]
    places.add_(1)
    return x * int(last)


def _changed_constant(x: Tensor) -> Tensor:
    table = torch.tensor([1, 2, 3])
    table[0] = 7
    return x * float(table.tolist()[0])


@pytest.mark.parametrize(
    "make", [_changed_number, _changed_part, _changed_whole, _changed_constant]
)
def test_a_value_that_was_changed_in_place_is_not_read_as_it_was(
    make: Callable[[Tensor], Tensor],
) -> None:
    """PROGRAM 5.14: refused, or the new value; the old one would be silently wrong."""
    try:
        found = captured(make)
    except UsageError as error:
        assert "looks at the values" in str(error)
        return
    assert found.tolist() == make(SOME).tolist()


LENGTHS = [(0.1, 1.1, 1.0), (0.1, -7.9, -4.0), (1.0, 2.2, 0.2), (0.0, 1.0, 0.1), (2.0, 2.0, 1.0)]


@pytest.mark.parametrize("bounds", LENGTHS)
def test_a_range_has_the_length_and_values_of_torch(bounds: tuple[float, float, float]) -> None:
    """NUMERICS 9.1 takes the exact quotient, torch a rounded one."""
    wanted = torch.arange(*bounds, dtype=torch.float64).float().numpy()
    assert captured(lambda x: torch.arange(*bounds)).tobytes() == wanted.tobytes()


def test_a_tensor_that_torch_computes_behind_the_trace_is_refused() -> None:
    with pytest.raises(UsageError, match=r"torch computed aten\.linspace by itself"):
        captured(lambda x: x[0] + torch.ops.aten.linspace(0.0, 1.0, 3, device="cpu"))
    with pytest.raises(UsageError, match=r"torch computed aten\.linspace by itself"):
        captured(lambda x: x * torch.ops.aten.linspace(0.0, 1.0, 3, device="cpu").tolist()[1])


def test_a_value_that_is_changed_after_it_was_read_is_known() -> None:
    """PROGRAM 5.14, 5.8: the second trace asks its own tensors, as the first did."""

    def read_then_changed(x: Tensor) -> Tensor:
        places = torch.arange(3)
        last = int(places[2])
        places.add_(1)
        return x * last + places

    assert captured(read_then_changed).tolist() == read_then_changed(SOME).tolist()


def test_torch_may_have_remembered_the_function_of_a_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """transformers has a `torch.linspace` of its own while it loads a model, and torch then takes
    that one for what makes tensors on a device."""

    def made(x: Tensor) -> Tensor:
        return x[0, 1] * torch.tensor(torch.linspace(-0.3, 7.1, 50).tolist())

    wanted = captured(made)
    _device_constructors.cache_clear()
    with monkeypatch.context() as patched:
        patched.setattr(torch, "linspace", lambda *args: None)
        with torch.device("meta"):
            torch.empty(1)
    assert torch.linspace not in _device_constructors()
    assert captured(made).tobytes() == wanted.tobytes()
