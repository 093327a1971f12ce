"""vectors/commit/*.json against the package, and against the reference that makes them."""

from __future__ import annotations

import importlib.util
import json
import struct
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import numpy as np
import pytest
from make_job_2_vectors import pattern

from tallystick.commit import checkpoint, data, job, log, merkle, order, records, signing, state
from tallystick.commit import order as philox
from tallystick.commit import state as node
from tallystick.commit import tensor as tensors
from tallystick.commit.encoding import sha256
from tallystick.commit.members import Members
from tallystick.commit.tensor import DTYPES
from tallystick.contracts.replay import entries as blocks
from tallystick.contracts.replay.entries import pack
from tallystick.job.job_file import commitment_members, read_commitment
from tallystick.limits import LIMITS

HERE = Path(__file__).resolve().parent
VECTORS = HERE.parents[1] / "vectors" / "commit"


def load(name: str) -> Any:
    return json.loads((VECTORS / f"{name}.json").read_text())


def unhex(values: list[str]) -> list[bytes]:
    return [bytes.fromhex(v) for v in values]


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("maker", HERE / "make_commit_vectors.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_files_are_what_the_reference_makes(maker: ModuleType, tmp_path: Path) -> None:
    maker.write(tmp_path)
    made = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    assert made == {p.name: p.read_bytes() for p in VECTORS.glob("*.json")}


def test_merkle() -> None:  # COMMITMENTS 2
    v = load("merkle")
    leaves = [merkle.leaf_hash(bytes.fromhex(x)) for x in v["leaf_data"]]
    tree = merkle.Tree(leaves)
    roots = unhex(v["roots"])
    assert [tree.root(n) for n in range(9)] == roots
    # Published: certificate-transparency's reference tests.
    assert roots[0].hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert roots[1].hex() == "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"
    assert roots[3].hex() == "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77"
    assert roots[8].hex() == "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328"
    for case in v["inclusion"]:
        i, n, proof = case["index"], case["size"], unhex(case["proof"])
        assert tree.inclusion(i, n) == proof
        assert merkle.verify_inclusion(leaves[i], i, n, proof, roots[n])
    for case in v["consistency"]:
        m, n, proof = case["old"], case["new"], unhex(case["proof"])
        assert tree.consistency(m, n) == proof
        assert merkle.verify_consistency(m, n, roots[m], roots[n], proof)
    for case in v["multi"]:
        n, wanted, proof = case["size"], case["leaves"], unhex(case["proof"])
        assert merkle.Tree(leaves[:n]).multi(wanted) == proof
        assert merkle.verify_multi({i: leaves[i] for i in wanted}, n, proof, roots[n])
        assert merkle.multi_proof_length(wanted, n) == len(proof)


def test_tensor(maker: ModuleType) -> None:  # COMMITMENTS 3
    for case in load("tensor")["cases"]:
        dtype = tensors.DTYPES[case["dtype"]]
        nbytes = int(np.prod(case["shape"], dtype=np.int64)) * dtype.itemsize
        raw = maker.pattern(nbytes, case["seed"])
        if case["dtype"] == "bool":
            raw = bytes(b % 2 for b in raw)
        array = np.frombuffer(raw, dtype=dtype).reshape(case["shape"])
        digest = tensors.tensor_digest(array)
        assert digest.hex() == case["digest"], case
        ranges = []
        for i in case["opened_leaves"]:
            first = i * tensors.LEAF_BYTES // dtype.itemsize
            ranges.append((first, first + 1))
        opening = tensors.open_tensor(array, ranges)
        assert sha256(opening.to_bytes()).hex() == case["opening_sha256"], case
        tensors.TensorOpening.from_bytes(opening.to_bytes()).verify(digest)


def test_node() -> None:  # COMMITMENTS 4
    v = load("node")
    digests = []
    for case in v["cases"]:
        digest = node.node_digest(
            bytes.fromhex(v["program_digest"]),
            case["step"],
            case["index"],
            case["operator"],
            bytes.fromhex(case["attributes"]),
            unhex(case["inputs"]),
            unhex(case["outputs"]),
        )
        assert digest.hex() == case["digest"]
        digests.append(digest)
    roots = unhex(v["node_roots"])
    assert [node.node_root(digests[:n]) for n in range(5)] == roots
    assert node.prove_node(digests, 2) == unhex(v["proof_of_2"])
    assert node.verify_node(digests[2], 2, 4, unhex(v["proof_of_2"]), roots[4])


def test_state() -> None:  # COMMITMENTS 5
    v = load("state")
    slots = {name: bytes.fromhex(d) for name, d in v["slots"].items()}
    assert state.slot_order(list(slots)) == v["order"]
    root = state.state_root(slots)
    assert root.hex() == v["state_root"]
    assert state.state_root({}).hex() == v["empty_state_root"]
    for i, name in enumerate(v["order"]):
        proof = state.prove_slot(slots, name)
        assert list(proof.path) == unhex(v["slot_proofs"][name])
        assert proof.proves(root, name, i, len(slots))
    chain = state.CHAIN_START
    for step, bits in enumerate(v["loss_bits"]):
        chain = state.extend_loss_chain(chain, step, float_of(bits))
        assert chain.hex() == v["loss_chains"][step]
    assert state.extend_log_chain(bytes(32), 0, sha256(b"a log")).hex() == v["log_chain"]
    c = v["commit"]
    commit = state.CommitNode(
        slots,
        c["step"],
        float_of(c["loss_bits"]),
        bytes.fromhex(c["loss_chain"]),
        bytes.fromhex(c["log_chain"]),
    )
    assert state.state_root(commit.next_state()).hex() == c["next_state_root"]
    assert commit.digest(bytes.fromhex(c["program_digest"]), c["index"]).hex() == c["digest"]


def float_of(bits: int) -> float:
    value: float = struct.unpack("<f", struct.pack("<I", bits))[0]
    return value


def test_run() -> None:  # COMMITMENTS 6
    v = load("run")
    job_digest = bytes.fromhex(v["job_digest"])
    points = [(c["step"], bytes.fromhex(c["state_root"])) for c in v["checkpoints"]]
    roots = unhex(v["run_roots"])
    assert [checkpoint.run_root(job_digest, points[:n]) for n in range(1, 7)] == roots
    for i, (step, _) in enumerate(points):
        proof = checkpoint.prove_checkpoint(points, i)
        assert list(proof.path) == unhex(v["proofs"][i])
        assert proof.proves(job_digest, roots[-1], step, i, 6)
    grown = checkpoint.run_tree(points).consistency(3)
    assert grown == unhex(v["consistency_3_6"])
    tree_roots = unhex(v["tree_roots"])
    assert merkle.verify_consistency(3, 6, tree_roots[2], tree_roots[5], grown)
    for case in v["schedules"]:
        steps = checkpoint.checkpoint_steps(case["last"], case["interval"])
        assert steps == case["steps"]
        assert checkpoint.checkpoint_count(case["last"], case["interval"]) == len(steps)


def test_job() -> None:  # COMMITMENTS 7
    v = load("job")
    tables: dict[str, job.ScalarTable] = {
        name: [float.fromhex(x) for x in t] if isinstance(t, list) else float.fromhex(t)
        for name, t in v["scalars"].items()
    }
    assert job.scalars_digest(tables).hex() == v["jobs"][0]["job"]["scalars_digest"]
    seen = set()
    for case in v["jobs"]:
        fields = dict(case["job"])
        for name in ("program_digest", "genesis_root", "data_root", "scalars_digest"):
            fields[name] = bytes.fromhex(fields[name])
        for name in ("order_seed", "rng_seed"):
            fields[name] = int(fields[name])
        assert job.JobCommitment(**fields).digest().hex() == case["digest"]
        seen.add(case["digest"])
    assert len(seen) == len(v["jobs"])


def test_data() -> None:  # COMMITMENTS 8
    v = load("data")
    schema = data.DataSchema(
        tuple(data.Field(f["name"], f["dtype"], tuple(f["shape"])) for f in v["fields"])
    )
    assert schema.digest().hex() == v["schema_digest"]
    records = unhex(v["records"])
    values = [data.parse_record(schema, r) for r in records]
    assert [data.record_bytes(schema, x) for x in values] == records
    names = [f.name for f in schema.fields]
    columns = {name: np.stack([x[name] for x in values]) for name in names}
    for n, root in zip((0, 1, 2, 11), v["data_roots"], strict=True):
        assert data.data_root(schema, {k: c[:n] for k, c in columns.items()}).hex() == root
    hashes = data.record_leaf_hashes(schema, columns)
    proof = data.prove_record(records[7], hashes, 7)
    assert list(proof.path) == unhex(v["proof_of_7"])
    proof.verify(schema, 11, bytes.fromhex(v["data_roots"][-1]), 7)
    for case in v["philox"]:
        words = philox.philox4x32(tuple(case["counter"]), tuple(case["key"]))
        assert list(words) == case["words"]
    # Published: the known answers of Random123 1.14.
    assert v["philox"][0]["words"] == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert v["philox"][2]["words"] == [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]
    for case in v["orders"]:
        n, seed = case["records"], int(case["seed"])
        found = order.permute_array(seed, case["epoch"], np.arange(n), n)
        assert found.tolist() == case["order"]
        assert sorted(case["order"]) == list(range(n))
    for case in v["batches"]:
        found = data.batch_indices(int(case["seed"]), case["records"], case["step"], case["batch"])
        assert found.tolist() == case["indices"]


def _commitment_2(members: dict[str, Any]) -> job.JobCommitment2:
    def fail(why: str) -> NoReturn:
        raise AssertionError(why)

    version = members["format_version"]
    return read_commitment(Members(members, fail), members["contract"], version)


@pytest.mark.parametrize("name", ["job-2", "job-3"])
def test_later_jobs(name: str) -> None:  # COMMITMENTS 7.6, 7.7
    v = load(name)
    for case in v["jobs"]:
        commitment = _commitment_2(case["job"])
        assert commitment.digest().hex() == case["digest"]
        assert commitment_members(commitment) == case["job"]
    assert len({case["digest"] for case in v["jobs"]}) == len(v["jobs"]) > 20


@pytest.mark.parametrize("name", ["job-2", "job-3"])
def test_timetables(name: str) -> None:  # COMMITMENTS 7.6.3 to 7.6.6, 7.7.3 to 7.7.6
    for case in load(name)["timetables"]:
        commitment = _commitment_2(case["job"])
        t = commitment.timetable
        numbers = range(len(t.programs))
        assert [t.rows(n, commitment.steps) for n in numbers] == case["table_rows"]
        for row in case["rows"]:
            at = t.at(row["step"])
            assert (at.program, at.number) == (row["program"], row["number"])
            assert t.row(at) == row["row"]
            key = commitment.random_key(row["step"])
            assert [str(key[0]), key[1]] == row["key"]
            if row["micro_batches"] is None:
                assert t.data_of(at.program) is None
                continue
            held = [r for part in row["micro_batches"] for r in part]
            assert len(row["micro_batches"]) == t.programs[at.program].micro_batches
            assert t.indices(at).tolist() == held
            assert [t.record(at, i) for i in range(len(held))] == held


def test_records() -> None:  # COMMITMENTS 8.6
    for case in load("records")["cases"]:
        fields = tuple(data.Field(f["name"], f["dtype"], tuple(f["shape"])) for f in case["fields"])
        schema = data.DataSchema(fields, LIMITS.long_record_bytes)
        columns = {
            f.name: np.stack([
                np.frombuffer(pattern(f.header.nbytes, r, k), DTYPES[f.dtype]).reshape(f.shape)
                for r in range(3)
            ])
            for k, f in enumerate(schema.fields)
        }  # fmt: skip
        count = records.part_count(schema)
        lengths = [records.part_bytes(schema, i) for i in range(count)]
        assert lengths == case["part_bytes"]
        leaves = b"".join(unhex(case["record_leaves"]))
        assert records.leaf_hashes(schema, columns) == leaves
        roots = unhex(case["data_roots"])
        for n, root in enumerate(roots, 1):
            assert records.records_root(schema, {k: c[:n] for k, c in columns.items()}) == root
        tree = merkle.Tree(leaves)
        values = {name: column[2] for name, column in columns.items()}
        for shown in case["proofs_of_record_2"]:
            proof = records.prove_part(schema, values, tree, 2, shown["part"])
            assert merkle.leaf_hash(proof.data).hex() == case["part_hashes"][shown["part"]]
            assert proof.inner == tuple(unhex(shown["inner"]))
            assert proof.path == tuple(unhex(shown["path"]))


def test_signature() -> None:  # COMMITMENTS 9
    v = load("signature")
    key = signing.PrivateKey(bytes.fromhex(v["private_seed"]))
    assert key.public.raw.hex() == v["public_key"]
    assert key.public.key_id == v["key_id"]
    m = v["members"]
    commitment = signing.RunCommitment(
        bytes.fromhex(m["job_digest"]),
        bytes.fromhex(m["run_root"]),
        m["final_step"],
        bytes.fromhex(m["final_state_root"]),
        m["checkpoints"],
        key.public,
    )
    message = signing.pae(signing.RUN_COMMITMENT_TYPE, commitment.payload())
    assert sha256(message).hex() == v["pae_sha256"]
    envelope = signing.sign_run(key, commitment)
    assert envelope.to_bytes() == v["envelope"].encode()
    assert signing.verify_run(signing.Envelope.from_bytes(envelope.to_bytes()))[0] == commitment


def test_log() -> None:  # COMMITMENTS 10
    v = load("log")
    made = {}
    for case in v["bounded"]:
        section = log.Section(case["node"], case["output"], case["elements"], log.BOUNDED)
        pairs = np.array(case["entries"], dtype=np.int64).reshape(-1, 2)
        entries = blocks.Entries(pairs[:, 0], pairs[:, 1].astype(np.uint8))
        found = blocks.encode(section, entries)
        cut = [found.block(i) for i in range(section.blocks)]
        assert sha256(b"".join(cut)).hex() == case["blocks_sha256"]
        assert section.digest(found.root()).hex() == case["digest"]
        assert merkle.root(log.block_hashes(cut)) == found.root()
        made[case["digest"]] = section.digest(found.root())
    for case in v["published"]:
        codes = np.frombuffer(case["entries"].encode(), np.uint8) - ord("0")
        section = log.Section(case["node"], case["output"], len(codes), log.PUBLISHED)
        data = pack(codes)
        assert sha256(data).hex() == case["bytes_sha256"]
        assert section.digest(log.packed_root(data)).hex() == case["digest"]
        made[case["digest"]] = section.digest(log.packed_root(data))
    for case in v["logs"]:
        digests = [made[d] for d in case["sections"]]
        assert log.log_digest(case["step"], digests).hex() == case["digest"]
