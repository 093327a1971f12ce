"""Writes vectors/commit/log.json from a plain reference of COMMITMENTS 10.

Imported by make_commit_vectors.py, whose primitives it uses; nothing of tallystick is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Blocks = list[bytes]


def bounded_blocks(u16: Callable[[int], bytes], n: int, entries: list[tuple[int, int]]) -> Blocks:
    blocks = [b""] * -(-n // 4096)
    for position, direction in sorted(entries):
        blocks[position // 4096] += u16(2 * (position % 4096) + direction)
    return blocks


def published_bytes(entries: list[int]) -> bytes:
    padded = entries + [1] * (-len(entries) % 5)
    groups = (padded[i : i + 5] for i in range(0, len(padded), 5))
    return bytes(sum(e * 3**k for k, e in enumerate(group)) for group in groups)


def cut(data: bytes) -> Blocks:
    return [data[i : i + 2048] for i in range(0, len(data), 2048)]


def log_vectors(maker: Any) -> dict[str, Any]:
    h, u8, u64, tag = maker.h, maker.u8, maker.u64, maker.tag

    def section(node: int, output: int, n: int, form: int, blocks: Blocks) -> bytes:
        root = maker.mth([maker.leaf(b) for b in blocks])
        fields = u64(node) + u64(output) + u64(n) + u8(form) + u64(len(blocks))
        return h(tag("log-section/1") + fields + root)

    def log(step: int, digests: list[bytes]) -> bytes:
        root = maker.mth([maker.leaf(d) for d in digests])
        return h(tag("log/1") + u64(step) + u64(len(digests)) + root)

    def u16(n: int) -> bytes:
        return n.to_bytes(2, "little")

    sparse = [
        (0, []),
        (1, [(0, 1)]),
        (4096, [(0, 0), (4095, 1)]),
        (4097, [(4096, 1)]),
        (20000, [(17, 0), (18, 1), (8192, 0), (19999, 1)]),
        (5000, [(i, i % 3 % 2) for i in range(5000)]),
    ]
    packed = [
        [],
        [2],
        [0, 1, 2, 2, 0],
        [1] * 6,
        [(7 * i + i * i // 11) % 3 for i in range(10241)],
    ]
    bounded, published = [], []
    for at, (n, entries) in enumerate(sparse):
        blocks = bounded_blocks(u16, n, entries)
        digest = section(3 * at, at % 2, n, 1, blocks)
        bounded.append(
            {
                "node": 3 * at,
                "output": at % 2,
                "elements": n,
                "entries": entries,
                "blocks_sha256": h(b"".join(blocks)).hex(),
                "digest": digest.hex(),
            }
        )
    for at, codes in enumerate(packed):
        data = published_bytes(codes)
        digest = section(7 + at, 0, len(codes), 2, cut(data))
        published.append(
            {
                "node": 7 + at,
                "output": 0,
                "entries": "".join(map(str, codes)),
                "bytes_sha256": h(data).hex(),
                "digest": digest.hex(),
            }
        )
    logs = []
    for step, form in ((0, []), (1, bounded[:1]), (2, bounded), (1 << 33, published)):
        digests = [s["digest"] for s in form]
        value = log(step, [bytes.fromhex(d) for d in digests])
        logs.append({"step": step, "sections": digests, "digest": value.hex()})
    return {"clause": "10", "bounded": bounded, "published": published, "logs": logs}
