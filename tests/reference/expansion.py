"""The expansion of a program text with micro-batches, from PROGRAM 6.7 alone: text to text."""

from __future__ import annotations

import re

WIDTH, DRAWS = 256, ("dropout_mask", "uniform", "normal")
_NODE = re.compile(r"%\d+ = ([\w.]+)\((.*?)\)(?:\{(.*)\})? : (.*)")


def expanded(text: str, parts: int) -> str:
    """The flat list of a text 2 for `parts` micro-batches, as PROGRAM 2 writes a program. Its names
    with `#` are in no text, so it is not one."""
    lines = text.split("\n")
    inputs = [line.split(" ") for line in lines if line.startswith("input ")]
    (size,) = [int(line.split(" ")[1]) for line in lines if line.startswith("micro ")]
    carried = dict(line.split(" ")[1:] for line in lines if line.startswith("carry "))
    nodes = [m.groups() for m in map(_NODE.fullmatch, lines) if m is not None]
    outputs = [line.split(" ")[1:] for line in lines if line.startswith("output ")]
    places: dict[int, int] = {}  # of the tail's nodes
    made: list[str] = []

    def value(operand: str, part: int) -> str:
        """A value as micro-batch `part` reads it, or, with the last one, tail and outputs."""
        if operand[0] != "%":
            return operand
        number, _, out = operand[1:].partition(".")
        at = places[int(number)] if int(number) >= size else part * size + int(number)
        return f"%{at}" + (f".{out}" if out else "")

    def read(operand: str, part: int) -> str:
        """An operand of a section's node."""
        name = operand[1:]
        if operand.startswith("@batch."):
            return f"{operand}#{part}"
        if operand[0] == "@" and name in carried and part:
            return value(carried[name], part - 1)
        return value(operand, part)

    def write(op: str, operands: list[str], attrs: str, types: str) -> str:
        shown = f"{{{attrs}}}" if attrs else ""
        made.append(f"%{len(made)} = {op}({', '.join(operands)}){shown} : {types}")
        return f"%{len(made) - 1}"

    def draw(op: str, attrs: str | None) -> int:
        known = op.startswith("tallystick.") and op.partition(".")[2] in DRAWS
        found = re.search(r"(?:^|, )draw=(\d+)", attrs or "") if known else None
        return -1 if found is None else int(found[1])

    draws = 1 + max(draw(op, attrs) for op, _, attrs, _ in nodes[:size])
    for part in range(parts):
        for op, given, attrs, types in nodes[:size]:
            own = draw(op, attrs)
            if own >= 0:
                attrs = attrs.replace(f"draw={own}", f"draw={part * draws + own}")
            operands = given.split(", ") if given else []
            write(op, [read(o, part) for o in operands], attrs or "", types)
    for number, (op, given, attrs, types) in enumerate(nodes[size:], start=size):
        operands = given.split(", ") if given else []
        if op == "tallystick.fold":
            values = [value(operands[0], part) for part in range(parts)]
            has_levels = len(values) > WIDTH
            while len(values) > WIDTH:
                blocks = [values[i : i + WIDTH] for i in range(0, len(values), WIDTH)]
                values = [write(op, block, "mean=false", types) for block in blocks]
            if has_levels and attrs == "mean=true":
                attrs = f"count={parts}, mean=true"
            operands = values
        else:
            operands = [value(o, parts - 1) for o in operands]
        places[number] = int(write(op, operands, attrs or "", types)[1:])
    batch = [i for i in inputs if i[1] == "batch"]
    others = [i for i in inputs if i[1] != "batch"]
    others += [["input", "batch", f"{i[2]}#{v}", i[3]] for i in batch for v in range(parts)]
    head = ["tallystick program 1", lines[1]]
    head += [" ".join(i) for i in sorted(others, key=lambda i: i[2].encode())]
    tail = [f"output {name} {value(of, parts - 1)}" for name, of in outputs]
    return "\n".join([*head, *made, *tail, "end", ""])
