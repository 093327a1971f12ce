"""Writes vectors/commit/*.json from a plain reference of COMMITMENTS.

The reference is written from the specification with hashlib and recursion alone and imports
nothing of tallystick, so that the vectors check the package instead of echoing it. Ed25519 is
the one thing taken from a library.

    python tests/vectors/make_commit_vectors.py [--out vectors/commit]
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import math
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from ed25519_cases import ed25519_vectors
from make_job_2_vectors import job_2_vectors, record_vectors
from make_job_3_vectors import job_3_vectors
from make_log_vectors import log_vectors

LEAF = 2048
CODES = {"f32": 1, "f64": 2, "i64": 3, "i32": 4, "u8": 5, "bool": 6, "bf16": 7, "f16": 8}
SIZES = {"f32": 4, "f64": 8, "i64": 8, "i32": 4, "u8": 1, "bool": 1, "bf16": 2, "f16": 2}


# ---- 1. encodings -------------------------------------------------------------------------------


def h(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def u8(n: int) -> bytes:
    return struct.pack("<B", n)


def u32(n: int) -> bytes:
    return struct.pack("<I", n)


def u64(n: int) -> bytes:
    return struct.pack("<Q", n)


def text(s: str) -> bytes:
    return u32(len(s.encode())) + s.encode()


def blob(b: bytes) -> bytes:
    return u64(len(b)) + b


def tag(name: str) -> bytes:
    return b"tallystick/" + name.encode() + b"\x00"


def named(items: dict[str, Any]) -> list[tuple[str, Any]]:
    return sorted(items.items(), key=lambda kv: kv[0].encode())


# ---- 2. Merkle trees ----------------------------------------------------------------------------


def leaf(data: bytes) -> bytes:
    return h(b"\x00" + data)


def split(n: int) -> int:
    k = 1
    while k * 2 < n:
        k *= 2
    return k


def mth(hashes: list[bytes]) -> bytes:
    if not hashes:
        return h(b"")
    if len(hashes) == 1:
        return hashes[0]
    k = split(len(hashes))
    return h(b"\x01" + mth(hashes[:k]) + mth(hashes[k:]))


def path(m: int, d: list[bytes]) -> list[bytes]:
    if len(d) == 1:
        return []
    k = split(len(d))
    if m < k:
        return [*path(m, d[:k]), mth(d[k:])]
    return [*path(m - k, d[k:]), mth(d[:k])]


def proof(m: int, d: list[bytes]) -> list[bytes]:
    return [] if m in (0, len(d)) else subproof(m, d, True)


def subproof(m: int, d: list[bytes], whole: bool) -> list[bytes]:
    n = len(d)
    if m == n:
        return [] if whole else [mth(d)]
    k = split(n)
    if m <= k:
        return [*subproof(m, d[:k], whole), mth(d[k:])]
    return [*subproof(m - k, d[k:], False), mth(d[:k])]


def multi(wanted: list[int], d: list[bytes]) -> list[bytes]:
    if not wanted:
        return [mth(d)]
    if len(d) == 1:
        return []
    k = split(len(d))
    left = multi([i for i in wanted if i < k], d[:k])
    return left + multi([i - k for i in wanted if i >= k], d[k:])


# ---- 3. tensors ---------------------------------------------------------------------------------


def header(dtype: str, shape: list[int]) -> bytes:
    return u8(CODES[dtype]) + u8(len(shape)) + b"".join(u64(d) for d in shape)


def leaves(data: bytes) -> list[bytes]:
    return [leaf(data[i : i + LEAF]) for i in range(0, len(data), LEAF)]


def tensor(dtype: str, shape: list[int], data: bytes) -> bytes:
    assert len(data) == math.prod(shape) * SIZES[dtype]
    fixed = tag("tensor/1") + header(dtype, shape)
    return h(fixed + u64(len(data)) + u32(LEAF) + mth(leaves(data)))


def opening(dtype: str, shape: list[int], data: bytes, wanted: list[int]) -> bytes:
    out = tag("tensor-opening/1") + header(dtype, shape) + u64(len(wanted))
    for i in wanted:
        out += u64(i) + data[i * LEAF : (i + 1) * LEAF]
    hashes = multi(wanted, leaves(data)) if data else []
    return out + u64(len(hashes)) + b"".join(hashes)


def pattern(nbytes: int, seed: int) -> bytes:
    """Bytes that another language makes with one line: byte i is (i * 37 + seed) mod 61."""
    return bytes((i * 37 + seed) % 61 for i in range(nbytes))


# ---- 4 to 7 -------------------------------------------------------------------------------------


def node(
    program: bytes,
    step: int,
    index: int,
    op: str,
    attributes: bytes,
    i: list[bytes],
    o: list[bytes],
) -> bytes:
    out = tag("node/1") + program + u64(step) + u64(index) + text(op) + blob(attributes)
    return h(out + u64(len(i)) + b"".join(i) + u64(len(o)) + b"".join(o))


def node_root(nodes: list[bytes]) -> bytes:
    return h(tag("nodes/1") + u64(len(nodes)) + mth([leaf(d) for d in nodes]))


def slot_leaves(slots: dict[str, bytes]) -> list[bytes]:
    return [leaf(tag("slot/1") + text(name) + digest) for name, digest in named(slots)]


def state_root(slots: dict[str, bytes]) -> bytes:
    return h(tag("state/1") + u64(len(slots)) + mth(slot_leaves(slots)))


def loss_chain(chain: bytes, step: int, bits: int) -> bytes:
    return h(tag("loss-chain/1") + chain + u64(step) + u32(bits))


def log_chain(chain: bytes, step: int, log: bytes) -> bytes:
    return h(tag("log-chain/1") + chain + u64(step) + h(log))


def checkpoint_leaves(checkpoints: list[tuple[int, bytes]]) -> list[bytes]:
    return [leaf(tag("checkpoint/1") + u64(s) + root) for s, root in checkpoints]


def run_root(job: bytes, checkpoints: list[tuple[int, bytes]]) -> bytes:
    hashes = checkpoint_leaves(checkpoints)
    return h(tag("run/1") + job + u64(len(hashes)) + mth(hashes))


def scalars(tables: dict[str, Any]) -> bytes:
    out = tag("scalars/1") + u64(len(tables))
    for name, table in named(tables):
        values = table if isinstance(table, list) else [table]
        out += text(name) + u8(int(isinstance(table, list))) + u64(len(values))
        out += b"".join(struct.pack("<d", float.fromhex(v)) for v in values)
    return h(out)


def job_digest(j: dict[str, Any]) -> bytes:
    out = tag("job/1") + u32(j["format_version"]) + text(j["contract"])
    out += bytes.fromhex(j["program_digest"]) + bytes.fromhex(j["genesis_root"])
    out += bytes.fromhex(j["data_root"]) + u64(j["record_count"]) + u64(j["batch_size"])
    out += u64(int(j["order_seed"])) + u64(int(j["rng_seed"]))
    out += u64(j["steps"]) + u64(j["checkpoint_interval"])
    return h(out + bytes.fromhex(j["scalars_digest"]) + u8(j["stop_on_non_finite"]))


# ---- 8. data ------------------------------------------------------------------------------------


def schema(fields: list[dict[str, Any]]) -> bytes:
    out = tag("schema/1") + u64(len(fields))
    for f in sorted(fields, key=lambda f: f["name"].encode()):
        out += text(f["name"]) + header(f["dtype"], f["shape"])
    return h(out)


def data_root(fields: list[dict[str, Any]], records: list[bytes]) -> bytes:
    return h(tag("data/1") + schema(fields) + u64(len(records)) + mth([leaf(r) for r in records]))


def philox(counter: list[int], key: list[int]) -> list[int]:
    c, k = list(counter), list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & 0xFFFFFFFF, (a >> 32) ^ c[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def record_at(seed: int, epoch: int, q: int, n: int) -> int:
    word = h(tag("order/1") + u64(seed))
    key = [struct.unpack("<I", word[:4])[0], struct.unpack("<I", word[4:8])[0]]
    a = next(x for x in range(math.isqrt(n), math.isqrt(n) + 2) if x * x >= n)
    b = (n + a - 1) // a
    x = q
    while True:
        left, right = x // b, x % b
        for r in range(16):
            v = right if r % 2 == 0 else left
            w = philox([v, r, epoch % 2**32, epoch // 2**32], key)
            f = w[0] + 2**32 * w[1]
            if r % 2 == 0:
                left = (left + f) % a
            else:
                right = (right + f) % b
        x = left * b + right
        if x < n:
            return x


def batch(seed: int, n: int, step: int, size: int) -> list[int]:
    places = [step * size + i for i in range(size)]
    return [record_at(seed, p // n, p % n, n) for p in places]


# ---- the vectors --------------------------------------------------------------------------------


def hexes(values: list[bytes]) -> list[str]:
    return [v.hex() for v in values]


def merkle_vectors() -> dict[str, Any]:
    # The inputs of the certificate-transparency reference tests.
    data = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657",
            "606162636465666768696a6b6c6d6e6f"]  # fmt: skip
    d = [leaf(bytes.fromhex(x)) for x in data]
    return {
        "clause": "2",
        "leaf_data": data,
        "roots": hexes([mth(d[:n]) for n in range(9)]),
        "inclusion": [
            {"index": m, "size": n, "proof": hexes(path(m, d[:n]))}
            for n in range(1, 9)
            for m in range(n)
        ],
        "consistency": [
            {"old": m, "new": n, "proof": hexes(proof(m, d[:n]))}
            for n in range(9)
            for m in range(n + 1)
        ],
        "multi": [
            {"size": n, "leaves": [i for i in range(n) if bits >> i & 1],
             "proof": hexes(multi([i for i in range(n) if bits >> i & 1], d[:n]))}
            for n in (1, 2, 5, 7, 8)
            for bits in range(1, 1 << n, 3)
        ],
    }  # fmt: skip


def tensor_vectors() -> dict[str, Any]:
    cases: list[tuple[str, list[int]]] = [
        ("f32", []), ("f64", []), ("i64", []), ("i32", []), ("u8", []), ("bool", []),
        ("f32", [0]), ("i64", [3, 0, 2]), ("f32", [1]), ("f32", [1, 1]), ("f32", [512]),
        ("f32", [513]), ("f32", [3, 1024]), ("f64", [256]), ("f64", [5, 7, 11]), ("i64", [1000]),
        ("i32", [2048]), ("u8", [2047]), ("u8", [2048]), ("u8", [2049]), ("bool", [5000]),
        ("f32", [2, 3, 4, 5, 6]), ("u8", [1] * 16),
        ("bf16", []), ("f16", []), ("bf16", [0, 4]), ("bf16", [1024]), ("f16", [1025]),
        ("bf16", [3, 700]), ("f16", [7, 11, 13]),
    ]  # fmt: skip
    out = []
    for seed, (dtype, shape) in enumerate(cases):
        n = math.prod(shape) * SIZES[dtype]
        data = bytes(b % 2 for b in pattern(n, seed)) if dtype == "bool" else pattern(n, seed)
        count = len(leaves(data))
        wanted = sorted({i for i in (0, 1, count // 2, count - 1) if 0 <= i < count})
        out.append(
            {
                "dtype": dtype,
                "shape": shape,
                "seed": seed,
                "digest": tensor(dtype, shape, data).hex(),
                "opened_leaves": wanted,
                "opening_sha256": h(opening(dtype, shape, data, wanted)).hex(),
            }
        )
    rule = "canonical byte i is (i * 37 + seed) mod 61, for bool that mod 2"
    return {"clause": "3", "bytes": rule, "cases": out}


def digest_of(*parts: object) -> bytes:
    return h("/".join(map(str, parts)).encode())


def node_vectors() -> dict[str, Any]:
    program = digest_of("program")
    cases: list[dict[str, Any]] = []
    specs = [("aten.add", b"", 2, 1), ("aten.native_layer_norm", b"\x00eps", 3, 3),
             ("tallystick.dropout_mask", b"{}", 1, 1), ("aten.full", b"", 0, 1)]  # fmt: skip
    for index, (op, attributes, n_in, n_out) in enumerate(specs):
        i = [digest_of("in", index, k) for k in range(n_in)]
        o = [digest_of("out", index, k) for k in range(n_out)]
        cases.append(
            {
                "step": 41,
                "index": index,
                "operator": op,
                "attributes": attributes.hex(),
                "inputs": hexes(i),
                "outputs": hexes(o),
                "digest": node(program, 41, index, op, attributes, i, o).hex(),
            }
        )
    digests = [bytes.fromhex(c["digest"]) for c in cases]
    return {
        "clause": "4",
        "program_digest": program.hex(),
        "cases": cases,
        "node_roots": hexes([node_root(digests[:n]) for n in range(5)]),
        "proof_of_2": hexes(path(2, [leaf(d) for d in digests])),
    }


def state_vectors() -> dict[str, Any]:
    names = ["b", "a", "a.b", "a/b", "ab", "é", "zebra", "param.wte.weight"]
    slots = {name: digest_of("slot", name) for name in names}
    order = [name for name, _ in named(slots)]
    losses = [0x40490FDB, 0x00000001, 0x7F800000, 0x7FC00000]
    chain, chains = bytes(32), []
    for step, bits in enumerate(losses):
        chain = loss_chain(chain, step, bits)
        chains.append(chain)
    program, step, index, bits = digest_of("program"), 7, 90, 0x3FC00000
    before, log = chains[1], bytes(32)
    after = loss_chain(before, step, bits)

    def chain_tensor(c: bytes) -> bytes:
        return tensor("u8", [32], c)

    following = {**slots, "chain.loss": chain_tensor(after), "chain.log": chain_tensor(log)}
    attributes = u64(len(order)) + b"".join(text(n) for n in order)
    inputs = [slots[n] for n in order]
    inputs += [tensor("f32", [], u32(bits)), chain_tensor(before), chain_tensor(log)]
    outputs = [chain_tensor(after), chain_tensor(log), state_root(following)]
    commit = node(program, step, index, "tallystick.commit", attributes, inputs, outputs)
    return {
        "clause": "5",
        "slots": {n: d.hex() for n, d in slots.items()},
        "order": order,
        "state_root": state_root(slots).hex(),
        "empty_state_root": state_root({}).hex(),
        "slot_proofs": {n: hexes(path(i, slot_leaves(slots))) for i, n in enumerate(order)},
        "loss_bits": losses,
        "loss_chains": hexes(chains),
        "log_chain": log_chain(bytes(32), 0, b"a log").hex(),
        "commit": {
            "program_digest": program.hex(), "step": step, "index": index, "loss_bits": bits,
            "loss_chain": before.hex(), "log_chain": log.hex(),
            "next_state_root": state_root(following).hex(), "digest": commit.hex(),
        },
    }  # fmt: skip


def run_vectors() -> dict[str, Any]:
    job = digest_of("job")
    checkpoints = [(s, digest_of("state", s)) for s in (0, 20, 40, 60, 80, 97)]
    hashes = checkpoint_leaves(checkpoints)
    return {
        "clause": "6",
        "job_digest": job.hex(),
        "checkpoints": [{"step": s, "state_root": r.hex()} for s, r in checkpoints],
        "run_roots": hexes([run_root(job, checkpoints[:n]) for n in range(1, 7)]),
        "tree_roots": hexes([mth(hashes[:n]) for n in range(1, 7)]),
        "proofs": [hexes(path(i, hashes)) for i in range(6)],
        "consistency_3_6": hexes(proof(3, hashes)),
        "schedules": [
            {"last": last, "interval": k, "steps": sorted({*range(0, last + 1, k), last})}
            for last, k in ((0, 5), (1, 5), (5, 5), (6, 5), (200, 20), (7, 1), (3, 100))
        ],
    }


def job_vectors() -> dict[str, Any]:
    tables: dict[str, Any] = {
        "lr": [(0.001 * k).hex() for k in range(5)],
        "weight_decay": (0.1).hex(),
        "clip": (1.0).hex(),
    }
    base: dict[str, Any] = {
        "format_version": 1, "contract": "ordered/1-draft.1",
        "program_digest": digest_of("program").hex(), "genesis_root": digest_of("genesis").hex(),
        "data_root": digest_of("data").hex(), "record_count": 1000, "batch_size": 8,
        "order_seed": "18446744073709551615", "rng_seed": "7", "steps": 200,
        "checkpoint_interval": 20, "scalars_digest": scalars(tables).hex(),
        "stop_on_non_finite": True,
    }  # fmt: skip
    changed: list[dict[str, Any]] = [
        {}, {"contract": "ordered/1"}, {"steps": 201}, {"order_seed": "0"}, {"rng_seed": "8"},
        {"stop_on_non_finite": False}, {"batch_size": 9}, {"checkpoint_interval": 21},
        {"record_count": 1001}, {"program_digest": digest_of("other").hex()},
        {"genesis_root": digest_of("other").hex()}, {"data_root": digest_of("other").hex()},
        {"scalars_digest": scalars({}).hex()},
    ]  # fmt: skip
    jobs = [{**base, **c} for c in changed]
    return {
        "clause": "7",
        "scalars": tables,
        "jobs": [{"job": j, "digest": job_digest(j).hex()} for j in jobs],
    }


def data_vectors() -> dict[str, Any]:
    fields: list[dict[str, Any]] = [
        {"name": "y", "dtype": "i64", "shape": []},
        {"name": "x", "dtype": "f32", "shape": [2, 3]},
        {"name": "mask", "dtype": "bool", "shape": [5]},
    ]
    records = [bytes(b % 2 for b in pattern(5, r)) + pattern(24 + 8, r) for r in range(11)]
    hashes = [leaf(r) for r in records]
    orders = [
        {
            "seed": str(s),
            "records": n,
            "epoch": e,
            "order": [record_at(s, e, q, n) for q in range(n)],
        }
        for s, n, e in ((0, 1, 0), (0, 2, 0), (1, 3, 5), (2, 16, 1), (3, 17, 0), (4, 50, 2**40))
    ]
    batches = [
        {"seed": str(s), "records": n, "step": t, "batch": b, "indices": batch(s, n, t, b)}
        for s, n, t, b in (
            (7, 10, 0, 4), (7, 10, 2, 4), (7, 3, 1, 8), (2**64 - 1, 10**9, 123456, 6),
            (5, 2**40, 2**39, 3), (1, 65537, 9, 5),
        )
    ]  # fmt: skip
    return {
        "clause": "8",
        "fields": fields,
        "records": hexes(records),
        "record_bytes": "mask, x, y: byte i of mask is ((i * 37 + r) mod 61) mod 2, then "
        "32 bytes (i * 37 + r) mod 61, r being the record",
        "schema_digest": schema(fields).hex(),
        "data_roots": hexes([data_root(fields, records[:n]) for n in (0, 1, 2, 11)]),
        "proof_of_7": hexes(path(7, hashes)),
        "philox": [
            {"counter": c, "key": k, "words": philox(c, k)}
            for c, k in (
                ([0] * 4, [0] * 2),
                ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2),
                ([0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344], [0xA4093822, 0x299F31D0]),
            )
        ],
        "orders": orders,
        "batches": batches,
    }


def signature_vectors() -> dict[str, Any]:
    key = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    public = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    kind = "application/vnd.tallystick.run-commitment.v1+json"
    members = {
        "kind": "tallystick/run-commitment/1", "job_digest": digest_of("job").hex(),
        "run_root": digest_of("run").hex(), "final_step": 97, "checkpoints": 6,
        "final_state_root": digest_of("state", 97).hex(), "signer": public.hex(),
    }  # fmt: skip
    # All ASCII keys and strings, so json.dumps happens to give RFC 8785's bytes.
    payload = json.dumps(members, sort_keys=True, separators=(",", ":")).encode()
    message = b"DSSEv1 %d %s %d %s" % (len(kind), kind.encode(), len(payload), payload)
    key_id = hashlib.sha256(public).hexdigest()
    signature = base64.b64encode(key.sign(message)).decode()
    envelope = {
        "payload": base64.b64encode(payload).decode(),
        "payloadType": kind,
        "signatures": [{"keyid": key_id, "sig": signature}],
    }
    return {
        "clause": "9",
        "private_seed": bytes(range(32)).hex(),
        "public_key": public.hex(),
        "key_id": key_id,
        "members": members,
        "pae_sha256": h(message).hex(),
        "envelope": json.dumps(envelope, sort_keys=True, separators=(",", ":")),
    }


PRIMITIVES = SimpleNamespace(
    h=h, u8=u8, u32=u32, u64=u64, text=text, tag=tag, leaf=leaf, mth=mth, path=path, hexes=hexes,
    scalars=scalars, schema=schema, record_at=record_at, digest_of=digest_of, SIZES=SIZES,
)  # fmt: skip
VECTORS = {
    "merkle": merkle_vectors,
    "tensor": tensor_vectors,
    "node": node_vectors,
    "state": state_vectors,
    "run": run_vectors,
    "job": job_vectors,
    "data": data_vectors,
    "signature": signature_vectors,
    "ed25519": ed25519_vectors,
    "log": lambda: log_vectors(PRIMITIVES),
    "job-2": lambda: job_2_vectors(PRIMITIVES),
    "job-3": lambda: job_3_vectors(PRIMITIVES),
    "records": lambda: record_vectors(PRIMITIVES),
}


def write(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for name, make in VECTORS.items():
        content = json.dumps(make(), indent=1, ensure_ascii=True) + "\n"
        (out / f"{name}.json").write_text(content, encoding="ascii")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    home = Path(__file__).resolve().parents[2]
    parser.add_argument("--out", type=Path, default=home / "vectors" / "commit")
    write(parser.parse_args().out)
