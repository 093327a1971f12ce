"""The commitment of a job of format 2 (COMMITMENTS 7.6)."""

from __future__ import annotations

import re
from typing import Any

from reference.judge.encoding import RefusedError, digest_of, sha, tag, text, u8, u32, u64
from reference.judge.json_members import contract_of, decimal, members, whole, word

MEMBERS = (
    "format_version contract genesis_root rng_seed steps checkpoint_interval scalars_digest "
    "stop_on_non_finite data programs schedule stop_on_slot continues"
).split()
DATA = "name root record_count order_seed".split()
PROGRAM = "name digest data batch_size micro_batches by_pass first".split()
U40 = 2**40


def listed(value: Any, low: int, high: int, what: str) -> list[Any]:
    if not isinstance(value, list) or not low <= len(value) <= high:
        raise RefusedError(f"no list of {what}, or one too long")
    return value


def named(items: list[dict[str, Any]], what: str) -> None:
    """Names of 7.6.1, all different."""
    names = [word(item["name"], what) for item in items]
    if not all(re.fullmatch("[a-z][a-z0-9-]{0,39}", n) for n in names):
        raise RefusedError(f"a name of a {what}")
    if len(set(names)) != len(names):
        raise RefusedError(f"two {what}s of one name")


def truth(value: Any, what: str) -> bool:
    if not isinstance(value, bool):
        raise RefusedError(f"{what} is neither true nor false")
    return value


def check_rest(c: dict[str, Any], version: int) -> None:
    """The members that formats 2 and 3 have alike."""
    whole(c["format_version"], version, version, "format version")
    contract_of(c["contract"])
    for n in ("genesis_root", "scalars_digest"):
        digest_of(c[n])
    if c["continues"] is not None and digest_of(c["continues"]) == bytes(32):
        raise RefusedError("zeros that are not null")
    decimal(c["rng_seed"], 2**63 - 1, "rng_seed")
    whole(c["steps"], 0, U40, "steps")
    whole(c["checkpoint_interval"], 1, U40, "checkpoint_interval")
    truth(c["stop_on_non_finite"], "a stop rule")
    truth(c["stop_on_slot"], "a stop rule")


def check_commitment_2(value: Any) -> dict[str, Any]:
    """7.6.1, 7.6.10."""
    c = members(value, MEMBERS, "commitment")
    check_rest(c, 2)
    data = [members(d, DATA, "data set") for d in listed(c["data"], 0, 64, "data sets")]
    for d in data:
        digest_of(d["root"])
        whole(d["record_count"], 0, U40, "records")
        decimal(d["order_seed"], 2**64 - 1, "order seed")
    named(data, "data set")
    programs = [members(p, PROGRAM, "program") for p in listed(c["programs"], 1, 64, "programs")]
    for p in programs:
        digest_of(p["digest"])
        if p["data"] is not None:
            whole(p["data"], 0, len(data) - 1, "a data set's number")
        whole(p["batch_size"], 1, 2**20, "batch size")
        whole(p["micro_batches"], 1, 2**16, "micro-batches")
        if p["batch_size"] % p["micro_batches"]:
            raise RefusedError("micro-batches that do not divide the batch")
        first = whole(p["first"], 0, U40, "first batch")
        if truth(p["by_pass"], "by_pass") and first:
            raise RefusedError("a pass that does not begin with its first batch")
    named(programs, "program")
    turns = [
        members(t, ("program", "steps"), "turn") for t in listed(c["schedule"], 1, 1024, "turns")
    ]
    for t in turns:
        p = programs[whole(t["program"], 0, len(programs) - 1, "a program's number")]
        steps = whole(t["steps"], 1, U40, "steps of a turn")
        read = steps * p["batch_size"] if p["by_pass"] and p["data"] is not None else 0
        if read and read > data[p["data"]]["record_count"]:
            raise RefusedError("a pass over more records than there are")
    if sum(t["steps"] for t in turns) > U40:
        raise RefusedError("a cycle too long")
    if {t["program"] for t in turns} != set(range(len(programs))):
        raise RefusedError("a program without a turn")
    for number, p in enumerate(programs):
        if p["data"] is not None:
            whole(data[p["data"]]["record_count"], 1, U40, "records that a program reads")
        if not p["by_pass"]:
            whole(p["first"] + _executions(turns, number, c["steps"]), 0, U40, "last batch")
    return c


def _executions(turns: list[dict[str, Any]], program: int, steps: int) -> int:
    """How many of so many steps execute a program (7.6.3)."""
    cycle = sum(t["steps"] for t in turns)
    found = steps // cycle * sum(t["steps"] for t in turns if t["program"] == program)
    left = steps % cycle
    for t in turns:
        found += min(left, t["steps"]) if t["program"] == program else 0
        left -= min(left, t["steps"])
    return found


def job_digest_2(c: dict[str, Any]) -> bytes:
    """7.6.2."""
    out = tag("job/2") + u32(2) + text(c["contract"]) + digest_of(c["genesis_root"])
    out += u64(len(c["data"]))
    for d in c["data"]:
        out += text(d["name"]) + digest_of(d["root"]) + u64(d["record_count"])
        out += u64(int(d["order_seed"]))
    out += u64(len(c["programs"]))
    for p in c["programs"]:
        out += text(p["name"]) + digest_of(p["digest"])
        out += u64(0 if p["data"] is None else p["data"] + 1) + u64(p["batch_size"])
        out += u64(p["micro_batches"]) + u8(p["by_pass"]) + u64(p["first"])
    return digest_from(out, c)


def digest_from(out: bytes, c: dict[str, Any]) -> bytes:
    """The job digest, from the number of turns on."""
    out += u64(len(c["schedule"]))
    for t in c["schedule"]:
        out += u64(t["program"]) + u64(t["steps"])
    out += u64(int(c["rng_seed"])) + u64(c["steps"]) + u64(c["checkpoint_interval"])
    out += digest_of(c["scalars_digest"]) + u8(c["stop_on_non_finite"]) + u8(c["stop_on_slot"])
    return sha(out + (bytes(32) if c["continues"] is None else digest_of(c["continues"])))
