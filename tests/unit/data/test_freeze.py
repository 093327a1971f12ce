"""Freezing: the streamed root is the root of the arrays, and what is written is what was given."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.commit import merkle, streamed
from tallystick.commit.data import DataSchema, Field, data_root
from tallystick.commit.records import leaf_hashes, parts, records_root
from tallystick.commit.streamed import RecordStream, RootStream
from tallystick.commit.tensor import COMPUTED, DTYPES, Array
from tallystick.data.freeze import Progress, freeze
from tallystick.data.frozen import Frozen, load_frozen
from tallystick.data.rules import Pad
from tallystick.disk.tensorfile import write_tensors
from tallystick.errors import (
    CorruptFileError,
    DigestMismatchError,
    StorageError,
    TallystickError,
    UsageError,
)
from tallystick.limits import LIMITS


def arrays(count: int, fields: dict[str, tuple[str, tuple[int, ...]]], seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    found: dict[str, Any] = {}
    for name, (dtype, shape) in fields.items():
        raw = rng.integers(0, 2 if dtype == "bool" else 120, (count, *shape))
        found[name] = raw.astype(DTYPES[dtype])
    return found


def rows(columns: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for index in range(len(next(iter(columns.values())))):
        yield {name: np.asarray(column[index]) for name, column in columns.items()}


def check(frozen: Frozen, columns: dict[str, Array]) -> None:
    """The frozen set has these records, by every way to look at it."""
    assert frozen.root == records_root(frozen.schema, columns)
    assert frozen.count == len(next(iter(columns.values())))
    for name, column in columns.items():
        assert frozen.columns[name].dtype == column.dtype
        assert frozen.columns[name].tobytes() == column.tobytes()
    frozen.verify()
    with tempfile.TemporaryDirectory() as scratch:
        write_tensors(Path(scratch) / "same", columns)
        assert (Path(scratch) / "same").read_bytes() == frozen.file.read_bytes()


_FIELDS = st.dictionaries(
    st.sampled_from(["a", "b", "é", "zz", "x"]),
    st.tuples(
        st.sampled_from(sorted(COMPUTED)),
        st.lists(st.sampled_from([0, 1, 2, 3, 7]), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=60, deadline=None)
@given(fields=_FIELDS, count=st.integers(1, 40), seed=st.integers(0, 99), held=st.integers(0, 3))
def test_the_streamed_root_is_the_root_of_the_arrays(
    fields: dict[str, tuple[str, tuple[int, ...]]], count: int, seed: int, held: int
) -> None:
    columns = arrays(count, fields, seed)
    asked = {n: "f64" for n, (d, _) in fields.items() if d == "f64"} or None
    with tempfile.TemporaryDirectory() as scratch:
        if not sum(column.nbytes for column in columns.values()):
            with pytest.raises(UsageError, match="A record of 0 bytes"):
                freeze(columns, Path(scratch) / "empty", dtype=asked)
            return
        known = freeze(columns, Path(scratch) / "known", dtype=asked)
        unknown = freeze(rows(columns), Path(scratch) / "unknown", dtype=asked)
        check(known, columns)
        check(unknown, columns)
        share = held / 7
        keep = [i for i in range(count) if (i + 1) * held // 7 == i * held // 7]
        rest = sorted(set(range(count)) - set(keep))
        if held and keep and rest:
            from fractions import Fraction

            parted = freeze(
                columns, Path(scratch) / "parted", dtype=asked, hold_out=Fraction(held, 7)
            )
            assert parted.validation is not None and share
            check(parted, {n: c[keep] for n, c in columns.items()})
            check(parted.validation, {n: c[rest] for n, c in columns.items()})


@pytest.mark.parametrize("count", [0, 1, 2, 4095, 4096, 4097, 8192, 12288, 12289, 40961])
def test_a_root_stream_gives_the_root_of_all_its_leaves(count: int) -> None:
    leaves = [merkle.leaf_hash(index.to_bytes(4, "big")) for index in range(count)]
    stream, at = RootStream(), 0
    for size in (1, 4095, 5000, 1, 10**6):
        stream.add(b"".join(leaves[at : at + size]))
        at += size
    assert stream.root() == merkle.root(leaves)
    assert stream.count == count


@pytest.mark.parametrize("proof_bytes", [1, 8, 100, 4096 * 8 - 1, 1 << 20])
@pytest.mark.parametrize("count", [1, 4096, 4097, 9000, 12289])
def test_a_record_tree_gives_the_proofs_of_the_whole_tree(
    count: int, proof_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streamed, "PROOF_BYTES", proof_bytes)
    schema = DataSchema((Field("a", "i32", (2,)),))
    columns = arrays(count, {"a": ("i32", (2,))}, 1)
    stream = RecordStream(schema, keep=True)
    for start in range(0, count, 1000):
        stream.add({"a": columns["a"][start : start + 1000]})
    whole, tree = merkle.Tree(leaf_hashes(schema, columns)), stream.tree(columns)
    for index in {0, 1, 7, 4095, 4096, count // 2, count - 1} & set(range(count)):
        assert tree.inclusion(index) == whole.inclusion(index)
    with pytest.raises(UsageError):
        tree.inclusion(count)
    assert stream.root() == data_root(schema, columns)


def test_long_records_are_hashed_as_their_parts(tmp_path: Path) -> None:
    """COMMITMENTS 8.6, against the plain form of it."""
    fields = {"x": ("f32", (300_001,)), "e": ("u8", (0,)), "y": ("i64", ())}
    columns = arrays(5, fields, 3)
    frozen = freeze(rows(columns), tmp_path / "long")
    check(frozen, columns)
    assert frozen.schema.record_size > LIMITS.record_bytes
    leaves = []
    for row in rows(columns):
        tree = merkle.Tree([merkle.leaf_hash(part) for part in parts(frozen.schema, row)])
        digest = b"tallystick/record/2\0" + tree.size.to_bytes(8, "little") + tree.root()
        import hashlib

        leaves.append(merkle.leaf_hash(hashlib.sha256(digest).digest()))
    assert b"".join(leaves) == leaf_hashes(frozen.schema, columns)


def test_a_frozen_set_is_safetensors_and_read_only(tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    columns = arrays(100, {"x": ("f32", (3,)), "y": ("i64", ())}, 0)
    frozen = freeze(columns, tmp_path / "a")
    loaded = load_file(frozen.file)
    assert {n: a.tobytes() for n, a in loaded.items()} == {
        n: a.tobytes() for n, a in columns.items()
    }
    assert frozen.file.stat().st_mode & 0o222 == 0
    assert sorted(os.listdir(tmp_path / "a")) == ["data.json", "records.safetensors"]
    assert load_frozen(tmp_path / "a") == frozen


def test_progress_says_records_and_bytes(tmp_path: Path) -> None:
    seen: list[Progress] = []
    columns = arrays(100_000, {"x": ("f32", (64,))}, 0)
    freeze(columns, tmp_path / "a", on_progress=seen.append)
    assert [p.records for p in seen][-1] == 100_000 == seen[0].count
    assert seen[-1].nbytes == columns["x"].nbytes and len(seen) > 1
    assert {p.stage for p in seen} == {"freezing"}


def test_padding_by_a_rule(tmp_path: Path) -> None:
    items = [{"t": list(range(1, 1 + n)), "y": n} for n in (3, 1, 5, 2)]
    with pytest.raises(UsageError, match=r"'t' of record 1 has the shape \(1,\), an earlier"):
        freeze(items, tmp_path / "none")
    seen: list[Progress] = []
    rule = {"t": Pad("max", value=-1, mask=True, length=True)}
    frozen = freeze(items, tmp_path / "a", pad=rule, on_progress=seen.append)
    assert frozen.columns["t"].tolist()[:2] == [[1, 2, 3, -1, -1], [1, -1, -1, -1, -1]]
    assert frozen.columns["t_mask"].tolist()[1] == [True, False, False, False, False]
    assert frozen.columns["t_length"].tolist() == [3, 1, 5, 2]
    assert frozen.rules["pad"] == {
        "t": {"to": 5, "value": "-1", "mask": True, "length": True, "truncate": False}
    }
    assert {p.stage for p in seen} == {"measuring", "freezing"}
    with pytest.raises(UsageError, match="record 2 has the length 5, and the rule pads to 4"):
        freeze(items, tmp_path / "short", pad={"t": Pad(4)})
    cut = freeze(items, tmp_path / "cut", pad={"t": Pad(4, truncate=True, length=True)})
    assert cut.columns["t"].tolist()[2] == [1, 2, 3, 4]
    assert cut.columns["t_length"].tolist()[2] == 4
    with pytest.raises(UsageError, match="reads the source twice"):
        freeze(iter(items), tmp_path / "once", pad={"t": Pad("max")})
    with pytest.raises(UsageError, match="has no field 'u'"):
        freeze(items, tmp_path / "u", pad={"u": Pad(4)})
    with pytest.raises(UsageError, match="uint8, which has no -1"):
        freeze([{"t": np.zeros(2, "u1")}], tmp_path / "v", pad={"t": Pad(4, value=-1)})


REFUSED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "float64": ({"x": np.zeros((3, 2))}, {}, "'x' is float64, which is not narrowed silently"),
    "Python's float": ([{"x": 1.5}], {}, "'x' is float64, which is not narrowed silently"),
    "text": ([{"s": "word", "y": 1}], {}, "'s' is str; a record holds numbers"),
    "texts": ([{"s": ["a", "b"]}], {}, "'s' is text; a record holds numbers"),
    "nothing": ([{"s": None}], {}, r"'s' is nothing \(None\)"),
    "objects": ({"s": np.array([{}, {}])}, {}, "'s' is objects of type dict"),
    "uint64": ({"s": np.zeros(3, "u8")}, {}, "'s' is uint64, which no record has"),
    "complex": ({"s": np.zeros(3, "c8")}, {}, "'s' is complex64, which no record has"),
    "dates": ({"s": np.zeros(3, "M8[s]")}, {}, "'s' is datetime64"),
    "overflow": ({"x": np.full(3, 1e300)}, {"dtype": "f32"}, "'x' holds np.float64.1e.300., which"),
    "wrap": ({"x": np.full(3, 300)}, {"dtype": {"x": "u8"}}, r"'x' holds np.int64\(300\)"),
    "sign": ({"x": np.full(3, 2**63, "u8")}, {"dtype": {"x": "i64"}}, "'x' holds"),
    "a half": ({"x": np.full(3, 0.5)}, {"dtype": {"x": "i64"}}, "'x' holds np.float64.0.5., which"),
    "2^24+1": ({"x": np.full(3, 2**24 + 1)}, {"dtype": {"x": "f32"}}, "holds np.int64.16777217"),
    "2^63-1": ({"x": np.full(3, 2**63 - 1)}, {"dtype": {"x": "f64"}}, "'x' holds np.int64.92233"),
    "odd NaN": ({"x": np.full(3, 0x7FC00001, "u4").view("f4")}, {}, "non-canonical NaN"),
    "unknown dtype": ({"x": np.zeros(3)}, {"dtype": "f16"}, "dtype 'f16'"),
    "unknown field": ({"x": np.zeros(3)}, {"dtype": {"z": "f32"}}, "no field 'z'"),
    "no record": ([], {}, "no records"),
    "no column": ({"x": np.zeros((0, 2), "f4")}, {}, "have .0. records"),
    "one value": ({"x": np.float32(3)}, {}, "have .-1. records"),
    "lengths": ({"x": np.zeros(3, "f4"), "y": np.zeros(4, "f4")}, {}, r"have \[3, 4\] records"),
    "tuple": ([(1, 2, 3)], {}, "a tuple of 3 values without names"),
    "dtypes": ([{"x": np.int64(1)}, {"x": np.int32(1)}], {}, "int32 and int64 in one source"),
    "names": ([{"x": 1}, {"y": 1}], {}, r"Item 1 has the fields \['y'\]"),
    "number": (17, {}, "int is not a source of records"),
    "share": ([1, 2], {"hold_out": 1.0}, "hold_out=1.0 is not a share"),
    "few": ([1, 2], {"hold_out": 0.1}, "too few to hold out"),
    "collate": ([1, 2], {"collate": "each"}, "collate= is for a DataLoader"),
    "block": ([1, 2], {"block": 3}, "block= says nothing about a source in memory"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_record_can_hold_is_refused_by_name(name: str, tmp_path: Path) -> None:
    source, options, message = REFUSED[name]
    with pytest.raises(UsageError, match=message):
        freeze(source, tmp_path / "a", **options)
    assert not (tmp_path / "a" / "data.json").exists()
    left = (
        [p for p in (tmp_path / "a").rglob("*") if p.is_file()] if (tmp_path / "a").exists() else []
    )
    assert left == []


def test_what_keeps_every_value_is_widened_and_noted(tmp_path: Path) -> None:
    source = {
        "a": np.array([-5, 7], "i1"),
        "b": np.array([1.5, np.nan], "f2"),
        "c": np.array([2**32 - 1, 0], "u4"),
        "d": np.array([1, 2], ">i4"),
    }
    frozen = freeze(source, tmp_path / "a")
    assert frozen.rules["dtype"] == {
        "a": "int8 to i64",
        "b": "float16 to f32",
        "c": "uint32 to i64",
    }
    assert frozen.columns["c"].tolist() == [2**32 - 1, 0]
    assert frozen.columns["d"].tolist() == [1, 2] and frozen.columns["d"].dtype == np.int32
    asked = freeze({"x": np.array([0.1, np.nan])}, tmp_path / "b", dtype="f32")
    assert asked.columns["x"].tobytes() == np.array([0.1, np.nan], "f4").tobytes()
    assert asked.rules["dtype"] == {"x": "float64 to f32"}
    kept = freeze({"x": np.array([0.1])}, tmp_path / "c", dtype={"x": "f64"})
    assert kept.columns["x"].dtype == np.float64


class Short:
    """Says that it has more items than it gives, or fewer."""

    def __init__(self, said: int, given: int) -> None:
        self.said, self.given = said, given

    def words(self) -> dict[str, Any]:
        return {"kind": "short"}

    @property
    def count(self) -> int:
        return self.said

    again = True

    def blocks(self) -> Iterator[Any]:
        for _ in range(self.given):
            yield {"x": np.zeros((2, 3), np.float32)}


@pytest.mark.parametrize(("said", "match"), [(10, "gives more"), (14, "but it gives 12")])
def test_a_source_that_says_another_number_is_refused(
    said: int, match: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tallystick.data.freeze as module

    monkeypatch.setattr(module, "pick", lambda *_: (Short(said, 6), {}))
    with pytest.raises(UsageError, match=match):
        freeze([1], tmp_path / "a")


def test_records_that_change_their_form_later_are_refused(tmp_path: Path) -> None:
    big = np.zeros(1 << 20, np.float32)
    items = [{"x": big}, {"x": big}, {"x": big}, {"x": big[:-1]}]
    with pytest.raises(UsageError, match="'x' of record 3 has the shape"):
        freeze(items, tmp_path / "a")


def test_a_disk_that_is_too_small_is_refused_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tallystick.data.freeze as module

    monkeypatch.setattr(module, "free_bytes", lambda _: 1000)
    with pytest.raises(StorageError, match="has 1,000 free"):
        freeze({"x": np.zeros((1000, 9), np.float32)}, tmp_path / "a")


def test_a_disk_that_fills_up_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every write, flush and rename; then the same command works."""
    import errno

    from tallystick.disk import columns, files

    class Full(files.OsCalls):  # type: ignore[misc]
        def __init__(self, left: int) -> None:
            self.left = left

        def _count(self) -> None:
            self.left -= 1
            if self.left == 0:
                raise OSError(errno.ENOSPC, "full")

        def write(self, descriptor: int, data: memoryview) -> int:  # type: ignore[override]
            self._count()
            return os.write(descriptor, data)

        def fsync(self, descriptor: int) -> None:  # type: ignore[override]
            self._count()

        def replace(self, source: Path, target: Path) -> None:  # type: ignore[override]
            self._count()
            os.replace(source, target)

    items = [{"x": np.full(40, i, np.float32)} for i in range(30)]
    wanted = freeze(items, tmp_path / "wanted", hold_out=0.5).root
    failed = 0
    for source in (items, iter(items)):
        kept = list(items)
        for at in range(1, 100):
            full = Full(at)
            monkeypatch.setattr(files, "OS", full)
            monkeypatch.setattr(columns, "OS", full)
            given = source if isinstance(source, list) else iter(kept)
            try:
                freeze(given, tmp_path / "out", hold_out=0.5)
            except StorageError as error:
                failed += 1
                assert "full" in str(error)
                if (tmp_path / "out" / "data.json").exists():  # the flush of the directory
                    shutil.rmtree(tmp_path / "out")
                    continue
                left = [p.name for p in (tmp_path / "out").rglob("*") if p.is_file()]
                assert left == [], (at, left)
                continue
            assert load_frozen(tmp_path / "out").root == wanted
            shutil.rmtree(tmp_path / "out")
            break
    assert failed > 20


def test_a_frozen_set_is_not_frozen_over(tmp_path: Path) -> None:
    freeze({"x": np.zeros((10, 9), np.float32)}, tmp_path / "a")
    with pytest.raises(UsageError, match="already contains"):
        freeze({"x": np.zeros((10, 9), np.float32)}, tmp_path / "a")
    freeze({"x": np.zeros((10, 9), np.float32)}, tmp_path / "b" / "validation")
    with pytest.raises(UsageError, match="already contains"):
        freeze({"x": np.zeros((10, 9), np.float32)}, tmp_path / "b")


def test_what_was_altered_is_found(tmp_path: Path) -> None:
    frozen = freeze({"x": np.zeros((1000, 9), np.float32)}, tmp_path / "a")
    path, manifest = frozen.file, tmp_path / "a" / "data.json"
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)
    with pytest.raises(DigestMismatchError, match="was altered"):
        frozen.verify()
    path.write_bytes(data[:-4])
    with pytest.raises(CorruptFileError, match="size does not fit"):
        frozen.verify()
    whole = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**whole, "records": 999}))
    with pytest.raises(TallystickError):
        load_frozen(tmp_path / "a")
    with pytest.raises(UsageError, match="not a frozen data set"):
        load_frozen(tmp_path)


_KILLED = """
import sys
from pathlib import Path
sys.path[:0] = [sys.argv[3]]
import numpy as np
from crash.killing import Killing
from tallystick.data.freeze import freeze
from tallystick.disk import columns, files
columns._FLUSH = 1 << 16
columns._MOVE = 1 << 15
killing = Killing(int(sys.argv[2]))
files.OS = columns.OS = killing
def items():
    for i in range(3000):
        yield {"x": np.full(40, i, np.float32), "y": i}
source = {"x": np.repeat(np.arange(3000, dtype=np.float32)[:, None], 40, 1), "y": np.arange(3000)}
freeze(source if sys.argv[4] == "known" else items(), Path(sys.argv[1]), hold_out=0.25)
"""


@pytest.mark.parametrize("kind", ["known", "unknown"])
def test_after_a_kill_a_freeze_begins_anew(kind: str, tmp_path: Path) -> None:
    tests = str(Path(__file__).resolve().parents[2])
    source = {
        "x": np.repeat(np.arange(3000, dtype=np.float32)[:, None], 40, 1),
        "y": np.arange(3000),
    }
    wanted = freeze(source, tmp_path / "wanted", hold_out=0.25)
    at, killed = 1, 0
    while True:
        out = tmp_path / f"killed-{at}"
        done = subprocess.run(
            [sys.executable, "-c", _KILLED, str(out), str(at), tests, kind],
            check=False,
            capture_output=True,
            text=True,
        )
        if done.returncode == 0:
            break
        assert done.returncode == -9, done.stderr
        killed += 1
        if (out / "data.json").exists():  # the last flushes, of the directory
            again = load_frozen(out)
        else:
            with pytest.raises(UsageError, match="not a frozen data set"):
                load_frozen(out)
            again = freeze(source, out, hold_out=0.25)
        assert again.root == wanted.root
        again.verify()
        assert again.validation is not None and wanted.validation is not None
        assert again.validation.root == wanted.validation.root
        again.validation.verify()
        assert sorted(p.name for p in out.iterdir() if p.name != "freeze.lock") == [
            "data.json", "records.safetensors", "validation",
        ]  # fmt: skip
        at += 1 if at < 4 else 3
    assert killed >= 5


_MEASURED = """
import sys
from pathlib import Path
import numpy as np
from tallystick.data.freeze import freeze
count, out = int(sys.argv[1]), Path(sys.argv[2])
row = np.arange(1 << 14, dtype=np.float32)
def items():
    for i in range(count):
        yield {"x": row + i, "y": i}
made = freeze(items(), out, hold_out=0.1)
made.verify()
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
"""


def test_memory_does_not_grow_with_the_records(tmp_path: Path) -> None:
    """Of an unknown number, held-out ones too, and hashed again: 64 MiB and 384 MiB."""
    peaks = []
    for count in (1 << 10, 6 << 10):
        command = [sys.executable, "-c", _MEASURED, str(count), str(tmp_path / str(count))]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        peaks.append(int(done.stdout) / 1024)
    assert peaks[1] < peaks[0] + 128, peaks  # of 320 MiB more records
    assert peaks[1] < 400
