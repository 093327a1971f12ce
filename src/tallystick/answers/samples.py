"""Receipts drawn from a set of them by a seed (ANSWERS 8.8). How likely such a draw finds false
ones is `run.parallel.sample.confidence`, as for segments of a run."""

from __future__ import annotations

from collections.abc import Collection

from tallystick.commit.encoding import Writer, sha256, tag
from tallystick.errors import UsageError

SEED_BYTES = 32
_SET, _DRAW = tag("answer-set/1"), tag("answer-draw/1")


def receipt_digest(data: bytes) -> bytes:
    """What stands for a receipt in a set (ANSWERS 8.8.1)."""
    return sha256(data)


def set_digest(receipts: Collection[bytes]) -> bytes:
    """The digest of a set of receipt digests (ANSWERS 8.8.1)."""
    ordered = sorted(set(receipts))
    out = Writer(_SET).u64(len(ordered))
    for digest in ordered:
        out.hash(digest, "receipt digest")
    return out.digest()


def drawn(seed: bytes, receipts: Collection[bytes], count: int) -> list[bytes]:
    """The receipts that a seed draws, ascending by rank (ANSWERS 8.8.2). Raises UsageError for a
    seed of another size, and for more receipts than there are."""
    if len(seed) != SEED_BYTES:
        raise UsageError(
            f"A seed has {SEED_BYTES} bytes, not {len(seed)}.", "Pass 64 hexadecimal digits."
        )
    whole = set(receipts)
    if not 1 <= count <= len(whole):
        raise UsageError(
            f"There are {len(whole)} receipts, so {count} cannot be drawn.",
            f"Draw 1 to {len(whole)}.",
        )
    among = set_digest(whole)

    def rank(digest: bytes) -> bytes:
        return Writer(_DRAW).hash(seed, "seed").hash(among).hash(digest).digest()

    return sorted(whole, key=rank)[:count]
