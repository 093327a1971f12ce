"""A `tokenizers` JSON file: text to tokens and back. Needs the package tokenizers.

The file's rules are executed in another process (tokenizer_process.py).
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from tallystick.commit.encoding import sha256
from tallystick.commit.tensor import Array
from tallystick.data.sources.base import missing
from tallystick.data.sources.tokenizer_process import (
    COUNT,
    DECODE,
    ENCODE,
    TOKEN,
    WHOLE,
    RulesProcess,
)
from tallystick.disk.regular import os_errors, read_file
from tallystick.errors import UsageError

PIECE_BYTES = 1 << 20
LONGEST_LINE = 64 << 20
_TOKENIZER_LIMIT = 256 << 20


@dataclass(frozen=True)
class TokenizerFile:
    """A tokenizer, its file's name and SHA-256 in hexadecimal, and the version of the package."""

    process: RulesProcess
    name: str
    digest: str
    version: str

    @property
    def count(self) -> int:
        """One more than the greatest token. Raises UsageError."""
        return int(self.process.ask(COUNT))

    def token(self, text: str) -> int | None:
        """The token whose text is `text`, if there is one. Raises UsageError."""
        found: int | None = json.loads(self.process.ask(TOKEN, text.encode("utf-8")))
        return found

    def encode(self, piece: bytes, name: str, whole: bool = False) -> Array:
        """The tokens of a text, i64[n], without special ones. Of a `whole` text with those that the
        file puts around it. Raises UsageError."""
        try:
            piece.decode("utf-8")
        except UnicodeDecodeError:
            raise UsageError(f"{name} is not UTF-8.", "Convert it first.") from None
        try:
            found = self.process.ask(WHOLE if whole else ENCODE, piece)
        except UsageError as error:
            raise UsageError(
                f"{self.name} has no tokens for {name}: {error.message}.", error.next_action
            ) from None
        return np.frombuffer(found, "<i8").astype(np.int64)

    def encode_pieces(self, text: bytes, name: str) -> Array:
        """The tokens of a whole text, encoded piece by piece as a frozen text is. Raises
        UsageError."""
        parts = [self.encode(each, name) for each in pieces(io.BytesIO(text), Path(name))]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, special ones included. Raises UsageError."""
        try:
            return self.process.ask(DECODE, np.array(tokens, "<i8").tobytes()).decode("utf-8")
        except UsageError as error:
            raise UsageError(
                f"{self.name} has no text for {len(tokens)} tokens: {error.message}.",
                error.next_action,
            ) from None


def load_tokenizer(path: Path) -> TokenizerFile:
    """The tokenizer in the file. Raises CannotCheckError without the package, UsageError for a file
    of another kind, StorageError."""
    return tokenizer_of(read_file(path, _TOKENIZER_LIMIT, "tokenizer file"), path)


def tokenizer_of(data: bytes, path: Path) -> TokenizerFile:
    """The tokenizer in the bytes of the file `path`. Raises as `load_tokenizer`."""
    try:
        import tokenizers
    except ImportError:
        raise missing("tokenizers", "A tokenizer file") from None
    try:
        process = RulesProcess(data)
    except UsageError as error:
        raise UsageError(
            f"{path} is not a tokenizers file: {error.message}.", error.next_action
        ) from None
    return TokenizerFile(process, path.name, sha256(data).hex(), tokenizers.__version__)


def pieces(file: BinaryIO, path: Path) -> Iterator[bytes]:
    """A text in pieces of at least PIECE_BYTES that end with a line. Raises UsageError,
    StorageError."""
    with os_errors(path):
        lines: list[bytes] = []
        size = 0
        while line := file.readline(LONGEST_LINE):
            if len(line) == LONGEST_LINE:
                raise UsageError(
                    f"{path} has a line of more than {LONGEST_LINE} bytes.", "Break it."
                )
            lines.append(line)
            size += len(line)
            if size >= PIECE_BYTES:
                yield b"".join(lines)
                lines, size = [], 0
        if lines:
            yield b"".join(lines)
