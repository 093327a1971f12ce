"""Exact kernels on a torch device: the bits of the golden vectors, and what they refuse."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from unit.rounding.test_torch_stock import OPS, cases
from vectors.kernel_format import Case

pytest.importorskip("torch", reason="a torch device needs torch")

import torch

from tallystick import _core
from tallystick.contracts.ordered.cpu import kernel
from tallystick.contracts.ordered.torch import exact
from tallystick.contracts.ordered.torch import pointwise as philox
from tallystick.contracts.replay.stock.stock import stock_form
from tallystick.devices.torch import TorchDevice
from tallystick.errors import RefusedOperandsError
from tallystick.kernels.evaluate import view
from tallystick.numerics.contracts import find_contract
from tallystick.numerics.registry import all_ops
from tallystick.numerics.types import DTYPES, type_of

PUBLISHED = find_contract("replay/1;form=published")
# Operators whose integer operands an exact kernel takes, and a stock form the others.
BOTH = {
    "aten.add.Tensor", "aten.sub.Tensor", "aten.mul.Tensor", "aten.add.Scalar", "aten.sub.Scalar",
    "aten.mul.Scalar", "aten.sum", "aten.sum.dim_IntList", "aten._to_copy",
}  # fmt: skip


def devices() -> Iterator[object]:
    gone = pytest.mark.skipif(
        not torch.cuda.is_available(), reason="torch finds no NVIDIA GPU here"
    )
    yield "cpu"
    yield pytest.param("cuda", marks=[pytest.mark.gpu, gone])


@pytest.fixture(scope="module", params=list(devices()))
def device(request: pytest.FixtureRequest) -> TorchDevice:
    return TorchDevice(str(request.param))


def exact_cases() -> list[Case]:
    """Golden calls that an exact kernel computes."""
    found = []
    for case in cases():
        made = any(y.dtype == np.float32 for y in case.outputs)
        if case.op not in view and not (made and case.op in stock_form):
            found.append(case)
    return found


def laid_out(device: TorchDevice, x: np.ndarray | None, layout: str) -> torch.Tensor | None:
    """x there: C-contiguous; with its first axis innermost; or every other element of more."""
    if x is None:
        return None
    base = np.zeros((*x.shape[:-1], 2 * x.shape[-1]) if x.ndim else (), x.dtype)
    if layout == "sparse" and x.ndim:
        base[..., ::2] = x
        return torch.from_numpy(base).to(device.torch_device)[..., ::2]
    if layout == "turned":
        turned = np.ascontiguousarray(x.T) if x.ndim else x.copy()
        order = tuple(reversed(range(x.ndim)))
        return torch.from_numpy(turned).to(device.torch_device).permute(order)
    return torch.from_numpy(x.copy()).to(device.torch_device)


def garbage(device: TorchDevice, y: np.ndarray) -> torch.Tensor:
    raw = np.full(y.nbytes, 1 if y.dtype == bool else 0xA5, np.uint8)
    return torch.from_numpy(raw.view(y.dtype).reshape(y.shape)).to(device.torch_device)


def same(case: Case, outputs: list[torch.Tensor], how: str) -> None:
    for found, wanted in zip(outputs, case.outputs, strict=True):
        host = found.cpu().numpy()
        assert host.dtype == wanted.dtype and host.shape == wanted.shape
        if host.tobytes() != wanted.tobytes():
            raise AssertionError(f"{case.op} {case.attrs} {how}: {host} for {wanted}")


@pytest.mark.parametrize("layout", ["plain", "sparse", "turned"])
def test_golden_calls_have_their_bits(device: TorchDevice, layout: str) -> None:
    """NUMERICS 3.5, 6.11, 6.15, 8, 9, 10, 11.1, with operands of any strides."""
    table, seen = device.kernels(PUBLISHED), Counter[str]()
    for case in exact_cases():
        found = table[case.op]
        own = layout if found.strided else "plain"
        inputs = [laid_out(device, x, own) for x in case.inputs]
        outputs = [garbage(device, y) for y in case.outputs]
        found.run(dict(case.attrs), inputs, outputs)
        same(case, outputs, layout)
        seen[case.op] += 1
    wanted = set(exact.load())
    assert set(seen) == wanted, "an exact kernel without a golden call, or the other way round"
    assert wanted & set(stock_form) == BOTH


def test_outputs_in_the_storage_of_operands(device: TorchDevice) -> None:
    """What a kernel's marks allow the planner, it can do."""
    table, seen = device.kernels(PUBLISHED), set()
    for case in exact_cases():
        for operand, out in table[case.op].inplace:
            x = case.inputs[operand] if operand < len(case.inputs) else None
            y = case.outputs[out]
            if x is None or (x.dtype, x.shape) != (y.dtype, y.shape):
                continue
            inputs = [laid_out(device, x, "plain") for x in case.inputs]
            outputs = [garbage(device, y) for y in case.outputs]
            shared = inputs[operand]
            assert shared is not None
            outputs[out] = shared
            table[case.op].run(dict(case.attrs), inputs, outputs)
            same(case, outputs, f"output {out} in operand {operand}")
            seen.add(case.op)
    assert seen == {op for op, found in exact.items() if found.inplace}


def test_every_operator_has_a_kernel(device: TorchDevice) -> None:
    table = device.kernels(PUBLISHED)
    assert set(table) == set(OPS) - set(view)
    assert all(not device.kernels(find_contract(c)) for c in ("ordered/1", "rounded/1", "replay/1"))
    for op in exact:  # no kernel may ask more of memory than the ordinary one that it stands for
        assert set(exact[op].inplace) <= set(kernel[op].inplace)


I64, F32 = np.int64, np.float32
REFUSED = {
    "aten.embedding": ({"padding_idx": -1}, [np.ones((3, 2), F32), np.array([0, 3])]),
    "aten.gather": ({"dim": 1}, [np.ones((2, 3), F32), np.array([[0], [-1]])]),
    "aten.index_select": ({"dim": 0}, [np.ones((2, 3), F32), np.array([2])]),
    "aten.scatter.src": ({"dim": 0}, [np.ones(3, F32), np.array([0, 3]), np.ones(2, F32)]),
    "aten.floor_divide": ({}, [np.array([1, 2]), np.array([1, 0])]),
    "aten._to_copy": ({"dtype": "i64"}, [np.array([1, np.nan], F32)]),
    "tallystick.dropout_mask": ({"draw": 0, "p": 0.5, "shape": (4,)}, [np.array([1, 1 << 32])]),
}
FORMED = {
    "tallystick.uniform": (
        {"draw": 0, "low": 0.0, "high": 1.0, "shape": (4,)}, [np.array([-1, 0])]),
    "tallystick.gumbel": ({"classes": 4, "draw": 0}, [np.array([1, 0]), np.array([0, 1 << 32])]),
    "aten.index_add": ({"dim": 0}, [np.ones(3, F32), np.array([3]), np.ones(1, F32)]),
    "aten.embedding_dense_backward": (
        {"num_weights": 4, "padding_idx": -1, "scale_grad_by_freq": False},
        [np.ones((2, 3), F32), np.array([0, 9])]),
    "tallystick.cross_entropy": (
        {"ignore_index": -100, "reduction": "mean"}, [np.ones((2, 3), F32), np.array([0, 3])]),
}  # fmt: skip


@pytest.mark.parametrize("op", [*REFUSED, *FORMED])
def test_what_a_clause_refuses_is_refused_before_anything_is_written(
    device: TorchDevice, op: str
) -> None:
    """NUMERICS 1.13."""
    attrs, arrays = (REFUSED | FORMED)[op]
    inputs = [laid_out(device, x, "plain") for x in arrays]
    spec = all_ops()[op]
    made = spec.infer(dict(attrs), tuple(type_of(x) for x in arrays))
    outputs = [garbage(device, np.empty(t.shape, DTYPES[t.dtype])) for t in made]
    before = [out.clone() for out in outputs]
    with pytest.raises(RefusedOperandsError):
        device.kernels(PUBLISHED)[op].run(dict(attrs), inputs, outputs)
    assert all(torch.equal(a, b) for a, b in zip(before, outputs, strict=True))


@pytest.mark.parametrize("seed", [0, 1, (1 << 63) - 1, 0x123456789ABCDEF0 >> 1])
def test_words_are_philoxs(device: TorchDevice, seed: int) -> None:
    """NUMERICS 8.1, against the core; 4 words a block, and a count that is no multiple of it."""
    for step, draw, count in ((0, 0, 1), ((1 << 32) - 1, (1 << 32) - 1, 1001), (7, 3, 4096)):
        words = np.empty(count, np.uint32)
        _core.philox_words(seed, step, draw, 0, words)
        key = torch.tensor([seed, step], device=device.torch_device)
        assert philox.words(key, draw, count).cpu().numpy().astype(np.uint32).tolist() == (
            words.tolist()
        )


def test_words_of_late_blocks(device: TorchDevice) -> None:
    """NUMERICS 8.1: a block's number has two words in the counter."""
    first, count = (1 << 34) - 128, 256
    words = np.empty(count, np.uint32)
    _core.philox_words(5, 6, 7, first, words)
    key = torch.tensor([5, 6], device=device.torch_device)
    block = torch.arange(first // 4, (first + count) // 4, device=device.torch_device)
    assert philox.of_blocks(key, 7, block).reshape(-1).tolist() == words.tolist()


NASTY = np.array([0x00000000, 0x80000000, 0x7FC00000, 0x7F800000, 0xFF800000, 1, 0x80000001,
                  0x3F800000, 0xBF800000, 0x7F7FFFFF], np.uint32).view(F32)  # fmt: skip


@pytest.mark.parametrize(
    ("size", "stride", "padding", "dilation", "ceil_mode"),
    [(2, 2, 0, 1, False), (3, 2, 1, 1, True), (3, 1, 1, 2, False), (5, 3, 2, 1, True)],
)
def test_pooling_of_nasty_planes(
    device: TorchDevice, size: int, stride: int, padding: int, dilation: int, ceil_mode: bool
) -> None:
    """NUMERICS 6.15, against the ordinary kernel: zeros of both signs are one maximum, the first of
    equals counts, NaN is larger than all, and an infinity is no edge."""
    op, rng = "aten.max_pool2d_with_indices", np.random.default_rng(size)
    attrs = {"kernel_size": (size, size), "stride": (stride, stride + 1), "ceil_mode": ceil_mode,
             "padding": (padding, padding), "dilation": (dilation, dilation)}  # fmt: skip
    for values in (NASTY, NASTY[:2], NASTY[[0, 1, 4]], NASTY[4:5]):
        x = rng.choice(values, (3, 2, 9, 8))
        types = all_ops()[op].infer(dict(attrs), (type_of(x),))
        wanted = [np.empty(t.shape, DTYPES[t.dtype]) for t in types]
        kernel[op].run(dict(attrs), [x], wanted)
        case = Case(op, attrs, (x,), tuple(wanted))
        outputs = [garbage(device, y) for y in wanted]
        device.kernels(PUBLISHED)[op].run(dict(attrs), [laid_out(device, x, "plain")], outputs)
        same(case, outputs, f"of {values}")


def test_zeros_of_rounded_operators_are_positive(device: TorchDevice) -> None:
    """NUMERICS 13.2, 14.9: a rounded operator's zero is +0, any other keeps its sign."""
    table = device.kernels(PUBLISHED)
    a, b = (torch.full((1, 1), v, device=device.torch_device) for v in (-1e-30, 1e-30))
    for op, wanted in (("aten.mm", 0), ("aten.mul.Tensor", -(1 << 31))):
        out = garbage(device, np.empty((1, 1), F32))
        table[op].run({}, [a, b], [out])
        assert int(out.view(torch.int32)) == wanted


def test_fewer_bits_round_what_is_exact_too(device: TorchDevice) -> None:
    """NUMERICS 14.9: R(x) covers every f32 output but data movement."""
    table = device.kernels(find_contract("replay/1;b=24;form=published"))
    x = np.random.default_rng(1).standard_normal(1000).astype(F32)
    for op, rounds in (("aten.relu", True), ("aten.full", False)):
        out = torch.empty(1000, device=device.torch_device)
        attrs = {"size": (1000,), "value": 1 / 3, "dtype": "f32"} if op == "aten.full" else {}
        table[op].run(attrs, [laid_out(device, x, "plain")][: not attrs], [out])
        low = out.cpu().numpy().view(np.uint32) & 0xFF
        assert bool(low.any()) != rounds
