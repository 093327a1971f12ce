"""A published run that stays on a torch device (NUMERICS 14.9; the device seam, DESIGN 3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference.steps import under

pytest.importorskip("torch", reason="a torch device needs torch")

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tallystick import _core
from tallystick.contracts.replay.sections import is_logged
from tallystick.contracts.replay.stock.stock import Stock
from tallystick.contracts.replay.stock.table import stock_of
from tallystick.devices.context import ExecutionContext
from tallystick.devices.device import ALIGNMENT, Kernel, Run
from tallystick.devices.torch import TorchDevice
from tallystick.errors import EnvironmentRefusedError, UnsupportedOperatorError, UsageError
from tallystick.job.job import Job
from tallystick.job.recipes import new_job
from tallystick.job.recipes.base import Sources
from tallystick.numerics.contracts import Contract, find_contract
from tallystick.numerics.registry import OpSpec
from tallystick.program.executor import Executor
from tallystick.program.ir import Node, Program
from tallystick.program.runner import StepResult
from tallystick.run.execute.engine import Engine

STEPS = 8
CONTRACT = "replay/1;form=published"
JOBS: dict[str, tuple[str, dict[str, str]]] = {
    "mlp": ("mlp", {"features": "16", "classes": "4", "records": "64", "hidden": "32",
                    "batch_size": "16"}),
    "mlp-sgd": ("mlp", {"features": "8", "classes": "3", "records": "32", "hidden": "16",
                        "batch_size": "8", "optimizer": "sgd"}),
    "gpt2": ("gpt2", {"n_layer": "1", "n_head": "2", "n_embd": "16", "block_size": "8",
                      "batch_size": "2", "dropout": "0.1"}),
    "resnet50": ("resnet50", {"size": "tiny", "batch_size": "2"}),
}  # fmt: skip


def make_job(name: str, directory: Path) -> Job:
    text = directory / "text.txt"
    text.write_bytes(b"pack my box with five dozen liquor jugs. " * 60)
    recipe, settings = JOBS[name]
    sources = Sources(text=text) if recipe == "gpt2" else Sources()
    return new_job(recipe, directory / "job", settings, sources, steps=STEPS)


@pytest.fixture(scope="module", params=list(JOBS))
def job(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Job:
    return make_job(str(request.param), tmp_path_factory.mktemp("torch-device"))


class OnTheHost:
    """The executor's hook on the processor: x by `stock` from numpy arrays, R(x) by the core."""

    def __init__(self, program: Program, stock: Stock) -> None:
        self.contract = find_contract(program.contract)
        self.stock = stock

    def kernels(self, index: int, node: Node, spec: OpSpec) -> Run | None:
        if not any(is_logged(node, out, self.contract) for out in range(len(node.out_types))):
            return None
        plus_zero = spec.name in self.contract.own_operators

        def run(attrs: Any, inputs: Sequence[Any], outputs: Sequence[np.ndarray]) -> None:
            found = self.stock.compute(spec, attrs, inputs, outputs)
            for x, out in zip(found, outputs, strict=True):
                if x is not None:
                    no_change = np.full(-(-x.size // 5), 121, np.uint8)
                    _core.published_follow(x, no_change, self.contract.bits, plus_zero, out)

        return run


class Stepper:
    """A job's program under `contract`, step by step on one device."""

    def __init__(
        self, job: Job, contract: str, device: Any = None, stock: Stock | None = None
    ) -> None:
        self.inputs, self.state = Engine(job, job.genesis()), job.genesis()
        self.program = under(job.program, contract)
        if device is not None:
            self.state.move_to(device)
        context = ExecutionContext() if device is None else ExecutionContext(device=device)
        hook = None if stock is None else OnTheHost(self.program, stock).kernels
        self.stock = stock
        self.executor = Executor(self.program, context, hook)

    def run(self, step: int) -> StepResult:
        if self.stock is not None:
            self.stock.prepare()
        key = (self.inputs.job.commitment.rng_seed, step)
        batch, scalars = self.inputs.batch(step), self.inputs.scalars(step)
        return self.executor.run_step(self.state.slots, batch, scalars, key)


def same_steps(job: Job, contract: str, device: TorchDevice, steps: int) -> None:
    """The same bits there and, by the same torch kernels on numpy arrays, on the processor."""
    there = Stepper(job, contract, device)
    here = Stepper(job, contract, stock=Stock(stock_of(device).device, opaque=True))
    assert all(isinstance(slot, torch.Tensor) for slot in there.state.slots.values())
    start = there.state.root()
    for step in range(steps):
        mine, theirs = there.run(step), here.run(step)
        assert set(mine.outputs) == set(theirs.outputs)
        for name, found in mine.outputs.items():
            assert found.tobytes() == theirs.outputs[name].tobytes(), (step, name)
        a, b = there.state.digests(), here.state.digests()
        assert a == b, (step, [name for name in a if a[name] != b[name]])
    assert there.state.root() != start


def test_a_run_there_has_the_bits_of_the_host(job: Job) -> None:
    same_steps(job, CONTRACT, TorchDevice("cpu"), STEPS)


def test_with_fewer_bits_too(job: Job) -> None:
    same_steps(job, "replay/1;b=24;form=published", TorchDevice("cpu"), 3)


class Counting(TorchDevice):
    """Counts what crosses between host and device, and knows which operator is running."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.crossed: Counter[str] = Counter()
        self.running = ""

    def kernels(self, contract: Contract) -> Mapping[str, Kernel]:
        made = super().kernels(contract)
        return {op: replace(kernel, run=self._told(op, kernel.run)) for op, kernel in made.items()}

    def _told(self, op: str, kernel: Run) -> Run:
        def run(attrs: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            self.running = op
            try:
                kernel(attrs, inputs, outputs)
            finally:
                self.running = ""

        return run

    def write(self, host: np.ndarray, target: Any) -> None:
        self._count("written", host)
        super().write(host, target)

    def host(self, tensor: Any) -> np.ndarray:
        found = super().host(tensor)
        self._count("read", found)
        return found

    def _count(self, direction: str, array: np.ndarray) -> None:
        assert not self.running, f"{self.running} asked for bytes"
        self.crossed[f"calls {direction}"] += 1
        self.crossed[f"bytes {direction}"] += array.nbytes


# What would make a GPU wait for the host, or the host for it: a value, or a size, that is data.
READS = ("aten._local_scalar_dense", "aten.nonzero", "aten.masked_select", "aten.equal")
MADE_ON_THE_HOST = ("aten.lift_fresh", "aten.lift_fresh_copy")


class Watch(TorchDispatchMode):
    """Counts, per operator of the program, single values that torch hands to the host, and
    tensors that it makes of the host's data."""

    def __init__(self, device: Counting) -> None:
        super().__init__()
        self.device = device
        self.found: Counter[str] = Counter()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = str(function).rpartition(".")[0]
        if self.device.running and name in READS:
            assert name == READS[0] and args[0].dtype == torch.bool, (self.device.running, name)
            self.found[self.device.running] += 1
        elif self.device.running:
            assert name not in MADE_ON_THE_HOST, (self.device.running, name)
        return function(*args, **(kwargs or {}))


# The operators that refuse some values of their operands (NUMERICS 1.13), and so ask for one flag.
CHECKED = {
    "aten.embedding",
    "aten.embedding_dense_backward",
    "aten.max_pool2d_with_indices_backward",
    "tallystick.cross_entropy",
    "tallystick.cross_entropy_backward",
    "tallystick.dropout_mask",
}


def test_what_crosses_in_a_step(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch, the scalars and the key go there, the loss and the metrics come back."""
    device = Counting("cpu")
    stepper = Stepper(job, CONTRACT, device)
    stepper.run(0)
    device.crossed.clear()
    for name in ("cpu", "numpy", "tolist", "__array__"):
        real = getattr(torch.Tensor, name)

        def asked(
            self: Any, *args: Any, _name: str = name, _real: Any = real, **kwargs: Any
        ) -> Any:
            assert not device.running, f"{device.running} called Tensor.{_name}"
            return _real(self, *args, **kwargs)

        monkeypatch.setattr(torch.Tensor, name, asked)
    with Watch(device) as watch:
        stepper.run(1)
    program = stepper.program
    given = [spec.type.nbytes for spec in program.inputs if spec.kind != "state"]
    batch = [spec for spec in program.inputs if spec.kind == "batch"]
    results = [v for name, v in program.outputs if name not in program.next_state]
    read = [program.type_of(value).nbytes for value in results]
    assert device.crossed == {
        "calls written": len(batch) + (len(given) > len(batch)),  # scalars and key in one
        "bytes written": sum(given),
        "calls read": len(read),
        "bytes read": sum(read),
    }
    asking = Counter(node.op for node in program.nodes if node.op in CHECKED)
    assert watch.found == asking and asking


def test_the_watch_sees_what_it_looks_for() -> None:
    device = Counting("cpu")
    device.running = "test"
    x = torch.tensor([True, False])
    with Watch(device) as watch:
        assert bool(x.any())
        for read in (lambda: x.nonzero(), lambda: float(x.to(torch.float32).sum())):
            with pytest.raises(AssertionError):
                read()
        with pytest.raises(AssertionError):
            torch.tensor([1.0])
    assert watch.found == {"test": 1}
    with pytest.raises(AssertionError):
        device.host(x)


def test_there_is_no_kernel_under_another_contract(job: Job) -> None:
    for contract in ("ordered/1", "rounded/1", "replay/1;form=bounded"):
        with pytest.raises(UnsupportedOperatorError, match=r"torch:cpu has no kernel"):
            Executor(under(job.program, contract), ExecutionContext(device=TorchDevice("cpu")))


def test_an_operand_may_lie_there_already(job: Job) -> None:
    device = TorchDevice("cpu")
    first, second = (Stepper(job, CONTRACT, device) for _ in range(2))
    batch = {k: torch.from_numpy(np.array(v)) for k, v in second.inputs.batch(0).items()}
    key = (second.inputs.job.commitment.rng_seed, 0)
    first.run(0)
    second.executor.run_step(second.state.slots, batch, second.inputs.scalars(0), key)
    assert first.state.root() == second.state.root()


# -- the device itself (devices/device.py) ---------------------------------------------------------


def test_tensors_are_views_of_a_buffer() -> None:
    device = TorchDevice("cpu")
    buffer = device.allocate(256)
    assert buffer.data_ptr() % ALIGNMENT == 0 and buffer.numel() == 256
    whole = device.view(buffer, 64, "f32", (2, 3), (12, 4))
    device.write(np.arange(6, dtype=np.float32).reshape(2, 3), whole)
    assert whole.data_ptr() == buffer.data_ptr() + 64
    turned = device.view(whole, 4, "f32", (2, 2), (4, 12))  # inside of a tensor, axes turned
    assert device.host(turned).tolist() == [[1.0, 4.0], [2.0, 5.0]]
    spread = device.view(buffer, 68, "f32", (2, 2), (0, 4))
    assert device.host(spread).tolist() == [[1.0, 2.0]] * 2
    flags = device.view(buffer, 3, "bool", (3,), (2,))
    device.copy(torch.tensor([True, False, True]), flags)
    assert buffer[[3, 5, 7]].tolist() == [1, 0, 1]
    assert device.view(buffer, 0, "i64", (2, 0, 3), (0, 0, 8)).shape == (2, 0, 3)
    assert device.view(buffer, 248, "f64", (), ()).shape == ()
    digest = TorchDevice("cpu").digest(turned)
    assert digest == device.digest(turned.contiguous())


def test_bits_are_copied_as_they_are() -> None:
    """NUMERICS 9, 1.5: another NaN stays what it is, until an operator computes."""
    device = TorchDevice("cpu")
    odd = np.array([0xFFC12345, 0x7F800001, 0x80000000, 1], np.uint32).view(np.float32)
    there = device.view(device.allocate(16), 0, "f32", (4,), (4,))
    odd.setflags(write=False)
    device.write(odd, there)
    second = device.view(device.allocate(16), 0, "f32", (4,), (4,))
    device.copy(there, second)
    assert device.host(second).tobytes() == odd.tobytes()


def test_what_is_no_tensor_of_the_device_is_named() -> None:
    device, x = TorchDevice("cpu"), torch.zeros(2, 3)
    assert device.problem(x, "f32", (2, 3)) == "" and device.writable(x)
    assert "numpy" not in device.problem(x, "f32", (2, 3))
    assert "ndarray" in device.problem(np.zeros((2, 3), np.float32), "f32", (2, 3))
    assert "meta" in device.problem(x.to("meta"), "f32", (2, 3))
    assert "float32" in device.problem(x, "f64", (2, 3))
    assert "[3, 2]" in device.problem(x.t(), "f32", (3, 2))
    assert not device.writable(torch.zeros(1, requires_grad=True))


def test_a_device_that_is_not_there() -> None:
    with pytest.raises(UsageError, match="abacus"):
        TorchDevice("abacus")
    if not torch.cuda.is_available():
        with pytest.raises(EnvironmentRefusedError, match="cuda"):
            TorchDevice("cuda")


def test_more_memory_than_there_is() -> None:
    with pytest.raises(MemoryError, match="torch:cpu"):
        TorchDevice("cpu").allocate(1 << 62)


def test_a_state_moves_there_and_back(job: Job) -> None:
    state = job.genesis()
    root, host = state.root(), {n: np.array(a) for n, a in state.slots.items()}
    state.move_to(TorchDevice("cpu"))
    assert state.root() == root
    tensors = state.tensors()
    assert {n: tensors[n].tobytes() for n in host} == {n: a.tobytes() for n, a in host.items()}
