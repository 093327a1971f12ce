"""Merkle trees and tensor digests (COMMITMENTS 2, 3; PROTOCOL 2.4)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from reference.judge.encoding import MalformedError, Reader, sha, tag, u8, u32, u64

LEAF = 2048
CODES = {"f32": 1, "f64": 2, "i64": 3, "i32": 4, "u8": 5, "bool": 6, "bf16": 7, "f16": 8}
# Of bf16 and f16 the bits.
NUMPY = {"f32": "<f4", "f64": "<f8", "i64": "<i8", "i32": "<i4", "u8": "u1", "bool": "u1",
         "bf16": "<u2", "f16": "<u2"}  # fmt: skip
Type = tuple[str, tuple[int, ...]]
Range = tuple[int, int]


def leaf_hash(data: bytes) -> bytes:
    return sha(b"\0" + data)


def node_hash(left: bytes, right: bytes) -> bytes:
    return sha(b"\1" + left + right)


def half(n: int) -> int:
    """The largest power of two smaller than n."""
    return 1 << ((n - 1).bit_length() - 1)


def root(hashes: Sequence[bytes]) -> bytes:
    """The root over leaves of these hashes (2.3)."""
    if not hashes:
        return sha(b"")
    if len(hashes) == 1:
        return hashes[0]
    k = half(len(hashes))
    return node_hash(root(hashes[:k]), root(hashes[k:]))


def proof_length(i: int, n: int) -> int:
    length = 0
    while n > 1:
        k = half(n)
        i, n = (i, k) if i < k else (i - k, n - k)
        length += 1
    return length


def by_inclusion(leaf: bytes, i: int, n: int, proof: Sequence[bytes]) -> bytes:
    """The root that an inclusion proof gives; none where it has another length (2.5)."""
    if len(proof) != proof_length(i, n):
        return b""
    if n == 1:
        return leaf
    k = half(n)
    if i < k:
        return node_hash(by_inclusion(leaf, i, k, proof[:-1]), proof[-1])
    return node_hash(proof[-1], by_inclusion(leaf, i - k, n - k, proof[:-1]))


def outside(chosen: Sequence[int], n: int) -> list[Range]:
    """The subtrees [a, b) whose roots are the hashes of a multi-proof, in their order (2.7)."""
    found: list[Range] = []
    wanted = set(chosen)

    def walk(a: int, b: int) -> None:
        inside = [i for i in wanted if a <= i < b]
        if not inside:
            found.append((a, b))
        elif b - a > 1:
            k = half(b - a)
            walk(a, a + k)
            walk(a + k, b)

    walk(0, n)
    return found


def by_multi(leaves: dict[int, bytes], n: int, proof: Sequence[bytes]) -> bytes:
    """The root that a multi-proof gives; it has as many hashes as `outside` says."""
    rest = list(proof)

    def walk(a: int, b: int) -> bytes:
        if not any(a <= i < b for i in leaves):
            return rest.pop(0)
        if b - a == 1:
            return leaves[a]
        k = half(b - a)
        left = walk(a, a + k)
        return node_hash(left, walk(a + k, b))

    return walk(0, n)


def parts(first: int, count: int, depth: int = 5) -> list[Range]:
    """PROTOCOL 2.4."""
    if depth == 0 or count == 1:
        return [(first, count)]
    k = half(count)
    return parts(first, k, depth - 1) + parts(first + k, count - k, depth - 1)


def join(hashes: list[bytes], count: int, depth: int = 5) -> bytes:
    """The hash of the whole range from those of its parts (2.4)."""
    if depth == 0 or count == 1:
        return hashes.pop(0)
    k = half(count)
    left = join(hashes, k, depth - 1)
    return node_hash(left, join(hashes, count - k, depth - 1))


def elements(kind: Type) -> int:
    return math.prod(kind[1])


def width(dtype: str) -> int:
    return np.dtype(NUMPY[dtype]).itemsize


def size(kind: Type) -> int:
    return elements(kind) * width(kind[0])


def leaves_of(kind: Type) -> int:
    return -(-size(kind) // LEAF)


def leaf_size(kind: Type, leaf: int) -> int:
    return min(LEAF, size(kind) - leaf * LEAF)


def header(kind: Type) -> bytes:
    return u8(CODES[kind[0]]) + u8(len(kind[1])) + b"".join(u64(n) for n in kind[1])


def tensor_digest(kind: Type, leaf_root: bytes) -> bytes:
    return sha(tag("tensor/1") + header(kind) + u64(size(kind)) + u32(LEAF) + leaf_root)


def digest_of_bytes(kind: Type, data: bytes) -> bytes:
    cut = [data[i : i + LEAF] for i in range(0, len(data), LEAF)]
    return tensor_digest(kind, root([leaf_hash(c) for c in cut]))


def canonical(dtype: str, data: bytes) -> bool:
    """Whether all values of these bytes are canonical (3.3)."""
    values = np.frombuffer(data, NUMPY[dtype])
    if dtype == "bool":
        return bool((values <= 1).all())
    if dtype in ("bf16", "f16"):
        infinity, nan = (0x7F80, 0x7FC0) if dtype == "bf16" else (0x7C00, 0x7E00)
        return bool((values[values & 0x7FFF > infinity] == nan).all())
    if dtype not in ("f32", "f64"):
        return True
    bits, nan = ("<u4", 0x7FC00000) if dtype == "f32" else ("<u8", 0x7FF8000000000000)
    return bool((np.frombuffer(data, bits)[np.isnan(values)] == nan).all())


def read_opening(data: bytes, kind: Type, asked: Sequence[int]) -> tuple[dict[int, bytes], bytes]:
    """The leaves of an opening and the root that it gives (3.6); MalformedError if it is none."""
    r = Reader(data)
    r.tag("tensor-opening/1")
    if r.take(len(header(kind))) != header(kind):
        raise MalformedError("another header")
    if r.u64() != len(asked):
        raise MalformedError("another number of leaves")
    found: dict[int, bytes] = {}
    for leaf in asked:
        if r.u64() != leaf:
            raise MalformedError("another leaf")
        found[leaf] = r.take(leaf_size(kind, leaf))
    hashes = r.hashes(262144)
    r.end()
    if not asked:
        if hashes:
            raise MalformedError("hashes of an empty tensor")
        return found, sha(b"")
    if len(hashes) != len(outside(asked, leaves_of(kind))):
        raise MalformedError("another number of hashes")
    hashed = {i: leaf_hash(d) for i, d in found.items()}
    return found, by_multi(hashed, leaves_of(kind), hashes)
