"""The start-up probe of a GPU: its kernels against the processor's.

The operands tell one reading of the contract from another. A driver, a compiler or a device that
computes something else is refused before it computes a step. The golden vectors (`make gpu-check`)
say more; this says enough to begin.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tallystick.commit.tensor import tensor_digest
from tallystick.contracts.exact.cuda.ways import FORCED as FORCED_WAY
from tallystick.contracts.exact.cuda.ways import ways
from tallystick.devices.cpu import CPU
from tallystick.errors import EnvironmentRefusedError
from tallystick.numerics.arguments import complete_attrs
from tallystick.numerics.contracts import BLOCK_LENGTHS, Contract
from tallystick.numerics.operators.elementary import FUNCTIONS
from tallystick.numerics.registry import all_ops
from tallystick.numerics.types import DTYPE_NAMES, DTYPES, type_of
from tallystick.products.cuda.tiles import FORCED, TILES

if TYPE_CHECKING:
    from tallystick.devices.cuda.device import Cuda

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
    yield "aten.index_select", {"dim": 0}, [floats(13, 6), rng.integers(0, 13, 29)]
    yield "aten.index_add", {"dim": 0}, [floats(7, 6), rng.integers(0, 7, 50), floats(50, 6)]
    yield "aten.cumsum", {"dim": -1}, [floats(3, 700)]
    yield "tallystick.rank", {"dim": -1}, [floats(4, 65).round(1)]
    yield "aten.gelu", {"approximate": "none"}, [bits]
    targets = rng.integers(0, 77, 6)
    yield "tallystick.cross_entropy", {"ignore_index": -100}, [floats(6, 77), targets]
    scalars = [np.array(x) for x in (1e-3, 0.9**3, 0.999**3)]
    rates = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.1}
    moments = [floats(1003), floats(1003), floats(1003), floats(1003) ** 2]
    yield "tallystick.adamw_step", rates, [*moments, *scalars]


def differing(device: Cuda, contract: Contract) -> list[str]:
    """What gives other bits under `contract` than on the processor: operators, tiles of products,
    recordings, digests, rounding logs."""
    table = device.kernels(contract)
    found = [case[0] for case in _cases() if case[0] in table and not _same(device, contract, case)]
    found += _by_integers(device, contract) if contract.width else _by_tiles(device, contract)
    if not _replays(device):
        found.append("a recording")
    if not _hashes(device):
        found.append("digests")
    if contract.form == "bounded":
        from tallystick.contracts.replay.bounded.log_probe import logs_differ

        if logs_differ(device, contract.bits):
            found.append("a rounding log")
    return found


def _by_tiles(device: Cuda, contract: Contract) -> Iterator[str]:
    """The tiles of products that give other bits."""
    product = next(case for case in _cases() if case[0] == "aten.mm")
    for name in TILES:
        for split in (False, True):
            FORCED.tile, FORCED.split = name, split
            try:
                if not _same(device, contract, product):
                    yield f"aten.mm by tiles {name}"
            finally:
                FORCED.tile = FORCED.split = None


def _by_integers(device: Cuda, contract: Contract) -> Iterator[str]:
    """The ways to multiply integers (NUMERICS 17.8) that give other bits: on several blocks of
    terms of very different sizes, with ties, the largest integers, and infinities."""
    rng, length = np.random.default_rng(17), BLOCK_LENGTHS[contract.width]
    shapes = ((70, 2 * length + 70), (2 * length + 70, 35))
    a, b = (
        (rng.standard_normal(s) * np.exp2(rng.integers(-20, 20, s))).astype(np.float32)
        for s in shapes
    )
    a[:2] = np.nextafter(np.float32(1), np.float32(0)) * np.array([[1], [-1]], np.float32)
    a[2] = np.float32(2.0**-contract.width) * rng.integers(-99, 99, shapes[0][1])
    a[2, 0], b[:, 0], a[3, 5], b[9, 3] = 0.75, a[0, 0], np.inf, -np.inf
    try:
        for way in ways(contract.width):
            FORCED_WAY.way = way.name
            if not _same(device, contract, ("aten.mm", {}, [a, b])):
                yield f"aten.mm by {way.name}"
    finally:
        FORCED_WAY.way = None


def _same(device: Cuda, contract: Contract, case: _Case) -> bool:
    """True if a call gives the processor's bits."""
    op, attrs, arrays = case
    spec = all_ops()[op]
    types = tuple(type_of(a) for a in arrays)
    complete = complete_attrs(spec, attrs, types)
    expected = [np.empty(t.shape, DTYPES[t.dtype]) for t in spec.infer(complete, types)]
    CPU.kernels(contract)[op].run(complete, arrays, expected)
    inputs = [_there(device, array) for array in arrays]
    outputs = [_there(device, array) for array in expected]
    for tensor, array in zip(outputs, expected, strict=True):
        device.write(np.zeros_like(array), tensor)
    device.kernels(contract)[op].run(complete, inputs, outputs)
    got = [device.host(x) for x in outputs]
    return all(a.tobytes() == b.tobytes() for a, b in zip(got, expected, strict=True))


def _replays(device: Cuda) -> bool:
    """True if copies that were recorded are made again for every run."""
    target = _there(device, np.zeros((40, 50), np.float32))
    source = device.contiguous("f32", (50, 40))
    turned = device.view(source, 0, "f32", (40, 50), (4, 160))
    copies = device.sequence([(lambda _, i, o: device.copy(i[0], o[0]), {}, [turned], [target])])
    for turn in range(4):
        array = np.arange(2000, dtype=np.float32).reshape(50, 40) + np.float32(turn)
        device.write(array, source)
        copies.run()
        if device.host(target).tobytes() != array.T.tobytes():
            return False
    return True


def _hashes(device: Cuda) -> bool:
    """True if tensors around the sizes of leaves and groups of leaves have their digests."""
    arrays = [np.arange(n).astype(np.uint8) for n in (0, 1, 2047, 2048, 2049, 600_000)]
    there = [_there(device, array) for array in arrays]
    return list(device.digests(there)) == [tensor_digest(array) for array in arrays]


def _there(device: Cuda, array: np.ndarray) -> Any:
    tensor = device.contiguous(DTYPE_NAMES[array.dtype], array.shape)
    device.write(array, tensor)
    return tensor


def check_device(device: Cuda, contract: Contract) -> None:
    """Raise EnvironmentRefusedError, which names the operators, where the bits differ."""
    wrong = differing(device, contract)
    if wrong:
        raise EnvironmentRefusedError(
            f"{device.name} computes {', '.join(wrong)} with other bits than {contract.name} "
            "defines: the fault is its driver's or its compiler's.",
            "Update NVIDIA's driver and nvidia-cuda-nvrtc, or compute with --device cpu; please "
            "report the output of `tallystick doctor`.",
        )
