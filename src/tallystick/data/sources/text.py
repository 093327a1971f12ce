"""Text files as blocks of tokens, by a `tokenizers` JSON file, or byte by byte.

The text is never whole in memory. It is read line by line, and encoded in pieces of at least
PIECE_BYTES that end with a line. No piece crosses from one file to the next. So the tokens are a
function of the files, the tokenizer and that number, and the manifest has them all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from tallystick.commit.encoding import JsonValue
from tallystick.commit.tensor import Array
from tallystick.data.rules import Block
from tallystick.data.sources.base import rows_per_block
from tallystick.data.sources.tokenizer import PIECE_BYTES, load_tokenizer, pieces
from tallystick.disk.regular import open_file
from tallystick.errors import UsageError

_JSON = (".jsonl", ".ndjson", ".json")


def refuse_json(path: Path, otherwise: str) -> None:
    """Raise UsageError for a file whose name says JSON: as text its braces, names and escapes are
    tokens like any others, and a chat has no turns. `otherwise` says how to take it so."""
    if path.name.lower().endswith(_JSON):
        raise UsageError(
            f"{path.name} is JSON by its name, and as text each of its bytes would be trained on, "
            "braces and quotes included.",
            "Write the texts alone into a .txt file, or encode them (a chat by its model's "
            "template) and pass the tokens to tallystick.freeze; --data takes what that makes. "
            f"To train on the JSON itself, {otherwise}.",
        )


class TextSource:
    """Records `field` i64[block + 1]: windows of tokens, which overlap by one.

    The last token of a window is the first of the next, so each is predicted once. A rest that
    fills no window is left out. `end_token` is put behind each file. Without a tokenizer a token is
    a byte.
    """

    again = True
    count = None

    def __init__(
        self,
        files: Sequence[Path],
        tokenizer: Path | None,
        block: int,
        field: str = "tokens",
        end_token: str | None = None,
    ) -> None:
        if block < 1:
            raise UsageError(f"A block of {block} tokens holds nothing.", "Give at least 1.")
        self._files, self._block, self._field = list(files), block, field
        self._tokenizer = None if tokenizer is None else load_tokenizer(tokenizer)
        self._end: Array | None = None
        self._end_token = end_token
        if end_token is None:
            return
        if self._tokenizer is None:
            raise UsageError("Bytes have no end token.", "Name a tokenizer file too.")
        end = self._tokenizer.token(end_token)
        if end is None:
            raise UsageError(f"The tokenizer has no token {end_token!r}.", "Name another.")
        self._end = np.array([end], dtype=np.int64)

    def words(self) -> dict[str, JsonValue]:
        found: dict[str, JsonValue] = {
            "kind": "text",
            "files": len(self._files),
            "block": self._block,
            "overlap": 1,
            "piece_bytes": PIECE_BYTES,
            "tokenizer_sha256": None if self._tokenizer is None else self._tokenizer.digest,
            "end_token": self._end_token,
        }
        if self._tokenizer is not None:
            found["tokenizers"] = self._tokenizer.version
        return found

    def blocks(self) -> Iterator[Block]:
        width = self._block + 1
        rows = rows_per_block(8 * width)
        rest = np.empty(0, dtype=np.int64)
        for tokens in self._tokens():
            rest = np.concatenate([rest, tokens])
            while (count := min(rows, (len(rest) - 1) // self._block)) > 0:
                starts = np.arange(count)[:, None] * self._block
                yield {self._field: rest[starts + np.arange(width)]}
                rest = rest[count * self._block :]

    def _tokens(self) -> Iterator[Array]:
        for path in self._files:
            for piece in _pieces(path):
                yield self._encode(piece, path)
            if self._end is not None:
                yield self._end

    def _encode(self, piece: bytes, path: Path) -> Array:
        if self._tokenizer is None:
            return np.frombuffer(piece, dtype=np.uint8).astype(np.int64)
        return self._tokenizer.encode(piece, str(path))


def _pieces(path: Path) -> Iterator[bytes]:
    file, _ = open_file(path, "text")
    with file:
        yield from pieces(file, path)
