"""The reader of GGUF files and their tokenizers: what it takes, and hostile files (ANSWERS 12)."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from model.gguf_files import Given, byte_tokens, gguf_bytes, random_tensor, text, value

from tallystick.answers.gguf_tokenizer import tokenizer_of
from tallystick.answers.model import open_model
from tallystick.disk.gguf import open_gguf
from tallystick.errors import CorruptFileError, RefusedModelError, TallystickError

RNG = np.random.default_rng(0)
TENSORS = {
    "a": random_tensor("f32", (3, 5), RNG),
    "b": random_tensor("q4_k", (2, 512), RNG),
    "c": random_tensor("bf16", (7,), RNG),
    "d": random_tensor("f16", (2, 2, 4), RNG),
}
METADATA: dict[str, Any] = {
    "x.text": "größe", "x.whole": 7, "x.real": 0.5, "x.flag": True, "x.texts": ["a", "", "b"],
    "x.numbers": [1, -2, 3], "x.reals": [0.5, 2.0],
}  # fmt: skip


def written(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "f.gguf"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("version", [2, 3])
def test_metadata_and_tensors(version: int, tmp_path: Path) -> None:
    file = open_gguf(written(tmp_path, gguf_bytes(METADATA, TENSORS, version)))
    assert dict(file.metadata) == METADATA
    arrays = file.mapped()
    for name, given in TENSORS.items():
        assert file.tensors[name].shape == given.shape
        assert file.tensors[name].format == given.kind
        assert arrays[name].tobytes() == given.data
        assert arrays[name].flags.c_contiguous
    assert arrays["b"].shape == (2, 288)
    assert arrays["b"].dtype == np.uint8


def test_what_is_written_into_a_weight_stays_in_memory(tmp_path: Path) -> None:
    path = written(tmp_path, gguf_bytes(METADATA, TENSORS))
    before = path.read_bytes()
    open_gguf(path).mapped()["b"][:] = 0
    assert path.read_bytes() == before


def test_every_beginning_of_a_file_and_every_changed_byte(tmp_path: Path) -> None:
    """A cut file is refused; of one with another byte in its header, whatever is read fits into it,
    and every refusal is ours."""
    data = gguf_bytes(METADATA, TENSORS)
    head = len(data) - sum(-(-len(t.data) // 32) * 32 for t in TENSORS.values())
    for end in range(0, head, 3):
        with pytest.raises(TallystickError):
            open_gguf(written(tmp_path, data[:end]))
    for at in range(head):
        for change in (0x01, 0x80, 0xFF):
            other = bytearray(data)
            other[at] ^= change
            try:
                file = open_gguf(written(tmp_path, bytes(other)))
            except TallystickError:
                continue
            assert sum(a.nbytes for a in file.mapped().values()) <= len(data)


def head(tensors: int, keys: int, rest: bytes = b"", version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, keys) + rest + bytes(64)


def listed(name: str, shape: tuple[int, ...], kind: int, offset: int = 0) -> bytes:
    axes = struct.pack(f"<I{len(shape)}Q", len(shape), *shape[::-1])
    return text(name) + axes + struct.pack("<IQ", kind, offset)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(head(1 << 63, 0), id="tensors without end"),
        pytest.param(head(0, 1 << 63), id="keys without end"),
        pytest.param(head(0, 0, version=1), id="version 1"),
        pytest.param(head(0, 0, version=3 << 24), id="another order of bytes"),
        pytest.param(head(0, 1, struct.pack("<Q", 1 << 62)), id="a long key"),
        pytest.param(head(0, 1, text("k") + struct.pack("<IIQ", 9, 4, 1 << 60)), id="a long array"),
        pytest.param(
            head(0, 1, text("k") + struct.pack("<IIQ", 9, 8, 1 << 23)), id="many texts, none there"
        ),
        pytest.param(head(0, 1, text("k") + struct.pack("<IIQ", 9, 9, 1)), id="an array of arrays"),
        pytest.param(head(0, 1, text("k") + struct.pack("<I", 13)), id="a value of no kind"),
        pytest.param(head(0, 1, text("k") + struct.pack("<IB", 7, 2)), id="a bool of 2"),
        pytest.param(
            head(0, 1, struct.pack("<Q", 1) + b"\xff" + value(1)), id="a key that is no text"
        ),
        pytest.param(head(0, 2, (text("k") + value(1)) * 2), id="a key twice"),
        pytest.param(head(0, 1, text("general.alignment") + value(24)), id="an odd alignment"),
        pytest.param(head(0, 1, text("general.alignment") + value(True)), id="a true alignment"),
        pytest.param(head(1, 0, text("t") + struct.pack("<I", 99)), id="many axes"),
        pytest.param(head(1, 0, listed("t", (1 << 40, 1 << 40), 0)), id="a product beyond 64 bits"),
        pytest.param(head(1, 0, listed("t", (0,), 0)), id="an empty axis"),
        pytest.param(head(1, 0, listed("t", (1 << 20,), 0)), id="a tensor behind the end"),
        pytest.param(head(1, 0, listed("t", (4,), 0, 1 << 63)), id="an offset behind the end"),
        pytest.param(head(1, 0, listed("t", (4,), 0, 8)), id="an offset between"),
        pytest.param(head(1, 0, listed("t", (33,), 8)), id="a part of a block"),
        pytest.param(head(2, 0, listed("t", (1,), 0) * 2), id="a name twice"),
        pytest.param(
            head(2, 0, listed("t", (4,), 0) + listed("u", (4,), 0)), id="one tensor in another"
        ),
    ],
)
def test_hostile_files_are_refused(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(CorruptFileError):
        open_gguf(written(tmp_path, data))


@pytest.mark.parametrize(("kind", "name"), [(10, "Q2_K"), (20, "IQ4_NL"), (28, "F64"), (99, "99")])
def test_other_types_are_refused_by_their_names(kind: int, name: str, tmp_path: Path) -> None:
    with pytest.raises(RefusedModelError, match=name):
        open_gguf(written(tmp_path, head(1, 0, listed("t", (256,), kind))))


def test_a_file_without_a_model_is_refused(tmp_path: Path) -> None:
    for metadata in ({}, {"general.architecture": "llama"}, {"general.architecture": 5}):
        with pytest.raises(TallystickError):
            open_model(written(tmp_path, gguf_bytes(metadata, TENSORS)))
    with pytest.raises(CorruptFileError, match="not a whole number"):
        open_model(
            written(
                tmp_path,
                gguf_bytes(
                    {"general.architecture": "llama", "llama.embedding_length": "many",
                     "llama.attention.head_count": 4},
                    {"token_embd.weight": Given("f32", (1, 1), bytes(4))},
                ),
            )
        )  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {"tokenizer.ggml.tokens": []},
        {"tokenizer.ggml.tokens": ["a", "a"]},
        {"tokenizer.ggml.tokens": [1, 2]},
        {"tokenizer.ggml.token_type": [1, 2]},
        {"tokenizer.ggml.merges": ["ab"]},
        {"tokenizer.ggml.merges": ["a b c"]},
        {"tokenizer.ggml.eos_token_id": 48},
        {"tokenizer.ggml.eos_token_id": -1},
        {"tokenizer.ggml.add_bos_token": 1},
        {"tokenizer.ggml.model": "llama"},  # without scores
        {"tokenizer.ggml.model": "llama", "tokenizer.ggml.scores": [float("nan")] * 48},
    ],
)
def test_tokenizers_that_contradict_themselves_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(CorruptFileError):
        tokenizer_of({**byte_tokens(48), **change})


@pytest.mark.parametrize(
    ("name", "takes"), [("Phi3 mini", True), ("my phi-3.5", True), ("x", False)]
)
def test_tokens_of_phi_3_take_the_white_space_behind_them(name: str, takes: bool) -> None:
    made = tokenizer_of({**byte_tokens(48), "general.name": name})
    added = json.loads(made.files["tokenizer.json"])["added_tokens"]
    assert {t["content"]: t["rstrip"] for t in added} == {"<s>": False, "</s>": takes}
