"""Pointwise kernels of a GPU, emulated, against the CPU: shapes, layouts, refusals, traps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from check.fingerprint import function_digest
from device_calls import OPS, there
from emulated_gpu import emulated_gpu
from reference.data import SPECIAL, Gen
from vectors.kernel_cases_answer import WORDS_AT

import tallystick
from tallystick.devices.cuda.device import Cuda
from tallystick.devices.cuda.launch import merged, spread, takes_fours
from tallystick.devices.cuda.tensor import DeviceTensor
from tallystick.errors import RefusedOperandsError
from tallystick.numerics.contracts import find_contract
from tallystick.numerics.operators.elementwise import FUNCTIONS
from tallystick.numerics.registry import complete_attrs
from tallystick.numerics.types import DTYPES, type_of
from tallystick.program.layout import contiguous_strides


@pytest.fixture(scope="module")
def gpu() -> Cuda:
    return emulated_gpu(seed=11)


def displaced(gpu: Cuda, x: np.ndarray, by: int) -> DeviceTensor:
    """x on the device, its first element `by` elements after a multiple of 256 bytes."""
    whole = np.zeros(x.size + by, x.dtype)
    whole[by:] = x.reshape(-1)
    base = there(gpu, whole)
    strides = contiguous_strides(x.shape, x.itemsize)
    return gpu.view(base, by * x.itemsize, type_of(x).dtype, x.shape, strides)


Operands = tuple[np.ndarray | None, ...]


def run(
    gpu: Cuda, op: str, *arrays: np.ndarray | None, by: int = 0, out_by: int = 0, **given: Any
) -> tuple[np.ndarray, ...]:
    """The outputs of `op` on the device: operands displaced by `by`, outputs by `out_by`."""
    spec = OPS[op]
    types = tuple(None if x is None else type_of(x) for x in arrays)
    attrs = complete_attrs(spec, given, types)
    made = [np.zeros(t.shape, DTYPES[t.dtype]) for t in spec.infer(attrs, types)]
    outputs = [displaced(gpu, x, out_by) for x in made]
    inputs = [None if x is None else displaced(gpu, x, by) for x in arrays]
    gpu.kernels(find_contract("ordered/1"))[op].run(attrs, inputs, outputs)
    gpu.driver.check()  # type: ignore[attr-defined]
    return tuple(np.array(gpu.host(out)) for out in outputs)


def bits(x: np.ndarray) -> bytes:
    return np.ascontiguousarray(x).tobytes()


def check(gpu: Cuda, op: str, *arrays: np.ndarray | None, **given: Any) -> None:
    """The device's bits are the CPU's, whatever the alignment of the operands and the outputs."""
    expected = tallystick.evaluate(op, *arrays, **given)
    wanted = expected if isinstance(expected, tuple) else (expected,)
    for by, out_by in ((0, 0), (1, 0), (0, 1), (4, 4)):
        got = run(gpu, op, *arrays, by=by, out_by=out_by, **given)
        assert [bits(x) for x in got] == [bits(x) for x in wanted], (op, by, out_by, given)


def whole(label: str, *shape: int) -> np.ndarray:
    words = Gen(label).words(int(np.prod(shape)) if shape else 1)
    small = (words >> np.uint64(60)).astype(np.int64) - 8
    wide = words.view(np.int64)
    return np.where(words % np.uint64(3) == 0, wide, small).reshape(shape)


# Groups of four with and without a rest, rows of which four elements never lie together, one value
# for a row or for all.
PAIRS: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((1,), (1,)),
    ((3,), (3,)),
    ((1031,), (1031,)),
    ((1032,), ()),
    ((), (9,)),
    ((5, 8), (8,)),
    ((5, 8), (5, 1)),
    ((5, 7), (7,)),
    ((3, 1, 12), (4, 1)),
    ((2, 3, 4), (3, 1)),
    ((0, 4), (4,)),
)


@pytest.mark.parametrize(("left", "right"), PAIRS)
def test_shapes_and_alignments(gpu: Cuda, left: tuple[int, ...], right: tuple[int, ...]) -> None:
    """NUMERICS 10.1, 10.2, 10.5, 10.8."""
    make = Gen(f"{left}/{right}")
    a, b = make.wide(*left), make.wide(*right)
    check(gpu, "aten.sub.Tensor", a, b)
    check(gpu, "aten.add.Tensor", a, b, alpha=-0.3)
    check(gpu, "aten.lt.Tensor", a, b)
    check(gpu, "aten.where", make.bits(*right) < 0, a, a)
    x, y = whole("x", *left), whole("y", *right)
    check(gpu, "aten.add.Tensor", x, y, alpha=-3.0)
    check(gpu, "aten.bitwise_left_shift.Tensor", x, y)


@pytest.mark.parametrize(
    ("left", "right", "by", "out_by", "expected"),
    [
        ((8,), (8,), 0, 0, True),
        ((7,), (7,), 4, 4, True),  # three are left over
        ((8,), (), 0, 0, True),
        ((8,), (8,), 1, 0, False),
        ((8,), (8,), 0, 2, False),
        ((3, 8), (3, 1), 0, 0, True),
        ((3, 8), (3, 1), 0, 1, False),
        ((3, 6), (6,), 0, 0, False),
        ((4, 1), (1, 8), 0, 0, True),
    ],
)
def test_where_four_elements_are_taken_at_once(
    gpu: Cuda,
    left: tuple[int, ...],
    right: tuple[int, ...],
    by: int,
    out_by: int,
    expected: bool,
) -> None:
    """An access of 16 bytes at another place than a multiple of 16 ends a GPU's context."""
    shape = np.broadcast_shapes(left, right)
    a, b = (displaced(gpu, np.zeros(s, np.float32), by) for s in (left, right))
    out = displaced(gpu, np.zeros(shape, np.float32), out_by)
    sizes, steps = merged(shape, [spread(x, shape) for x in (a, b)])
    assert takes_fours(out, [a, b], sizes, steps) is expected
    turned = gpu.view(a, 0, "f32", shape, tuple(reversed(a.strides))) if a.ndim > 1 else None
    if turned is not None and left == shape:
        sizes, steps = merged(shape, [spread(turned, shape), spread(b, shape)])
        assert not takes_fours(out, [turned, b], sizes, steps)


UNARY = ("neg", "abs", "reciprocal", "sqrt", "square", "relu", "silu", "leaky_relu", "gelu")


@pytest.mark.parametrize("name", [*UNARY, *FUNCTIONS])
def test_one_operand(gpu: Cuda, name: str) -> None:
    """NUMERICS 5, 6.7 - 6.11, 10.3."""
    x = np.concatenate([SPECIAL, Gen(name).bits(200), Gen(name).floats(62, scale=4.0)])
    check(gpu, f"aten.{name}", x)
    if name == "gelu":
        check(gpu, f"aten.{name}", x, approximate="tanh")


PAIRWISE = ("maximum", "minimum", "mul.Tensor", "div.Tensor", "threshold_backward")
PAIRWISE += ("silu_backward", "tanh_backward", "sigmoid_backward", "gelu_backward")


@pytest.mark.parametrize("name", PAIRWISE)
def test_two_operands_of_special_values(gpu: Cuda, name: str) -> None:
    """NUMERICS 1.5, 1.11: a NaN of any operand is the result, and canonical."""
    a, b = (np.ascontiguousarray(x) for x in np.broadcast_arrays(SPECIAL[:, None], SPECIAL))
    nan = np.array([0xFFC12345, 0x7FC00001, 0x7FFFFFFF], np.uint32).view(np.float32)
    check(gpu, f"aten.{name}", a, b)
    check(gpu, f"aten.{name}", nan, np.ones(3, np.float32))
    check(gpu, f"aten.{name}", np.ones(3, np.float32), nan)


@pytest.mark.parametrize("exponent", [1.0, 2.0, 3.0, 0.5, -0.5, -1.0, 1.5, -2.25, 0.1, 7.0, 1e30])
def test_powers(gpu: Cuda, exponent: float) -> None:
    """NUMERICS 5.8, 10.6; 1.5 and 0.1 reach the exact and the slow paths."""
    squares = np.arange(1, 60, dtype=np.float32) ** 2
    x = np.concatenate([SPECIAL, squares, Gen("pow").wide(200, low=-4, high=4)])
    check(gpu, "aten.pow.Tensor_Scalar", x, exponent=exponent)


def test_integers_wrap_and_shift(gpu: Cuda) -> None:
    """NUMERICS 10.4, 10.8, 10.10, 10.11: a shift by the width or more is defined."""
    edges = np.array([-(2**63), 2**63 - 1, -1, 0, 1, 62, 63, 64, 65, 200, -64], np.int64)
    a, b = (np.ascontiguousarray(x) for x in np.broadcast_arrays(edges[:, None], edges))
    for name in ("bitwise_left_shift", "bitwise_right_shift", "bitwise_xor", "mul"):
        check(gpu, f"aten.{name}.Tensor", a, b)
    check(gpu, "aten.floor_divide", a, np.where(b == 0, 7, b))
    check(gpu, "aten.clamp", a, min=-1.0)
    check(gpu, "aten.clamp", a, max=63.0)
    check(gpu, "aten.clamp", a, min=5.0, max=-5.0)
    check(gpu, "aten.le.Scalar", a, other=-(2.0**63))


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.bool_, np.float32])
def test_comparisons_by_dtype(gpu: Cuda, dtype: type) -> None:
    """NUMERICS 10.5."""
    x = whole("c", 19).astype(dtype)
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        check(gpu, f"aten.{name}.Tensor", x, x[::-1].copy())
        check(gpu, f"aten.{name}.Scalar", x, other=1.0)


def test_conversions(gpu: Cuda) -> None:
    """NUMERICS 10.7."""
    numbers = np.concatenate([whole("t", 37), np.array([2**24 + 1, -(2**63), 2**63 - 1])])
    for target in ("f32", "bool", "i32", "u8"):
        check(gpu, "aten._to_copy", numbers, dtype=target)
    x = np.array([0.0, -0.0, 0.9, -0.9, 2.0**62, -(2.0**63), 1e-45, 3.5, -3.5], np.float32)
    for target in ("i64", "bool"):
        check(gpu, "aten._to_copy", x, dtype=target)
    for target in ("f32", "i64"):
        check(gpu, "aten._to_copy", numbers > 0, dtype=target)
    check(gpu, "aten._to_copy", numbers.astype(np.int32), dtype="i64")
    check(gpu, "aten._to_copy", numbers.astype(np.uint8), dtype="i64")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 2.0**63, -(2.0**63) * 1.0001])
def test_float_without_an_integer_is_refused(gpu: Cuda, bad: float) -> None:
    """NUMERICS 10.7: what a device's conversion makes of it is not asked."""
    x = np.zeros(11, np.float32)
    x[[6, 9]] = bad
    with pytest.raises(RefusedOperandsError, match="position 6"):
        run(gpu, "aten._to_copy", x, dtype="i64")
    x[[6, 9]] = 1
    check(gpu, "aten._to_copy", x, dtype="i64")


def test_division_by_zero_is_refused(gpu: Cuda) -> None:
    """NUMERICS 10.10."""
    divisor = np.ones((3, 5), np.int64)
    divisor[2, 3] = 0
    with pytest.raises(RefusedOperandsError, match="position 13"):
        run(gpu, "aten.floor_divide", np.ones((3, 5), np.int64), divisor)


def test_choices_keep_the_bits(gpu: Cuda) -> None:
    """NUMERICS 9: a copied NaN keeps its payload; 9.2: a fill value is canonical."""
    x = np.array([0xFFC12345, 0x7F800001, 0x80000000, 1, 5], np.uint32).view(np.float32)
    mask = np.array([0, 0, 1, 0, 1], np.bool_)
    check(gpu, "aten.where", mask, x[::-1].copy(), x)
    check(gpu, "aten.masked_fill", x, mask, value=float("nan"))
    check(gpu, "aten.masked_fill", whole("f", 5), mask, value=-7.0)
    check(gpu, "aten.masked_fill", mask, ~mask, value=1.0)
    check(gpu, "tallystick.mask_scale", x, mask, scale=1 / 3)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_mse_backward(gpu: Cuda, reduction: str) -> None:
    """NUMERICS 7.4."""
    make = Gen(reduction)
    g = make.floats(3, 7) if reduction == "none" else make.floats()
    check(gpu, "aten.mse_loss_backward", g, make.wide(3, 7), make.wide(3, 7), reduction=reduction)


# --- optimizers (NUMERICS 11) ---------------------------------------------------------------------
def _scalars(*values: float) -> tuple[np.ndarray, ...]:
    return tuple(np.array(v, np.float64) for v in values)


@pytest.mark.parametrize("size", [1, 4, 1027])
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("op", ["tallystick.adamw_step", "tallystick.adam_step"])
def test_adam(gpu: Cuda, op: str, scaled: bool, size: int) -> None:
    """NUMERICS 11.2, 11.3."""
    make = Gen(f"{op}{scaled}{size}")
    p, g, m = (make.floats(size) for _ in range(3))
    v, c = np.abs(make.floats(size)), (np.array(0.37, np.float32),) if scaled else ()
    for weight_decay in (0.0, 0.1):
        for scalars in (_scalars(3e-4, 0.81, 0.998001), _scalars(np.inf, 1.0, 1.0)):
            check(gpu, op, p, g, m, v, *scalars, *c, weight_decay=weight_decay, beta1=0.85)


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
def test_sgd(gpu: Cuda, momentum: float, nesterov: bool, scaled: bool) -> None:
    """NUMERICS 11.4."""
    make = Gen(f"{momentum}{nesterov}{scaled}")
    p, g, held = (make.floats(1027) for _ in range(3))
    buf, c = held if momentum else None, (np.array(0.37, np.float32),) if scaled else ()
    for weight_decay in (0.0, 0.1):
        given = {"momentum": momentum, "nesterov": nesterov, "weight_decay": weight_decay}
        given["dampening"] = 0.0 if nesterov else 0.9
        check(gpu, "tallystick.sgd_step", p, g, buf, *_scalars(0.1), *c, **given)


@pytest.mark.parametrize("power", [1.0, 0.9, 5e-324, np.inf, np.nan])
def test_beta_power(gpu: Cuda, power: float) -> None:
    """NUMERICS 11.1, 1.5 in binary64."""
    check(gpu, "tallystick.beta_power", *_scalars(power), beta=-0.0 if power == np.inf else 0.999)


def test_a_step_reads_its_scalars_anew(gpu: Cuda) -> None:
    """A recorded step is started again with another learning rate and another key."""
    op, make = OPS["tallystick.adamw_step"], Gen("again")
    arrays = [*(make.floats(9) for _ in range(3)), np.abs(make.floats(9))]
    scalars = list(_scalars(0.1, 0.9, 0.99))
    held = [there(gpu, x) for x in (*arrays, *scalars)]
    key = there(gpu, np.array([3, 0]))
    outputs = [there(gpu, np.zeros(9, np.float32)) for _ in range(4)]
    types = tuple(type_of(x) for x in (*arrays, *scalars))
    kernels = gpu.kernels(find_contract("ordered/1"))
    drawn = OPS["tallystick.normal"]
    attrs = complete_attrs(drawn, {"shape": (9,)}, (type_of(np.zeros(2, np.int64)),))
    step = gpu.sequence(
        [
            (kernels[op.name].run, complete_attrs(op, {}, types), held, outputs[:3]),
            (kernels[drawn.name].run, attrs, [key], outputs[3:]),
        ]
    )
    for number in range(4):
        scalars[0] = np.array(0.1 / (number + 1))
        gpu.write(scalars[0], held[4])
        gpu.write(np.array([3, number]), key)
        step.run()
        expected = tallystick.evaluate(op.name, *arrays, *scalars)
        normal = tallystick.evaluate(drawn.name, np.array([3, number]), shape=(9,))
        assert isinstance(expected, tuple) and isinstance(normal, np.ndarray)
        got = [bits(np.array(gpu.host(x))) for x in outputs]
        assert got == [bits(x) for x in (*expected, normal)]


# --- random numbers (NUMERICS 8) ------------------------------------------------------------------
@pytest.mark.parametrize("shape", [(1,), (2,), (3,), (4, 5), (1031,), (0, 3), ()])
def test_random_tensors(gpu: Cuda, shape: tuple[int, ...]) -> None:
    """NUMERICS 8.1, 8.4, 8.6, 8.7."""
    for seed, step, draw in ((0, 0, 0), (2**63 - 1, 2**32 - 1, 2**32 - 1), (12345678901, 77, 5)):
        key = np.array([seed, step], np.int64)
        for p in (0.0, 0.3, 1 - 2.0**-33):
            check(gpu, "tallystick.dropout_mask", key, shape=shape, draw=draw, p=p)
        check(gpu, "tallystick.uniform", key, shape=shape, draw=draw, low=-2.0, high=0.3)
        check(gpu, "tallystick.normal", key, shape=shape, draw=draw, mean=0.5, std=3.0)


@pytest.mark.parametrize("classes", [0, 1, 3, 4, 5, 8, 130, 1031])
@pytest.mark.parametrize("rows", [0, 1, 5])
def test_noise(gpu: Cuda, classes: int, rows: int) -> None:
    """NUMERICS 8.8."""
    place = np.array([0, 2**32 - 1, 7, 2**31, 1])[:rows]
    for seed, step, draw in ((0, 0, 0), (2**63 - 1, 2**32 - 1, 2**32 - 1), (12345678901, 77, 5)):
        key = np.array([seed, step], np.int64)
        check(gpu, "tallystick.gumbel", key, place, classes=classes, draw=draw)


def test_the_noise_of_the_words_at_the_ends(gpu: Cuda) -> None:
    place = np.array(sorted(WORDS_AT.values()))
    check(gpu, "tallystick.gumbel", np.zeros(2, np.int64), place, classes=4)


@pytest.mark.parametrize(
    ("key", "place", "match"),
    [
        ((-1, 0), 0, "seed"),
        ((0, 2**32), 0, "seed"),
        ((0, 0), -1, "index"),
        ((0, 0), 2**32, "index"),
    ],
)
def test_noise_of_a_bad_key_or_place_is_refused(
    gpu: Cuda, key: tuple[int, int], place: int, match: str
) -> None:
    with pytest.raises(RefusedOperandsError, match=match):
        run(gpu, "tallystick.gumbel", np.array(key), np.array([1, place]), classes=5)


@pytest.mark.parametrize("key", [(-1, 0), (0, -1), (0, 2**32)])
@pytest.mark.parametrize("name", ["dropout_mask", "uniform", "normal"])
def test_a_bad_key_is_refused(gpu: Cuda, name: str, key: tuple[int, int]) -> None:
    """NUMERICS 8.3."""
    given = {"p": 0.5} if name == "dropout_mask" else {}
    with pytest.raises(RefusedOperandsError, match="seed"):
        run(gpu, f"tallystick.{name}", np.array(key), shape=(5,), **given)


# --- digests of the elementary functions (NUMERICS 5.6) -------------------------------------------
def _mix(z: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        z = z + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(z ^ (z >> np.uint64(31)))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_digests(gpu: Cuda, name: str) -> None:
    """Ranges around 1, of subnormals, of large arguments, and the last ones; sums of ranges."""
    for first, count in ((0x3F7FFF00, 700), (0, 33), (0x4D7FFFF0, 100), (2**32 - 300, 300)):
        x = np.arange(first, first + count, dtype=np.uint64)
        y = tallystick.evaluate(f"aten.{name}", x.astype(np.uint32).view(np.float32))
        assert isinstance(y, np.ndarray)
        terms = _mix((x << np.uint64(32)) | y.view(np.uint32).astype(np.uint64))
        assert function_digest(gpu, name, first, count) == int(terms.sum(dtype=np.uint64))
    halves = [function_digest(gpu, name, 1000 * i, 1000) for i in (5, 6)]
    assert sum(halves) % 2**64 == function_digest(gpu, name, 5000, 2000)
