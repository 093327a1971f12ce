"""The start-up probe of a GPU: its kernels against the processor's.

The operands tell one reading of the contract from another. A driver, a compiler or a device that
computes something else is refused before it computes a step. The golden vectors (`make gpu-check`)
say more; this says enough to begin.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tallystick.commit.tensor import tensor_digest
from tallystick.devices.cpu import CPU
from tallystick.errors import EnvironmentRefusedError
from tallystick.numerics.contracts import Contract
from tallystick.numerics.operators.elementwise import FUNCTIONS
from tallystick.numerics.registry import all_ops, complete_attrs
from tallystick.numerics.types import DTYPES, type_of
from tallystick.products.cuda.tiles import FORCED, TILES

if TYPE_CHECKING:
    from tallystick.devices.cuda.device import Cuda

Case = tuple[str, dict[str, Any], list[np.ndarray]]

# Zeros, ones, subnormals, the ends of the range, infinities, NaNs with payloads.
_WORDS = np.array(
    [
        0, 0x80000000, 1, 0x80000001, 0x7FFFFF, 0x807FFFFF, 0x800000, 0x3F800000, 0xBF800000,
        0x3F7FFFFF, 0x3F800001, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000,
        0xFFC12345, 0x7F812345, 0x4D800000, 0x5F18B878,
    ],
    np.uint32,
)  # fmt: skip


def _cases() -> Iterator[Case]:
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
    sizes = {"num_weights": 11, "padding_idx": -1}
    yield "aten.embedding_dense_backward", sizes, [floats(4, 9, 20), index]
    key = np.array([7, 3], np.int64)
    yield "tallystick.dropout_mask", {"draw": 2, "p": 0.3, "shape": (33, 7)}, [key]
    yield "tallystick.normal", {"draw": 1, "mean": 0.5, "std": 2.0, "shape": (301,)}, [key]
    yield "tallystick.gumbel", {"classes": 77, "draw": 1}, [key, rng.integers(0, 1 << 32, 4)]
    tokens, first = rng.integers(0, 9, 70), np.array([0, 3, 66])
    yield "tallystick.occurrences", {"classes": 9}, [tokens, first, first + 40]
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


def differing(device: Cuda, contract: Contract, more: Iterable[str]) -> list[str]:
    """What gives other bits under `contract` than on the processor: operators, what `more` finds,
    recordings, digests."""
    table = device.kernels(contract)
    found = [case[0] for case in _cases() if case[0] in table and not same(device, contract, case)]
    found += more
    if not _replays(device):
        found.append("a recording")
    if not _hashes(device):
        found.append("digests")
    return found


def differing_tiles(device: Cuda, contract: Contract) -> Iterator[str]:
    """The tiles of products that give other bits."""
    product = next(case for case in _cases() if case[0] == "aten.mm")
    for name in TILES:
        for split in (False, True):
            FORCED.tile, FORCED.split = name, split
            try:
                if not same(device, contract, product):
                    yield f"aten.mm by tiles {name}"
            finally:
                FORCED.tile = FORCED.split = None


def same(device: Cuda, contract: Contract, case: Case) -> bool:
    """True if a call gives the processor's bits."""
    op, attrs, arrays = case
    spec = all_ops()[op]
    types = tuple(type_of(a) for a in arrays)
    complete = complete_attrs(spec, attrs, types)
    expected = [np.empty(t.shape, DTYPES[t.dtype]) for t in spec.infer(complete, types)]
    CPU.kernels(contract)[op].run(complete, arrays, expected)
    inputs = [device.from_host(array) for array in arrays]
    outputs = [device.from_host(array) for array in expected]
    for tensor, array in zip(outputs, expected, strict=True):
        device.write(np.zeros_like(array), tensor)
    device.kernels(contract)[op].run(complete, inputs, outputs)
    got = [device.host(x) for x in outputs]
    return all(a.tobytes() == b.tobytes() for a, b in zip(got, expected, strict=True))


def _replays(device: Cuda) -> bool:
    """True if copies that were recorded are made again for every run."""
    target = device.from_host(np.zeros((40, 50), np.float32))
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
    there = [device.from_host(array) for array in arrays]
    return list(device.digests(there)) == [tensor_digest(array) for array in arrays]


def check_gpu(device: Cuda, contract: Contract, more: Iterable[str]) -> None:
    """Look once at what a device computes under a contract; `more` finds, while it is iterated,
    what differs beside operators. Raises EnvironmentRefusedError, which
    names the operators, where the bits differ."""
    if contract in device.probed:
        return
    wrong = differing(device, contract, more)
    if wrong:
        raise EnvironmentRefusedError(
            f"{device.name} computes {', '.join(wrong)} with other bits than {contract.name} "
            "defines: the fault is its driver's or its compiler's.",
            "Update NVIDIA's driver and nvidia-cuda-nvrtc, or compute with --device cpu; please "
            "report the output of `tallystick doctor`.",
        )
    device.probed.add(contract)
