"""Entries of a step's log, and the bytes that hold them (COMMITMENTS 10.2, 10.3).

A bounded section has entries by position, in blocks of 4096 elements. In memory it is `counts`, u16
per block, and `words`, the u16 of all blocks one after the other; a file stores the same pair. A
published section has an entry for every element, five of them to a byte.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tallystick.commit import _native, merkle
from tallystick.commit.log import BLOCK_ELEMENTS, ENTRIES_PER_BYTE, Section
from tallystick.errors import CorruptFileError, UsageError

Array = np.ndarray


# --- bounded: blocks ------------------------------------------------------------------------------
WORD = np.dtype("<u2")
_EMPTY_BLOCK = merkle.leaf_hash(b"")


@dataclass(frozen=True)
class Entries:
    """Entries of one section: `positions` i64[k] strictly ascending, `directions` u8[k], 0 or 1."""

    positions: Array
    directions: Array

    def __len__(self) -> int:
        return len(self.positions)

    def select(self, which: Array) -> Entries:
        """The entries at a mask or an ascending list of indices."""
        return Entries(self.positions[which], self.directions[which])

    @staticmethod
    def none() -> Entries:
        return Entries(np.empty(0, np.int64), np.empty(0, np.uint8))


class Collector:
    """The entries of one output, from pieces that come in any order."""

    def __init__(self) -> None:
        self._positions: list[Array] = []
        self._directions: list[Array] = []

    def add(self, positions: Array, directions: Array) -> None:
        """Take more: `positions` i64[k] of the output, and directions, one each."""
        if len(positions):
            self._positions.append(positions)
            self._directions.append(directions.astype(np.uint8))

    def entries(self) -> Entries:
        """All of them, in order."""
        if not self._positions:
            return Entries.none()
        positions, directions = map(np.concatenate, (self._positions, self._directions))
        order = np.argsort(positions, kind="stable")
        return Entries(positions[order], directions[order])


@dataclass(frozen=True)
class Blocks:
    """One bounded section as its blocks: `counts` u16[blocks], `words` u16[entries]."""

    counts: Array
    words: Array

    def payload(self) -> bytes:
        """The bytes in a file: the counts, then the words, little-endian."""
        return self.counts.tobytes() + self.words.tobytes()

    def root(self) -> bytes:
        """The hash root over the blocks (COMMITMENTS 10.4)."""
        return _native.root_of_hashes(self.hashes())

    def hashes(self) -> bytes:
        """Leaf hashes of the blocks in order, 32 bytes each; most blocks are empty."""
        out = bytearray(_EMPTY_BLOCK * len(self.counts))
        data = self.words.tobytes()
        at = 0
        for block in np.flatnonzero(self.counts).tolist():
            end = at + 2 * int(self.counts[block])
            out[32 * block : 32 * block + 32] = merkle.leaf_hash(data[at:end])
            at = end
        return bytes(out)

    def block(self, index: int) -> bytes:
        """The bytes of block `index` (COMMITMENTS 10.2)."""
        start = int(self.counts[:index].sum(dtype=np.int64))
        return self.words[start : start + int(self.counts[index])].tobytes()


def encode(section: Section, entries: Entries) -> Blocks:
    """`entries` as blocks.

    Raises UsageError for positions that do not ascend or are outside of the output. A test or an
    attack that needs such a block writes its words itself.
    """
    positions, directions = entries.positions, entries.directions
    if len(positions) and not (
        positions[0] >= 0 and positions[-1] < section.elements and (np.diff(positions) > 0).all()
    ):
        raise UsageError(
            "A section's positions must ascend within the output.", "Sort them, without repeats."
        )
    if (directions > 1).any():
        raise UsageError("A direction is 0 or 1.", "Give 0 for down, 1 for up.")
    blocks = positions // BLOCK_ELEMENTS
    counts = np.bincount(blocks, minlength=section.blocks).astype(WORD)
    words = (2 * (positions % BLOCK_ELEMENTS) + directions).astype(WORD)
    return Blocks(counts, words)


def largest_payload(section: Section) -> int:
    """The most bytes a section's payload can have: every element logged."""
    return 2 * section.blocks + 2 * section.elements


def from_payload(section: Section, payload: bytes) -> Blocks:
    """Inverse of Blocks.payload. Raises CorruptFileError where the parts do not fit together.

    `decode` checks the words.
    """
    head = 2 * section.blocks
    if len(payload) < head or len(payload) % 2:
        raise CorruptFileError("the counts of its blocks are cut off")
    counts = np.frombuffer(payload, WORD, section.blocks)
    words = np.frombuffer(payload, WORD, -1, head) if len(payload) > head else np.empty(0, WORD)
    if int(counts.sum(dtype=np.int64)) != len(words):
        raise CorruptFileError("the counts of its blocks do not give its size")
    return Blocks(counts, words)


def decode(section: Section, blocks: Blocks) -> tuple[Entries, Array]:
    """The entries of `blocks`, and the numbers of malformed blocks (COMMITMENTS 10.2).

    A malformed block is left out whole. A position beyond the end of the shorter last block is an
    entry (a forged one, NUMERICS 14.7).
    """
    numbers = np.repeat(np.arange(len(blocks.counts)), blocks.counts)
    words = blocks.words.astype(np.int64)
    wrong = words >= 2 * BLOCK_ELEMENTS
    if len(words) > 1:
        same = numbers[1:] == numbers[:-1]
        wrong[1:] |= same & (words[1:] >> 1 <= words[:-1] >> 1)
    bad = np.unique(numbers[wrong])
    positions = numbers * BLOCK_ELEMENTS + (words >> 1)
    entries = Entries(positions, (words & 1).astype(np.uint8))
    return (entries.select(~np.isin(numbers, bad)) if len(bad) else entries), bad


def decode_block(index: int, data: bytes) -> Entries:
    """The entries of block `index`, for a referee that received this block alone.

    Raises CorruptFileError for bytes that are no block (COMMITMENTS 10.2).
    """
    if len(data) % 2 or len(data) > 2 * BLOCK_ELEMENTS:
        raise CorruptFileError(
            f"Block {index} of a rounding log has {len(data)} bytes.", "Refuse it."
        )
    words = np.frombuffer(data, WORD).astype(np.int64)
    places = words >> 1
    if (places >= BLOCK_ELEMENTS).any() or (np.diff(places) <= 0).any():
        raise CorruptFileError(
            f"Block {index} of a rounding log does not hold ascending positions.", "Refuse it."
        )
    return Entries(index * BLOCK_ELEMENTS + places, (words & 1).astype(np.uint8))


# --- published: five to a byte --------------------------------------------------------------------
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
