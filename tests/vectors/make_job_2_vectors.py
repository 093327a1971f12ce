"""Writes vectors/commit/job-2.json and records.json from a plain reference of COMMITMENTS 7.6, 8.6.

Imported by make_commit_vectors.py, whose primitives it uses; nothing of tallystick is. A timetable
is walked step by step here, and a record is cut byte by byte.
"""

from __future__ import annotations

import struct
from typing import Any

PART, LONG = 65536, 1 << 20
Job = dict[str, Any]


def job_digest_2(m: Any, c: Job) -> bytes:
    """7.6.2, from the members of 7.6.10."""
    out = m.tag("job/2") + m.u32(c["format_version"]) + m.text(c["contract"])
    out += bytes.fromhex(c["genesis_root"]) + m.u64(len(c["data"]))
    for d in c["data"]:
        out += m.text(d["name"]) + bytes.fromhex(d["root"])
        out += m.u64(d["record_count"]) + m.u64(int(d["order_seed"]))
    out += m.u64(len(c["programs"]))
    for p in c["programs"]:
        out += m.text(p["name"]) + bytes.fromhex(p["digest"])
        out += m.u64(0 if p["data"] is None else p["data"] + 1) + m.u64(p["batch_size"])
        out += m.u64(p["micro_batches"]) + m.u8(int(p["by_pass"])) + m.u64(p["first"])
    return digest_from(m, out, c)


def digest_from(m: Any, out: bytes, c: Job) -> bytes:
    """The job digest, from the number of turns on."""
    out += m.u64(len(c["schedule"]))
    for t in c["schedule"]:
        out += m.u64(t["program"]) + m.u64(t["steps"])
    out += m.u64(int(c["rng_seed"])) + m.u64(c["steps"]) + m.u64(c["checkpoint_interval"])
    out += bytes.fromhex(c["scalars_digest"])
    out += m.u8(int(c["stop_on_non_finite"])) + m.u8(int(c["stop_on_slot"]))
    return bytes(m.h(out + bytes.fromhex(c["continues"] or "00" * 32)))


def walked(c: Job, steps: int) -> list[tuple[int, int]]:
    """(program, batch number) of each of the first steps (7.6.3), turn after turn."""
    found: list[tuple[int, int]] = []
    so_far = [p["first"] for p in c["programs"]]
    while len(found) < steps:
        for turn in c["schedule"]:
            program = turn["program"]
            for inside in range(turn["steps"]):
                if c["programs"][program]["by_pass"]:
                    found.append((program, inside))
                else:
                    found.append((program, so_far[program]))
                    so_far[program] += 1
    return found[:steps]


def rows_of(m: Any, c: Job, wanted: list[int]) -> list[dict[str, Any]]:
    """Rows of the timetable: program, batch number, row of a table, records, random key."""
    rows = []
    table = walked(c, max(wanted) + 1)
    for step in wanted:
        number, j = table[step]
        p = c["programs"][number]
        records = None
        if p["data"] is not None:
            d = c["data"][p["data"]]
            n = d["record_count"]
            places = range(j * p["batch_size"], (j + 1) * p["batch_size"])
            seed = int(d["order_seed"])
            order = [q if p["by_pass"] else m.record_at(seed, q // n, q % n, n) for q in places]
            each = p["batch_size"] // p["micro_batches"]
            records = [order[i : i + each] for i in range(0, len(order), each)]
        seed = int(c["rng_seed"])
        if number:
            word = m.h(m.tag("program-seed/1") + m.u64(seed) + m.text(p["name"]))
            seed = struct.unpack("<Q", word[:8])[0] % 2**63
        rows.append({
            "step": step, "program": number, "number": j, "row": j - p["first"],
            "micro_batches": records, "key": [str(seed), j],
        })  # fmt: skip
    return rows


def table_rows(c: Job) -> list[int]:
    """The rows of a table that each program reads (7.6.5)."""
    steps = [number for number, _ in walked(c, c["steps"])] if c["steps"] else []
    found = []
    for number, p in enumerate(c["programs"]):
        own = [t["steps"] for t in c["schedule"] if t["program"] == number]
        found.append(max(own) if p["by_pass"] else steps.count(number))
    return found


def continued(m: Any, run: dict[str, Any]) -> bytes:
    """7.6.8."""
    out = m.tag("continues/1") + bytes.fromhex(run["job_digest"]) + bytes.fromhex(run["run_root"])
    return bytes(m.h(out + m.u64(run["final_step"]) + bytes.fromhex(run["final_state_root"])))


def _set(m: Any, name: str, count: int, seed: int) -> Job:
    root = m.digest_of("data", name).hex()
    return {"name": name, "root": root, "record_count": count, "order_seed": str(seed)}


def _program(m: Any, name: str, data: int | None, size: int, **more: Any) -> Job:
    digest = m.digest_of("program", name).hex()
    program = {"name": name, "digest": digest, "data": data, "batch_size": size}
    return {**program, "micro_batches": 1, "by_pass": False, "first": 0, **more}


def job_2_vectors(m: Any) -> dict[str, Any]:
    one: Job = {
        "format_version": 2, "contract": "ordered/1-draft.1",
        "genesis_root": m.digest_of("genesis").hex(),
        "data": [_set(m, "train", 10, 2**64 - 1)],
        "programs": [_program(m, "step", 0, 4)], "schedule": [{"program": 0, "steps": 1}],
        "rng_seed": "7", "steps": 200, "checkpoint_interval": 20,
        "scalars_digest": m.scalars({}).hex(), "stop_on_non_finite": True, "stop_on_slot": False,
        "continues": None,
    }  # fmt: skip
    validated: Job = {
        **one,
        "data": [_set(m, "train", 10, 3), _set(m, "validation", 7, 0)],
        "programs": [
            _program(m, "step", 0, 4, first=1000),
            _program(m, "validate", 1, 3, by_pass=True),
            _program(m, "decide", None, 1, by_pass=True),
        ],
        "schedule": [
            {"program": 0, "steps": 5}, {"program": 1, "steps": 2}, {"program": 2, "steps": 1},
        ],
        "steps": 61, "stop_on_slot": True,
    }  # fmt: skip
    # A pass in two turns of different lengths, a program that goes on in three turns.
    mixed: Job = {
        **one,
        "data": [_set(m, "train", 13, 1), _set(m, "other", 6, 2**63), _set(m, "t", 1, 9)],
        "programs": [
            _program(m, "generator", 0, 6, micro_batches=3),
            _program(m, "critic", 0, 4, first=2),
            _program(m, "check-2", 1, 2, by_pass=True),
            _program(m, "fill", 2, 2, micro_batches=2),
        ],
        "schedule": [
            {"program": p, "steps": n}
            for p, n in ((1, 3), (0, 1), (2, 1), (1, 2), (3, 1), (2, 3), (1, 1))
        ],
        "rng_seed": str(2**63 - 1), "steps": 30,
    }  # fmt: skip
    run = {
        "job_digest": m.digest_of("job").hex(), "run_root": m.digest_of("run").hex(),
        "final_step": 97, "final_state_root": m.digest_of("state", 97).hex(),
    }  # fmt: skip
    changes: list[Job] = [
        {}, {"contract": "exact/1-draft.1;b=15"}, {"genesis_root": m.digest_of("other").hex()},
        {"rng_seed": "0"}, {"steps": 0}, {"steps": 1 << 40}, {"checkpoint_interval": 1},
        {"scalars_digest": m.scalars({"lr": (0.5).hex()}).hex()}, {"stop_on_non_finite": False},
        {"stop_on_slot": True}, {"continues": continued(m, run).hex()},
        {"data": [_set(m, "train", 11, 2**64 - 1)]}, {"data": [_set(m, "train", 10, 0)]},
        {"data": [_set(m, "trained", 10, 2**64 - 1)]},
        {"data": [*one["data"], _set(m, "unread", 0, 0)]},
        {"programs": [_program(m, "stepped", 0, 4)]}, {"programs": [_program(m, "step", None, 4)]},
        {"programs": [_program(m, "step", 0, 5)]},
        {"programs": [_program(m, "step", 0, 4, micro_batches=2)]},
        {"programs": [_program(m, "step", 0, 4, by_pass=True)]},
        {"programs": [_program(m, "step", 0, 4, first=1)]},
        {"schedule": [{"program": 0, "steps": 2}]}, {"schedule": [{"program": 0, "steps": 1}] * 2},
    ]  # fmt: skip
    jobs = [{**one, **change} for change in changes] + [validated, mixed]
    return {
        "clause": "7.6",
        "jobs": [{"job": j, "digest": job_digest_2(m, j).hex()} for j in jobs],
        "timetables": [
            {"job": j, "table_rows": table_rows(j), "rows": rows_of(m, j, wanted)}
            for j, wanted in (
                (one, [0, 1, 2, 3, 199]),
                (validated, [*range(17), 60, 4003]),
                (mixed, [*range(25), 1199]),
            )
        ],
        "continues": {"run": run, "digest": continued(m, run).hex()},
    }


# ---- 8.6 ----------------------------------------------------------------------------------------


def fields_of(fields: list[Job]) -> list[Job]:
    return sorted(fields, key=lambda f: f["name"].encode())


def field_bytes(m: Any, f: Job) -> int:
    size = m.SIZES[f["dtype"]]
    for n in f["shape"]:
        size *= n
    return int(size)


def pattern(length: int, record: int, field: int) -> bytes:
    """Byte i of a field is (i·37 + 11·record + field) mod 61."""
    block = bytes((i * 37 + 11 * record + field) % 61 for i in range(61))
    return (block * (length // 61 + 1))[:length]


def cut(data: list[bytes]) -> list[bytes]:
    """The parts of a long record, whose fields have these bytes (8.6.2)."""
    return [d[at : at + PART] for d in data for at in range(0, len(d), PART)]


def record_leaf(m: Any, data: list[bytes]) -> bytes:
    """The leaf hash of a record (8.3, 8.6.3)."""
    if sum(map(len, data)) <= LONG:
        return bytes(m.leaf(b"".join(data)))
    parts = cut(data)
    root = m.mth([m.leaf(p) for p in parts])
    return bytes(m.leaf(m.h(m.tag("record/2") + m.u64(len(parts)) + root)))


def records_root(m: Any, fields: list[Job], leaves: list[bytes]) -> bytes:
    """8.3, 8.6.4."""
    long = sum(field_bytes(m, f) for f in fields) > LONG
    head = m.tag("data/2" if long else "data/1") + m.schema(fields) + m.u64(len(leaves))
    return bytes(m.h(head + m.mth(leaves)))


SCHEMAS: list[list[Job]] = [
    # one byte over the limit, the parts' last one short
    [{"name": "x", "dtype": "u8", "shape": [LONG + 1]}],
    # as long as a record may be that is not long
    [{"name": "x", "dtype": "u8", "shape": [LONG]}],
    # small fields beside long ones, an empty one, in the order of 1.4
    [
        {"name": "y", "dtype": "i64", "shape": []},
        {"name": "x", "dtype": "f32", "shape": [3, 100003]},
        {"name": "none", "dtype": "f32", "shape": [0]},
        {"name": "mask", "dtype": "u8", "shape": [65536]},
        {"name": "a", "dtype": "f64", "shape": [8193]},
    ],
]


def record_vectors(m: Any) -> dict[str, Any]:
    cases = []
    for schema in SCHEMAS:
        fields = fields_of(schema)
        lengths = [field_bytes(m, f) for f in fields]
        long = sum(lengths) > LONG
        records = [[pattern(n, r, k) for k, n in enumerate(lengths)] for r in range(3)]
        leaves = [record_leaf(m, data) for data in records]
        parts = cut(records[2]) if long else [b"".join(records[2])]
        hashes = [m.leaf(p) for p in parts]
        shown = [0, 1, len(parts) // 2, len(parts) - 1] if long else [0]
        cases.append({
            "fields": schema,
            "part_bytes": [len(p) for p in parts],
            "part_hashes": m.hexes(hashes),
            "record_leaves": m.hexes(leaves),
            "data_roots": m.hexes([records_root(m, schema, leaves[:n]) for n in range(1, 4)]),
            "proofs_of_record_2": [
                {"part": i, "inner": m.hexes(m.path(i, hashes) if long else []),
                 "path": m.hexes(m.path(2, leaves))}
                for i in shown
            ],
        })  # fmt: skip
    return {
        "clause": "8.6",
        "record_bytes": "byte i of field k (in the order of 1.4) of record r is "
        "(i * 37 + 11 * r + k) mod 61",
        "cases": cases,
    }
