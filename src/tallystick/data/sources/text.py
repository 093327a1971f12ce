"""Text files as blocks of tokens, by a `tokenizers` JSON file, or byte by byte.

The text is never whole in memory. It is read line by line, and encoded in pieces of at least
PIECE_BYTES that end with a line. No piece crosses from one file to the next. So the tokens are a
function of the files, the tokenizer and that number, and the manifest has them all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tallystick.commit.encoding import JsonValue, sha256
from tallystick.commit.tensor import Array
from tallystick.data.rules import Block
from tallystick.data.sources.base import missing, rows_per_block
from tallystick.disk.regular import open_file, os_errors, read_file
from tallystick.errors import UsageError

PIECE_BYTES = 1 << 20
_LONGEST_LINE = 64 << 20
_TOKENIZER_LIMIT = 256 << 20


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
        self._tokenizer: Any = None
        self._digest: str | None = None
        self._end_token = end_token
        if tokenizer is not None:
            self._load(tokenizer)
        elif end_token is not None:
            raise UsageError("Bytes have no end token.", "Name a tokenizer file too.")

    def _load(self, path: Path) -> None:
        try:
            import tokenizers
        except ImportError:
            raise missing("tokenizers", "A tokenizer file") from None
        data = read_file(path, _TOKENIZER_LIMIT, "tokenizer file")
        try:
            made = tokenizers.Tokenizer.from_str(data.decode("utf-8"))
        except Exception as error:  # the package raises plain Exception
            raise UsageError(
                f"{path} is no tokenizers file: {str(error)[:120].rstrip('.')}.",
                "Give the tokenizer.json of the model.",
            ) from None
        made.no_truncation()
        made.no_padding()
        self._tokenizer, self._digest = made, sha256(data).hex()
        if self._end_token is not None and made.token_to_id(self._end_token) is None:
            raise UsageError(f"The tokenizer has no token {self._end_token!r}.", "Name another.")

    def words(self) -> dict[str, JsonValue]:
        found: dict[str, JsonValue] = {
            "kind": "text",
            "files": len(self._files),
            "block": self._block,
            "overlap": 1,
            "piece_bytes": PIECE_BYTES,
            "tokenizer_sha256": self._digest,
            "end_token": self._end_token,
        }
        if self._tokenizer is not None:
            import tokenizers

            found["tokenizers"] = tokenizers.__version__
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
            if self._end_token is not None:
                yield np.array([self._tokenizer.token_to_id(self._end_token)], dtype=np.int64)

    def _encode(self, piece: bytes, path: Path) -> Array:
        if self._tokenizer is None:
            return np.frombuffer(piece, dtype=np.uint8).astype(np.int64)
        try:
            text = piece.decode("utf-8")
        except UnicodeDecodeError:
            raise UsageError(f"{path} is not UTF-8.", "Convert it first.") from None
        ids = self._tokenizer.encode(text, add_special_tokens=False).ids
        return np.array(ids, dtype=np.int64)


def _pieces(path: Path) -> Iterator[bytes]:
    file, _ = open_file(path, "text")
    with os_errors(path), file:
        lines: list[bytes] = []
        size = 0
        while line := file.readline(_LONGEST_LINE):
            if len(line) == _LONGEST_LINE:
                raise UsageError(
                    f"{path} has a line of more than {_LONGEST_LINE} bytes.", "Break it."
                )
            lines.append(line)
            size += len(line)
            if size >= PIECE_BYTES:
                yield b"".join(lines)
                lines, size = [], 0
        if lines:
            yield b"".join(lines)
