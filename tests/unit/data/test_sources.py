"""Every kind of source gives the records that it holds, or is refused by name."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    TensorDataset,
    WeightedRandomSampler,
)

from tallystick.data.freeze import freeze
from tallystick.data.rules import Pad
from tallystick.data.sources import tokenizer as text_source
from tallystick.disk.tensorfile import write_tensors
from tallystick.errors import CorruptFileError, StorageError, UsageError
from tallystick.job.recipes import Sources, new_job

X = np.arange(60, dtype=np.float32).reshape(20, 3)
Y = np.arange(20) % 4


class Pairs(Dataset[Any]):
    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, index: int) -> Any:
        return torch.from_numpy(X[index]), int(Y[index])


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        for x, y in zip(X, Y, strict=True):
            yield {"x": torch.from_numpy(x), "y": torch.tensor(y)}


class Noisy(Pairs):
    def __getitem__(self, index: int) -> Any:
        return torch.rand(3), index


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return freeze({"x": X, "y": Y}, tmp_path_factory.mktemp("plain") / "a").root


SAME: dict[str, Any] = {
    "Dataset": Pairs(),
    "TensorDataset": TensorDataset(torch.from_numpy(X), torch.from_numpy(Y)),
    "IterableDataset": Stream(),
    "DataLoader": DataLoader(Pairs(), batch_size=4),
    "DataLoader shuffled": DataLoader(Pairs(), batch_size=3, shuffle=True, drop_last=True),
    "DataLoader of a stream": DataLoader(Stream(), batch_size=4),
    "list of tuples": [(x, int(y)) for x, y in zip(X, Y, strict=True)],
    "list of dicts": [{"y": int(y), "x": x} for x, y in zip(X, Y, strict=True)],
    "torch columns": {"x": torch.from_numpy(X), "y": torch.from_numpy(Y)},
    "generator": ((x, y) for x, y in zip(X, Y, strict=True)),
}


@pytest.mark.parametrize("name", SAME)
def test_one_set_of_records_has_one_root_whatever_brings_it(
    name: str, root: bytes, tmp_path: Path
) -> None:
    found = freeze(SAME[name], tmp_path / "a")
    assert found.root == root
    assert ("loader" in found.rules) == name.startswith("DataLoader")


def test_fields_choose_and_name(tmp_path: Path, root: bytes) -> None:
    items = [{"x": x, "y": int(y), "text": "left out"} for x, y in zip(X, Y, strict=True)]
    assert freeze(items, tmp_path / "a", fields=("x", "y")).root == root
    with pytest.raises(UsageError, match="no field 'z'"):
        freeze(items, tmp_path / "b", fields=("x", "z"))
    named = freeze(Pairs(), tmp_path / "c", fields=("image", "label"))
    assert [f.name for f in named.schema.fields] == ["image", "label"]
    with pytest.raises(UsageError, match="no column 'z'"):
        freeze({"x": X}, tmp_path / "d", fields=("z",))
    single = freeze([1, 2, 3], tmp_path / "e")
    assert single.columns["x"].tolist() == [1, 2, 3]
    with pytest.raises(UsageError, match="2 fields are asked for"):
        freeze([1, 2, 3], tmp_path / "f", fields=("a", "b"))


def test_a_data_set_that_draws_is_refused_unless_allowed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not the same when it is read again"):
        freeze(Noisy(), tmp_path / "a")
    assert freeze(Noisy(), tmp_path / "b", allow_random=True).count == 20


def collate_first(items: list[Any]) -> Any:
    return {"z": torch.stack([x * 2 for x, _ in items])}


def seed_worker(number: int) -> None:
    return None


LOADERS: dict[str, tuple[dict[str, Any], str]] = {
    "sampler": ({"sampler": WeightedRandomSampler([1.0] * 20, 20)}, "WeightedRandomSampler"),
    "replacement": (
        {"sampler": torch.utils.data.RandomSampler(Pairs(), replacement=True)},
        r"its own sampler \(RandomSampler\)",
    ),
    "a part": ({"sampler": torch.utils.data.SequentialSampler(range(5))}, "its own sampler"),
    "batch sampler": ({"batch_sampler": [[0, 1], [2]]}, "its own batch sampler"),
    "collate": ({"collate_fn": collate_first}, r"its own collate_fn \(collate_first\)"),
    "worker init": ({"num_workers": 1, "worker_init_fn": seed_worker}, "worker_init_fn"),
}


@pytest.mark.parametrize("name", LOADERS)
def test_what_a_loader_changes_is_refused_by_name(name: str, tmp_path: Path) -> None:
    options, message = LOADERS[name]
    with pytest.raises(UsageError, match=message):
        freeze(DataLoader(Pairs(), **options), tmp_path / "a")


def test_a_collate_function_on_each_record(tmp_path: Path) -> None:
    loader = DataLoader(Pairs(), batch_size=5, collate_fn=collate_first)
    found = freeze(loader, tmp_path / "a", collate="each")
    assert found.columns["z"].tobytes() == (2 * X).tobytes()
    assert found.rules["collate_fn"] == "collate_first, on each record alone"
    flat = DataLoader(Pairs(), collate_fn=lambda items: items[0][0])
    with pytest.raises(UsageError, match="no batch of one record"):
        freeze(flat, tmp_path / "b", collate="each")


def test_hugging_face_and_parquet(tmp_path: Path, root: bytes) -> None:
    datasets = pytest.importorskip("datasets")
    import pyarrow.parquet as pq

    made = datasets.Dataset.from_dict({"x": list(X), "y": list(Y)})
    found = freeze(made, tmp_path / "hf", dtype="f32")
    assert found.root == root and found.source["kind"] == "datasets.Dataset"
    chosen = made.select(range(5, 15)).shuffle(seed=1)  # indices beside the table
    part = freeze(chosen, tmp_path / "part", dtype="f32")
    assert part.columns["y"].tolist() == chosen["y"][:]
    streamed = freeze(made.to_iterable_dataset(), tmp_path / "stream", dtype="f32")
    assert streamed.root == root
    table = made.data.table
    pq.write_table(table.slice(0, 12), tmp_path / "0.parquet", row_group_size=5)
    pq.write_table(table.slice(12), tmp_path / "1.parquet", row_group_size=5)
    files = [tmp_path / "0.parquet", tmp_path / "1.parquet"]
    assert freeze(files, tmp_path / "pq", dtype="f32").root == root
    with pytest.raises(UsageError, match="has no column 'z'"):
        freeze(files, tmp_path / "z", fields=["z"])
    (tmp_path / "2.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(CorruptFileError, match="cannot be read as Parquet"):
        freeze(tmp_path / "2.parquet", tmp_path / "broken")


def test_arrow_columns_of_other_kinds(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    ragged = {"t": [[1, 2, 3], [4], []], "s": ["a", "b", "c"], "g": [None, 1, 2]}
    made = datasets.Dataset.from_dict(ragged)
    with pytest.raises(UsageError, match="'s' is string; a record holds numbers"):
        freeze(made, tmp_path / "s")
    with pytest.raises(UsageError, match="'g' has missing values"):
        freeze(made, tmp_path / "g", fields=["g"])
    with pytest.raises(UsageError, match="Pass a rule"):
        freeze(made, tmp_path / "t", fields=["t"])
    rule = {"t": Pad("max", value=-1, length=True)}
    padded = freeze(made, tmp_path / "p", fields=["t"], pad=rule)
    assert padded.columns["t"].tolist() == [[1, 2, 3], [4, -1, -1], [-1, -1, -1]]
    assert padded.columns["t_length"].tolist() == [3, 1, 0]
    deep = datasets.Dataset.from_dict({"t": [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]})
    assert freeze(deep, tmp_path / "d").columns["t"].tolist() == [
        [[1, 2], [3, 4]],
        [[5, 6], [7, 8]],
    ]
    odd = datasets.Dataset.from_dict({"t": [[[1, 2], [3]]]})
    with pytest.raises(UsageError, match="lists of lists of different lengths"):
        freeze(odd, tmp_path / "o")
    square = datasets.Features({"m": datasets.Array2D((2, 2), "float32")})
    matrices = datasets.Dataset.from_dict({"m": [[[1, 2], [3, 4]]] * 3}, features=square)
    assert freeze(matrices, tmp_path / "m").columns["m"].shape == (3, 2, 2)
    images = datasets.Dataset.from_dict(
        {"i": [np.full((4, 5, 3), n, np.uint8) for n in range(3)]},
        features=datasets.Features({"i": datasets.Image()}),
    )
    frozen = freeze(images, tmp_path / "i")
    assert frozen.columns["i"].shape == (3, 3, 4, 5) and frozen.source["kind"] == "items"
    changed = made.with_transform(lambda batch: {"n": [len(t) for t in batch["t"]]})
    assert freeze(changed, tmp_path / "c", fields=["n"]).columns["n"].tolist() == [3, 1, 0]


def test_column_files(tmp_path: Path, root: bytes) -> None:
    write_tensors(tmp_path / "a.safetensors", {"x": X[:7], "y": Y[:7]})
    write_tensors(tmp_path / "b.safetensors", {"x": X[7:], "y": Y[7:]})
    files = [tmp_path / "a.safetensors", tmp_path / "b.safetensors"]
    assert freeze(files, tmp_path / "st").root == root
    (tmp_path / "npz").mkdir()
    np.savez(tmp_path / "npz" / "0.npz", x=X[:7], y=Y[:7])
    np.savez_compressed(tmp_path / "npz" / "1.npz", x=X[7:], y=Y[7:])
    assert freeze(tmp_path / "npz", tmp_path / "z").root == root
    np.savez(tmp_path / "objects.npz", x=np.array([{}]))
    with pytest.raises(UsageError, match="holds objects"):
        freeze(tmp_path / "objects.npz", tmp_path / "o")
    (tmp_path / "bad.npz").write_bytes(b"no zip")
    with pytest.raises(CorruptFileError, match=r"cannot be read as .npz"):
        freeze(tmp_path / "bad.npz", tmp_path / "bad")
    np.savez(tmp_path / "odd.npz", x=X, y=Y[:3])
    with pytest.raises(UsageError, match=r"have \[3, 20\] records"):
        freeze(tmp_path / "odd.npz", tmp_path / "odd")


def _tar(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as shard:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            shard.addfile(info, io.BytesIO(data))
    return path


def _npy(array: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def test_tar_shards(tmp_path: Path) -> None:
    members: dict[str, bytes] = {}
    for i in range(20):
        members |= {f"a/{i:04}.npy": _npy(X[i]), f"a/{i:04}.cls": str(Y[i]).encode()}
    whole = _tar(tmp_path / "0.tar", members)
    found = freeze(whole, tmp_path / "a")
    assert found.columns["npy"].tobytes() == X.tobytes()
    assert found.columns["cls"].tolist() == Y.tolist()
    text = _tar(tmp_path / "t.tar", {"0.txt": b"words", "0.cls": b"1"})
    with pytest.raises(UsageError, match="this kind has no numbers"):
        freeze(text, tmp_path / "t")
    assert freeze(text, tmp_path / "u", fields=["cls"]).columns["cls"].tolist() == [1]
    odd = _tar(tmp_path / "o.tar", {"0.cls": b"one"})
    with pytest.raises(UsageError, match="not a whole number"):
        freeze(odd, tmp_path / "o")
    (tmp_path / "b.tar").write_bytes(b"x" * 2000)
    with pytest.raises(CorruptFileError, match="cannot be read as tar"):
        freeze(tmp_path / "b.tar", tmp_path / "b")
    objects = _tar(tmp_path / "p.tar", {"0.npy": _npy(np.array([{}], dtype=object))})
    with pytest.raises(UsageError, match="holds objects"):
        freeze(objects, tmp_path / "p")


def test_image_folders(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    made = {}
    for folder in ("dog", "cat"):
        (tmp_path / "in" / folder).mkdir(parents=True)
        for n in range(3):
            pixels = rng.integers(0, 256, (8, 12, 3), dtype=np.uint8)
            made[folder, n] = pixels
            image.fromarray(pixels).save(tmp_path / "in" / folder / f"{n}.png")
        (tmp_path / "in" / folder / "notes.txt").write_text("no image")
    found = freeze(tmp_path / "in", tmp_path / "a")
    assert found.columns["y"].tolist() == [0, 0, 0, 1, 1, 1]
    assert found.source["classes"] == ["cat", "dog"]
    assert found.columns["x"][4].tobytes() == made["dog", 1].transpose(2, 0, 1).tobytes()
    cut = freeze(tmp_path / "in", tmp_path / "b", size=4)
    assert cut.columns["x"].shape == (6, 3, 4, 4)
    assert "bilinear" in str(cut.source["resize"])
    same = freeze(tmp_path / "in", tmp_path / "c", size=(8, 8))  # nothing to resize: the middle
    assert same.columns["x"][0].tobytes() == made["cat", 0][:, 2:10].transpose(2, 0, 1).tobytes()
    image.fromarray(np.zeros((9, 9), np.uint8)).save(tmp_path / "in" / "cat" / "9.png")
    with pytest.raises(UsageError, match="record 3 has the shape"):
        freeze(tmp_path / "in", tmp_path / "d")
    image.fromarray(np.zeros((9, 9, 4), np.uint8)).save(tmp_path / "in" / "cat" / "9.png")
    with pytest.raises(UsageError, match="has transparent parts"):
        freeze(tmp_path / "in", tmp_path / "e", size=4)
    (tmp_path / "in" / "cat" / "9.png").write_bytes(b"\x89PNG and no more")
    with pytest.raises(CorruptFileError, match="cannot be read as an image"):
        freeze(tmp_path / "in", tmp_path / "f", size=4)


def test_bytes_of_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_source, "PIECE_BYTES", 100)
    (tmp_path / "a.txt").write_bytes(b"".join(b"line %d\n" % i for i in range(100)))
    (tmp_path / "b.txt").write_bytes(b"no end of line")
    whole = (tmp_path / "a.txt").read_bytes() + b"no end of line"
    found = freeze([tmp_path / "a.txt", tmp_path / "b.txt"], tmp_path / "f", block=16)
    tokens = found.columns["tokens"]
    assert tokens.shape == ((len(whole) - 1) // 16, 17)
    assert bytes(tokens[:, :-1].reshape(-1).astype(np.uint8)) == whole[: len(tokens) * 16]
    assert (tokens[:-1, -1] == tokens[1:, 0]).all()
    assert found.ranges["tokens"] == (int(tokens.min()), int(tokens.max()))
    with pytest.raises(UsageError, match="needs the tokens of a record"):
        freeze(tmp_path / "a.txt", tmp_path / "g")
    with pytest.raises(UsageError, match="no records"):
        freeze(tmp_path / "b.txt", tmp_path / "h", block=50)
    with pytest.raises(UsageError, match="Bytes have no end token"):
        freeze(tmp_path / "a.txt", tmp_path / "i", block=5, end_token="<end>")
    monkeypatch.setattr(text_source, "LONGEST_LINE", 5)
    with pytest.raises(UsageError, match="a line of more than 5 bytes"):
        freeze(tmp_path / "a.txt", tmp_path / "j", block=5)


def test_text_by_a_tokenizer_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    monkeypatch.setattr(text_source, "PIECE_BYTES", 50)
    words = {"<unk>": 0, "<end>": 1, "one": 2, "two": 3, "three": 4}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.enable_truncation(3)  # the file's own truncation must not cut the text
    made.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "a.txt").write_text("one two three\n" * 20)
    (tmp_path / "b.txt").write_text("two what\n" * 7)
    found = freeze(
        [tmp_path / "a.txt", tmp_path / "b.txt"],
        tmp_path / "f",
        tokenizer=tmp_path / "tokenizer.json",
        block=4,
        end_token="<end>",
    )
    ids = [2, 3, 4] * 20 + [1] + [3, 0] * 7 + [1]
    tokens = found.columns["tokens"]
    assert tokens[:, :-1].reshape(-1).tolist() == ids[: tokens.shape[0] * 4]
    assert len(tokens) == (len(ids) - 1) // 4
    assert len(str(found.source["tokenizer_sha256"])) == 64
    (tmp_path / "bad.json").write_text(json.dumps({"model": 3}))
    with pytest.raises(UsageError, match="is not a tokenizers file"):
        freeze(tmp_path / "a.txt", tmp_path / "g", tokenizer=tmp_path / "bad.json", block=4)
    with pytest.raises(UsageError, match="has no token '<s>'"):
        freeze(
            tmp_path / "a.txt", tmp_path / "h", tokenizer=tmp_path / "tokenizer.json", block=4,
            end_token="<s>",
        )  # fmt: skip
    (tmp_path / "c.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="is not UTF-8"):
        freeze(tmp_path / "c.txt", tmp_path / "i", tokenizer=tmp_path / "tokenizer.json", block=4)


@pytest.mark.parametrize("name", ["chat.jsonl", "CHAT.JSONL"])
def test_json_lines_are_text_only_by_name(tmp_path: Path, name: str) -> None:
    """A chat's braces are tokens to nobody who did not say so."""
    path, line = tmp_path / name, b'{"messages": [{"role": "user", "content": "hello"}]}\n'
    path.write_bytes(line * 4)
    for source in (path, tmp_path):
        with pytest.raises(UsageError, match="braces and quotes included") as refused:
            freeze(source, tmp_path / "out", block=4)
        assert path.name in str(refused.value) and "--kind text" in str(refused.value)
    found = freeze(path, tmp_path / "out", block=4, kind="text")
    assert bytes(found.columns["tokens"][0].astype(np.uint8)) == line[:5]


@pytest.mark.parametrize("name", ["chat.jsonl", "all.json", "a.ndjson"])
def test_a_recipes_text_is_no_json(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b'{"text": "hello"}\n' * 200)
    with pytest.raises(UsageError, match=f"{name} is JSON by its name") as refused:
        new_job("gpt2", tmp_path / "job", {}, Sources(text=path))
    assert ".txt" in str(refused.value) and "--data" in str(refused.value)
    assert not (tmp_path / "job").exists()


def test_paths_of_no_known_kind(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"")
    with pytest.raises(UsageError, match=r"kind of a.bin is not known"):
        freeze(tmp_path / "a.bin", tmp_path / "out")
    with pytest.raises(UsageError, match="no file of a known kind"):
        freeze(tmp_path, tmp_path / "out")
    with pytest.raises(UsageError, match="no kind 'csv'"):
        freeze(tmp_path / "a.bin", tmp_path / "out", kind="csv")
    with pytest.raises(StorageError, match="is missing"):
        freeze(tmp_path / "none.parquet", tmp_path / "out")
    (tmp_path / "b.txt").write_bytes(b"a")
    (tmp_path / "b.npz").write_bytes(b"a")
    with pytest.raises(UsageError, match="holds columns and text"):
        freeze(tmp_path, tmp_path / "out")
    with pytest.raises(UsageError, match="size= says nothing about text"):
        freeze(tmp_path / "b.txt", tmp_path / "out", block=1, size=3)
