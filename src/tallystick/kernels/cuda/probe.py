"""The start-up probe of a GPU: its kernels against the processor's.

The operands tell one reading of the contract from another. A driver, a compiler or a device that
computes something else is refused before it computes a step. The golden vectors (`make gpu-check`)
say more; this says enough to begin.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tallystick.errors import EnvironmentRefusedError
from tallystick.kernels.cpu.device import CPU
from tallystick.numerics.arguments import complete_attrs
from tallystick.numerics.contracts import Contract
from tallystick.numerics.operators.elementary import FUNCTIONS
from tallystick.numerics.registry import all_ops
from tallystick.numerics.types import DTYPES, TensorType, type_of

if TYPE_CHECKING:
    from tallystick.kernels.cuda.device import Cuda

_Case = tuple[str, dict[str, Any], list[np.ndarray]]

# Zeros, ones, subnormals, the ends of the range, infinities, NaNs with payloads.
_WORDS = np.array(
    [
        0, 0x80000000, 1, 0x80000001, 0x7FFFFF, 0x807FFFFF, 0x800000, 0x3F800000, 0xBF800000,
        0x3F7FFFFF, 0x3F800001, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000,
        0xFFC12345, 0x7F812345, 0x4D800000, 0x5F18B878,
    ],
    np.uint32,
)  # fmt: skip


def _cases() -> Iterator[_Case]:
    rng = np.random.default_rng(20260)

    def floats(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, np.float32)

    words = np.concatenate([_WORDS, rng.integers(0, 1 << 32, 4000, dtype=np.uint32)])
    bits = words.view(np.float32)
    other = rng.permutation(bits)
    for name in FUNCTIONS:
        yield f"aten.{name}", {}, [bits]
    yield "aten.pow.Tensor_Scalar", {"exponent": 1.7}, [np.abs(bits)]
    yield "aten.add.Tensor", {"alpha": 0.3}, [bits, other]
    for name in ("mul.Tensor", "div.Tensor", "maximum", "lt.Tensor"):
        yield f"aten.{name}", {}, [bits, other]
    yield "aten.sqrt", {}, [bits]
    yield "aten.mm", {}, [floats(67, 300), floats(300, 35)]
    yield "aten.bmm", {}, [floats(3, 9, 130), floats(3, 130, 5)]
    sizes = {
        "stride": (2, 1), "padding": (1, 0), "dilation": (1, 2), "transposed": False,
        "output_padding": (0, 0), "groups": 1,
    }  # fmt: skip
    x, w = floats(2, 5, 9, 8), floats(4, 5, 3, 2)
    yield "aten.convolution", sizes, [x, w, floats(4)]
    mask = {"output_mask": (True, True, True)}
    yield "aten.convolution_backward", {**sizes, **mask}, [floats(2, 4, 5, 6), x, w]
    yield "aten.sum", {}, [floats(70, 1100)]
    yield "aten.sum.dim_IntList", {"dim": (0,), "keepdim": False}, [floats(1100, 70)]
    yield "aten._softmax", {"dim": -1}, [floats(5, 333)]
    sizes = {"normalized_shape": (77,), "eps": 1e-5}
    yield "aten.native_layer_norm", sizes, [floats(6, 77), floats(77), floats(77)]
    index = rng.integers(0, 11, (4, 9))
    yield (
        "aten.embedding_dense_backward",
        {"num_weights": 11, "padding_idx": -1},
        [
            floats(4, 9, 20),
            index,
        ],
    )
    key = np.array([7, 3], np.int64)
    yield "tallystick.dropout_mask", {"draw": 2, "p": 0.3, "shape": (33, 7)}, [key]
    yield "tallystick.normal", {"draw": 1, "mean": 0.5, "std": 2.0, "shape": (301,)}, [key]


def differing(device: Cuda, contract: Contract) -> list[str]:
    """The operators of the probe whose bits under `contract` are not the processor's."""
    table, here = device.kernels(contract), CPU.kernels(contract)
    found = []
    for op, attrs, arrays in _cases():
        if op not in table:
            continue
        spec = all_ops()[op]
        types = tuple(type_of(a) for a in arrays)
        complete = complete_attrs(spec, attrs, types)
        kinds = spec.infer(complete, types)
        expected = [np.empty(t.shape, DTYPES[t.dtype]) for t in kinds]
        here[op].run(complete, arrays, expected)
        outputs = [_tensor(device, t) for t in kinds]
        inputs = []
        for array, kind in zip(arrays, types, strict=True):
            inputs.append(_tensor(device, kind))
            device.write(array, inputs[-1])
        table[op].run(complete, inputs, outputs)
        got = [device.host(x) for x in outputs]
        if any(a.tobytes() != b.tobytes() for a, b in zip(got, expected, strict=True)):
            found.append(op)
    return found


def _tensor(device: Cuda, kind: TensorType) -> Any:
    strides = np.empty(kind.shape, DTYPES[kind.dtype]).strides
    return device.view(device.allocate(kind.nbytes), 0, kind.dtype, kind.shape, strides)


def check_device(device: Cuda, contract: Contract) -> None:
    """Raise EnvironmentRefusedError, which names the operators, where the bits differ."""
    wrong = differing(device, contract)
    if wrong:
        raise EnvironmentRefusedError(
            f"{device.name} computes {', '.join(wrong)} with other bits than {contract.name} "
            "defines: its driver or its compiler does not what its documentation says.",
            "Update NVIDIA's driver and nvidia-cuda-nvrtc, or compute with --device cpu; please "
            "report the output of `tallystick doctor`.",
        )
