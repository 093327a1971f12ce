"""The order of the data: a keyed permutation of the records for every epoch (COMMITMENTS 8.4).

It can be computed at any position without the others, so that a referee derives one batch from the
job. It is a Feistel network over Z_a x Z_b with a * b >= N. Its round function is Philox4x32-10.
Cycle walking brings the few values outside of [0, N) back.
Philox is here in numpy, as a plain reference, after Salmon, Moraes, Dror and Shaw, "Parallel random
numbers: as easy as 1, 2, 3" (2011).
"""

from __future__ import annotations

from functools import lru_cache
from math import isqrt

import numpy as np
import numpy.typing as npt

from tallystick.commit.encoding import U64_MAX, Writer, tag
from tallystick.errors import UsageError
from tallystick.limits import LIMITS

U32 = npt.NDArray[np.uint32]

_M0, _M1 = 0xD2511F53, 0xCD9E8D57
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_MASK = 0xFFFFFFFF


def philox4x32(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, ...]:
    """Four 32-bit words from a counter of four and a key of two 32-bit words; ten rounds."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = _M0 * c0, _M1 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & _MASK, (p0 >> 32) ^ c3 ^ k1, p0 & _MASK
        k0, k1 = (k0 + _W0) & _MASK, (k1 + _W1) & _MASK
    return c0, c1, c2, c3


def philox4x32_array(c0: U32, c1: int, c2: int, c3: int, key: tuple[int, int]) -> tuple[U32, U32]:
    """The first two output words for a vector of first counter words; it shares the others."""
    x0 = c0.astype(np.uint64)
    x1 = np.full_like(x0, c1)
    x2 = np.full_like(x0, c2)
    x3 = np.full_like(x0, c3)
    k0, k1 = key
    mask, half = np.uint64(_MASK), np.uint64(32)
    for _ in range(10):
        p0, p1 = x0 * np.uint64(_M0), x2 * np.uint64(_M1)
        x0, x1 = (p1 >> half) ^ x1 ^ np.uint64(k0), p1 & mask
        x2, x3 = (p0 >> half) ^ x3 ^ np.uint64(k1), p0 & mask
        k0, k1 = (k0 + _W0) & _MASK, (k1 + _W1) & _MASK
    return x0.astype(np.uint32), x1.astype(np.uint32)


ORDER_TAG = tag("order/1")
ROUNDS = 16  # 8 and 12 are measurably uneven over the orders of 5 and 6 records, 16 is not

# Epochs of at most this many records are permuted at once and kept. Only speed depends on it.
TABLE_RECORDS = 1 << 16
_TABLES_KEPT = 4
# numpy's cost per call outweighs its vectors below about this many positions.
_SCALAR_BELOW = 12

I64 = npt.NDArray[np.int64]


@lru_cache(maxsize=16)
def order_key(seed: int) -> tuple[int, int]:
    """Philox key of an order seed; another use of the same seed has another key (8.4.1)."""
    word = Writer(ORDER_TAG).u64(seed).digest()
    return int.from_bytes(word[:4], "little"), int.from_bytes(word[4:8], "little")


def halves(n: int) -> tuple[int, int]:
    """(a, b): a = ceil(sqrt(n)), b = ceil(n / a); so 0 <= a * b - n < a (8.4.2)."""
    a = isqrt(n - 1) + 1
    return a, -(-n // a)


def permute(seed: int, epoch: int, position: int, n: int) -> int:
    """The record at `position` (0 <= position < n) of `epoch` (COMMITMENTS 8.4.3, 8.4.4)."""
    a, b = halves(n)
    key = order_key(seed)
    x = position
    while True:
        left, right = x // b, x % b
        for r in range(ROUNDS):
            value = left if r % 2 else right
            low, high, _, _ = philox4x32((value, r, epoch & 0xFFFFFFFF, epoch >> 32), key)
            f = low | high << 32
            if r % 2:
                right = (right + f) % b
            else:
                left = (left + f) % a
        x = left * b + right
        if x < n:
            return x


def permute_array(seed: int, epoch: int, positions: I64, n: int) -> I64:
    """`permute` for a vector of positions; the same numbers."""
    out: I64 = np.array(positions, dtype=np.int64)
    pending = np.arange(out.size)
    while pending.size > _SCALAR_BELOW:
        out[pending] = _pass_array(seed, epoch, out[pending], n)
        pending = pending[out[pending] >= n]
    for i in pending:
        out[i] = permute(seed, epoch, int(out[i]), n)
    return out


def _pass_array(seed: int, epoch: int, x: I64, n: int) -> I64:
    """One pass of 8.4.3 over values below a * b. Results from n on need another pass."""
    a, b = (np.uint64(v) for v in halves(n))
    key = order_key(seed)
    left, right = np.divmod(x.astype(np.uint64), b)
    for r in range(ROUNDS):
        value = (left if r % 2 else right).astype(np.uint32)
        low, high = philox4x32_array(value, r, epoch & 0xFFFFFFFF, epoch >> 32, key)
        f = low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)
        # Reduced first: a 64-bit sum would wrap, which the integers of 8.4.3 do not.
        if r % 2:
            right = (right + f % b) % b
        else:
            left = (left + f % a) % a
    out: I64 = (left * b + right).astype(np.int64)
    return out


@lru_cache(maxsize=_TABLES_KEPT)
def _epoch_table(seed: int, epoch: int, n: int) -> I64:
    table = permute_array(seed, epoch, np.arange(n, dtype=np.int64), n)
    table.setflags(write=False)
    return table


def batch_indices(seed: int, n_records: int, step: int, batch: int) -> I64:
    """Records of the batch of `step` (from 0), in order: int64 of shape (batch,) (8.4.5).

    Position p = step * batch + i is record permute(seed, p // N, p % N). An epoch's end inside
    a batch is no special case. Raises UsageError for no records or numbers out of range.
    """
    if not 1 <= batch <= LIMITS.batch_size or not 0 <= step <= LIMITS.steps:
        raise UsageError(
            f"Step {step} with batch {batch} is out of range.",
            f"Choose a step of 0 to {LIMITS.steps} and a batch of 1 to {LIMITS.batch_size}.",
        )
    if not 0 <= seed <= U64_MAX:
        raise UsageError("The order seed is out of range.", "Choose one from 0 to 2^64 - 1.")
    return records_at(seed, n_records, step * batch, batch)


def records_at(seed: int | None, n_records: int, first: int, size: int) -> I64:
    """The records at `size` places of the order from place `first` on: int64 of shape (size,)
    (7.7.4).

    Place p is record permute(seed, p // N, p % N); without a seed it is record p % N. Raises
    UsageError for no records.
    """
    if not 1 <= n_records <= LIMITS.records:
        raise UsageError(f"There are {n_records} records.", "A job with batches needs at least 1.")
    if seed is None:
        return np.arange(first, first + size, dtype=np.int64) % n_records
    out = np.empty(size, dtype=np.int64)
    done = 0
    while done < size:
        epoch, start = divmod(first + done, n_records)
        count = min(size - done, n_records - start)
        if n_records <= TABLE_RECORDS:
            part = _epoch_table(seed, epoch, n_records)[start : start + count]
        else:
            positions = np.arange(start, start + count, dtype=np.int64)
            part = permute_array(seed, epoch, positions, n_records)
        out[done : done + count] = part
        done += count
    return out
