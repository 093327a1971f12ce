"""Tensor digests, canonical values and openings (COMMITMENTS 3)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.commit import tensor
from tallystick.commit.tensor import TensorHeader, TensorOpening, open_tensor, tensor_digest
from tallystick.errors import (
    CorruptFileError,
    CounterpartyError,
    DigestMismatchError,
    UsageError,
)


def sample(dtype: str, shape: tuple[int, ...], seed: int = 0) -> tensor.Array:
    draw = np.random.default_rng(seed)
    if dtype == "bool":
        return draw.integers(0, 2, shape).astype(bool)
    if dtype in ("f32", "f64"):
        return draw.standard_normal(shape).astype(tensor.DTYPES[dtype])
    return draw.integers(0, 100, shape).astype(tensor.DTYPES[dtype])


def test_layout_of_the_machine_is_not_part_of_the_digest() -> None:  # 3.2
    a = sample("f32", (40, 50))
    digest = tensor_digest(a)
    wide = np.zeros((40, 100), dtype=np.float32)
    wide[:, ::2] = a
    variants = [a.astype(">f4"), np.asfortranarray(a), wide[:, ::2], np.ascontiguousarray(a.T).T]
    assert all(tensor_digest(v) == digest for v in variants)


def test_everything_in_the_header_counts() -> None:  # 3.5
    zero = bytes(48)
    shapes: list[tuple[str, tuple[int, ...]]] = [
        ("f32", (12,)), ("i32", (12,)), ("f64", (6,)), ("i64", (6,)), ("u8", (48,)),
        ("bool", (48,)), ("f32", (3, 4)), ("f32", (4, 3)), ("f32", (12, 1)), ("f32", (1, 12)),
        ("f32", (0,)), ("f32", (0, 0)), ("f32", ()), ("f32", (1,)), ("u8", (0, 7)),
    ]  # fmt: skip
    digests = set()
    for dtype, shape in shapes:
        header = TensorHeader(dtype, shape)
        array = np.frombuffer(zero[: header.nbytes], tensor.DTYPES[dtype]).reshape(shape)
        digests.add(tensor_digest(array))
    assert len(digests) == len(shapes)


def test_minus_zero_and_nan_payloads_count() -> None:
    assert tensor_digest(np.array([0.0])) != tensor_digest(np.array([-0.0]))
    nans = np.array([0x7FC00000, 0x7FC00001], dtype=np.uint32).view(np.float32)
    assert tensor_digest(nans[:1]) != tensor_digest(nans[1:])


@pytest.mark.parametrize("dtype", [np.complex64, np.uint16, np.uint32, np.int8, object, "S4", "V2"])
def test_other_dtypes_are_refused(dtype: object) -> None:
    with pytest.raises(UsageError, match="cannot be committed"):
        tensor_digest(np.zeros(3, dtype=dtype))  # type: ignore[call-overload]


def test_headers_that_no_machine_holds() -> None:
    for shape in ((1 << 41,), (1 << 21, 1 << 21), (2,) * 17, (-1,), (1.0,), (True,)):
        with pytest.raises(UsageError):
            TensorHeader("f32", shape)  # type: ignore[arg-type]
    assert TensorHeader("f32", (1 << 40, 0)).nbytes == 0


@pytest.mark.parametrize("bits", [0x7FC00001, 0xFFC00000, 0x7F800001, 0xFFFFFFFF])
def test_non_canonical_nan_f32(bits: int) -> None:  # 3.3
    a = np.zeros(3_000_000, dtype=np.float32)
    a[5] = np.nan
    a[6] = np.inf
    tensor.check_canonical(a, "state")
    a.view(np.uint32)[2_500_000] = bits
    with pytest.raises(CounterpartyError, match="element 2500000"):
        tensor.check_canonical(a, "state")


def test_non_canonical_f64_and_bool() -> None:  # 3.3
    a = np.array([1.0, np.nan])
    tensor.check_canonical(a, "x")
    a.view(np.uint64)[1] |= 1
    with pytest.raises(CounterpartyError):
        tensor.check_canonical(a, "x")
    b = np.array([0, 1, 2], dtype=np.uint8)
    tensor.check_canonical(b, "x")
    tensor.check_canonical(b[:2].view(bool), "x")
    with pytest.raises(CounterpartyError, match="neither 0 nor 1"):
        tensor.check_canonical(b.view(bool), "x")
    tensor.check_canonical(np.empty((0, 4), np.float32), "x")
    tensor.check_canonical(np.float32(np.nan).reshape(()), "x")


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(sorted(tensor.DTYPES)),
    st.lists(st.integers(0, 40), max_size=3),
    st.lists(st.tuples(st.integers(0, 64000), st.integers(0, 3000)), max_size=5),
)
def test_openings(dtype: str, shape: list[int], spans: list[tuple[int, int]]) -> None:  # 3.6
    a = sample(dtype, tuple(shape))
    ranges = [(s % (a.size + 1), min(a.size, s % (a.size + 1) + n)) for s, n in spans]
    opening = open_tensor(a, ranges, tensor.leaf_hashes(a))
    assert opening == open_tensor(a, ranges)
    data = opening.to_bytes()
    back = TensorOpening.from_bytes(data)
    assert back == opening
    back.verify(tensor_digest(a), TensorHeader(dtype, a.shape))
    for start, stop in ranges:
        assert back.read(start, stop).tobytes() == a.reshape(-1)[start:stop].tobytes()


def test_opening_of_an_empty_tensor() -> None:
    a = np.empty((3, 0), np.float32)
    opening = TensorOpening.from_bytes(open_tensor(a, [(0, 0)]).to_bytes())
    opening.verify(tensor_digest(a))
    assert opening.read(0, 0).size == 0
    with pytest.raises(DigestMismatchError):
        opening.verify(tensor_digest(np.empty((0, 3), np.float32)))
    with pytest.raises(DigestMismatchError):
        TensorOpening(opening.header, {}, (bytes(32),)).verify(tensor_digest(a))


def test_reading_what_was_not_opened() -> None:
    a = sample("f32", (5000,))
    opening = open_tensor(a, [(600, 601)])
    assert opening.read(512, 1024).size == 512
    for start, stop in ((511, 513), (1023, 1025), (4999, 5000)):
        with pytest.raises(CounterpartyError, match="was not opened"):
            opening.read(start, stop)
    with pytest.raises(UsageError):
        opening.read(4999, 5001)
    with pytest.raises(UsageError):
        open_tensor(a, [(0, 5001)])


def test_opened_values_must_be_canonical() -> None:
    a = sample("f32", (100,))
    a.view(np.uint32)[7] = 0x7FC00001
    opening = open_tensor(a, [(0, 100)])
    opening.verify(tensor_digest(a))
    assert opening.read(8, 100).size == 92
    with pytest.raises(CounterpartyError, match="non-canonical NaN"):
        opening.read(0, 100)


def test_an_opening_of_another_tensor_is_refused() -> None:
    a, b = sample("f32", (3000,), 1), sample("f32", (3000,), 2)
    opening = open_tensor(a, [(0, 1)])
    with pytest.raises(DigestMismatchError, match="do not belong"):
        opening.verify(tensor_digest(b))
    with pytest.raises(DigestMismatchError, match="not f32"):
        opening.verify(tensor_digest(a), TensorHeader("f32", (3001,)))


def test_hostile_opening_bytes() -> None:  # 1.6
    a = sample("f32", (3000,))
    good = open_tensor(a, [(0, 1), (2999, 3000)]).to_bytes()
    for cut in (0, 1, 27, 28, 29, 30, 40, 50, 60, 100, len(good) - 1):
        with pytest.raises(CorruptFileError):
            TensorOpening.from_bytes(good[:cut])
    with pytest.raises(CorruptFileError):
        TensorOpening.from_bytes(good + b"\0")
    with pytest.raises(CorruptFileError, match="limit"):
        TensorOpening.from_bytes(bytes((16 << 20) + 1))
    tag = len(b"tallystick/tensor-opening/1\0")
    for at, value, why in (
        (tag, 9, "unknown dtype"),
        (tag + 1, 200, "rank"),
        (tag + 9, 255, "not a tensor dimension"),
        (tag + 10 + 5, 255, "leaves"),
        (tag + 18, 255, "ascending"),
    ):
        bad = bytearray(good)
        bad[at] = value
        with pytest.raises(CorruptFileError, match=why):
            TensorOpening.from_bytes(bytes(bad))
