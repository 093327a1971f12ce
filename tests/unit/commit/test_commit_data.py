"""Records, the data root, and the order of the data (COMMITMENTS 8)."""

from __future__ import annotations

from collections import Counter
from types import ModuleType

import numpy as np
import pytest

from tallystick.commit import data, order, tensor
from tallystick.commit.data import DataSchema, Field
from tallystick.errors import (
    CorruptFileError,
    CounterpartyError,
    DigestMismatchError,
    UsageError,
)

SCHEMA = DataSchema((Field("y", "i64"), Field("x", "f32", (2, 3)), Field("m", "bool", (5,))))


def columns(n: int, seed: int = 0) -> dict[str, tensor.Array]:
    draw = np.random.default_rng(seed)
    return {
        "x": draw.standard_normal((n, 2, 3)).astype(np.float32),
        "y": draw.integers(0, 9, n),
        "m": draw.integers(0, 2, (n, 5)).astype(bool),
    }


def record(c: dict[str, tensor.Array], i: int) -> dict[str, tensor.Array]:
    return {name: np.asarray(column[i]) for name, column in c.items()}


def test_fields_are_sorted_by_name() -> None:  # 8.1
    assert [f.name for f in SCHEMA.fields] == ["m", "x", "y"]
    assert SCHEMA.record_size == 5 + 24 + 8
    c = columns(3)
    expected = c["m"][1].tobytes() + c["x"][1].tobytes() + c["y"][1].tobytes()
    assert data.record_bytes(SCHEMA, record(c, 1)) == expected


def test_columns_and_records_agree(reference: ModuleType) -> None:  # 8.3
    c = columns(40)
    leaves = [reference.leaf(data.record_bytes(SCHEMA, record(c, i))) for i in range(40)]
    assert data.record_leaf_hashes(SCHEMA, c) == b"".join(leaves)
    root = data.data_root(SCHEMA, c)
    assert root == data.data_root_of(SCHEMA, 40, reference.mth(leaves))
    strided = {name: np.repeat(column, 2, axis=0)[::2] for name, column in c.items()}
    assert data.data_root(SCHEMA, strided) == root
    assert data.data_root(SCHEMA, {**c, "y": c["y"].astype(">i8")}) == root


def test_blocks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    c = columns(100)
    root = data.data_root(SCHEMA, c)
    for size in (1, 37, 38, 1000):
        monkeypatch.setattr(data, "BLOCK_BYTES", size)
        assert data.data_root(SCHEMA, c) == root


def test_root_binds_schema_count_and_content() -> None:  # 8.3
    c = columns(5)
    roots = {data.data_root(SCHEMA, c)}
    roots.add(data.data_root(SCHEMA, {k: v[:4] for k, v in c.items()}))
    roots.add(data.data_root(SCHEMA, {k: v[::-1] for k, v in c.items()}))
    flat = DataSchema((Field("y", "i64"), Field("x", "f32", (3, 2)), Field("m", "bool", (5,))))
    roots.add(data.data_root(flat, {**c, "x": c["x"].reshape(5, 3, 2)}))
    renamed = DataSchema((Field("z", "i64"), Field("x", "f32", (2, 3)), Field("m", "bool", (5,))))
    roots.add(data.data_root(renamed, {"z": c["y"], "x": c["x"], "m": c["m"]}))
    other = {k: v.copy() for k, v in c.items()}
    other["m"][4, 4] ^= True
    roots.add(data.data_root(SCHEMA, other))
    assert len(roots) == 6


def test_schema_refuses() -> None:
    for fields in (
        (Field("a", "f32"), Field("a", "f32")),
        (Field("a", "f32", (0,)),),
        (),
        (Field("a", "f32", (1 << 20,)),),
        (Field("a", "f16"),),
        tuple(Field(str(i), "u8") for i in range(257)),
    ):
        with pytest.raises(UsageError):
            DataSchema(fields)


def test_values_of_another_shape_are_refused() -> None:
    c = columns(4)
    for change in (
        {"x": c["x"].astype(np.float64)},
        {"x": c["x"].reshape(4, 6)},
        {"y": c["y"][:3]},
        {"extra": c["y"]},
    ):
        with pytest.raises(UsageError):
            data.data_root(SCHEMA, {**c, **change})
    with pytest.raises(UsageError):
        data.record_bytes(SCHEMA, {"x": c["x"][0]})
    with pytest.raises(UsageError):
        data.record_bytes(SCHEMA, {**record(c, 0), "y": np.float32(1).reshape(())})


def test_record_proofs() -> None:  # 8.3
    c = columns(23)
    root, hashes = data.data_root(SCHEMA, c), data.record_leaf_hashes(SCHEMA, c)
    for i in range(23):
        raw = data.record_bytes(SCHEMA, record(c, i))
        proof = data.prove_record(raw, hashes, i)
        values = proof.verify(SCHEMA, 23, root, i)
        assert values["x"].tobytes() == c["x"][i].tobytes()
        for wrong in ((22, root, i), (24, root, i), (23, bytes(32), i), (23, root, (i + 1) % 23)):
            with pytest.raises(DigestMismatchError):
                proof.verify(SCHEMA, *wrong)
        moved = data.RecordProof(raw, (i + 1) % 23, proof.path)
        with pytest.raises(DigestMismatchError):
            moved.verify(SCHEMA, 23, root, (i + 1) % 23)


def test_records_must_be_canonical() -> None:
    c = columns(2)
    c["x"].view(np.uint32)[1, 0, 0] = 0xFFC00000
    raw = data.record_bytes(SCHEMA, record(c, 1))
    with pytest.raises(CounterpartyError, match="non-canonical NaN"):
        data.parse_record(SCHEMA, raw)
    with pytest.raises(CorruptFileError, match="bytes"):
        data.parse_record(SCHEMA, raw[:-1])


# ---- order --------------------------------------------------------------------------------------


def test_a_permutation_for_every_small_n() -> None:  # 8.4
    for n in [*range(1, 700), *range(1021, 2100, 97)]:
        found = order.permute_array(n % 7, n % 3, np.arange(n), n)
        assert np.array_equal(np.sort(found), np.arange(n)), n
        for probe in (0, n // 3, n - 1):
            assert found[probe] == order.permute(n % 7, n % 3, probe, n)


@pytest.mark.parametrize("n", [2**20 + 7, 10**9 + 7, 2**40, 2**40 - 1, 999_999_999_989])
def test_large_n(n: int) -> None:
    positions = np.unique(np.linspace(0, n - 1, 5000).astype(np.int64))
    found = order.permute_array(3, 2**33 + 1, positions, n)
    assert np.unique(found).size == positions.size
    assert found.min() >= 0 and found.max() < n
    for i in range(0, positions.size, 49):
        assert order.permute(3, 2**33 + 1, int(positions[i]), n) == found[i]


def test_halves() -> None:  # 8.4.2
    for n in [*range(1, 5000), 2**40, 2**40 - 1, 10**12]:
        a, b = order.halves(n)
        assert (a - 1) ** 2 < n <= a * a and 0 <= a * b - n < a


def test_batches_walk_the_epochs() -> None:  # 8.4
    n, size = 23, 5
    stream = np.concatenate([order.batch_indices(9, n, t, size) for t in range(46)])
    epochs = stream.reshape(10, n)
    assert all(np.array_equal(np.sort(e), np.arange(n)) for e in epochs)
    assert len({tuple(e) for e in epochs}) == 10
    other = np.concatenate([order.batch_indices(10, n, t, size) for t in range(46)])
    assert not np.array_equal(stream, other)
    assert order.batch_indices(9, n, 0, 60).tolist() == stream[:60].tolist()
    assert order.batch_indices(9, 1, 3, 4).tolist() == [0, 0, 0, 0]


def test_the_table_is_a_speed_matter_only(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = order.batch_indices(4, 1000, 77, 64)
    monkeypatch.setattr(order, "TABLE_RECORDS", 0)
    assert np.array_equal(kept, order.batch_indices(4, 1000, 77, 64))


def test_orders_look_uniform() -> None:
    """Chi-square over all orders of 5 records and over the place of one of 40: not biased."""
    seen = Counter(tuple(order.permute(s, 0, q, 5) for q in range(5)) for s in range(3000))
    chi = sum((n - 25) ** 2 / 25 for n in seen.values()) + (120 - len(seen)) * 25
    assert chi < 190  # 119 degrees of freedom: mean 119, deviation 15.4
    places = Counter(int(order.permute(s, 0, 0, 40)) for s in range(4000))
    chi = sum((places[i] - 100) ** 2 / 100 for i in range(40))
    assert chi < 80  # 39 degrees of freedom: mean 39, deviation 8.8


def test_batch_arguments() -> None:
    for args in ((0, 0, 0, 1), (0, 5, -1, 1), (0, 5, 0, 0), (-1, 5, 0, 1), (2**64, 5, 0, 1)):
        with pytest.raises(UsageError):
            order.batch_indices(*args)
