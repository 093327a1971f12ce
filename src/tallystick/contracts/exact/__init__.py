"""`exact/1` (NUMERICS 17): its object is in `contract`."""

# 17.1: B of the integers, and the length of a block.
BLOCK_LENGTHS = {8: 256, 15: 1024, 22: 2048}


def outer_values(width: int, inner: int) -> int:
    """The number of outer values of a segment, for `inner` index values each (17.2)."""
    return max(1, BLOCK_LENGTHS[width] // max(1, inner))
