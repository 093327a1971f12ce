"""Program texts, and the flat program of a text with micro-batches (PROGRAM 2, 6)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

from reference.judge.encoding import RefusedError, sha, text, u64
from reference.judge.merkle import Type

Value = tuple[str, Any]  # ("input", name) or ("node", (index, output))
HEADERS = {"tallystick program 1": 1, "tallystick program 2": 2}
FOLD = "tallystick.fold"
MOST_NODES, MOST_INPUTS = 1000000, 1048576  # COMMITMENTS 11.1


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
    section: int = 0
    carried: dict[str, Value] = field(default_factory=dict)

    def of_kind(self, kind: str) -> dict[str, Type]:
        """The inputs of a kind by name, chains of the state left out."""
        found = {n: t for n, (k, t) in self.inputs.items() if k == kind}
        return {n: t for n, t in found.items() if not n.startswith("chain.")}

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
    version = HEADERS.get(lines[0])
    if version is None or lines[-2:] != ["end", ""]:
        raise RefusedError("no program")
    digest = sha(b"tallystick/program/%d\0" % version + data)
    program = Program(lines[1].removeprefix("contract "), digest)
    for line in lines[2:-2]:
        if line.startswith("input "):
            _, kind, name, of = line.split(" ")
            program.inputs[name] = (kind, _type(of))
        elif line.startswith("micro ") and version == 2 and not program.section:
            program.section = int(line.split(" ")[1])
        elif line.startswith("carry ") and program.section:
            _, name, value = line.split(" ")
            program.carried[name] = _value(value)  # type: ignore[assignment]
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
    if (version == 2) != (program.section > 0) or program.section > len(program.nodes):
        raise RefusedError("no section, or one too long")
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


def _levels(values: list[Value], at: int) -> list[list[Value]]:
    """What each lower fold of so many values reads, and last the fold itself (6.7 c). The lower
    ones have the numbers from `at` on."""
    folds = []
    while len(values) > 256:
        rows = [values[i : i + 256] for i in range(0, len(values), 256)]
        values = [("node", (at + len(folds) + i, 0)) for i in range(len(rows))]
        folds += rows
    return [*folds, values]


def expand(text_2: Program, v_count: int) -> Program:
    """The flat program for `v_count` micro-batches (6.7)."""
    n = text_2.section
    if not n:
        if v_count != 1:
            raise RefusedError("a text without a section for micro-batches")
        return text_2
    draws = [node.attrs["draw"] for node in text_2.nodes[:n] if "draw" in node.attrs]
    r = max(draws, default=-1) + 1
    if v_count * r > 2**32:
        raise RefusedError("too many draws")
    flat = replace(text_2, inputs={}, nodes=[], section=0, carried={})
    for name, (kind, of) in text_2.inputs.items():
        names = [f"{name}#{v}" for v in range(v_count)] if kind == "batch" else [name]
        flat.inputs |= dict.fromkeys(names, (kind, of))
    if v_count * n > MOST_NODES or len(flat.inputs) - 2 > MOST_INPUTS:
        raise RefusedError("more nodes or inputs than there may be")
    for v in range(v_count):
        for node in text_2.nodes[:n]:
            operands = [_of_micro_batch(text_2, o, v) for o in node.operands]
            flat.nodes.append(
                replace(node, operands=operands)
                if "draw" not in node.attrs
                else _drawn(node, operands, v * r)
            )
    number = {}

    def after(value: Value | None) -> Value | None:
        """A value as tail and outputs read it (6.4)."""
        if value is None or value[0] == "input":
            return value
        index, output = value[1]
        return "node", (number[index] if index >= n else (v_count - 1) * n + index, output)

    for index, node in enumerate(text_2.nodes[n:], n):
        if node.op == FOLD:
            given = node.operands[0] if len(node.operands) == 1 else None
            if given is None or given[0] == "input" or given[1][0] >= n:
                raise RefusedError("a fold of something else than one value of the section")
            i, output = given[1]
            values: list[Value] = [("node", (v * n + i, output)) for v in range(v_count)]
            *lower, last = _levels(values, len(flat.nodes))
            for row in lower:
                below = {"attrs": {"mean": False}, "attr_bytes": b"mean=false"}
                flat.nodes.append(replace(node, operands=list(row), **below))
            made = replace(node, operands=list(last))
            if lower and node.attrs["mean"]:
                made.attrs = {"count": v_count, "mean": True}
                made.attr_bytes = b"count=%d, mean=true" % v_count
        else:
            made = replace(node, operands=[after(o) for o in node.operands])
        number[index] = len(flat.nodes)
        flat.nodes.append(made)
    if len(flat.nodes) > MOST_NODES:
        raise RefusedError("more nodes than there may be")
    flat.outputs = {name: after(value) for name, value in text_2.outputs.items()}  # type: ignore[misc]
    return flat


def _of_micro_batch(text_2: Program, value: Value | None, v: int) -> Value | None:
    """What an operand of the section is in micro-batch v (6.4, 6.7)."""
    if value is None:
        return None
    n = text_2.section
    if value[0] == "node":
        index, output = value[1]
        return "node", (v * n + index, output)
    if text_2.inputs[value[1]][0] == "batch":
        return "input", f"{value[1]}#{v}"
    if v and value[1] in text_2.carried:
        index, output = text_2.carried[value[1]][1]
        return "node", ((v - 1) * n + index, output)
    return value


def _drawn(node: Node, operands: list[Value | None], more: int) -> Node:
    """A random node whose draw is another one (6.7 a)."""
    draw = node.attrs["draw"] + more
    written = re.sub(rb"(^|, )draw=\d+", rb"\g<1>draw=%d" % draw, node.attr_bytes)
    return replace(node, operands=operands, attrs={**node.attrs, "draw": draw}, attr_bytes=written)
