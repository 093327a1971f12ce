"""The digest of a tensor whose bytes arrive piece by piece (COMMITMENTS 3.5)."""

from __future__ import annotations

from tallystick.commit import _native
from tallystick.commit.streamed import RootStream
from tallystick.commit.tensor import LEAF_BYTES, Array, TensorHeader


class TensorStream:
    """The digest of a tensor with `header`. Its canonical bytes are added in order; it holds less
    than a leaf of them."""

    def __init__(self, header: TensorHeader) -> None:
        self.header, self.missing = header, header.nbytes
        self._root = RootStream()
        self._rest = b""

    def add(self, data: Array) -> None:
        """Add the next bytes, u8[n], at most as many as are missing."""
        self.missing -= data.nbytes
        assert self.missing >= 0, "more bytes than the tensor has"
        if self._rest:
            take = min(LEAF_BYTES - len(self._rest), data.nbytes)
            self._rest += data[:take].tobytes()
            data = data[take:]
            if len(self._rest) == LEAF_BYTES:
                self._root.add(_native.leaf_hashes(self._rest, LEAF_BYTES))
                self._rest = b""
        whole = data.nbytes // LEAF_BYTES * LEAF_BYTES
        if whole:
            self._root.add(_native.leaf_hashes(data[:whole], LEAF_BYTES))
        self._rest += data[whole:].tobytes()

    def digest(self) -> bytes:
        """The tensor digest, once no byte is missing."""
        assert not self.missing, "bytes are missing"
        if self._rest:
            self._root.add(_native.leaf_hashes(self._rest, LEAF_BYTES))
            self._rest = b""
        return self.header.digest(self._root.root())
