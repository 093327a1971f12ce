"""Two stated tensors: their first differing element (PROTOCOL 6.1); and opened operands (6.5)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tallystick.commit import merkle
from tallystick.commit.tensor import (
    DTYPES,
    LEAF_BYTES,
    TensorHeader,
    TensorOpening,
    check_canonical,
    first_non_canonical,
)
from tallystick.errors import CorruptFileError, CounterpartyError, DigestMismatchError
from tallystick.protocol.bodies import HashesBody
from tallystick.protocol.game import BOTH, Asking, Guilty, ask, convict
from tallystick.protocol.queries import DEPTH, OUTPUT, Leaf, Opening, TensorHashes

Pair = tuple[np.generic, np.generic]
Where = tuple[int, int]  # step and node


def descend(
    count: int, parts: tuple[Sequence[bytes], ...], first: int
) -> tuple[int, int, tuple[bytes, ...]]:
    """The first part on which two answers of 2.4 differ: first leaf, leaves, hashes.

    Both lists combine to different hashes, so some part differs. That part is smaller than the
    range.
    """
    ranges = merkle.parts_of(first, count, DEPTH)
    at = next(k for k in range(len(ranges)) if parts[0][k] != parts[1][k])
    return *ranges[at], (parts[0][at], parts[1][at])


def part_guilt(
    count: int, bodies: dict[int, HashesBody], known: dict[int, bytes], clause: str
) -> dict[int, tuple[str, str]]:
    """The parties with a wrong number of parts (2.7), or with parts that do not give `known`."""
    guilt = {}
    for party, body in bodies.items():
        whole = merkle.combine_parts(count, DEPTH, body.hashes)
        if whole is None:
            guilt[party] = ("2.7", f"{len(body.hashes)} hashes are not the parts asked for")
        elif whole != known[party]:
            guilt[party] = (clause, "its hashes do not combine to its earlier statement")
    return guilt


def known_hashes(
    count: int,
    bodies: dict[int, HashesBody],
    before: tuple[bytes, ...],
    gives: Callable[[int, bytes], bool],
) -> dict[int, bytes]:
    """The hash to which each party's parts must combine.

    It is the hash that the party has stated `before`. At the first answer it is the root of the
    parts themselves, if that root `gives` the party's stated digest; else there is none.
    """
    if before:
        return {party: before[party] for party in bodies}
    known = {}
    for party, body in bodies.items():
        root = merkle.combine_parts(count, DEPTH, body.hashes)
        known[party] = root if root is not None and gives(party, root) else b""
    return known


def first_element(
    at: Where, side: int, number: int, header: TensorHeader, digests: tuple[bytes, bytes]
) -> Asking[tuple[int, Pair]]:
    """6.1: position and the two values of the first element whose bytes differ.

    `digests` differ. Convictions at a leaf are of the case that the caller's side is.
    """
    case, where = ("3" if side else "2c"), (*at, side, number)
    if not header.leaves:  # the type alone gives the digest of an empty tensor
        true = header.digest(merkle.EMPTY_ROOT)
        wrong = [p for p in BOTH if digests[p] != true]
        convict(dict.fromkeys(wrong, ("6.1", "it states an empty tensor of another type")), case)
    first, count = 0, header.leaves
    hashes: tuple[bytes, ...] = ()
    while count > 1:
        bodies = yield from ask({p: TensorHashes(*where, first, count) for p in BOTH})
        known = known_hashes(count, bodies, hashes, lambda p, r: header.digest(r) == digests[p])
        convict(part_guilt(count, bodies, known, "6.1"))
        parts = (bodies[0].hashes, bodies[1].hashes)
        first, count, hashes = descend(count, parts, first)
    opened = yield from ask({p: Leaf(*where, first) for p in BOTH})
    guilt, blocks = {}, []
    for party, leaf in opened.items():
        hashed = merkle.leaf_hash(leaf.data)
        given = hashes[party] == hashed if hashes else header.digest(hashed) == digests[party]
        if len(leaf.data) != header.leaf_size(first):
            guilt[party] = ("2.7", f"leaf {first} has {header.leaf_size(first)} bytes, not these")
        elif not given:
            guilt[party] = ("6.1", f"the bytes of leaf {first} do not hash to what it has stated")
    convict(guilt)
    for party in BOTH:
        block = np.frombuffer(opened[party].data, dtype=DTYPES[header.dtype])
        bad = first_non_canonical(block)
        if bad is not None:
            guilt[party] = ("6.1", f"element {bad} of leaf {first} is not canonical")
        blocks.append(block)
    convict(guilt, case)
    raw = [block.view(np.uint8).reshape(-1, header.itemsize) for block in blocks]
    k = int(np.argmax((raw[0] != raw[1]).any(axis=1)))
    return first * (LEAF_BYTES // header.itemsize) + k, (blocks[0][k], blocks[1][k])


def agreed_element(
    at: Where, output: int, header: TensorHeader, element: int, digest: bytes
) -> Asking[np.generic]:
    """6.13: an element of an output whose digest both state, opened by party 0."""
    where = (*at, OUTPUT, output)
    leaf, inside = divmod(element, LEAF_BYTES // header.itemsize)
    first, count, known = 0, header.leaves, b""
    while count > 1:
        body = (yield from ask({0: TensorHashes(*where, first, count)}))[0]
        whole = merkle.combine_parts(count, DEPTH, body.hashes)
        if whole is None:
            raise Guilty({0: ("2.7", f"{len(body.hashes)} hashes are not the parts asked for")})
        if (whole != known) if known else (header.digest(whole) != digest):
            raise Guilty({0: ("6.13", f"hashes of output {output} do not give its digest")})
        ranges = merkle.parts_of(first, count, DEPTH)
        part = next(k for k, (a, n) in enumerate(ranges) if a <= leaf < a + n)
        (first, count), known = ranges[part], body.hashes[part]
    data = (yield from ask({0: Leaf(*where, leaf)}))[0].data
    hashed = merkle.leaf_hash(data)
    given = hashed == known if known else header.digest(hashed) == digest
    if len(data) != header.leaf_size(leaf):
        raise Guilty({0: ("2.7", f"leaf {leaf} has {header.leaf_size(leaf)} bytes, not these")})
    if not given:
        raise Guilty({0: ("6.13", f"leaf {leaf} of output {output} does not give its digest")})
    block = np.frombuffer(data, dtype=DTYPES[header.dtype])
    bad = first_non_canonical(block)
    if bad is not None:  # both have stated this digest; no honest party has such a tensor
        why = f"element {bad} of leaf {leaf} of output {output} is not canonical"
        raise Guilty(dict.fromkeys(BOTH, ("6.13", why)), "3")
    value: np.generic = block[inside]
    return value


def open_operand(
    at: Where, operand: int, header: TensorHeader, leaves: Sequence[int], digest: bytes
) -> Asking[TensorOpening]:
    """6.5: party 0 opens leaves of an operand against `digest`, which both records state."""
    asked = Opening(*at, operand, tuple(leaves))
    body = (yield from ask({0: asked}))[0]
    try:
        opening = TensorOpening.from_bytes(body.data)
        if tuple(sorted(opening.leaves)) != asked.leaves:
            raise CorruptFileError("It does not open the leaves asked for.")
    except CorruptFileError as error:
        raise Guilty({0: ("2.7", f"its opening is malformed: {error.message}")}) from None
    try:
        opening.verify(digest, header)
    except DigestMismatchError as error:
        why = f"its opening of operand {operand} does not give the stated digest: {error.message}"
        raise Guilty({0: ("6.5", why)}) from None
    try:
        for leaf, data in opening.leaves.items():
            check_canonical(np.frombuffer(data, DTYPES[header.dtype]), f"leaf {leaf}")
    except CounterpartyError as error:
        # Both have stated this digest, and no honest party states one of such a tensor.
        why = f"operand {operand}, as both state it, is not canonical: {error.message}"
        raise Guilty(dict.fromkeys(BOTH, ("6.5", why)), "3") from None
    return opening
