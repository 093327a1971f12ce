"""Five entries of a published log to a byte (COMMITMENTS 10.3)."""

from __future__ import annotations

import numpy as np

from tallystick.commit.log import ENTRIES_PER_BYTE
from tallystick.errors import CorruptFileError

Array = np.ndarray
LARGEST_BYTE = 3**ENTRIES_PER_BYTE - 1  # 242
NO_CHANGE = 1  # the entry that fills the last byte, too
FIVE_NO_CHANGE = 121  # a byte of them

_POWERS = (1, 3, 9, 27, 81)
# The five entries of every byte. Bytes above 242 are refused before a look into this table.
_DIGITS = np.array([[byte // p % 3 for p in _POWERS] for byte in range(256)], np.uint8)
_PART = 1 << 20  # bytes unpacked or packed at a time: temporaries stay small


def pack(entries: Array) -> bytes:
    """Entries u8[n], each 0, 1 or 2, five to a byte. The caller vouches for their range."""
    out = np.empty(-(-len(entries) // ENTRIES_PER_BYTE), np.uint8)
    for at in range(0, len(out), _PART):
        part = entries[at * ENTRIES_PER_BYTE : (at + _PART) * ENTRIES_PER_BYTE]
        if len(part) % ENTRIES_PER_BYTE:
            fill = np.full(-len(part) % ENTRIES_PER_BYTE, NO_CHANGE, np.uint8)
            part = np.concatenate([part, fill])
        digits = part.reshape(-1, ENTRIES_PER_BYTE)
        packed = digits[:, 4].copy()
        for k in (3, 2, 1, 0):
            packed *= 3
            packed += digits[:, k]
        out[at : at + len(packed)] = packed
    return out.tobytes()


def unpack(data: bytes | memoryview, count: int) -> Array:
    """The first `count` entries, u8, of packed bytes.

    Raises CorruptFileError for a wrong length, a byte above 242 or a filler that is not 1.
    """
    packed = np.frombuffer(data, np.uint8)
    if len(packed) != -(-count // ENTRIES_PER_BYTE):
        raise CorruptFileError("its bytes do not number its entries", "Refuse it.")
    if len(packed) and packed.max() > LARGEST_BYTE:
        raise CorruptFileError("a byte is larger than 242", "Refuse it.")
    out = np.empty(len(packed) * ENTRIES_PER_BYTE, np.uint8)
    rows = out.reshape(-1, ENTRIES_PER_BYTE)
    for at in range(0, len(packed), _PART):
        np.take(_DIGITS, packed[at : at + _PART], axis=0, out=rows[at : at + _PART])
    if (out[count:] != NO_CHANGE).any():
        raise CorruptFileError("the entries after its last one are not 1", "Refuse it.")
    return out[:count]
