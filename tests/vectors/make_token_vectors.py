"""Writes vectors/tokens/llama_cpp.json: texts, and the ids that llama.cpp gives them.

    python tests/vectors/make_token_vectors.py LLAMA_TOKENS PLAY NAME=MODEL.gguf...

LLAMA_TOKENS is the program of llama_tokens.cpp, PLAY a file of English text. Of the ids of a text
stands here the beginning of a digest.
"""

from __future__ import annotations

import hashlib
import json
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from token_texts import texts

PATH = Path(__file__).parents[2] / "vectors/tokens/llama_cpp.json"
FORMAT = "tallystick/token-vectors/1"
DIGITS = 8
_TESTS = Path(__file__).parents[1]


def digest(ids: Sequence[int]) -> str:
    """The first digits of SHA-256 of the ids, each four bytes, little-endian."""
    return hashlib.sha256(struct.pack(f"<{len(ids)}I", *ids)).hexdigest()[:DIGITS]


def ids_of(program: str, model: str, given: Sequence[str], *more: str) -> list[list[int]]:
    """What llama.cpp makes of each text."""
    encoded = [text.encode() for text in given]
    sent = b"".join(struct.pack("<I", len(data)) + data for data in encoded)
    data = subprocess.run([program, model, *more], input=sent, stdout=-1, check=True).stdout
    words = struct.unpack(f"<{len(data) // 4}i", data)
    found, at = [], 0
    while at < len(words):
        found.append(list(words[at + 1 : at + 1 + words[at]]))
        at += 1 + words[at]
    assert len(found) == len(given)
    return found


def main(program: str, play: str, *models: str) -> None:
    sources = sorted((*_TESTS.glob("reference/*.py"), *_TESTS.glob("vectors/*.cpp")))
    programs = "\n".join(path.read_text() for path in sources)
    given = texts(1000, 1, Path(play).read_text(), programs)
    vectors = {}
    for name, _, model in (given_as.partition("=") for given_as in models):
        of_texts = ids_of(program, model, given)
        (around,) = ids_of(program, model, ["a"], "around")
        digests = "".join(digest(ids) for ids in of_texts)
        vectors[name] = {"around a": around, "ids": digests}
    PATH.write_text(json.dumps({"format": FORMAT, "texts": given, "models": vectors}, indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
