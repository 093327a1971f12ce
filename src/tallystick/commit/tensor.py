"""Tensor digests and openings of parts of a tensor (COMMITMENTS 3).

A tensor is its dtype, its dimensions and its canonical bytes (little-endian, C order). The bytes
are cut into leaves of LEAF_BYTES under a Merkle tree. So leaves hash in parallel, and any part
opens with a proof against the digest alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tallystick.commit import _native, merkle
from tallystick.commit.encoding import HASH_BYTES, Reader, Writer, tag
from tallystick.errors import CorruptFileError, CounterpartyError, DigestMismatchError, UsageError
from tallystick.limits import LIMITS

Array = npt.NDArray[np.generic]

LEAF_BYTES = 2048  # COMMITMENTS 3.4; chosen in docs/adr/0004-opening-cost.md
TENSOR_TAG = tag("tensor/1")
_OPENING_TAG = tag("tensor-opening/1")

DTYPES: dict[str, np.dtype[np.generic]] = {
    "f32": np.dtype("<f4"),
    "f64": np.dtype("<f8"),
    "i64": np.dtype("<i8"),
    "i32": np.dtype("<i4"),
    "u8": np.dtype("u1"),
    "bool": np.dtype("?"),
    # numpy has no bfloat16. A field of bits keeps its elements from being taken for integers.
    "bf16": np.dtype([("bf16", "<u2")]),
    "f16": np.dtype("<f2"),
}
# COMMITMENTS 3.1
DTYPE_CODES = {
    "f32": 1, "f64": 2, "i64": 3, "i32": 4, "u8": 5, "bool": 6, "bf16": 7, "f16": 8,
}  # fmt: skip
# What weights may be stored as: nothing is computed in these (NUMERICS 1.14).
STORED = ("bf16", "f16")
# What records may have, and operators compute.
COMPUTED = tuple(name for name in DTYPES if name not in STORED)
_NAME_OF_CODE = {code: name for name, code in DTYPE_CODES.items()}
_NAME_OF_KIND = {(d.kind, d.itemsize): name for name, d in DTYPES.items()}


def dtype_name(dtype: np.dtype[np.generic]) -> str:
    """The committed name of a numpy dtype of any byte order. Raises UsageError for others."""
    name = _NAME_OF_KIND.get((dtype.kind, dtype.itemsize))
    if name is None or (name == "bf16" and dtype.newbyteorder("<") != DTYPES["bf16"]):
        raise UsageError(
            f"A tensor of dtype {dtype} cannot be committed to.",
            f"Convert it to one of {', '.join(DTYPES)}.",
        )
    return name


def widened(array: Array) -> Array:
    """The numbers of a bf16 or f16 array as float32, exactly; a NaN is the canonical one
    (NUMERICS 10.7)."""
    if dtype_name(array.dtype) == "bf16":
        bits = np.ascontiguousarray(array).view("<u2").astype(np.uint32)
        wide = (bits << np.uint32(16)).view(np.float32)
    else:
        wide = np.array(array, np.float32, order="C")
    wide[np.isnan(wide)] = np.float32(np.nan)
    found: Array = wide.reshape(array.shape)
    return found


def canonical_array(array: Array) -> Array:
    """`array` in little-endian C order; copied only from another order (COMMITMENTS 3.2)."""
    dtype = DTYPES[dtype_name(array.dtype)]
    return np.asarray(array, dtype=dtype, order="C")


@dataclass(frozen=True)
class TensorHeader:
    """Dtype name and dimensions, which a digest fixes besides the bytes (COMMITMENTS 3.1)."""

    dtype: str
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise UsageError(f"Unknown dtype {self.dtype!r}.", f"Use one of {', '.join(DTYPES)}.")
        if len(self.shape) > LIMITS.tensor_rank:
            raise UsageError(
                f"A tensor of rank {len(self.shape)} exceeds the limit of {LIMITS.tensor_rank}.",
                "Reshape it.",
            )
        # The product is bounded dimension by dimension, so that no hostile shape makes it grow.
        total = self.itemsize
        for d in self.shape:
            if isinstance(d, bool) or not isinstance(d, int) or not 0 <= d <= LIMITS.tensor_bytes:
                raise UsageError(f"{d!r} is not a tensor dimension.", "Use integers from 0.")
            total *= d
            if total > LIMITS.tensor_bytes and 0 not in self.shape:
                raise UsageError(
                    f"A tensor of shape {self.shape} exceeds {LIMITS.tensor_bytes} bytes.",
                    "Split it.",
                )

    @property
    def itemsize(self) -> int:
        return DTYPES[self.dtype].itemsize

    @property
    def elements(self) -> int:
        n = 1
        for d in self.shape:
            n *= d
        return n

    @property
    def nbytes(self) -> int:
        return self.elements * self.itemsize

    @property
    def leaves(self) -> int:
        return -(-self.nbytes // LEAF_BYTES)

    def leaf_size(self, index: int) -> int:
        """Bytes in leaf `index`: LEAF_BYTES, fewer in the last leaf (COMMITMENTS 3.4)."""
        return min(LEAF_BYTES, self.nbytes - index * LEAF_BYTES)

    def leaf_of(self, element: int) -> int:
        """The leaf that holds flat element `element`; no element straddles two leaves."""
        return element * self.itemsize // LEAF_BYTES

    def write(self, out: Writer) -> Writer:
        out.u8(DTYPE_CODES[self.dtype]).u8(len(self.shape))
        for d in self.shape:
            out.u64(d)
        return out

    def before_root(self) -> Writer:
        """What a tensor digest hashes in front of the root (COMMITMENTS 3.5)."""
        return self.write(Writer(TENSOR_TAG)).u64(self.nbytes).u32(LEAF_BYTES)

    def digest(self, root: bytes) -> bytes:
        """The tensor digest over this header and a Merkle root (COMMITMENTS 3.5)."""
        return self.before_root().hash(root, "tensor root").digest()


def header_of(array: Array) -> TensorHeader:
    """The header of a numpy array."""
    return TensorHeader(dtype_name(array.dtype), tuple(int(d) for d in array.shape))


def read_header(source: Reader) -> TensorHeader:
    """Read the bytes of TensorHeader.write. Raises CorruptFileError."""
    name = _NAME_OF_CODE.get(source.u8())
    if name is None:
        source.fail("it names an unknown dtype")
    rank = source.u8()
    if rank > LIMITS.tensor_rank:
        source.fail(f"rank {rank} exceeds the limit of {LIMITS.tensor_rank}")
    shape = tuple(source.u64() for _ in range(rank))
    try:
        return TensorHeader(name, shape)
    except UsageError as error:
        source.fail(error.message)


def tensor_digest(array: Array) -> bytes:
    """The 32-byte digest of an array of one of DTYPES, any rank, empty included (COMMITMENTS 3.5).

    Does not copy a little-endian C-contiguous array. It hashes NaN payloads as they are;
    check_canonical refuses another party's.
    """
    array = canonical_array(array)
    return header_of(array).digest(_native.leaves_root(array, LEAF_BYTES))


def leaf_hashes(array: Array) -> bytes:
    """All leaf hashes in order, 32 bytes each. Proofs are built from them (COMMITMENTS 3.4)."""
    return _native.leaf_hashes(canonical_array(array), LEAF_BYTES)


# ---- canonical values (COMMITMENTS 3.3) ---------------------------------------------------------

CANONICAL_NAN = {
    "f32": 0x7FC00000, "f64": 0x7FF8000000000000, "bf16": 0x7FC0, "f16": 0x7E00,
}  # fmt: skip
_BITS = {2: np.uint16, 4: np.uint32, 8: np.uint64}
_CHECK_BLOCK = 1 << 20


def first_non_canonical(array: Array) -> int | None:
    """Flat index of the first element with bits that no honest party produces, or None.

    Such bits are a NaN other than the canonical one, and a bool byte other than 0 or 1.
    """
    array = canonical_array(array)
    name = dtype_name(array.dtype)
    flat = array.reshape(-1)
    for start in range(0, flat.size, _CHECK_BLOCK):
        block = flat[start : start + _CHECK_BLOCK]
        if name == "bool":
            bad = block.view(np.uint8) > 1
        elif name in CANONICAL_NAN:
            bits = block.view(_BITS[block.itemsize])
            nan = bits & 0x7FFF > 0x7F80 if name == "bf16" else np.isnan(block)
            bad = nan & (bits != CANONICAL_NAN[name])
        else:
            return None
        if bad.any():
            return start + int(np.argmax(bad))
    return None


def check_canonical(array: Array, what: str, first: int = 0) -> None:
    """Raise CounterpartyError if `array` holds a value with non-canonical bits (3.3). Its elements
    are those of `what` from number `first` on."""
    at = first_non_canonical(array)
    if at is not None:
        kind = "byte that is neither 0 nor 1" if array.dtype.kind == "b" else "non-canonical NaN"
        raise CounterpartyError(
            f"The {what} holds a {kind} at element {first + at}.",
            "No honest party produces it: refuse the data.",
        )


# ---- openings (COMMITMENTS 3.6) -----------------------------------------------------------------


@dataclass(frozen=True)
class TensorOpening:
    """Some leaves of a tensor and the proof that binds them to its digest.

    Another party sends it, so it is untrusted until verify() has returned.
    """

    header: TensorHeader
    leaves: dict[int, bytes]
    proof: tuple[bytes, ...]

    def verify(self, digest: bytes, header: TensorHeader | None = None) -> None:
        """Raise DigestMismatchError unless the leaves belong to the tensor named by `digest`.

        `header` is the tensor's header by the verifier's own program; pass it when known.
        """
        if header is not None and header != self.header:
            raise DigestMismatchError(
                f"The opening is of a {self.header.dtype} tensor {self.header.shape}, not "
                f"{header.dtype} {header.shape}.",
                "Refuse it.",
            )
        root = _opened_root(self)
        if root is None or self.header.digest(root) != digest:
            raise DigestMismatchError(
                "The opened leaves do not belong to the committed tensor.", "Refuse the opening."
            )

    def read(self, start: int, stop: int) -> Array:
        """Elements [start, stop) of the flat tensor, 1-d, checked to be canonical.

        Raises CounterpartyError if a leaf was not opened or a value is not canonical.
        """
        size = self.header.itemsize
        if not 0 <= start <= stop <= self.header.elements:
            raise UsageError(
                f"The tensor has no elements {start}:{stop}.", "Name elements of the tensor."
            )
        parts = []
        for index in range(start * size // LEAF_BYTES, -(-stop * size // LEAF_BYTES)):
            if index not in self.leaves:
                raise CounterpartyError(
                    f"Leaf {index} was not opened.", "Ask the sender for every leaf that is needed."
                )
            parts.append(self.leaves[index])
        first = start * size - start * size // LEAF_BYTES * LEAF_BYTES
        data = b"".join(parts)[first : first + (stop - start) * size]
        out = np.frombuffer(data, dtype=DTYPES[self.header.dtype])
        check_canonical(out, "opening")
        return out

    def to_bytes(self) -> bytes:
        """The layout of COMMITMENTS 3.6."""
        out = self.header.write(Writer(_OPENING_TAG)).u64(len(self.leaves))
        for index in sorted(self.leaves):
            out.u64(index).raw(self.leaves[index])
        out.u64(len(self.proof))
        for h in self.proof:
            out.hash(h)
        return out.finish()

    @staticmethod
    def from_bytes(data: bytes) -> TensorOpening:
        """Inverse of to_bytes for untrusted bytes. Raises CorruptFileError."""
        if len(data) > LIMITS.opening_bytes:
            raise CorruptFileError(
                f"An opening of {len(data)} bytes exceeds the limit of {LIMITS.opening_bytes}.",
                "Ask for fewer leaves.",
            )
        source = Reader(data, "tensor opening")
        source.expect(_OPENING_TAG)
        header = read_header(source)
        leaves: dict[int, bytes] = {}
        previous = -1
        for _ in range(source.count(LIMITS.opening_leaves, "leaves")):
            index = source.u64()
            if not previous < index < header.leaves:
                source.fail("leaf indices are not ascending within the tensor")
            leaves[index] = source.raw(header.leaf_size(index))
            previous = index
        proof = source.hashes(LIMITS.proof_hashes)
        source.end()
        return TensorOpening(header, leaves, tuple(proof))


def _opened_root(opening: TensorOpening) -> bytes | None:
    """The root that an opening's leaves and proof give; None if they do not fit together."""
    header = opening.header
    if header.leaves == 0:
        return None if opening.leaves or opening.proof else merkle.EMPTY_ROOT
    if any(
        not 0 <= i < header.leaves or len(data) != header.leaf_size(i)
        for i, data in opening.leaves.items()
    ):
        return None
    hashes = {i: merkle.leaf_hash(data) for i, data in opening.leaves.items()}
    return merkle.multi_root(hashes, header.leaves, opening.proof)


def open_tensor(
    array: Array, ranges: Iterable[tuple[int, int]], hashes: bytes | None = None
) -> TensorOpening:
    """Open the leaves that cover the flat element ranges [start, stop) of `array`.

    `hashes` is leaf_hashes(array) if the caller has it. Without a range the opening holds leaf 0,
    which proves dtype and shape. The opening of an empty tensor has no leaf.
    """
    array = canonical_array(array)
    header = header_of(array)
    if header.leaves == 0:
        return TensorOpening(header, {}, ())
    wanted: set[int] = set()
    for start, stop in ranges:
        if not 0 <= start <= stop <= header.elements:
            raise UsageError(
                f"The tensor has no elements {start}:{stop}.", "Name elements of the tensor."
            )
        if start < stop:
            wanted.update(range(header.leaf_of(start), header.leaf_of(stop - 1) + 1))
    indices: Sequence[int] = sorted(wanted or {0})
    data = array.reshape(-1).view(np.uint8)
    leaves = {i: data[i * LEAF_BYTES : (i + 1) * LEAF_BYTES].tobytes() for i in indices}
    tree = merkle.Tree(leaf_hashes(array) if hashes is None else hashes)
    if tree.size != header.leaves:
        raise UsageError("The leaf hashes are of another tensor.", f"Pass {HASH_BYTES} per leaf.")
    return TensorOpening(header, leaves, tuple(tree.multi(indices)))
