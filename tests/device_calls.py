"""One operator on a device, from host arrays to host arrays; and all golden vectors on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import kernel_format as fmt
import numpy as np

from tallystick.devices.cpu import CPU
from tallystick.devices.device import Device, Tensor
from tallystick.kernels.evaluate import view
from tallystick.numerics.contracts import find_contract
from tallystick.numerics.registry import all_ops, complete_attrs
from tallystick.numerics.types import DTYPE_NAMES, TensorType, type_of
from tallystick.program.layout import contiguous_strides, new_tensor

Arrays = Sequence[np.ndarray | None]
OPS = all_ops()
KINDS = {name: {k: a.kind for k, a in spec.attrs.items()} for name, spec in OPS.items()}


def there(device: Device, x: np.ndarray, turned: bool = False) -> Tensor:
    """`x` on the device: C-contiguous, or laid out with its axes reversed and a gap (`turned`)."""
    if not turned or x.ndim < 2:
        tensor = new_tensor(device, type_of(x))
        device.write(x, tensor)
        return tensor
    whole = np.zeros((*reversed(x.shape[:-1]), x.shape[-1] + 1), x.dtype)
    axes = (*reversed(range(x.ndim - 1)), x.ndim - 1)
    whole[..., :-1] = x.transpose(axes)
    base = new_tensor(device, type_of(whole))
    device.write(whole, base)
    strides = contiguous_strides(whole.shape, x.itemsize)
    own = tuple(strides[axes.index(a)] for a in range(x.ndim))
    return device.view(base, 0, DTYPE_NAMES[x.dtype], x.shape, own)


def call(
    device: Device,
    op: str,
    attrs: Mapping[str, Any],
    arrays: Arrays,
    contract: str = "ordered/1",
    turned: bool = False,
    shared: tuple[int, int] | None = None,
) -> tuple[np.ndarray, ...]:
    """The outputs of `op`. `shared`: (input, output) that are one tensor."""
    spec = OPS[op]
    types = tuple(None if x is None else type_of(x) for x in arrays)
    complete = complete_attrs(spec, dict(attrs), types)
    out_types: tuple[TensorType, ...] = spec.infer(complete, types)
    kernel = device.kernels(find_contract(contract))[op]
    inputs = [None if x is None else there(device, x, turned and kernel.strided) for x in arrays]
    outputs = [new_tensor(device, t) for t in out_types]
    if shared is not None:
        outputs[shared[1]] = inputs[shared[0]]
    kernel.run(complete, inputs, outputs)
    return tuple(np.array(device.host(x), copy=True) for x in outputs)


@dataclass
class Checked:
    """What a pass over the vectors found."""

    operators: set[str] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)
    calls: int = 0
    wrong: list[str] = field(default_factory=list)

    def add(self, other: Checked) -> None:
        """Count another pass too."""
        self.operators |= other.operators
        self.missing |= other.missing
        self.calls += other.calls
        self.wrong += other.wrong

    def __str__(self) -> str:
        return (
            f"{len(self.operators)} operators, {self.calls} calls, {len(self.wrong)} wrong, "
            f"{len(self.missing)} operators without a kernel"
        )


def difference(expected: Sequence[np.ndarray], got: Sequence[np.ndarray]) -> str:
    """How the outputs differ from the expected ones; "" where they do not."""
    if len(expected) != len(got):
        return f"{len(got)} outputs instead of {len(expected)}"
    for i, (a, b) in enumerate(zip(got, expected, strict=True)):
        if not fmt.same_bits(a, b):
            if a.shape != b.shape or a.dtype != b.dtype:
                return f"output {i} is {a.dtype}{a.shape}, not {b.dtype}{b.shape}"
            unsigned = {1: np.uint8, 4: np.uint32, 8: np.uint64}[a.itemsize]
            left, right = (np.atleast_1d(x).view(unsigned).reshape(-1) for x in (a, b))
            at = np.flatnonzero(left != right)
            return (
                f"output {i}, {at.size} of {left.size} elements, first {at[0]}: "
                f"{left[at[0]]:#x}, expected {right[at[0]]:#x}"
            )
    return ""


def compared(
    expected: Sequence[np.ndarray], device: Device, op: str, attrs: Mapping[str, Any],
    arrays: Arrays, **how: Any,
) -> str:  # fmt: skip
    """How a call on `device` differs from the expected outputs; "" where it does not. A call that
    fails differs."""
    try:
        return difference(expected, call(device, op, attrs, arrays, **how))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _ways(kernel: Any, arrays: Arrays, case: fmt.Case) -> Iterator[dict[str, Any]]:
    yield {}
    if kernel.strided and any(x is not None and x.ndim > 1 for x in arrays):
        yield {"turned": True}
    for source, target in kernel.inplace:
        x = arrays[source] if source < len(arrays) else None
        if target >= len(case.outputs) or x is None:
            continue
        out = case.outputs[target]
        if x.shape == out.shape and x.dtype == out.dtype:
            yield {"shared": (source, target)}


def check_cases(
    device: Device,
    group: str,
    cases: Sequence[fmt.Case],
    ops: set[str] | None = None,
    contract: str = "ordered/1",
    found: Checked | None = None,
) -> Checked:
    """Golden vectors of `contract` on `device`, in every layout that its kernels take."""
    found = Checked() if found is None else found
    table = device.kernels(find_contract(contract))
    for ordinal, case in enumerate(cases):
        if case.op in view or (ops is not None and case.op not in ops):
            continue
        if case.op not in table:
            found.missing.add(case.op)
            continue
        found.operators.add(case.op)
        for way in _ways(table[case.op], case.inputs, case):
            found.calls += 1
            wrong = compared(
                case.outputs, device, case.op, case.attrs, case.inputs, contract=contract, **way
            )
            if wrong:
                attrs = dict(case.attrs)
                found.wrong.append(f"{group}[{ordinal}] {case.op} {attrs} {way}: {wrong}")
    return found


def check_vectors(
    device: Device, groups: Sequence[str] | None = None, ops: set[str] | None = None
) -> Checked:
    """Every golden vector of `ordered/1` on `device`."""
    found = Checked()
    for group in fmt.device_groups() if groups is None else groups:
        check_cases(device, group, fmt.load(group, KINDS), ops, found=found)
    return found


def same_as_processor(
    device: Device, op: str, attrs: Mapping[str, Any], arrays: Arrays, contract: str = "ordered/1",
    **how: Any,
) -> None:  # fmt: skip
    """Assert that `op` gives the bits of the processor, and writes within its memory."""
    with np.errstate(all="ignore"):
        expected = call(CPU, op, attrs, arrays, contract)
    wrong = difference(expected, call(device, op, attrs, arrays, contract, **how))
    shapes = [None if x is None else (str(x.dtype), x.shape) for x in arrays]
    assert not wrong, f"{op} {attrs} of {shapes}, {contract} {how}: {wrong}"
    driver: Any = getattr(device, "driver", None)
    if driver is not None:
        driver.check()


def agree(device: Device, op: str, arrays: Arrays, **attrs: Any) -> None:
    """`same_as_processor`, under `ordered/1`."""
    same_as_processor(device, op, attrs, arrays)


def nasty(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """f32 of very different sizes, some of them zeros of both signs, subnormal, infinite, NaN."""
    x = (rng.standard_normal(shape) * np.exp2(rng.integers(-20, 20, shape))).astype(np.float32)
    bits = np.array([0, 1 << 31, 1, 0x807FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000], np.uint32)
    some = rng.choice(bits.view(np.float32), shape)
    return np.asarray(np.where(rng.random(shape) < 0.1 * rng.random(), some, x), np.float32)
