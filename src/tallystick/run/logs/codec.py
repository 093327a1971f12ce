"""The optional compression in a log's file."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tallystick.errors import CannotCheckError, CorruptFileError

RAW = 0
ZSTD = 1
CODECS = {"raw": RAW, "zstd": ZSTD}

_WINDOW = 1 << 27  # the most memory that a frame may demand of the decompressor


def _zstandard() -> Any:
    try:
        return import_module("zstandard")
    except ImportError:
        raise CannotCheckError(
            "Compressed rounding logs need the package zstandard, which is not installed.",
            "Run pip install 'tallystick[zstd]'.",
        ) from None


def check_available(codec: int) -> None:
    """Raise CannotCheckError if this installation cannot write or read `codec`."""
    if codec == ZSTD:
        _zstandard()


def compress(codec: int, data: bytes) -> bytes:
    """`data` as `codec` stores it: one frame that declares its size."""
    if codec == RAW or not data:
        return data
    packed: bytes = _zstandard().ZstdCompressor(level=3).compress(data)
    return packed


def largest_stored(codec: int, size: int) -> int:
    """The most bytes of `compress` for `size` bytes."""
    # zstd's own bound is size/256 more, and 64 for small ones.
    return size if codec == RAW or not size else size + (size >> 8) + 1024


def decompress(codec: int, stored: bytes, size: int) -> bytes:
    """The `size` bytes that `stored` holds; never allocates more than that.

    Raises CorruptFileError for another number of bytes, or where `stored` is no frame.
    """
    if codec == RAW or not size:
        if len(stored) != size:
            raise CorruptFileError("its size is not the declared one", "Refuse it.")
        return stored
    zstd = _zstandard()
    try:
        # The frame's own claim is checked before the library allocates by it.
        if zstd.get_frame_parameters(stored).content_size != size:
            raise CorruptFileError("its size is not the declared one", "Refuse it.")
        data: bytes = zstd.ZstdDecompressor(max_window_size=_WINDOW).decompress(
            stored, max_output_size=size, allow_extra_data=False
        )
    except zstd.ZstdError as error:
        raise CorruptFileError(f"it cannot be decompressed ({error})", "Refuse it.") from None
    if len(data) != size:
        raise CorruptFileError("its size is not the declared one", "Refuse it.")
    return data
