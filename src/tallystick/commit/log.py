"""Digests of rounding logs: blocks, sections, and the log of a step (COMMITMENTS 10).

`contracts/replay` gives a section's bytes their meaning; here they are blocks to be hashed. No
digest covers the way in which a file carries them (COMMITMENTS 10.6).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tallystick.commit import _native, merkle
from tallystick.commit.encoding import Writer, tag
from tallystick.errors import UsageError
from tallystick.limits import LIMITS

SECTION_TAG = tag("log-section/1")
LOG_TAG = tag("log/1")

BOUNDED = 1  # COMMITMENTS 10.4: the codes of the forms
PUBLISHED = 2
FORMS = {"bounded": BOUNDED, "published": PUBLISHED}

BLOCK_ELEMENTS = 4096  # COMMITMENTS 10.2
BLOCK_BYTES = 2048  # COMMITMENTS 10.3
ENTRIES_PER_BYTE = 5


@dataclass(frozen=True)
class Section:
    """One logged output: number `output` of node `node`, of `elements` elements, in `form`."""

    node: int
    output: int
    elements: int
    form: int

    def __post_init__(self) -> None:
        if self.form not in (BOUNDED, PUBLISHED):
            raise UsageError(f"{self.form} is not a form of a log.", "Use BOUNDED or PUBLISHED.")
        if not 0 <= self.elements <= LIMITS.tensor_bytes:
            raise UsageError(f"A section of {self.elements} elements.", "Name an output's size.")

    @property
    def packed_bytes(self) -> int:
        """Bytes of a published section's entries, five to a byte (COMMITMENTS 10.3)."""
        return -(-self.elements // ENTRIES_PER_BYTE)

    @property
    def blocks(self) -> int:
        """The number of the section's blocks (COMMITMENTS 10.2, 10.3)."""
        if self.form == BOUNDED:
            return -(-self.elements // BLOCK_ELEMENTS)
        return -(-self.packed_bytes // BLOCK_BYTES)

    def block_of(self, element: int) -> int:
        """The block that has flat element `element`'s entry, or shows that the element has none."""
        if not 0 <= element < self.elements:
            raise UsageError(
                f"The output has {self.elements} elements, no element {element}.",
                "Name an element of the output.",
            )
        if self.form == BOUNDED:
            return element // BLOCK_ELEMENTS
        return element // ENTRIES_PER_BYTE // BLOCK_BYTES

    def digest(self, root: bytes) -> bytes:
        """The section digest over the hash root of its blocks (COMMITMENTS 10.4)."""
        out = Writer(SECTION_TAG).u64(self.node).u64(self.output).u64(self.elements)
        return out.u8(self.form).u64(self.blocks).hash(root, "block root").digest()


def block_hashes(blocks: Sequence[bytes | memoryview]) -> bytes:
    """Leaf hashes of a section's blocks in order, 32 bytes each. Proofs are made from them."""
    empty = merkle.leaf_hash(b"")  # most blocks of a bounded section
    return b"".join([merkle.leaf_hash(b) if len(b) else empty for b in blocks])


def packed_root(data: bytes | bytearray | memoryview) -> bytes:
    """The hash root over a published section's bytes, cut every 2048 (COMMITMENTS 10.3)."""
    return _native.leaves_root(data, BLOCK_BYTES)


def log_digest(step: int, digests: Sequence[bytes]) -> bytes:
    """The digest of step `step`'s log, which the log chain takes (COMMITMENTS 10.5, 5.6)."""
    root = _native.root_of_hashes(b"".join([merkle.leaf_hash(d) for d in digests]))
    return Writer(LOG_TAG).u64(step).u64(len(digests)).hash(root, "section root").digest()
