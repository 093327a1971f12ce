"""Each kind of query says its layout, its check and its answer (PROTOCOL 2.1)."""

from __future__ import annotations

from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import pytest

from tallystick.errors import CorruptFileError, UsageError
from tallystick.job.job import Job
from tallystick.limits import LIMITS
from tallystick.opening.views import View
from tallystick.protocol import bodies as b
from tallystick.protocol import queries as q
from tallystick.protocol.facts import Facts
from tallystick.protocol.messages import Query, ascending, below, subtree
from tallystick.prover.prover import ANSWER_METHODS

H, G = bytes([1]) * 32, bytes([2]) * 32
# A query of each kind, the layout of its fields after the kind, a body, and the body's layout.
EXAMPLES: list[tuple[Query[Any], str, b.Body, bytes]] = [
    (q.Checkpoints((0, 2)), "2 0 2", b.RootsBody((H, G), (G,)), H + G + b"\1" + bytes(7) + G),
    (q.States((1, 3)), "2 1 3", b.RootsBody((H, G)), H + G),
    (q.Loss(1), "1", b.LossBody(H, 7, (G,)), H + b"\7\0\0\0" + b"\1" + bytes(7) + G),
    (q.Nodes(1), "1", b.NodesBody(3, H), b"\3" + bytes(7) + H),
    (q.NodeHashes(1, 2, 3), "1 2 3", b.HashesBody((H, G)), H + G),
    (
        q.NodeRecord(1, 2),
        "1 2",
        b.NodeBody("op", b"{}", (H,), (G,), ()),
        b"\2\0\0\0op\2" + bytes(7) + b"{}\1" + bytes(7) + H + b"\1" + bytes(7) + G + bytes(8),
    ),
    (q.Slot(1, "w"), "1 w", b.SlotBody(H, (G,)), H + b"\1" + bytes(7) + G),
    (q.TensorHashes(1, 2, 1, 3, 4, 5), "1 2 s1 3 4 5", b.HashesBody((H,)), H),
    (q.Leaf(1, 2, 0, 3, 4), "1 2 s0 3 4", b.BytesBody(b"xy"), b"\2" + bytes(7) + b"xy"),
    (
        q.Values(1, 2, 3, 4, (5,), View("states", 6, 7, 8)),
        "1 2 3 4 1 5 s3 6 7 8",
        b.BytesBody(b"xyz"),
        b"xyz",
    ),
    (q.Opening(1, 2, 3, (4,)), "1 2 3 1 4", b.BytesBody(b"x"), b"\1" + bytes(7) + b"x"),
    (q.Record(3), "3", b.RecordBody(b"x", (H,)), b"\1" + bytes(7) + b"x\1" + bytes(7) + H),
    (
        q.Log(1),
        "1",
        b.LogBody(H, (), (G,), (H,)),
        H + bytes(8) + b"\1" + bytes(7) + G + b"\1" + bytes(7) + H,
    ),
    (q.LogHashes(1, 2, 3, 4), "1 2 3 4", b.BlocksBody(9, (H,)), b"\t" + bytes(7) + H),
    (q.LogBlock(1, 2, 3), "1 2 3", b.BlockBody(b"x", ()), b"\1" + bytes(7) + b"x" + bytes(8)),
    (
        q.RecordPart(1, 2, 3),
        "1 2 3",
        b.PartBody(b"x", (H,), ()),
        b"\1" + bytes(7) + b"x\1" + bytes(7) + H + bytes(8),
    ),
]


def _bytes(words: str) -> bytes:
    """The layout of fields: numbers are u64, s1 is a u8, anything else a text."""
    out = b""
    for word in words.split():
        if word.isdecimal():
            out += int(word).to_bytes(8, "little")
        elif word[0] == "s":
            out += bytes([int(word[1:])])
        else:
            out += len(word).to_bytes(4, "little") + word.encode()
    return out


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: type(e[0]).__name__)
def test_layouts_are_those_of_the_table(example: tuple[Query[Any], str, b.Body, bytes]) -> None:
    """2.1, written out by hand; what is read back is what was written, and no byte more."""
    query, words, body, data = example
    encoded = b"tallystick/query/1\0" + bytes([query.KIND]) + _bytes(words)
    assert q.encode_query(query) == encoded and q.decode_query(encoded) == query
    assert query.layout.encode(body) == data and query.layout.decode(data) == body
    for other in (data + b"\0", data[:-1]):
        if not isinstance(query, q.Values):  # their number is the referee's to check
            with pytest.raises(CorruptFileError):
                query.layout.decode(other)


def test_a_view_that_is_none() -> None:
    """2.1: views are numbered 1 to 5."""
    encoded = q.encode_query(q.Values(1, 2, 3, 4, (), View("needs")))
    for view in (0, 6):
        with pytest.raises(CorruptFileError, match="its view is unknown"):
            q.decode_query(encoded[:-25] + bytes([view]) + encoded[-24:])


def test_every_kind_is_there() -> None:
    """2.1: kinds 1 to 16; each has an example here, a layout, and a method of the prover's."""
    assert [type(e[0]).KIND for e in sorted(EXAMPLES, key=lambda e: e[0].KIND)] == list(q.KINDS)
    assert sorted(q.KINDS) == list(range(1, 17))
    assert set(ANSWER_METHODS) == set(q.KINDS.values())
    for query, _, body, _ in EXAMPLES:
        sent = len(query.layout.items)
        assert query.layout.body is type(body)
        # Only kind 2 leaves a field out: it has no proof.
        assert sent == len(fields(body)) - isinstance(query, q.States)


def test_a_kind_refuses_what_no_referee_asks(logreg_job: Job) -> None:
    """What a job and a run do not have is a UsageError, before anything is executed."""
    facts = Facts(logreg_job.terms)
    run = type("Run", (), {"checkpoints": 1, "final_step": 0})()
    for query in (*(e[0] for e in EXAMPLES if type(e[0]) is not q.Record), q.Record(1 << 40)):
        with pytest.raises(UsageError):
            query.check(facts, run)


def test_numbers_of_a_query_exist_and_ascend() -> None:
    below(2, 3, "step")
    ascending((0, 2), 3, "step")
    with pytest.raises(UsageError, match="no step 3 of 3"):
        below(3, 3, "step")
    for numbers in ((), (1, 1), (2, 1), (0, 2, 1)):
        with pytest.raises(UsageError, match="must ascend"):
            ascending(numbers, 3, "step")
    with pytest.raises(UsageError, match="no step 3 of 3"):
        ascending((0, 3), 3, "step")


def test_leaves_of_a_query_are_a_part_that_a_tree_is_split_into() -> None:
    """COMMITMENTS 2.4: 7 leaves are 4 and 3, the 3 are 2 and 1."""
    parts = {(0, 7), (0, 4), (4, 3), (0, 2), (2, 2), (4, 2)} | {(at, 1) for at in range(7)}
    for first in range(9):
        for count in range(9):
            if (first, count) in parts:
                subtree(7, first, count)
            else:
                with pytest.raises(UsageError, match=f"No {count} leaves at {first}"):
                    subtree(7, first, count)


ONE_STEP: Any = SimpleNamespace(checkpoints=1, final_step=1)


def test_a_job_is_asked_for_records_in_its_own_way(logreg_job: Job) -> None:
    facts = Facts(logreg_job.terms)
    of_format_two: Any = SimpleNamespace(job=None)
    q.Record(0).check(facts, ONE_STEP)
    with pytest.raises(UsageError, match="asked for whole records"):
        q.RecordPart(0, 0, 0).check(facts, ONE_STEP)
    with pytest.raises(UsageError, match="asked for parts of records"):
        q.Record(0).check(of_format_two, ONE_STEP)


def test_queries_about_logs_name_what_a_step_has(logreg_job: Job) -> None:
    with pytest.raises(UsageError, match="keeps no logs"):
        q.Log(0).check(Facts(logreg_job.terms), ONE_STEP)
    step = SimpleNamespace(sections=(SimpleNamespace(blocks=2),))
    facts: Any = SimpleNamespace(contract=SimpleNamespace(keeps_log=True), at=lambda _: step)
    q.LogBlock(0, 0, 1).check(facts, ONE_STEP)
    with pytest.raises(UsageError, match="no section 1"):
        q.LogHashes(0, 1, 0, 1).check(facts, ONE_STEP)
    with pytest.raises(UsageError, match="no block 2"):
        q.LogBlock(0, 0, 2).check(facts, ONE_STEP)


def test_an_opening_has_no_more_leaves_than_allowed() -> None:
    header = SimpleNamespace(leaves=2 * LIMITS.opening_leaves)
    there = SimpleNamespace(program=SimpleNamespace(nodes=[None]), header_at=lambda *_: header)
    facts: Any = SimpleNamespace(at=lambda _: there)
    q.Opening(0, 0, 0, tuple(range(LIMITS.opening_leaves))).check(facts, ONE_STEP)
    with pytest.raises(UsageError, match="leaves are too many"):
        q.Opening(0, 0, 0, tuple(range(LIMITS.opening_leaves + 1))).check(facts, ONE_STEP)


def test_bytes_of_a_query_are_of_a_kind_and_not_too_long() -> None:
    encoded = q.encode_query(q.Loss(1))
    for kind in (0, 17, 255):
        with pytest.raises(CorruptFileError, match="its kind is unknown"):
            q.decode_query(encoded[:-9] + bytes([kind]) + encoded[-8:])
    with pytest.raises(CorruptFileError, match="longer than any query"):
        q.decode_query(encoded + bytes(LIMITS.query_bytes))
