"""Streams of format 3 against lists: epochs, batches, sizes of programs (COMMITMENTS 7.7).

The plain reference here makes each epoch's list of records and takes batches off it; the second
judge reads the same commitments. Whatever one of the three refuses, all refuse.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NoReturn

from hypothesis import event, given, settings
from hypothesis import strategies as st
from reference.judge.encoding import RefusedError
from reference.judge.manifest_3 import check_commitment_3, job_digest_3

from tallystick.commit.job import JobCommitment2
from tallystick.commit.members import Members
from tallystick.commit.order import permute
from tallystick.commit.stream import ORDERS
from tallystick.errors import CorruptFileError, UsageError
from tallystick.job.job_file import commitment_members, read_commitment

ZERO = "00" * 32
Entry = dict[str, Any]


@st.composite
def commitments(draw: st.DrawFn) -> Entry:
    """Members of a commitment: one stream that trains, one by pass, and what may be beside them.

    Mostly turns that fit the epochs, moved by a draw here and there."""
    n, b = draw(st.integers(1, 12)), draw(st.integers(1, 5))
    taken = draw(st.none() | st.integers(1, n) | st.just(n) | st.just(n // b * b or 1))
    epoch = -(-(taken or b) // b)
    last = (taken or b) - (epoch - 1) * b
    first = draw(st.integers(0, 2 * epoch))
    streams: list[Entry] = [
        {
            "name": "s",
            "data": 0,
            "batch_size": b,
            "by_pass": False,
            "epoch_records": taken,
            "first": first,
        }
    ]
    programs = [_program("long", 0, b), _program("short", 0, last)]
    turns: list[list[int]] = []
    batches = epoch * draw(st.integers(1, 3)) + draw(st.sampled_from([0, 0, 1]))
    for j in range(first, first + batches):
        short = last < b and j % epoch == epoch - 1
        program = 1 if short or draw(st.integers(0, 30)) == 30 else 0
        if turns and turns[-1][0] == program and draw(st.integers(0, 3)):
            turns[-1][1] += 1
        else:
            turns.append([program, 1])
    if not any(program == 1 for program, _ in turns):
        programs = programs[:1]
    if draw(st.booleans()):
        number = len(programs)
        taken = draw(st.sampled_from([None, 10, 10, 7]))
        streams.append({"name": "v", "data": 1, "batch_size": 3, "by_pass": True,
                        "epoch_records": taken, "first": 0})  # fmt: skip
        programs += [_program("v", 1, 3), _program("w", 1, draw(st.sampled_from([1, 3, 3])))]
        beside = draw(st.sampled_from(["vw", "vvw", "vvvvvw", "wvw", "vwvwvw", "vwwv"]))
        turns += [[number + "vw".index(each), 1] for each in beside]
    cycle = sum(steps for _, steps in turns)
    return {
        "format_version": 3, "contract": "ordered/1-draft.1", "genesis_root": ZERO,
        "data": [
            {"name": "d", "root": ZERO, "record_count": n, "order_seed": str(draw(
                st.integers(0, 2**64 - 1))), "order": draw(st.sampled_from(ORDERS))},
            {"name": "h", "root": ZERO, "record_count": 10, "order_seed": "0", "order": "shuffled"},
        ],
        "streams": streams, "programs": programs,
        "schedule": [{"program": p, "steps": steps} for p, steps in turns],
        "rng_seed": "1", "steps": draw(st.integers(0, 3 * cycle)), "checkpoint_interval": 5,
        "scalars_digest": ZERO, "stop_on_non_finite": True, "stop_on_slot": False,
        "continues": None,
    }  # fmt: skip


def _program(name: str, stream: int, size: int) -> Entry:
    return {"name": name, "digest": ZERO, "stream": stream, "batch_size": size, "micro_batches": 1}


def epochs(entry: Entry, stream: Entry, count: int) -> list[list[int]]:
    """The first `count` batches of a stream, taken off the list of each epoch."""
    n, b, seed = entry["record_count"], stream["batch_size"], int(entry["order_seed"])
    own = stream["by_pass"] or entry["order"] == "sequential"
    found: list[list[int]] = []
    left: list[int] = []
    epoch = 0
    while len(found) < count:
        order = [q if own else permute(seed, epoch, q, n) for q in range(n)]
        left += order[: stream["epoch_records"]]
        while len(left) >= b:
            found.append(left[:b])
            left = left[b:]
        if stream["epoch_records"] and left:
            found.append(left)
            left = []
        epoch += 1
    return found[:count]


def plain(c: Entry, steps: int) -> list[tuple[int, int, list[int]]] | None:
    """(program, batch number, records) of each step; None where a batch has another size."""
    so_far = [s["first"] for s in c["streams"]]
    found: list[tuple[int, int, list[int]]] = []
    while len(found) < steps:
        before = None
        for turn in c["schedule"]:
            program = c["programs"][turn["program"]]
            stream = c["streams"][program["stream"]]
            if stream["by_pass"] and (
                before in (None, turn["program"])
                or c["programs"][before]["stream"] != program["stream"]
            ):
                so_far[program["stream"]] = 0
            data = c["data"][stream["data"]]
            first = so_far[program["stream"]]
            so_far[program["stream"]] += turn["steps"]
            batches = epochs(data, stream, first + turn["steps"])[first:]
            for j, batch in enumerate(batches, first):
                if len(found) < steps or stream["by_pass"]:
                    if len(batch) != program["batch_size"]:
                        return None
                    found.append((turn["program"], j, batch))
            if stream["by_pass"]:
                whole = epochs(data, stream, first + turn["steps"])
                if any(x >= y for x, y in pairwise(r for b in whole for r in b)):
                    return None  # a pass over more records than there are
            before = turn["program"]
    return found[:steps]


def fits(c: Entry) -> bool:
    """Whether the plain reference finds a program of its size for every batch (7.7.5)."""
    cycle = sum(t["steps"] for t in c["schedule"])
    stream = c["streams"][0]
    taken = stream["epoch_records"]
    epoch = -(-(taken or 1) // stream["batch_size"])
    own = sum(t["steps"] for t in c["schedule"] if c["programs"][t["program"]]["stream"] == 0)
    uneven = taken is not None and taken % stream["batch_size"] > 0
    if uneven and c["steps"] > cycle and own % epoch:
        return False
    if any(s["epoch_records"] is None and any(
        p["stream"] == k and p["batch_size"] != s["batch_size"] for p in c["programs"]
    ) for k, s in enumerate(c["streams"])):  # fmt: skip
        return False
    used = {t["program"] for t in c["schedule"]}
    alone = len(c["streams"]) == len(c["programs"]) and c["data"][0]["order"] == "shuffled"
    if alone and all(s["epoch_records"] is None for s in c["streams"]):
        names = [p["name"] for p in c["programs"]] == [s["name"] for s in c["streams"]]
        if names:
            return False
    return used == set(range(len(c["programs"]))) and plain(c, max(c["steps"], 1)) is not None


def read(c: Entry) -> JobCommitment2 | None:
    def fail(why: str) -> NoReturn:
        raise CorruptFileError(f"It is malformed: {why}.", "Restore it.")

    try:
        return read_commitment(Members(c, fail), c["contract"], 3)
    except (UsageError, CorruptFileError):
        return None


@settings(deadline=None, max_examples=500)
@given(commitments())
def test_streams_against_lists_and_the_second_judge(c: Entry) -> None:
    found = read(c)
    try:
        check_commitment_3(c)
        theirs = True
    except RefusedError as error:
        theirs, why = False, str(error)
    assert (found is not None) == theirs
    # Turns behind a run's end may have any size, so the reference walks what is executed.
    assert theirs == (fits(c) if c["steps"] else theirs)
    event(f"{c['streams'][0]['epoch_records'] is not None}: {'a job' if theirs else why}")
    if found is None:
        return
    assert commitment_members(found) == c
    assert found.digest() == job_digest_3(c)
    walked = plain(c, c["steps"])
    assert walked is not None
    t = found.timetable
    for step, (program, number, records) in enumerate(walked):
        at = t.at(step)
        assert tuple(at) == (program, number)
        assert t.indices(at).tolist() == records
        assert [t.record(at, place) for place in range(len(records))] == records
        assert t.programs[program].batch_size == len(records)


@settings(deadline=None, max_examples=300)
@given(commitments(), st.integers(0, 200))
def test_a_run_that_goes_on_has_the_batches_of_one_that_never_stopped(c: Entry, done: int) -> None:
    """From any step but those inside of a pass."""
    found = read(c)
    if found is None or found.steps <= found.timetable.cycle:
        return
    t = found.timetable
    at = t.at(done)
    inside = t.programs[at.program].by_pass and at.number > 0
    try:
        later = t.after(done)
    except UsageError as error:
        assert "inside of a pass" in error.message
        ends = [t.programs[t.turns[n].program] for n in (0, -1)]
        assert inside or (ends[0].by_pass and ends[1].by_pass)
        return
    assert not inside
    later.check_sizes(3 * t.cycle)
    for step in range(2 * t.cycle):
        assert later.at(step) == t.at(done + step)
