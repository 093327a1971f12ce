"""Groups of vectors/language/quantities.json: small graphs of parts (OPENING 2).

The expected bits are computed here from the operands, with the exact primitives of
tests/reference/language.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from language_graph import MOVED, Graph, Shape, coordinates, place, tensor
from language_values import drawn, text
from reference.language import integer, of_float, result, signed
from reference.rand import philox

REFUSED = "refused"
NAN, OTHER_NAN, INF, NINF, NEG_ZERO = 0x7FC00000, 0xFF812345, 0x7F800000, 0xFF800000, 1 << 31


@dataclass
class Parts:
    """Parts over one graph."""

    graph: Graph = field(default_factory=Graph)
    parts: list[dict[str, Any]] = field(default_factory=list)

    def part(self, kind: str, name: str, dtype: str, **members: Any) -> int:
        """The number of a part."""
        self.parts.append({"kind": kind, "name": name, "dtype": dtype, **members})
        return len(self.parts) - 1

    def value(self, part: int) -> int:
        """The node that is a part's value."""
        held = self.parts[part]
        return self.graph.node("part", held["dtype"], name=held["name"], part=part)

    def group(
        self, what: str, operands: list[str], attributes: dict[str, str],
        calls: list[dict[str, Any]], outputs: Sequence[int] | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """The last part is the output, if no others are named."""
        ends = [len(self.parts) - 1] if outputs is None else [*outputs]
        return {
            "what": what,
            "operands": operands,
            "attributes": {name: {"kind": kind} for name, kind in attributes.items()},
            "parts": {"nodes": self.graph.nodes, "parts": self.parts, "outputs": ends},
            "calls": calls,
        }


def call(
    inputs: list[Any], dtype: str, shape: Shape, gives: list[int | str], **attrs: Any
) -> dict[str, Any]:
    """One call of one output; `gives` are bits, or the word for a refusal."""
    assert len(gives) == math.prod(shape)
    told = [x if isinstance(x, str) else text(x, dtype) for x in gives]
    return {"attributes": attrs, "inputs": inputs, "outputs": [[dtype, list(shape)]],
            "gives": [told]}  # fmt: skip


def vector(dtype: str, bits: Sequence[int]) -> list[Any]:
    return tensor(dtype, (len(bits),), bits)


def f32(*numbers: float) -> list[int]:
    """Their bits."""
    return [of_float(x, "f32") for x in numbers]


def added(dtype: str, a: int, b: int) -> int:
    return result("add", dtype, (dtype, dtype), (a, b))


def summed(dtype: str, x: Sequence[int]) -> int:
    """SUM (3.1) of bits; on i64 the sum, modulo 2^64 (3.4)."""
    if dtype == "i64":
        return integer(sum(signed(v, dtype) for v in x), dtype)
    if not x:
        return 0
    blocks = []
    for first in range(0, len(x), 256):
        lanes = [of_float(-0.0, dtype)] * 32
        for i, value in enumerate(x[first : first + 256]):
            lanes[i % 32] = added(dtype, lanes[i % 32], value)
        for s in (16, 8, 4, 2, 1):
            for lane in range(s):
                lanes[lane] = added(dtype, lanes[lane], lanes[lane + s])
        blocks.append(lanes[0])
    return blocks[0] if len(blocks) == 1 else summed(dtype, blocks)


def mixed(what: str, count: int) -> list[int]:
    """Numbers of f32 between 2^-12 and 2^12, of which every order of addition has another sum."""
    numbers = drawn(what)
    return [(x & 0x807FFFFF) | (115 + (x >> 40) % 24) << 23
            for x in (next(numbers) for _ in range(count))]  # fmt: skip


# -- sums ------------------------------------------------------------------------------------------
def _cycled(parts: Parts, dtype: str, read: str) -> tuple[int, int]:
    """The attribute n as a count, and the term of number i: element i modulo their number."""
    g = parts.graph
    count = g.index("attribute", name="n")
    at = g.index("rest", g.index("term"), g.index("numel", name="x"))
    term = g.node("read", read, at, name="x")
    return count, term if dtype == read else g.node("convert", dtype, term)


def trees() -> Iterator[dict[str, Any]]:
    made = {
        "f32": [mixed("f32", 37), [NEG_ZERO], f32(1, 2.0**-24), [INF, NINF], [OTHER_NAN],
                [0x7F7FFFFF], [1, 0x80000001, 0x007FFFFF]],
        "f64": [mixed("f64", 37), [NEG_ZERO], [INF, NINF], [0x7F7FFFFF]],
        "i64": [[1, -1, (1 << 63) - 1, 5], [-(1 << 63)], [7]],
    }  # fmt: skip
    counts = {37: (0, 1, 2, 31, 32, 33, 255, 256, 257, 600, 8193, 65793)}
    for dtype, operands in made.items():
        parts, calls = Parts(), []
        read = "i64" if dtype == "i64" else "f32"
        count, term = _cycled(parts, dtype, read)
        parts.part("tree", "SUM(x)", dtype, value=term, count=count)
        for x in operands:
            x = [integer(v, "i64") for v in x] if dtype == "i64" else x
            for n in counts.get(len(x), (0, 1, 2, 33, 300)):
                if dtype == "f64" and n > 9000:
                    continue
                each = [x[i % len(x)] for i in range(n)]
                if dtype == "f64":
                    each = [result("convert", "f64", ("f32",), (v,)) for v in each]
                calls.append(call([vector(read, x)], dtype, (), [summed(dtype, each)], n=n))
        yield parts.group(f"a tree of {dtype} (3.1)", ["x"], {"n": "int"}, calls)


def terms() -> Iterator[dict[str, Any]]:
    """Term i is a part of its own, which is made of another: (x_i - m)^2, m the row's sum."""
    parts = Parts()
    g = parts.graph
    element, columns = g.index("element"), g.index("extent", g.whole(1), name="x")
    at = g.index("add", g.index("mul", element, columns), g.index("term"))
    row = parts.part("tree", "s", "f32", value=g.node("read", "f32", at, name="x"), count=columns)
    square = g.node("mul", "f32", parts.value(row), parts.value(row))
    one = parts.part("local", "q[i]", "f32", value=square)
    parts.part("terms", "SUM(q)", "f32", count=g.index("extent", g.whole(0), name="x"), of=[one])
    calls = []
    for rows, wide in ((0, 3), (1, 3), (5, 40), (33, 2), (257, 2)):
        x = mixed(f"terms {rows}", rows * wide)
        sums = [summed("f32", x[r * wide : (r + 1) * wide]) for r in range(rows)]
        squares = [result("mul", "f32", ("f32",) * 2, (s, s)) for s in sums]
        gives: list[int | str] = [summed("f32", squares)]
        calls.append(call([tensor("f32", (rows, wide), x)], "f32", (), gives))
    yield parts.group("a sum of terms that are parts", ["x"], {}, calls)

    parts = Parts()
    g = parts.graph
    read = g.node("read", "f32", g.whole(0), g.index("element"), name="squares")
    one = parts.part("local", "s[i]", "f32", value=read)
    count = g.index("given", name="squares")
    parts.part("terms", "q", "f32", count=count, of=[one])
    x = mixed("squares", 40)
    calls = [
        call([tensor("f32", (), [v]) for v in x[:n]], "f32", (), [summed("f32", x[:n])])
        for n in (1, 2, 40)
    ]
    yield parts.group("an element of each operand of a star", ["squares*"], {}, calls)


def folds() -> Iterator[dict[str, Any]]:
    """10.12: halves of halves, the left one a power of two; the sum is divided last."""
    parts = Parts()
    g = parts.graph
    read = g.node("read", "f32", g.index("element"), g.index("term"), name="x")
    one = parts.part("local", "x[i]", "f32", value=read)
    count = g.index("given", name="x")
    divisor = g.node("read", "f32", g.whole(0), name="by")
    parts.part("fold", "out", "f32", count=count, of=[one], divisor=divisor)
    calls = []
    for n in (1, 2, 3, 4, 5, 7, 40, 256):
        for by in (1.0, 3.0, -0.0):
            x = mixed(f"fold {n}", n) if by else [NEG_ZERO] * n
            total = result("div", "f32", ("f32",) * 2, (_split(x), of_float(by, "f32")))
            inputs = [vector("f32", f32(by)), *(vector("f32", [v]) for v in x)]
            calls.append(call(inputs, "f32", (1,), [total]))
    yield parts.group("a fold of operands (10.12)", ["by", "x*"], {}, calls)


def _split(x: Sequence[int]) -> int:
    if len(x) == 1:
        return x[0]
    left = max(1 << k for k in range(9) if 1 << k < len(x))
    return added("f32", _split(x[:left]), _split(x[left:]))


# -- one after the other ---------------------------------------------------------------------------
def chains() -> Iterator[dict[str, Any]]:
    for start in ("read", "constant"):
        for masked in (True, False):
            parts, calls = Parts(), []
            g = parts.graph
            begin = (g.node("read", "f32", g.whole(0), name="s") if start == "read"
                     else g.node("constant", "f32", number=(0.0).hex()))  # fmt: skip
            members = {"value": g.node("read", "f32", g.index("term"), name="x")}
            members |= {"count": g.index("numel", name="x"), "start": begin}
            if masked:
                members["kept"] = g.node("read", "bool", g.index("term"), name="mask")
            parts.part("chain", "d", "f32", **members)
            for first, x in (
                (f32(1)[0], mixed("chain", 40)), (NEG_ZERO, []), (NEG_ZERO, [NEG_ZERO]),
                (NEG_ZERO, [0]), (f32(1e8)[0], f32(1, -1e8, 0.25)), (INF, [NINF, 0]),
                (OTHER_NAN, [0]), (OTHER_NAN, []), (0x7F7FFFFF, [0x7F7FFFFF, 0xFF7FFFFF]),
            ):  # fmt: skip
                for kept in ([1] * len(x), [i % 3 != 1 for i in range(len(x))], [0] * len(x)):
                    state = first if start == "read" else 0
                    for value, stays in zip(x, kept, strict=True):
                        if stays or not masked:
                            state = added("f32", state, value)
                    state = result("select", "f32", ("bool", "f32", "f32"), (1, state, 0))
                    inputs = [vector("f32", [first]), vector("f32", x)]
                    inputs.append(vector("bool", [int(k) for k in kept]))
                    calls.append(call(inputs, "f32", (), [state]))
                    if not masked or not x:
                        break
            what = f"a chain from a {start} start{', some terms left out' if masked else ''}"
            yield parts.group(what, ["s", "x", "mask"], {}, calls)


def latest() -> Iterator[dict[str, Any]]:
    parts, calls = Parts(), []
    g = parts.graph
    index = g.index("convert", g.node("read", "i64", g.index("term"), name="index"))
    parts.part(
        "latest", "out", MOVED, value=g.node("read", MOVED, g.index("term"), name="source"),
        count=g.index("numel", name="index"), kept=g.node("eq", "bool", index, g.index("element")),
        start=g.node("read", MOVED, g.index("element"), name="x"),
    )  # fmt: skip
    for dtype, x, source in (
        ("f32", [OTHER_NAN, NEG_ZERO, NAN, 5], [9, OTHER_NAN, 0x7F800001, 8, 7]),
        ("u8", [1, 2, 3, 4], [5, 6, 7, 8, 9]),
        ("i64", [1, 2, 3, 4], [5, 6, 7, 8, (1 << 64) - 1]),
    ):
        for numbers in ([], [1, 1, 0, 1, 3], [2, 2], [0, 1, 2, 3]):
            gives: list[int | str] = [*x]
            for k, to in enumerate(numbers):
                gives[to] = source[k]
            inputs = [vector(dtype, x), vector("i64", numbers), vector(dtype, source)]
            calls.append(call(inputs, dtype, (4,), gives))
    yield parts.group("the last of the values that are kept", ["x", "index", "source"], {}, calls)


# -- extremes --------------------------------------------------------------------------------------
_FLOATS = ([0x3F800000, 0x40400000, 0x40400000, 0xC0000000], [NEG_ZERO, 0], [0, NEG_ZERO],
           [NEG_ZERO, NEG_ZERO], [0x40A00000, OTHER_NAN, 0x7F800000, NAN], [NINF, NINF], [NINF],
           [0x80000001, 1], [INF, 0x7F7FFFFF, INF],
           [NEG_ZERO, 0, NEG_ZERO, 0x80000001])  # fmt: skip
_WHOLE = ([3, 5, 5, -2], [-(1 << 63), (1 << 63) - 1], [0], [-1, -1])


def extremes() -> Iterator[dict[str, Any]]:
    for dtype, operands in (("f32", _FLOATS), ("i64", _WHOLE)):
        for extreme in ("max", "min", "argmax"):
            parts, calls = Parts(), []
            g = parts.graph
            gives = "i64" if extreme == "argmax" else dtype
            value = g.node("read", dtype, g.index("term"), name="x")
            count = g.index("numel", name="x")
            parts.part("extremum", extreme, gives, value=value, count=count, extreme=extreme)
            for given in operands:
                x = [v & ((1 << (32 if dtype == "f32" else 64)) - 1) for v in given]
                best = 0
                for k in range(1, len(x)):
                    best = k if _better(extreme, dtype, x[k], x[best]) else best
                found = best
                if extreme != "argmax":
                    found = result("select", dtype, ("bool", dtype, dtype), (1, x[best], 0))
                calls.append(call([vector(dtype, x)], gives, (), [found]))
            yield parts.group(f"{extreme} of {dtype} (1.11, 3.5)", ["x"], {}, calls)


def _better(extreme: str, dtype: str, x: int, than: int) -> bool:
    """Whether x takes the place of an element before it."""

    def holds(kind: str, a: int, b: int) -> bool:
        return bool(result(kind, "bool", (dtype, dtype), (a, b)))

    if dtype == "f32" and holds("ne", than, than):
        return False
    if dtype == "f32" and holds("ne", x, x):
        return True
    if extreme == "argmax":
        return holds("gt", x, than)
    zeros = dtype == "f32" and holds("eq", x, than) and x != than
    if zeros:
        return (x == 0) == (extreme == "max")
    return holds("gt" if extreme == "max" else "lt", x, than)


# -- one value -------------------------------------------------------------------------------------
def _one(
    what: str, make: Callable[[Graph], tuple[str, int]], operands: list[str],
    attributes: dict[str, str], calls: list[dict[str, Any]],
) -> dict[str, Any]:  # fmt: skip
    """A local part of one node."""
    parts = Parts()
    dtype, value = make(parts.graph)
    parts.part("local", "out", dtype, value=value)
    return parts.group(what, operands, attributes, calls)


def locals_() -> Iterator[dict[str, Any]]:
    nans = [OTHER_NAN, 0x7F800001, NEG_ZERO, NINF]
    for dtype in (MOVED, "f32"):

        def here(g: Graph, dtype: str = dtype) -> tuple[str, int]:
            return dtype, g.node("read", dtype, g.index("element"), name="x")

        gives = nans if dtype == MOVED else [NAN, NAN, *nans[2:]]
        calls = [call([vector("f32", nans)], "f32", (4,), gives)]
        what = "what is moved keeps its bits" if dtype == MOVED else "what is computed has one NaN"
        yield _one(f"{what} (1.5)", here, ["x"], {}, calls)

    for dtype in ("f32", "f64", "i64"):

        def number(g: Graph, dtype: str = dtype) -> tuple[str, int]:
            return dtype, g.node("convert", dtype, g.index("attribute", name="n"))

        calls = []
        for n in (0, 1, 255, (1 << 24) + 1, (1 << 24) + 3, (1 << 53) - 1, (1 << 32) - 1):
            bits = result("convert", dtype, ("i64",), (n,)) if dtype != "i64" else n
            calls.append(call([], dtype, (), [bits], n=n))
        yield _one(f"a whole number as {dtype}, rounded once", number, [], {"n": "int"}, calls)

    def real(g: Graph) -> tuple[str, int]:
        x = g.node("read", "f32", g.index("element"), name="x")
        return "f32", g.node("in reals", "f32", x, g.node("neg", "f32", x))

    calls = [call([vector("f32", f32(1, -2))], "f32", (2,), [*f32(1, -2)])]
    yield _one("what another value stands for in the real numbers", real, ["x"], {}, calls)

    def filled(g: Graph) -> tuple[str, int]:
        mask = g.node("read", "bool", g.index("element"), name="mask")
        value = g.node("attribute", MOVED, name="value")
        kept = g.node("read", MOVED, g.index("element"), name="x")
        return MOVED, g.node("choice", MOVED, mask, value, kept)

    calls = []
    for dtype, held, x in (("f32", 0.1, nans), ("i64", -3.0, [1, 2, 3, 4]), ("u8", 255.0, [0] * 4),
                           ("bool", 1.0, [0, 0, 1, 1]), ("f32", float("nan"), nans)):  # fmt: skip
        mask = [0, 1, 1, 0]
        chosen = [of_float(held, dtype) if m else v for m, v in zip(mask, x, strict=True)]
        inputs = [vector(dtype, x), vector("bool", mask)]
        calls.append(call(inputs, dtype, (4,), [*chosen], value=held.hex()))
    yield _one("an attribute as a number of the output's dtype", filled, ["x", "mask"],
               {"value": "float"}, calls)  # fmt: skip

    def decided(g: Graph) -> tuple[str, int]:
        x = g.node("read", "f32", g.index("element"), name="x")
        factor = g.node("read", "f32", g.whole(0), name="scale")
        scaled = g.node("case", "f32", g.node("mul", "f32", x, factor), x, has="scale")
        turned = {"is": "reduction", "equal": "none"}
        return "f32", g.node("case", "f32", g.node("neg", "f32", scaled), scaled, **turned)

    calls = []
    for scale, reduction, numbers in (
        (None, "sum", (1, -2)), (f32(3), "sum", (3, -6)), (f32(3), "none", (-3, 6)),
    ):  # fmt: skip
        inputs = [vector("f32", f32(1, -2)), None if scale is None else vector("f32", scale)]
        calls.append(call(inputs, "f32", (2,), [*f32(*numbers)], reduction=reduction))
    yield _one("what the call decides", decided, ["x", "scale?"], {"reduction": "str"}, calls)

    def outside(g: Graph) -> tuple[str, int]:
        inside = g.node("lt", "bool", g.index("element"), g.index("numel", name="x"))
        there = g.node("read", MOVED, g.index("element"), name="x")
        return MOVED, g.node("choice", MOVED, inside, there, g.node("constant", MOVED, number=0))

    calls = [call([vector(dtype, [7, 8])], dtype, (4,), [7, 8, 0, 0]) for dtype in ("f32", "u8")]
    yield _one("what is not there is not read", outside, ["x"], {}, calls)

    def together(g: Graph) -> tuple[str, int]:
        return MOVED, g.node("joined", MOVED, g.axis("dim"), name="x")

    calls = []
    for dim, shapes in ((0, [(2,), (3,)]), (0, [(1, 2), (2, 2), (1, 2)]), (1, [(2, 1), (2, 3)]),
                        (-1, [(2, 2), (2, 0), (2, 1)]), (-2, [(1, 2), (2, 2)])):  # fmt: skip
        calls.append(_joined(dim, shapes))
    yield _one("operands one after the other (9)", together, ["x*"], {"dim": "int"}, calls)

    def drawn_word(g: Graph) -> tuple[str, int]:
        four, element = g.whole(4), g.index("element")
        block, number = g.index("over", element, four), g.index("rest", element, four)
        word = g.index("word", g.index("attribute", name="draw"), block, number, name="rng")
        return "f64", g.node("convert", "f64", word)

    gives: list[int | str] = []
    for e in range(6):
        word = philox((e // 4, 0, 2, 9), (77, 0))[e % 4]
        gives.append(result("convert", "f64", ("i64",), (word,)))
    calls = [
        call([vector("i64", [77, 9])], "f64", (6,), gives, draw=2),
        call([vector("i64", [77, (1 << 64) - 1])], "f64", (1,), [REFUSED], draw=2),
    ]
    yield _one("a word of each element (8.1)", drawn_word, ["rng"], {"draw": "int"}, calls)


def _joined(dim: int, shapes: list[Shape]) -> dict[str, Any]:
    axis, whole = dim % len(shapes[0]), list(shapes[0])
    whole[axis] = sum(shape[axis] for shape in shapes)
    out, inputs, flats = tuple(whole), [], []
    for number, shape in enumerate(shapes):
        flats.append([100 * number + k for k in range(math.prod(shape))])
        inputs.append(tensor("f32", shape, flats[-1]))
    gives: list[int | str] = []
    for e in range(math.prod(out)):
        here, number = coordinates(e, out), 0
        while here[axis] >= shapes[number][axis]:
            here[axis] -= shapes[number][axis]
            number += 1
        gives.append(flats[number][place(here, shapes[number])])
    return call(inputs, "f32", out, gives, dim=dim)


# -- parts of parts --------------------------------------------------------------------------------
def composed() -> Iterator[dict[str, Any]]:
    parts = Parts()
    g = parts.graph
    count = g.index("numel", name="x")
    term = g.node("read", "f32", g.index("term"), name="x")
    total = parts.part("tree", "SUM(x)", "f32", value=term, count=count)
    divided = g.node("div", "f32", parts.value(total), g.node("convert", "f32", count))
    mean = parts.part("local", "mean", "f32", value=divided)
    least = parts.part("extremum", "min", "f32", value=term, count=count, extreme="min")
    here = g.node("read", "f32", g.index("element"), name="x")
    value = g.node("sub", "f32", here, parts.value(mean))
    parts.part("local", "out", "f32", value=value, first=[least], reads=[here])
    calls = []
    for n in (1, 3, 300):
        x = mixed(f"mean {n}", n)
        size = result("convert", "f32", ("i64",), (n,))
        middle = result("div", "f32", ("f32",) * 2, (summed("f32", x), size))
        differences = [result("sub", "f32", ("f32",) * 2, (v, middle)) for v in x]
        calls.append(call([vector("f32", x)], "f32", (n,), [*differences]))
    yield parts.group("a part of parts", ["x"], {}, calls)

    parts = Parts()
    g = parts.graph
    read = g.node("read", "f32", g.index("element"), name="x")
    same = parts.part("local", "same", "f32", value=read)
    turned = parts.part("local", "turned", "f32", value=g.node("neg", "f32", read))
    scaled = g.node("mul", "f32", read, g.node("read", "f32", g.whole(0), name="scale"))
    more = parts.part("local", "scaled", "f32", value=scaled)
    there = parts.part("case", "there", "f32", of=[more, same], has="scale")
    parts.part("case", "out", "f32", of=[turned, there], **{"is": "beta", "equal": (0.0).hex()})
    x, two = f32(1, -0.5), vector("f32", f32(2))
    calls = [
        call([vector("f32", x), scale], "f32", (2,), [*f32(*gives)], beta=beta.hex())
        for scale, beta, gives in (
            (None, 1.0, (1, -0.5)), (two, 1.0, (2, -1)), (two, -0.0, (-1, 0.5)),
            (None, 1e-60, (1, -0.5)), (None, 0.0, (-1, 0.5)),
        )
    ]  # fmt: skip
    yield parts.group("a part that a condition chooses", ["x", "scale?"], {"beta": "float"}, calls)


def choices() -> Iterator[dict[str, Any]]:
    """A term is read, or refused, only where it is chosen."""
    parts = Parts()
    g = parts.graph
    target = g.node("read", "i64", g.index("term"), name="target")
    ignored = g.node("constant", "i64", number=-100)
    inside = g.index("inside", target, g.index("numel", name="x"), name="target")
    taken = g.node("read", "f32", inside, name="x")
    nothing = g.node("constant", "f32", number=(0.0).hex())
    term = g.node("choice", "f32", g.node("ne", "bool", target, ignored), taken, nothing)
    # The first elements have all terms, the others two.
    few = g.node("lt", "bool", g.index("element"), g.whole(1))
    count = g.index("select", few, g.index("numel", name="target"), g.whole(2))
    parts.part("tree", "SUM(l)", "f32", value=term, count=count)
    x, calls = mixed("choices", 5), []
    for numbers in ([0, -100, 4, 2], [-100] * 3, [1, 2], [0, -100, 5], [3, -1], [-100, 4, 9]):
        gives: list[int | str] = []
        for used in (numbers, numbers[:2]):
            chosen = [0 if t == -100 else x[t] for t in used if t == -100 or 0 <= t < 5]
            gives.append(summed("f32", chosen) if len(chosen) == len(used) else REFUSED)
        calls.append(call([vector("f32", x), vector("i64", numbers)], "f32", (2,), gives))
    yield parts.group("a term that is not chosen refuses nothing", ["x", "target"], {}, calls)


def document() -> dict[str, list[dict[str, Any]]]:
    """The groups, one a line."""
    makers = (trees, terms, folds, chains, latest, extremes, locals_, composed, choices)
    return {"groups": [made for maker in makers for made in maker()]}
