"""Writes vectors/commit/job-3.json from a plain reference of COMMITMENTS 7.7.

Imported by make_commit_vectors.py, whose primitives it uses; nothing of tallystick is. Streams are
walked batch by batch here: an epoch is a list of records from which each batch takes the next ones.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import count
from typing import Any

from make_job_2_vectors import digest_from

ORDERS = ["shuffled", "sequential"]
Job = dict[str, Any]


def job_digest_3(m: Any, c: Job) -> bytes:
    """7.7.2, from the members of 7.7.7."""
    out = m.tag("job/3") + m.u32(c["format_version"]) + m.text(c["contract"])
    out += bytes.fromhex(c["genesis_root"]) + m.u64(len(c["data"]))
    for d in c["data"]:
        out += m.text(d["name"]) + bytes.fromhex(d["root"]) + m.u64(d["record_count"])
        out += m.u64(int(d["order_seed"])) + m.u8(ORDERS.index(d["order"]))
    out += m.u64(len(c["streams"]))
    for s in c["streams"]:
        out += m.text(s["name"]) + m.u64(0 if s["data"] is None else s["data"] + 1)
        out += m.u64(s["batch_size"]) + m.u8(int(s["by_pass"])) + m.u64(s["epoch_records"] or 0)
        out += m.u64(s["first"])
    out += m.u64(len(c["programs"]))
    for p in c["programs"]:
        out += m.text(p["name"]) + bytes.fromhex(p["digest"]) + m.u64(p["stream"])
        out += m.u64(p["batch_size"]) + m.u64(p["micro_batches"])
    return digest_from(m, out, c)


def batches(m: Any, d: Job, s: Job) -> Iterator[list[int]]:
    """The batches of a stream from number 0 on, epoch after epoch (7.7.4)."""
    n, b, seed = d["record_count"], s["batch_size"], int(d["order_seed"])
    own = s["by_pass"] or d["order"] == "sequential"
    left: list[int] = []
    for epoch in count():
        order = [q if own else m.record_at(seed, epoch, q, n) for q in range(n)]
        left += order[: s["epoch_records"]]
        while len(left) >= b:
            yield left[:b]
            left = left[b:]
        if s["epoch_records"] and left:
            yield left
            left = []


def walked(c: Job, steps: int) -> list[tuple[int, int]]:
    """(program, batch number) of each of the first steps (7.7.3), turn after turn."""
    found: list[tuple[int, int]] = []
    so_far = [s["first"] for s in c["streams"]]
    while len(found) < steps:
        before = None
        for turn in c["schedule"]:
            program = turn["program"]
            stream = c["programs"][program]["stream"]
            new = before in (None, program) or c["programs"][before]["stream"] != stream
            if c["streams"][stream]["by_pass"] and new:
                so_far[stream] = 0
            for _ in range(turn["steps"]):
                found.append((program, so_far[stream]))
                so_far[stream] += 1
            before = program
    return found[:steps]


def rows_of(m: Any, c: Job, steps: int) -> list[dict[str, Any]]:
    """Rows of the timetable: program, batch number, row of a table, records, random key."""
    rows = []
    for step, (number, j) in enumerate(walked(c, steps)):
        p = c["programs"][number]
        s = c["streams"][p["stream"]]
        records = None
        if s["data"] is not None:
            each = batches(m, c["data"][s["data"]], s)
            batch = next(batch for at, batch in enumerate(each) if at == j)
            assert len(batch) == p["batch_size"], (step, batch)
            rows_each = p["batch_size"] // p["micro_batches"]
            records = [batch[i : i + rows_each] for i in range(0, len(batch), rows_each)]
        seed = int(c["rng_seed"])
        if p["stream"]:
            word = m.h(m.tag("program-seed/1") + m.u64(seed) + m.text(s["name"]))
            seed = struct.unpack("<Q", word[:8])[0] % 2**63
        rows.append({
            "step": step, "program": number, "number": j, "row": j - s["first"],
            "micro_batches": records, "key": [str(seed), j],
        })  # fmt: skip
    return rows


def table_rows(c: Job) -> list[int]:
    """The rows of a table that each program reads (7.7.6)."""
    cycle = sum(t["steps"] for t in c["schedule"])
    steps = max(c["steps"], cycle)
    found = []
    for p in c["programs"]:
        s = c["streams"][p["stream"]]
        own = [
            (step, j)
            for step, (number, j) in enumerate(walked(c, steps))
            if c["programs"][number]["stream"] == p["stream"]
        ]
        by_run = sum(step < c["steps"] for step, _ in own)
        found.append(max(j for _, j in own) + 1 if s["by_pass"] else by_run)
    return found


def _set(m: Any, name: str, number: int, seed: int, order: str = "shuffled") -> Job:
    root = m.digest_of("data", name).hex()
    return {"name": name, "root": root, "record_count": number, "order_seed": str(seed),
            "order": order}  # fmt: skip


def _stream(name: str, data: int | None, size: int, epoch: int | None = None, **more: Any) -> Job:
    stream = {"name": name, "data": data, "batch_size": size, "epoch_records": epoch}
    return {**stream, "by_pass": False, "first": 0, **more}


def _program(m: Any, name: str, stream: int, size: int, parts: int = 1) -> Job:
    digest = m.digest_of("program", name).hex()
    return {"name": name, "digest": digest, "stream": stream, "batch_size": size,
            "micro_batches": parts}  # fmt: skip


def _turns(*pairs: tuple[int, int]) -> list[Job]:
    return [{"program": p, "steps": n} for p, n in pairs]


def job_3_vectors(m: Any) -> dict[str, Any]:
    one: Job = {
        "format_version": 3, "contract": "ordered/1-draft.1",
        "genesis_root": m.digest_of("genesis").hex(),
        "data": [_set(m, "train", 10, 2**64 - 1, "sequential")],
        "streams": [_stream("step", 0, 4)],
        "programs": [_program(m, "step", 0, 4)], "schedule": _turns((0, 1)),
        "rng_seed": "7", "steps": 200, "checkpoint_interval": 20,
        "scalars_digest": m.scalars({}).hex(), "stop_on_non_finite": True, "stop_on_slot": False,
        "continues": None,
    }  # fmt: skip
    shuffled = {"data": [_set(m, "train", 10, 3)]}
    dropped = {**shuffled, "streams": [_stream("step", 0, 4, 8, first=5)]}
    # The last batch of an epoch of three has two records; first is inside an epoch.
    short: Job = {
        **one, **shuffled,
        "streams": [_stream("step", 0, 4, 10, first=4)],
        "programs": [_program(m, "step", 0, 4, 2), _program(m, "step-short", 0, 2)],
        "schedule": _turns((0, 1), (1, 1), (0, 1)), "steps": 31,
    }  # fmt: skip
    # One cycle of no whole epochs, of which the run has all but the last step.
    once = {**short, "schedule": _turns((0, 1), (1, 1), (0, 2), (1, 1), (0, 2)), "steps": 6}
    # A pass over every record, which in each cycle begins anew.
    validated: Job = {
        **one,
        "data": [_set(m, "train", 11, 3), _set(m, "validation", 7, 0)],
        "streams": [
            _stream("step", 0, 4, 11), _stream("validate", 1, 3, 7, by_pass=True),
            _stream("decide", None, 1, by_pass=True),
        ],
        "programs": [
            _program(m, "step", 0, 4), _program(m, "step-short", 0, 3, 3),
            _program(m, "validate", 1, 3), _program(m, "validate-short", 1, 1),
            _program(m, "decide", 2, 1),
        ],
        "schedule": _turns((0, 2), (1, 1), (2, 2), (3, 1), (4, 1)),
        "steps": 61, "stop_on_slot": True,
    }  # fmt: skip
    # Structures by step that share a stream, beside a stream of another one; passes beside each
    # other, of one program and of two.
    shared: Job = {
        **one,
        "data": [_set(m, "train", 13, 1), _set(m, "other", 9, 2**63, "sequential")],
        "streams": [
            _stream("critic", 0, 5), _stream("look", 1, 2, by_pass=True),
            _stream("fill", 1, 4, 8),
        ],
        "programs": [
            _program(m, "warm", 0, 5), _program(m, "look", 1, 2), _program(m, "cold", 0, 5, 5),
            _program(m, "look-again", 1, 2), _program(m, "fill", 2, 4, 2),
        ],
        "schedule": _turns(
            (2, 2), (0, 1), (1, 1), (1, 2), (3, 1), (1, 1), (4, 1), (0, 3), (1, 3), (4, 2)
        ),
        "rng_seed": str(2**63 - 1), "steps": 30,
    }  # fmt: skip
    # Of each epoch the first nine records of its order, in micro-batches of three.
    left_out: Job = {
        **one, **shuffled, "streams": [_stream("step", 0, 6, 9)],
        "programs": [_program(m, "step", 0, 6, 2), _program(m, "step-short", 0, 3)],
        "schedule": _turns((0, 1), (1, 1)),
    }  # fmt: skip
    # Fewer records than a batch: each epoch is one short batch.
    few: Job = {
        **one, "data": [_set(m, "train", 3, 8)], "streams": [_stream("step", 0, 5, 3)],
        "programs": [_program(m, "step", 0, 3, 3)],
    }  # fmt: skip
    changes: list[Job] = [
        {}, {"contract": "exact/1-draft.1;b=15"}, {"genesis_root": m.digest_of("other").hex()},
        {"rng_seed": "0"}, {"steps": 0}, {"steps": 1 << 40}, {"checkpoint_interval": 1},
        {"scalars_digest": m.scalars({"lr": (0.5).hex()}).hex()}, {"stop_on_non_finite": False},
        {"stop_on_slot": True}, {"continues": m.digest_of("run").hex()},
        {"data": [_set(m, "train", 11, 2**64 - 1, "sequential")]},
        {"data": [_set(m, "train", 10, 0, "sequential")]},
        {"data": [_set(m, "trained", 10, 2**64 - 1, "sequential")]},
        {"data": [*one["data"], _set(m, "unread", 0, 0)]},
        {"streams": [_stream("steps", 0, 4)]}, {"streams": [_stream("step", None, 4)]},
        {"streams": [_stream("step", 0, 4, 8)]}, {"streams": [_stream("step", 0, 4, first=1)]},
        {"streams": [_stream("step", 0, 4, by_pass=True)]},
        {"streams": [_stream("step", 0, 5)], "programs": [_program(m, "step", 0, 5)]},
        {"streams": [_stream("step", 0, 5, 10)], "programs": [_program(m, "step", 0, 5)]},
        {"programs": [_program(m, "stepped", 0, 4)]}, {"programs": [_program(m, "step", 0, 4, 2)]},
        {"schedule": _turns((0, 2))}, dropped,
    ]  # fmt: skip
    jobs = [{**one, **change} for change in changes] + [
        short,
        once,
        validated,
        shared,
        left_out,
        few,
    ]
    return {
        "clause": "7.7",
        "jobs": [{"job": j, "digest": job_digest_3(m, j).hex()} for j in jobs],
        "timetables": [
            {"job": j, "table_rows": table_rows(j), "rows": rows_of(m, j, steps)}
            for j, steps in (
                (one, 7), ({**one, **dropped}, 7), (short, 10), (once, 6), (validated, 21),
                (shared, 37), (left_out, 8), (few, 4),
            )
        ],
    }  # fmt: skip
