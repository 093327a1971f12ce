"""Tensor digests on a GPU (native/cuda/sha256.cu; COMMITMENTS 2 and 3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tallystick.commit.encoding import HASH_BYTES
from tallystick.commit.tensor import TensorHeader
from tallystick.devices.cuda.copies import copy
from tallystick.devices.cuda.launch import THREADS, whole
from tallystick.devices.cuda.tensor import DeviceTensor, Memory

if TYPE_CHECKING:
    from tallystick.devices.cuda.device import Cuda

_GROUP = 256  # kGroup
_MOST_LEVELS = 4  # kMostLevels
_BLOCK = 64  # bytes that SHA-256 takes at once
_ALIGNMENT = 16  # of a tensor's address
_ENTRY_BYTES = 8 * (2 + _MOST_LEVELS + 3)  # Hashed
# Lists of tensors whose tables stay on the device: a state's, and a few more.
_KEPT = 8


def _message(header: TensorHeader) -> tuple[bytes, int]:
    """What a tensor digest hashes, padded (FIPS 180-4, 5.1.1), with zeros for the root; and where
    the root stands."""
    front = header.before_root().finish()
    length = len(front) + HASH_BYTES
    padded = -(-(length + 9) // _BLOCK) * _BLOCK
    message = front + bytes(HASH_BYTES) + b"\x80"
    return message.ljust(padded - 8, b"\0") + (8 * length).to_bytes(8, "big"), len(front)


class _Table:
    """The description of some tensors in the device's memory, and room for their digests."""

    def __init__(self, device: Cuda, tensors: Sequence[DeviceTensor]) -> None:
        headers = [TensorHeader(x.dtype, x.shape) for x in tensors]
        counts = [header.leaves for header in headers]
        # Per level the groups of all tensors; each tensor has one at least.
        self.groups: list[int] = []
        firsts: list[list[int]] = [[] for _ in tensors]
        while not self.groups or max(counts) > 1:
            counts = [max(-(-count // _GROUP), 1) for count in counts]
            before = 0
            for first, count in zip(firsts, counts, strict=True):
                first.append(before)
                before += count
            self.groups.append(before)
        at = _ENTRY_BYTES * len(tensors)
        messages = [_message(header) for header in headers]
        nbytes = at + sum(len(message) for message, _ in messages)
        self.memory = Memory(device.driver, nbytes)
        self.digests = Memory(device.driver, HASH_BYTES * len(tensors))
        entries = b""
        for x, first, (message, root_at) in zip(tensors, firsts, messages, strict=True):
            first += [0] * (_MOST_LEVELS - len(first))
            entry = (x.address, x.nbytes, *first, self.memory.address + at)
            entries += whole(*entry, len(message) // _BLOCK, root_at)
            at += len(message)
        table = entries + b"".join(message for message, _ in messages)
        device.driver.to_device(np.frombuffer(table, np.uint8), self.memory.address)


class Hashing:
    """Digests of tensors on one device. Only digests cross the bus, and once for a list of tensors
    its description."""

    def __init__(self, device: Cuda) -> None:
        self._device = device
        self._tables: dict[tuple[tuple[int, str, tuple[int, ...]], ...], _Table] = {}

    def _table(self, tensors: Sequence[DeviceTensor]) -> _Table:
        key = tuple((x.address, x.dtype, x.shape) for x in tensors)
        found = self._tables.pop(key, None) or _Table(self._device, tensors)
        self._tables[key] = found  # the last used stands last
        if len(self._tables) > _KEPT:
            del self._tables[next(iter(self._tables))]
        return found

    def _readable(self, x: DeviceTensor) -> DeviceTensor:
        if x.is_contiguous and not x.address % _ALIGNMENT:
            return x
        made = x.device.contiguous(x.dtype, x.shape)
        copy(x, made)
        return made

    def digests(self, tensors: Sequence[DeviceTensor]) -> list[bytes]:
        """The tensor digest of each (COMMITMENTS 3.5)."""
        if not tensors:
            return []
        device = self._device
        tensors = [self._readable(x) for x in tensors]
        table, count = self._table(tensors), len(tensors)
        hashes = device.scratch(HASH_BYTES * sum(table.groups[:2]))
        # A level overwrites the one before the last.
        places = (hashes, hashes + HASH_BYTES * table.groups[0])
        described = whole(table.memory.address, count)
        params = described + whole(places[0])
        device.launch("sha256_leaves", (table.groups[0], 1, 1), _GROUP, params)
        for level in range(1, len(table.groups)):
            here, there = places[(level - 1) % 2], places[level % 2]
            params = described + whole(level, table.groups[level - 1], here, there)
            device.launch("sha256_level", (table.groups[level], 1, 1), _GROUP, params)
        roots = places[(len(table.groups) - 1) % 2]
        params = described + whole(roots, table.digests.address)
        device.launch("sha256_digests", (-(-count // THREADS), 1, 1), THREADS, params)
        found = np.empty((count, HASH_BYTES), np.uint8)
        device.driver.to_host(table.digests.address, found)
        return [digest.tobytes() for digest in found]
