"""Tokenizer files and checkpoint directories that nobody should trust: nothing is unpickled, no
file outside is read, nothing is allocated before its size is known, and no command hangs.

ONNX files are in tests/model/test_onnx_files.py.
"""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tallystick import started
from tallystick.data.sources import tokenizer_process
from tallystick.data.sources.tokenizer import TokenizerFile, load_tokenizer
from tallystick.disk.checkpoint import open_checkpoint
from tallystick.disk.tensorfile import write_tensors
from tallystick.errors import CorruptFileError, StorageError, TallystickError, UsageError


# --- tokenizer files ------------------------------------------------------------------------------
def _tokenizer(path: Path, **changed: Any) -> TokenizerFile:
    pytest.importorskip("tokenizers", reason="the package tokenizers is not installed")
    value = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
        "normalizer": None, "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None,
        "decoder": None,
        "model": {
            "type": "WordLevel", "vocab": {"a": 0, "b": 1, "[UNK]": 2}, "unk_token": "[UNK]"
        },
    }  # fmt: skip
    file = path / "tokenizer.json"
    file.write_text(json.dumps({**value, **changed}))
    return load_tokenizer(file)


def _replace(pattern: str, content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"String": pattern}, "content": content}


TWICE = {"type": "Sequence", "normalizers": [_replace("a", "a" * 1000)] * 6}


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other process gets little memory and time."""
    monkeypatch.setattr(tokenizer_process, "MEMORY_BYTES", 256 << 20)
    source = f"import {tokenizer_process.__name__} as p; p.MEMORY_BYTES = 256 << 20; p.main()"
    real = started.command_of
    monkeypatch.setattr(started, "command_of", lambda module: [real(module)[0], "-c", source])


def test_an_honest_tokenizer(tmp_path: Path) -> None:
    made = _tokenizer(tmp_path)
    assert made.encode(b"a b a c\n", "text").tolist() == [0, 1, 0, 2]
    assert (made.decode([0, 1]), made.count, made.token("b"), made.token("c")) == (
        "a b",
        3,
        1,
        None,
    )


@pytest.mark.usefixtures("little")
def test_replacements_that_feed_one_another(tmp_path: Path) -> None:
    """Six rules of a few bytes make 10^18 of one. The library ended our process (SIGABRT)."""
    made = _tokenizer(tmp_path, normalizer=TWICE)
    with pytest.raises(UsageError, match=r"no tokens for text: its rules do not end within"):
        made.encode(b"a", "text")
    with pytest.raises(UsageError, match="its rules do not end"):  # and it has no second life
        made.encode(b"b", "text")
    decoder = {"type": "Sequence", "decoders": [_replace("a", "a" * 1000)] * 6}
    made = _tokenizer(tmp_path, decoder=decoder)
    with pytest.raises(UsageError, match="no text for 1 tokens"):
        made.decode([0])


def test_a_regular_expression_without_an_end(tmp_path: Path) -> None:
    """The library gives up with a panic, which is no Exception: a traceback, and exit code 1."""
    split = {
        "type": "Split", "pattern": {"Regex": "(a+)+$|(.|..)+x(.|..)+y$"}, "behavior": "Isolated",
        "invert": False,
    }  # fmt: skip
    made = _tokenizer(tmp_path, pre_tokenizer=split)
    with pytest.raises(UsageError, match="no tokens for text: Onig"):
        made.encode(b"a" * 60 + b"b ", "text")
    assert made.encode(b"a", "text").tolist(), "the process is still there"


def test_rules_that_take_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other process is ended, and its answer never waited for."""
    made = _tokenizer(tmp_path)
    monkeypatch.setattr(tokenizer_process, "SECONDS", 0.05)
    monkeypatch.setattr(tokenizer_process, "SECONDS_EACH", 0.0)
    with pytest.raises(UsageError, match="its rules do not end within 0 seconds"):
        made.encode(b"a b " * 400_000, "text")


@pytest.mark.parametrize(
    "changed",
    [
        {"model": {"type": "WordLevel", "vocab": {"a": 1 << 40}, "unk_token": "a"}},
        {"model": {"type": "WordLevel", "vocab": {"a": -1}, "unk_token": "a"}},
        {"model": {"type": "Unknown"}},
        {"normalizer": {"type": "Replace", "pattern": {"Regex": "("}, "content": ""}},
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}},
        {"added_tokens": "none"},
    ],
)
def test_malformed_tokenizers(tmp_path: Path, changed: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"is not a tokenizers file|no tokens for"):
        _tokenizer(tmp_path, **changed).encode(b"a", "text")


def test_deep_and_large_files_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers", reason="the package tokenizers is not installed")
    file = tmp_path / "tokenizer.json"
    file.write_text('{"normalizer":' + '{"type":"Sequence","normalizers":[' * 100_000)
    with pytest.raises(UsageError, match="is not a tokenizers file"):
        load_tokenizer(file)
    with file.open("wb") as out:
        out.truncate(1 << 40)
    with pytest.raises(CorruptFileError, match="more than the limit"):
        load_tokenizer(file)


# --- checkpoint directories -----------------------------------------------------------------------
@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    directory = tmp_path / "checkpoint"
    directory.mkdir()
    (directory / "config.json").write_text('{"model_type": "llama"}')
    write_tensors(directory / "model.safetensors", {"w": np.arange(6, dtype=np.float32)})
    return directory


def _header(directory: Path, value: Any, tail: bytes = bytes(24)) -> None:
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    data = len(text).to_bytes(8, "little") + text + tail
    (directory / "model.safetensors").write_bytes(data)


def _entry(start: int, stop: int, shape: Any = None, dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape or [(stop - start) // 4], "data_offsets": [start, stop]}


@pytest.mark.parametrize(
    "value",
    [
        {"a": _entry(0, 16), "b": _entry(8, 24)},
        {"a": _entry(0, 24), "b": _entry(0, 24)},
        {"a": _entry(0, 8), "b": _entry(16, 24)},
        {"a": _entry(0, 1 << 40, [1 << 38])},
        {"a": _entry(-24, 0, [6])},
        {"a": _entry(0, 24, [1 << 62, 1 << 62])},
        {"a": _entry(0, 24, [-6])},
        {"a": _entry(0, 24, [6.0])},
        {"a": _entry(0, 24, [True] * 30)},
        {"a": _entry(0, 24, dtype="F8_E4M3")},
        {"a": {**_entry(0, 24), "more": 1}},
        {"__metadata__": {"a": 1}, "b": _entry(0, 24)},
        b'{"a":' * 100_000,
        b'{"a":{"dtype":"F32","shape":[6],"data_offsets":[0,24]},"a":{"dtype":"F32","shape":[6],'
        b'"data_offsets":[0,24]}}',
        b"[]",
    ],
)
def test_headers_of_weights(checkpoint: Path, value: Any) -> None:
    _header(checkpoint, value)
    with pytest.raises(CorruptFileError):
        open_checkpoint(checkpoint)


def test_a_header_that_states_its_own_size(checkpoint: Path) -> None:
    for size in (1 << 63, (1 << 64) - 1, 1 << 40, 100):
        (checkpoint / "model.safetensors").write_bytes(size.to_bytes(8, "little") + b"{}")
        with pytest.raises(CorruptFileError, match="too long"):
            open_checkpoint(checkpoint)


class Bomb:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return os.mkdir, (str(self.path),)


def test_no_pickle_is_read(checkpoint: Path, tmp_path: Path) -> None:
    """Beside safetensors it is passed over, in their place it is no file of weights."""
    bomb, data = tmp_path / "exploded", pickle.dumps(Bomb(tmp_path / "exploded"))
    for name in ("pytorch_model.bin", "model.pt", "optimizer.pt", "training_args.bin"):
        (checkpoint / name).write_bytes(data)
    assert set(open_checkpoint(checkpoint).tensors) == {"w"}
    (checkpoint / "model.safetensors").write_bytes(data)
    with pytest.raises(CorruptFileError):
        open_checkpoint(checkpoint)
    (checkpoint / "model.safetensors").unlink()
    with pytest.raises(StorageError, match="No other format is read"):
        open_checkpoint(checkpoint)
    index = {"weight_map": {"w": "pytorch_model.bin"}}
    (checkpoint / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CorruptFileError):
        open_checkpoint(checkpoint)
    assert not bomb.exists()


@pytest.mark.parametrize(
    "name",
    ["../secret.safetensors", "/etc/passwd", "sub/w.safetensors", "..", ".", "", ".w", "a\0b",
     "a" * 5000, 7, None, ["w"], {"w": 1}],
    ids=repr,
)  # fmt: skip
def test_an_index_names_files_of_its_directory_alone(
    checkpoint: Path, tmp_path: Path, name: Any
) -> None:
    (checkpoint / "model.safetensors").rename(tmp_path / "secret.safetensors")
    index = checkpoint / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"w": name}}))
    with pytest.raises(TallystickError) as caught:
        open_checkpoint(checkpoint)
    assert isinstance(caught.value, (CorruptFileError, StorageError))


def test_links_out_of_a_checkpoint(checkpoint: Path, tmp_path: Path) -> None:
    """A hub's cache is made of links, so weights may be one: they are read, and never executed.
    A link to something else than safetensors gives a refusal that shows none of it."""
    secret = tmp_path / "secret"
    secret.write_text("the content of a secret file")
    (checkpoint / "model.safetensors").unlink()
    (checkpoint / "model.safetensors").symlink_to(secret)
    with pytest.raises(CorruptFileError) as caught:
        open_checkpoint(checkpoint)
    assert "content" not in str(caught.value)
    (checkpoint / "config.json").unlink()
    (checkpoint / "config.json").symlink_to("/dev/zero")
    with pytest.raises(TallystickError):
        open_checkpoint(checkpoint)


@pytest.mark.parametrize("text", ["[]", "7", "{" * 100_000, '{"a": 1e400', "\ufeff{}", '"x"'])
def test_configs(checkpoint: Path, text: str) -> None:
    (checkpoint / "config.json").write_text(text)
    with pytest.raises(CorruptFileError):
        open_checkpoint(checkpoint)
