"""The commitment of a job of format 3 (COMMITMENTS 7.7), and what its streams read."""

from __future__ import annotations

from typing import Any

from reference.judge.encoding import RefusedError, digest_of, tag, text, u8, u32, u64
from reference.judge.json_members import decimal, members, whole, word
from reference.judge.manifest_2 import (
    DATA,
    MEMBERS,
    U40,
    check_rest,
    digest_from,
    listed,
    named,
    truth,
)

ORDERS = ["shuffled", "sequential"]
STREAM = "name data batch_size by_pass epoch_records first".split()
PROGRAM = "name digest stream batch_size micro_batches".split()


def batch_of(stream: dict[str, Any], n: int, j: int) -> tuple[int, int]:
    """(first place in the order, records) of batch j over n records (7.7.4)."""
    b, of_epoch = stream["batch_size"], stream["epoch_records"]
    if of_epoch is None:
        return j * b, b
    each = (of_epoch + b - 1) // b
    k = j % each
    return j // each * n + k * b, b if k + 1 < each else of_epoch - k * b


def batches_before(c: dict[str, Any]) -> list[int]:
    """Of each turn of the schedule, the steps of its stream before it: in the cycle, or in its
    pass (7.7.3)."""
    found: list[int] = []
    turns, programs = c["schedule"], c["programs"]
    for at, turn in enumerate(turns):
        stream = programs[turn["program"]]["stream"]
        before, back = 0, at - 1
        if c["streams"][stream]["by_pass"]:
            while (
                back >= 0
                and programs[turns[back]["program"]]["stream"] == stream
                and turns[back]["program"] != turns[back + 1]["program"]
            ):
                before += turns[back]["steps"]
                back -= 1
        else:
            earlier = (t for t in turns[:at] if programs[t["program"]]["stream"] == stream)
            before = sum(t["steps"] for t in earlier)
        found.append(before)
    return found


def check_commitment_3(value: Any) -> dict[str, Any]:
    """7.7.1, 7.7.5, 7.7.7."""
    c = members(value, [*MEMBERS, "streams"], "commitment")
    check_rest(c, 3)
    data = [members(d, [*DATA, "order"], "data set") for d in listed(c["data"], 0, 64, "data sets")]
    for d in data:
        digest_of(d["root"])
        whole(d["record_count"], 0, U40, "records")
        decimal(d["order_seed"], 2**64 - 1, "order seed")
        if word(d["order"], "an order") not in ORDERS:
            raise RefusedError("no order")
    named(data, "data set")
    streams = [members(s, STREAM, "stream") for s in listed(c["streams"], 1, 64, "streams")]
    for s in streams:
        _check_stream(s, data)
    named(streams, "stream")
    programs = [members(p, PROGRAM, "program") for p in listed(c["programs"], 1, 64, "programs")]
    for p in programs:
        digest_of(p["digest"])
        s = streams[whole(p["stream"], 0, len(streams) - 1, "a stream's number")]
        whole(p["batch_size"], 1, 2**20, "batch size")
        whole(p["micro_batches"], 1, 2**16, "micro-batches")
        if p["batch_size"] % p["micro_batches"]:
            raise RefusedError("micro-batches that do not divide the batch")
        if p["batch_size"] not in {s["batch_size"], _last(s)}:
            raise RefusedError("a size that no batch has")
    named(programs, "program")
    order = [p["stream"] for p in programs]
    if list(dict.fromkeys(order)) != list(range(len(streams))):
        raise RefusedError("streams in another order, or without a program")
    turns = [
        members(t, ("program", "steps"), "turn") for t in listed(c["schedule"], 1, 1024, "turns")
    ]
    for t in turns:
        whole(t["program"], 0, len(programs) - 1, "a program's number")
        whole(t["steps"], 1, U40, "steps of a turn")
    if sum(t["steps"] for t in turns) > U40:
        raise RefusedError("a cycle too long")
    if {t["program"] for t in turns} != set(range(len(programs))):
        raise RefusedError("a program without a turn")
    alone = len(set(order)) == len(order)
    if alone and all(d["order"] == "shuffled" for d in data):
        pairs = [(p, streams[p["stream"]]) for p in programs]
        if all(s["name"] == p["name"] and s["epoch_records"] is None for p, s in pairs):
            raise RefusedError("format 2 can say it")
    _check_steps(c)
    return c


def _check_stream(s: dict[str, Any], data: list[dict[str, Any]]) -> None:
    whole(s["batch_size"], 1, 2**20, "batch size")
    first = whole(s["first"], 0, U40, "first batch")
    if truth(s["by_pass"], "by_pass") and first:
        raise RefusedError("a pass that begins later")
    n = 0
    if s["data"] is not None:
        n = data[whole(s["data"], 0, len(data) - 1, "a data set's number")]["record_count"]
        whole(n, 1, U40, "records that a stream reads")
    if s["epoch_records"] is not None:
        whole(s["epoch_records"], 1, n, "records of an epoch")


def _last(s: dict[str, Any]) -> int:
    """The records of an epoch's last batch."""
    whole_ones = s["epoch_records"] or s["batch_size"]
    return int(whole_ones - (whole_ones - 1) // s["batch_size"] * s["batch_size"])


def _check_steps(c: dict[str, Any]) -> None:
    """Every batch has a program of its size (7.7.5); numbers of batches are small enough."""
    turns, programs = c["schedule"], c["programs"]
    cycle = sum(t["steps"] for t in turns)
    for number, s in enumerate(c["streams"]):
        own = [programs[t["program"]]["stream"] == number for t in turns]
        n = None if s["data"] is None else c["data"][s["data"]]["record_count"]
        in_cycle = sum(t["steps"] for t, mine in zip(turns, own, strict=True) if mine)
        left, executed = c["steps"] % cycle, c["steps"] // cycle * in_cycle
        for t, mine in zip(turns, own, strict=True):
            executed += min(left, t["steps"]) if mine else 0
            left -= min(left, t["steps"])
        if not s["by_pass"]:
            whole(s["first"] + executed, 0, U40, "last batch")
        short = _last(s) < s["batch_size"]
        each = _each(s)
        if short and not s["by_pass"] and c["steps"] > cycle and in_cycle % each:
            raise RefusedError("a cycle of no whole epochs")
        end = 0
        for t, mine, before in zip(turns, own, batches_before(c), strict=True):
            end += t["steps"]
            if not mine or n is None:
                continue
            steps = t["steps"]
            if s["by_pass"]:
                if before + steps > (each or n // s["batch_size"]):
                    raise RefusedError("a pass over more records than there are")
            else:
                steps = max(0, min(steps, c["steps"] - (end - steps)))
            if short and steps:
                _check_sizes(s, n, s["first"] + before, steps, programs[t["program"]])


def _each(s: dict[str, Any]) -> int:
    """The batches of an epoch, 0 where none ends with a batch."""
    return -(-(s["epoch_records"] or 0) // int(s["batch_size"]))


def _check_sizes(s: dict[str, Any], n: int, j: int, steps: int, p: dict[str, Any]) -> None:
    """The batches j, j + 1, … of a turn: only the last one of an epoch is short, so those before
    and at the first end are all kinds that there are."""
    each = _each(s)
    to_end = each - 1 - j % each
    looked_at = {j, j + min(steps - 1, to_end), j + min(steps - 1, to_end + 1)}
    if any(batch_of(s, n, k)[1] != p["batch_size"] for k in looked_at):
        raise RefusedError("a batch of another size than its program")


def job_digest_3(c: dict[str, Any]) -> bytes:
    """7.7.2."""
    out = tag("job/3") + u32(3) + text(c["contract"]) + digest_of(c["genesis_root"])
    out += u64(len(c["data"]))
    for d in c["data"]:
        out += text(d["name"]) + digest_of(d["root"]) + u64(d["record_count"])
        out += u64(int(d["order_seed"])) + u8(ORDERS.index(d["order"]))
    out += u64(len(c["streams"]))
    for s in c["streams"]:
        out += text(s["name"]) + u64(0 if s["data"] is None else s["data"] + 1)
        out += (
            u64(s["batch_size"]) + u8(s["by_pass"]) + u64(s["epoch_records"] or 0) + u64(s["first"])
        )
    out += u64(len(c["programs"]))
    for p in c["programs"]:
        out += text(p["name"]) + digest_of(p["digest"]) + u64(p["stream"])
        out += u64(p["batch_size"]) + u64(p["micro_batches"])
    return digest_from(out, c)
