"""Token ids of GGUF files are llama.cpp's, on 1,000 texts (vectors/tokens).

TALLYSTICK_SMOLLM2_GGUF names SmolLM2's file, TALLYSTICK_LLAMA_VOCABS the directory `models` of
llama.cpp's sources, which has files with the tokenizers alone.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

pytest.importorskip("tokenizers")

from make_token_vectors import FORMAT, PATH, digest

from tallystick.answers.gguf_tokenizer import tokenizer_of
from tallystick.answers.special import TOKENIZER
from tallystick.data.sources import tokenizer as files
from tallystick.disk.gguf import open_gguf

VECTORS = json.loads(PATH.read_text())
SMOLLM2 = "smollm2"
# llama.cpp takes `</s>` out of every text, as a special token, whatever kind the file gives it.
# qwen2 has an ordinary token of that text, and its own tokenizer takes it for one.
OTHERWISE = {"ggml-vocab-qwen2.gguf": "</s>"}


def place(name: str) -> Path:
    """The file of the vectors' model `name`; without it the test is skipped."""
    if name == SMOLLM2:
        variable = "TALLYSTICK_SMOLLM2_GGUF"
        found = Path(os.environ.get(variable, "/nowhere"))
    else:
        variable = "TALLYSTICK_LLAMA_VOCABS"
        found = Path(os.environ.get(variable, "/nowhere")) / name
    if not found.is_file():
        pytest.skip(f"{variable} names no {name}")
    return found


@pytest.mark.parametrize("name", sorted(VECTORS["models"]))
def test_token_ids_are_those_of_llama_cpp(name: str) -> None:
    assert VECTORS["format"] == FORMAT
    made = tokenizer_of(open_gguf(place(name)).metadata)
    tokenizer = files.tokenizer_of(made.files[TOKENIZER], Path(TOKENIZER))
    wanted = VECTORS["models"][name]
    assert tokenizer.encode(b"a", "a text", whole=True).tolist() == wanted["around a"]
    known = OTHERWISE.get(name)
    texts = VECTORS["texts"]
    assert len(texts) == 1000
    size = len(digest([]))
    differing = [
        text
        for at, text in enumerate(texts)
        if digest(tokenizer.encode(text.encode(), "a text").tolist())
        != wanted["ids"][size * at : size * (at + 1)]
    ]
    assert [text for text in differing if known is None or known not in text] == []
    assert len(differing) < 10
