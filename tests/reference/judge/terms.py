"""The job's terms: programs, scalars, order of the data (PROGRAM, COMMITMENTS 7, 8)."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

from reference.judge.encoding import RefusedError, sha, tag, text, u64
from reference.judge.manifest import job_of, read_manifest
from reference.judge.manifest_3 import batch_of, batches_before
from reference.judge.merkle import Type, digest_of_bytes, header, size
from reference.judge.programs import Node as Node
from reference.judge.programs import Program as Program
from reference.judge.programs import expand, read_program
from reference.rand import philox

MASK = 2**32 - 1
PART, LONG = 65536, 2**20  # COMMITMENTS 8.6


def _number(value: Any) -> float:
    return float.fromhex(value) if "x" in value else float(value)


class Records:
    """A data set: what a referee knows of it (7.6.1, 8)."""

    def __init__(self, data: dict[str, Any], schema: list[tuple[str, Type]]) -> None:
        self.root, self.count, self.seed = data["root"], data["record_count"], data["order_seed"]
        self.sequential = data.get("order") == "sequential"
        self.schema = schema
        self.size = sum(size(t) for _, t in schema)
        self.long = self.size > LONG

    def schema_digest(self) -> bytes:
        fields = b"".join(text(n) + header(t) for n, t in self.schema)
        return sha(tag("schema/1") + u64(len(self.schema)) + fields)

    def cut(self) -> list[tuple[str, int, int]]:
        """The parts of a long record: field, first byte in it, bytes (8.6.2)."""
        return [
            (name, at, min(PART, size(kind) - at))
            for name, kind in self.schema
            for at in range(0, size(kind), PART)
        ]

    def place(self, name: str, byte: int) -> tuple[int, int, int]:
        """(part, its bytes, where in it) of a byte of a field (8.1, 8.6)."""
        if self.long:
            for number, (field, at, length) in enumerate(self.cut()):
                if field == name and at <= byte < at + length:
                    return number, length, byte - at
            raise RefusedError("no such byte")
        names = [n for n, _ in self.schema]
        before = self.schema[: names.index(name)]
        return 0, self.size, sum(size(t) for _, t in before) + byte

    def data_root(self, tree: bytes) -> bytes:
        """8.3, 8.6.4."""
        kind = "data/2" if self.long else "data/1"
        return sha(tag(kind) + self.schema_digest() + u64(self.count) + tree)

    def ordered(self, p: int) -> int:
        """π(e, q) of place p of the order (7.7.4, 8.4)."""
        epoch, x = p // self.count, p % self.count
        if self.sequential:
            return x
        key = sha(tag("order/1") + u64(self.seed))[:8]
        k = struct.unpack("<II", key)
        a = math.isqrt(self.count)
        a += a * a < self.count
        b = -(-self.count // a)
        while True:
            left, right = x // b, x % b
            for r in range(16):
                v = left if r % 2 else right
                w = philox((v, r, epoch & MASK, epoch >> 32), (k[0], k[1]))
                f = w[0] + (w[1] << 32)
                if r % 2:
                    right = (right + f) % b
                else:
                    left = (left + f) % a
            x = left * b + right
            if x < self.count:
                return x


class Terms:
    """What the referee holds of a job (PROTOCOL 1.1)."""

    def __init__(self, job_json: bytes, program_texts: bytes | Sequence[bytes]) -> None:
        manifest = read_manifest(job_json)
        job = job_of(manifest)
        self.contract: str = job["contract"]
        self.genesis: bytes = job["genesis_root"]
        self.rng_seed: int = job["rng_seed"]
        self.steps, self.interval = job["steps"], job["checkpoint_interval"]
        self.stops: bool = job["stop_on_non_finite"]
        self.slot_stops: bool = job["stop_on_slot"]
        self.format: int = job["format_version"]
        self.entries: list[dict[str, Any]] = job["programs"]
        self.streams: list[dict[str, Any]] = job["streams"]
        self.turns = [(t["program"], t["steps"]) for t in job["schedule"]]
        self.before = batches_before(job)
        self.scalars = manifest["scalars"]
        sets = zip(job["data"], job["schemas"], strict=True)
        self.data = [Records(data, schema) for data, schema in sets]
        texts = [program_texts] if isinstance(program_texts, bytes) else list(program_texts)
        if len(texts) != len(self.entries):
            raise RefusedError("another number of programs")
        self.texts = [read_program(t) for t in texts]
        for program, entry in zip(self.texts, self.entries, strict=True):
            if program.digest != entry["digest"]:
                raise RefusedError("another program")
        self.digest = bytes.fromhex(manifest["job_digest"])
        for number in range(len(self.texts)):
            self.fit(number)
        self.fit_together()
        pairs = zip(self.texts, self.entries, strict=True)
        self.programs = [expand(t, e["micro_batches"]) for t, e in pairs]

    def fit(self, number: int) -> None:
        """COMMITMENTS 7.4 and 7.6.9, of one program."""
        program, entry = self.texts[number], self.entries[number]
        if program.contract != self.contract:
            raise RefusedError("another contract")
        if entry["micro_batches"] > 1 and not program.section:
            raise RefusedError("micro-batches without a section")
        reads = self.stream_of(number)["data"]
        schema = [] if reads is None else self.data[reads].schema
        rows = entry["batch_size"] // entry["micro_batches"]
        batch = {f"batch.{n}": (dtype, (rows, *shape)) for n, (dtype, shape) in schema}
        if program.of_kind("batch") != batch:
            raise RefusedError("another batch")
        if program.of_kind("state") != self.texts[0].of_kind("state"):
            raise RefusedError("other slots")
        for name in program.of_kind("scalar"):
            table = self.scalars.get(name.removeprefix("scalar."))
            if isinstance(table, list) and len(table) != self.rows(number):
                raise RefusedError("a table that is not as long as the steps")

    def fit_together(self) -> None:
        """7.4, 7.6.7, 7.6.9, of all of them."""
        read = {n.removeprefix("scalar.") for p in self.texts for n in p.of_kind("scalar")}
        if read != set(self.scalars):
            raise RefusedError("other scalars")
        if "replay/" in self.contract and len(self.texts) > 1:
            raise RefusedError("several programs under a contract with logs")
        stop = self.texts[0].of_kind("state").get("control.stop")
        if self.slot_stops and stop != ("bool", ()):
            raise RefusedError("no slot that stops")

    def stream_of(self, number: int) -> dict[str, Any]:
        return self.streams[self.entries[number]["stream"]]

    def rows(self, number: int) -> int:
        """The rows of a table that a program reads (7.6.5, 7.7.6)."""
        stream = self.entries[number]["stream"]
        own = [self.entries[program]["stream"] == stream for program, _ in self.turns]
        turns = list(zip(own, self.before, (steps for _, steps in self.turns), strict=True))
        if self.streams[stream]["by_pass"]:
            return max(before + steps for mine, before, steps in turns if mine)
        cycle = sum(steps for _, steps in self.turns)
        left, rows = self.steps % cycle, 0
        for mine, _, steps in turns:
            rows += self.steps // cycle * steps + min(left, steps) if mine else 0
            left -= min(left, steps)
        return rows

    def at(self, step: int) -> tuple[int, int]:
        """(program, batch number) of a step (7.6.3, 7.7.3)."""
        cycle = sum(steps for _, steps in self.turns)
        whole, left = divmod(step, cycle)
        turn = 0
        while left >= self.turns[turn][1]:
            left -= self.turns[turn][1]
            turn += 1
        number = self.turns[turn][0]
        stream, own = self.stream_of(number), self.entries[number]["stream"]
        j = self.before[turn] + left
        if stream["by_pass"]:
            return number, j
        in_cycle = sum(n for program, n in self.turns if self.entries[program]["stream"] == own)
        return number, stream["first"] + whole * in_cycle + j

    def program_at(self, step: int) -> Program:
        return self.programs[self.at(step)[0]]

    def checkpoints(self, final: int) -> int:
        """How many there are in a run that ends at step `final` (COMMITMENTS 6.2)."""
        return final // self.interval + 1 + (final % self.interval != 0)

    def derived(self, name: str, step: int) -> bytes:
        """The digest of a scalar or of the random key (PROTOCOL 5.6.4)."""
        number, j = self.at(step)
        if name == "rng":
            seed = self.rng_seed
            if self.entries[number]["stream"]:
                name = self.stream_of(number)["name"]
                word = tag("program-seed/1") + u64(seed) + text(name)
                seed = struct.unpack("<Q", sha(word)[:8])[0] % 2**63
            return digest_of_bytes(("i64", (2,)), struct.pack("<qq", seed, j))
        value = self.scalars[name.removeprefix("scalar.")]
        value = value[j - self.stream_of(number)["first"]] if isinstance(value, list) else value
        return digest_of_bytes(("f64", ()), struct.pack("<d", _number(value)))

    def record_at(self, step: int, place: int) -> int:
        """Which record the batch of a step has at a place (7.6.4, 7.7.4)."""
        number, j = self.at(step)
        stream = self.stream_of(number)
        records = self.data[stream["data"]]
        p = batch_of(stream, records.count, j)[0] + place
        return p if stream["by_pass"] else records.ordered(p)
