"""The manifest of a job (COMMITMENTS 7.1 to 7.5, 7.6.10, 7.7.7)."""

from __future__ import annotations

import re
import struct
from typing import Any

from reference.judge.encoding import (
    RefusedError,
    blob,
    canonical_json,
    digest_of,
    dumped,
    sha,
    tag,
    text,
    u8,
    u32,
    u64,
)
from reference.judge.json_members import contract_of, decimal, members, whole, word
from reference.judge.manifest_2 import check_commitment_2, job_digest_2
from reference.judge.manifest_3 import check_commitment_3, job_digest_3
from reference.judge.merkle import Type, size

TOP = (
    "format commitment job_digest scalars {} fills recipe evaluation forward about manifest_digest"
)
FORMATS = {"tallystick-job/1": 1, "tallystick-job/2": 2, "tallystick-job/3": 3}
DIGESTS = "program_digest genesis_root data_root scalars_digest".split()
NUMBERS = {
    "format_version": (1, 1),
    "record_count": (0, 2**40),
    "batch_size": (1, 2**20),
    "steps": (0, 2**40),
    "checkpoint_interval": (1, 2**40),
}
SEEDS = {"order_seed": 2**64 - 1, "rng_seed": 2**63 - 1}
DTYPES = "f32 f64 i64 i32 u8 bool".split()


def binary64(value: Any, what: str) -> float:
    """1.10."""
    shape = r"-?0x[01]\.[0-9a-f]{13}p[+-](0|[1-9]\d*)|-?0x0\.0p\+0|-?inf|nan"
    if not re.fullmatch(shape, word(value, what)):
        raise RefusedError(f"{what} is no binary64")
    number = float.fromhex(value)
    if (number.hex() if number == number else "nan") != value:
        raise RefusedError(f"{what} is written otherwise")
    return number


def name(value: Any) -> str:
    if len(word(value, "a name").encode()) > 1024:
        raise RefusedError("a name too long")
    return str(value)


def scalars_digest(scalars: Any) -> bytes:
    """7.3."""
    if not isinstance(scalars, dict) or len(scalars) > 256:
        raise RefusedError("no scalars")
    out = tag("scalars/1") + u64(len(scalars))
    for key in sorted(scalars, key=str.encode):
        v = scalars[key]
        table = [binary64(x, key) for x in (v if isinstance(v, list) else [v])]
        if any(x - x != 0 for x in table) or len(table) > 67108864:
            raise RefusedError(f"{key} is not finite, or too long")
        out += text(name(key)) + u8(isinstance(v, list)) + u64(len(table))
        out += b"".join(struct.pack("<d", x) for x in table)
    return sha(out)


def schema_of(value: Any, most: int = 2**20) -> list[tuple[str, Type]]:
    """The fields, in the order of 1.4, of a record of `most` bytes at most."""
    if not isinstance(value, list) or len(value) > 256:
        raise RefusedError("no schema")
    fields: list[tuple[str, Type]] = []
    for item in value:
        f = members(item, ("name", "dtype", "shape"), "a field")
        if f["dtype"] not in DTYPES or not isinstance(f["shape"], list) or len(f["shape"]) > 16:
            raise RefusedError("a field of no type")
        shape = tuple(whole(n, 0, 2**40, "a size") for n in f["shape"])
        fields.append((name(f["name"]), (f["dtype"], shape)))
    if len({n for n, _ in fields}) != len(fields):
        raise RefusedError("a field twice")
    if not 1 <= sum(size(t) for _, t in fields) <= most:
        raise RefusedError("no record has so many bytes")
    return sorted(fields, key=lambda f: f[0].encode())


def job_digest(c: dict[str, Any]) -> bytes:
    """7.2."""
    return sha(
        tag("job/1")
        + u32(c["format_version"])
        + text(c["contract"])
        + b"".join(bytes.fromhex(c[n]) for n in ("program_digest", "genesis_root", "data_root"))
        + u64(c["record_count"])
        + u64(c["batch_size"])
        + u64(int(c["order_seed"]))
        + u64(int(c["rng_seed"]))
        + u64(c["steps"])
        + u64(c["checkpoint_interval"])
        + bytes.fromhex(c["scalars_digest"])
        + u8(c["stop_on_non_finite"])
    )


def check_commitment(value: Any) -> dict[str, Any]:
    """7.5.2."""
    stop = "stop_on_non_finite"
    c = members(value, (*DIGESTS, *NUMBERS, *SEEDS, "contract", stop), "commitment")
    for n in DIGESTS:
        digest_of(c[n])
    for n, (low, high) in NUMBERS.items():
        whole(c[n], low, high, n)
    for n, high in SEEDS.items():
        decimal(c[n], high, n)
    contract_of(c["contract"])
    if not isinstance(c[stop], bool):
        raise RefusedError("no stop rule")
    return c


def check_others(m: dict[str, Any]) -> None:
    """The members that no verdict depends on (7.5.1, 7.5.4)."""
    if not isinstance(m["fills"], dict) or not isinstance(m["about"], dict):
        raise RefusedError("fills or about")
    for slot, v in m["fills"].items():
        binary64(v, slot)
    if m["recipe"] is not None:
        recipe = members(m["recipe"], ("name", "settings"), "recipe")
        word(recipe["name"], "a recipe's name")
        settings = recipe["settings"]
        if not isinstance(settings, dict):
            raise RefusedError("settings")
        for v in settings.values():
            word(v, "a setting")
    if m["forward"] is not None:
        digest_of(m["forward"])
    if m["evaluation"] is not None:
        names = "every program_digest data_root record_count batch_size".split()
        e = members(m["evaluation"], names, "evaluation")
        whole(e["every"], 0, 2**53 - 1, "every")
        records = whole(e["record_count"], 1, 2**40, "record_count")
        whole(e["batch_size"], 1, records, "batch_size")
        digest_of(e["program_digest"])
        digest_of(e["data_root"])


def read_manifest(data: bytes) -> dict[str, Any]:
    """The manifest (7.5); raises RefusedError or MalformedError."""
    if len(data) > 16777216 or sum(map(data.count, (b",", b"[", b"{"))) > 1048576:
        raise RefusedError("a manifest too large")
    m = canonical_json(data)
    if not isinstance(m, dict) or not isinstance(m.get("format"), str):
        raise RefusedError("no format")
    version = FORMATS.get(m["format"])
    if version is None:
        raise RefusedError("another format")
    members(m, TOP.format("schema" if version == 1 else "schemas").split(), "manifest")
    c = (check_commitment, check_commitment_2, check_commitment_3)[version - 1](m["commitment"])
    check_others(m)
    if version == 1:
        schema_of(m["schema"])
    else:
        if not isinstance(m["schemas"], list) or len(m["schemas"]) != len(c["data"]):
            raise RefusedError("another number of schemas")
        for one in m["schemas"]:
            schema_of(one, 2**30)
    if scalars_digest(m["scalars"]) != digest_of(c["scalars_digest"]):
        raise RefusedError("other scalars")
    digest = (job_digest, job_digest_2, job_digest_3)[version - 1](c)
    if digest != digest_of(m["job_digest"]):
        raise RefusedError("another job digest")
    rest = dumped({k: v for k, v in m.items() if k != "manifest_digest"}).encode()
    if sha(tag("manifest/1") + blob(rest)) != digest_of(m["manifest_digest"]):
        raise RefusedError("altered")
    return m


def job_of(m: dict[str, Any]) -> dict[str, Any]:
    """The commitment of a manifest that was read, as one of format 3, digests as bytes: a job of
    format 1 has one program, which every step executes, and in format 2 each is a stream."""
    c = m["commitment"]
    seeds = {"rng_seed": int(c["rng_seed"]), "genesis_root": digest_of(c["genesis_root"])}
    if c["format_version"] > 1:
        data = [
            {**d, "root": digest_of(d["root"]), "order_seed": int(d["order_seed"])}
            for d in c["data"]
        ]
        programs = [{**p, "digest": digest_of(p["digest"])} for p in c["programs"]]
        streams = c.get("streams")
        if streams is None:
            streams = [{**p, "epoch_records": None} for p in programs]
            programs = [{**p, "stream": number} for number, p in enumerate(programs)]
        schemas = [schema_of(s, 2**30) for s in m["schemas"]]
        return {**c, **seeds, "data": data, "programs": programs, "streams": streams,
                "schemas": schemas}  # fmt: skip
    root, seed = digest_of(c["data_root"]), int(c["order_seed"])
    records = {"root": root, "record_count": c["record_count"], "order_seed": seed}
    program = {
        "digest": digest_of(c["program_digest"]), "stream": 0, "batch_size": c["batch_size"],
        "micro_batches": 1,
    }  # fmt: skip
    stream = {"data": 0, "batch_size": c["batch_size"], "by_pass": False, "epoch_records": None,
              "first": 0}  # fmt: skip
    return {**c, **seeds, "data": [records], "programs": [program], "streams": [stream],
            "schedule": [{"program": 0, "steps": 1}], "schemas": [schema_of(m["schema"])],
            "stop_on_slot": False}  # fmt: skip
