"""The job's terms: program text, scalars, order of the data (PROGRAM, COMMITMENTS 7, 8)."""

from __future__ import annotations

import math
import re
import struct
from dataclasses import dataclass, field
from typing import Any

from reference.judge.encoding import RefusedError, sha, tag, text, u64
from reference.judge.manifest import read_manifest, schema_of
from reference.judge.merkle import Type, digest_of_bytes, size
from reference.rand import philox

MASK = 2**32 - 1
Value = tuple[str, Any]  # ("input", name) or ("node", (index, output))


@dataclass
class Node:
    op: str
    operands: list[Value | None]
    attrs: dict[str, Any]
    attr_bytes: bytes
    types: list[Type]


@dataclass
class Program:
    contract: str
    digest: bytes
    inputs: dict[str, tuple[str, Type]] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    outputs: dict[str, Value] = field(default_factory=dict)

    def slots(self) -> list[str]:
        """The state's slots, chains included, in the order of COMMITMENTS 1.4."""
        names = {n for n, (kind, _) in self.inputs.items() if kind == "state"}
        return sorted(names | {"chain.log", "chain.loss"}, key=str.encode)

    def type_of(self, value: Value) -> Type:
        if value[0] == "input":
            return self.inputs[value[1]][1]
        index, output = value[1]
        return self.nodes[index].types[output]


def _type(s: str) -> Type:
    dtype, _, rest = s.partition("[")
    return dtype, tuple(int(n) for n in rest[:-1].split(",") if n)


def _types(s: str) -> list[Type]:
    return [] if s == "none" else [_type(t) for t in s.split(", ")]


def _attr(s: str) -> Any:
    if s.startswith('"'):
        return s[1:-1]
    if s.startswith("["):
        return [_attr(t) for t in s[1:-1].split(",") if t]
    if s in ("true", "false"):
        return s == "true"
    if re.fullmatch(r"-?[0-9]+", s):
        if str(int(s)) != s:
            raise RefusedError(f"no integer: {s}")
        return int(s)
    return float.fromhex(s)


def _value(s: str) -> Value | None:
    if s == "none":
        return None
    if s.startswith("@"):
        return "input", s[1:]
    index, _, output = s[1:].partition(".")
    return "node", (int(index), int(output or 0))


def read_program(data: bytes) -> Program:
    """The program of a text (PROGRAM 2.1). Its types are those the text states."""
    lines = data.decode("ascii").split("\n")
    if lines[0] != "tallystick program 1" or lines[-2:] != ["end", ""]:
        raise RefusedError("no program")
    digest = sha(b"tallystick/program/1\0" + data)
    program = Program(lines[1].removeprefix("contract "), digest)
    for line in lines[2:-2]:
        if line.startswith("input "):
            _, kind, name, of = line.split(" ")
            program.inputs[name] = (kind, _type(of))
        elif line.startswith("output "):
            _, name, value = line.split(" ")
            program.outputs[name] = _value(value)  # type: ignore[assignment]
        else:
            m = re.fullmatch(r"%\d+ = ([\w.]+)\((.*?)\)(?:\{(.*)\})? : (.*)", line)
            if m is None:
                raise RefusedError(f"no node: {line}")
            op, operands, attrs, types = m.groups()
            pairs = [a.partition("=") for a in attrs.split(", ")] if attrs else []
            program.nodes.append(
                Node(
                    op,
                    [_value(o) for o in operands.split(", ")] if operands else [],
                    {k: _attr(v) for k, _, v in pairs},
                    (attrs or "").encode(),
                    _types(types),
                )
            )
    commit = program.nodes[-1]
    if commit.op != "tallystick.commit":
        raise RefusedError("a program without a commit node")
    loss = program.outputs.get("loss")
    if loss is None or program.type_of(loss) != ("f32", ()):
        raise RefusedError("a program without a loss (COMMITMENTS 7.4)")
    names = [s for s in program.slots() if not s.startswith("chain.")]
    commit.attr_bytes = u64(len(names)) + b"".join(text(n) for n in names)
    chain: Type = ("u8", (32,))
    for name in ("chain.loss", "chain.log"):
        program.inputs[name] = ("state", chain)
    commit.operands += [loss, ("input", "chain.loss"), ("input", "chain.log")]
    return program


def _number(value: Any) -> float:
    return float.fromhex(value) if "x" in value else float(value)


class Terms:
    """What the referee holds of a job (PROTOCOL 1.1)."""

    def __init__(self, job_json: bytes, program_text: bytes) -> None:
        manifest = read_manifest(job_json)
        c = manifest["commitment"]
        self.program = read_program(program_text)
        self.contract: str = c["contract"]
        self.genesis = bytes.fromhex(c["genesis_root"])
        self.data_root = bytes.fromhex(c["data_root"])
        self.records, self.batch = c["record_count"], c["batch_size"]
        self.order_seed, self.rng_seed = int(c["order_seed"]), int(c["rng_seed"])
        self.steps, self.interval = c["steps"], c["checkpoint_interval"]
        self.stops: bool = c["stop_on_non_finite"]
        self.scalars = manifest["scalars"]
        self.schema = schema_of(manifest["schema"])
        if self.program.digest.hex() != c["program_digest"]:
            raise RefusedError("another program")
        self.digest = bytes.fromhex(manifest["job_digest"])
        self.fit()

    def fit(self) -> None:
        """COMMITMENTS 7.4."""
        program = self.program
        of = {
            kind: {n.partition(".")[2]: t for n, (k, t) in program.inputs.items() if k == kind}
            for kind in ("batch", "scalar")
        }
        batch = {n: (dtype, (self.batch, *shape)) for n, (dtype, shape) in self.schema}
        tables = [v for v in self.scalars.values() if isinstance(v, list)]
        if program.contract != self.contract:
            raise RefusedError("another contract")
        if of["batch"] != batch or set(of["scalar"]) != set(self.scalars):
            raise RefusedError("another batch, or other scalars")
        if any(len(t) != self.steps for t in tables):
            raise RefusedError("a table that is not as long as the steps")

    def checkpoints(self, final: int) -> int:
        """How many there are in a run that ends at step `final` (COMMITMENTS 6.2)."""
        return final // self.interval + 1 + (final % self.interval != 0)

    def derived(self, name: str, step: int) -> bytes:
        """The digest of a scalar or of the random key (PROTOCOL 5.6.4)."""
        if name == "rng":
            return digest_of_bytes(("i64", (2,)), struct.pack("<qq", self.rng_seed, step))
        value = self.scalars[name.removeprefix("scalar.")]
        value = value[step] if isinstance(value, list) else value
        return digest_of_bytes(("f64", ()), struct.pack("<d", _number(value)))

    def schema_digest(self) -> bytes:
        from reference.judge.merkle import header

        fields = b"".join(text(n) + header(t) for n, t in self.schema)
        return sha(tag("schema/1") + u64(len(self.schema)) + fields)

    def field_at(self, name: str) -> tuple[int, Type]:
        """Where a field begins in a record, and its type (8.1)."""
        at = 0
        for field_name, kind in self.schema:
            if field_name == name:
                return at, kind
            at += size(kind)
        raise RefusedError("no such field")

    def record_at(self, step: int, place: int) -> int:
        """Which record the batch of a step has at a place (8.4)."""
        p = step * self.batch + place
        epoch, x = p // self.records, p % self.records
        key = sha(tag("order/1") + u64(self.order_seed))[:8]
        k = struct.unpack("<II", key)
        a = math.isqrt(self.records)
        a += a * a < self.records
        b = -(-self.records // a)
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
            if x < self.records:
                return x
