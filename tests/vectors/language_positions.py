"""Groups of vectors/language/positions.json: whole numbers of the table's languages.

What is expected is computed here, from shapes and coordinates alone (NUMERICS 3.3, 8.1, 9, 10.1).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

from language_graph import INDEX, Graph, Shape, coordinates, elements, place, tensor
from reference.rand import philox

REFUSED = "refused"
_I64 = (1 << 64) - 1


def group(
    what: str, graph: Graph, root: int, operands: list[str], attributes: dict[str, str],
    calls: list[dict[str, Any]],
) -> dict[str, Any]:  # fmt: skip
    """One graph, its root, and calls of it."""
    return {
        "what": what,
        "operands": operands,
        "attributes": {name: {"kind": kind} for name, kind in attributes.items()},
        "nodes": graph.nodes,
        "root": root,
        "calls": calls,
    }


def call(
    inputs: list[Any], output: Shape, gives: list[Any], terms: int | None = None, **attrs: Any
) -> dict[str, Any]:
    """One call: `gives` has a whole number for each element of the output, with `terms` a list."""
    made: dict[str, Any] = {"attributes": attrs, "inputs": inputs, "output": ["f32", list(output)]}
    if terms is not None:
        made["terms"] = terms
    assert len(gives) == math.prod(output)
    return {**made, "gives": gives}


# -- arithmetic ------------------------------------------------------------------------------------
_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "over": lambda a, b: math.floor(a // b),
    "rest": lambda a, b: a - a // b * b,
    "max": max,
    "min": min,
}
_COMPARISONS: dict[str, Callable[[int, int], int]] = {
    "eq": lambda a, b: int(a == b),
    "ne": lambda a, b: int(a != b),
    "lt": lambda a, b: int(a < b),
    "le": lambda a, b: int(a <= b),
    "gt": lambda a, b: int(a > b),
    "ge": lambda a, b: int(a >= b),
}
_PAIRS = ((7, 3), (-7, 3), (7, -3), (-7, -3), (6, 3), (-6, 3), (0, 5), (1, 1), (3, 7), (-1, 4),
          ((1 << 40) + 5, 1 << 20), ((1 << 33) - 1, 3))  # fmt: skip


def arithmetic() -> Iterator[dict[str, Any]]:
    both = {"a": "int", "b": "int"}
    for kind, of in (_ARITHMETIC | _COMPARISONS).items():
        graph = Graph()
        a, b = (graph.index("attribute", name=name) for name in both)
        root = graph.node(kind, "bool" if kind in _COMPARISONS else INDEX, a, b)
        calls = [call([], (), [of(a, b)], a=a, b=b) for a, b in _PAIRS]
        yield group(f"{kind} of whole numbers", graph, root, [], both, calls)
    graph = Graph()
    a, b = (graph.index("attribute", name=name) for name in both)
    larger = graph.node("gt", "bool", a, b)
    difference, nothing = graph.index("sub", a, b), graph.whole(0)
    root = graph.index("select", larger, difference, nothing)
    calls = [call([], (), [max(a - b, 0)], a=a, b=b) for a, b in _PAIRS]
    yield group("select of whole numbers", graph, root, [], both, calls)


# -- what a call has -------------------------------------------------------------------------------
def leaves() -> Iterator[dict[str, Any]]:
    graph = Graph()
    root = graph.index("element")
    calls = [call([], shape, [*range(math.prod(shape))]) for shape in ((), (3,), (2, 3), (0, 4))]
    yield group("the element's row-major position", graph, root, [], {}, calls)

    graph = Graph()
    root = graph.index("add", graph.index("mul", graph.index("element"), graph.whole(10)),
                       graph.index("term"))  # fmt: skip
    calls = [
        call([], (n,), [[10 * e + i for i in range(terms)] for e in range(n)], terms=terms)
        for n, terms in ((1, 1), (2, 3))
    ]
    yield group("the number of a term", graph, root, [], {}, calls)

    graph = Graph()
    root = graph.index("numel", name="x")
    calls = [call([tensor("f32", s)], (), [math.prod(s)]) for s in ((), (3,), (2, 3, 4), (2, 0))]
    yield group("the number of an operand's elements", graph, root, ["x"], {}, calls)

    for operands in (["x*"], ["x", "squares*"]):
        graph = Graph()
        root = graph.index("given", name=operands[-1][:-1])
        calls = [call([tensor("f32", (2,))] * (n + len(operands) - 1), (), [n]) for n in (1, 2, 5)]
        yield group("how many operands a star stands for", graph, root, operands, {}, calls)

    graph = Graph()
    root = graph.index("product", name="size")
    calls = [call([], (), [math.prod(s)], size=s) for s in ([], [4], [2, 3, 5], [7, 0])]
    yield group("the product of an attribute's numbers", graph, root, [], {"size": "ints"}, calls)

    for number in (0, 1):
        graph = Graph()
        root = graph.index("entry", graph.whole(number), name="stride")
        given = ([3, 5], [4], [1, 2, 9])
        calls = [call([], (), [s[min(number, len(s) - 1)]], stride=s) for s in given]
        what = f"number {number} of an attribute's; a single one stands for all"
        yield group(what, graph, root, [], {"stride": "ints"}, calls)
        calls = [call([], (), [6], stride=6)]
        yield group(f"{what} (an int)", graph, root, [], {"stride": "int"}, calls)


_SHAPES: tuple[Shape, ...] = ((), (5,), (2, 3), (2, 3, 4), (3, 0, 2))


def along() -> Iterator[dict[str, Any]]:
    """Sizes of an axis and after it; without axes there is one of size 1 (3.3)."""
    for kind, of_operand in itertools.product(("extent", "inner"), (True, False)):
        for named in (True, False):
            axes = (None,) if named else (0, 1, -1, -2)
            for axis in axes:
                graph = Graph()
                name = {"name": "x"} if of_operand else {}
                root = graph.index(kind, graph.axis("dim" if axis is None else axis), **name)
                calls = []
                for shape in _SHAPES:
                    whole = shape or (1,)
                    for dim in range(-len(whole), len(whole)) if axis is None else (axis,):
                        if not -len(whole) <= dim < len(whole):
                            continue
                        at = dim % len(whole)
                        number = whole[at] if kind == "extent" else math.prod(whole[at + 1 :])
                        other: Shape = (2,) if of_operand else shape
                        inputs = [tensor("f32", shape if of_operand else (7, 7, 7))]
                        attrs = {} if axis is not None else {"dim": dim}
                        gives = [number] * math.prod(other)
                        calls.append(call(inputs, other, gives, **attrs))
                what = f"{kind} of {'an operand' if of_operand else 'the output'}"
                attributes = {"dim": "int"} if named else {}
                yield group(what, graph, root, ["x"], attributes, calls)


# -- places ----------------------------------------------------------------------------------------
def _replaced(here: list[int], axis: int, k: int) -> list[int]:
    return [*here[:axis], k, *here[axis + 1 :]]


def placed() -> Iterator[dict[str, Any]]:
    graph = Graph()
    root = graph.index("placed", graph.axis("dim"), graph.index("attribute", name="k"), name="x")
    both = {"dim": "int", "k": "int"}
    calls = []
    for shape, out in (((4,), (2,)), ((2, 5), (2, 3)), ((3, 2, 4), (3, 2, 4)), ((3, 4), (2, 2))):
        for dim in range(-len(shape), len(shape)):
            axis = dim % len(shape)
            for k in (0, shape[axis] - 1):
                gives = [place(_replaced(h, axis, k), shape) for h in elements(out)]
                calls.append(call([tensor("f32", shape)], out, gives, dim=dim, k=k))
    calls.append(call([tensor("f32", ())], (), [0], dim=0, k=0))
    calls.append(call([tensor("f32", ())], (), [0], dim=-1, k=0))
    yield group("the element's place, one coordinate replaced", graph, root, ["x"], both, calls)

    graph = Graph()
    root = graph.index("placed", graph.axis("dim"), graph.index("term"), name="x")
    calls = []
    for shape, dim in (((2, 3), 1), ((2, 3), 0), ((3, 2, 2), -2)):
        axis, out = dim % len(shape), _replaced(list(shape), dim % len(shape), 1)
        gives = [
            [place(_replaced(h, axis, k), shape) for k in range(shape[axis])]
            for h in elements(tuple(out))
        ]
        calls.append(call([tensor("f32", shape)], tuple(out), gives, shape[axis], dim=dim))
    yield group("a row of places", graph, root, ["x"], {"dim": "int"}, calls)

    graph = Graph()
    root = graph.index("reaches", graph.axis("dim"), name="x")
    calls = []
    for shape, out in (((2, 2), (3, 4)), ((1, 5), (2, 3)), ((4,), (2,)), ((2, 1, 3), (2, 2, 2))):
        for dim in range(-len(shape), len(shape)):
            others = [b for b in range(len(shape)) if b != dim % len(shape)]
            gives = [int(all(h[b] < shape[b] for b in others)) for h in elements(out)]
            calls.append(call([tensor("f32", shape)], out, gives, dim=dim))
    calls.append(call([tensor("f32", ())], (), [1], dim=0))
    what = "whether an operand has the element's coordinates, but for one axis"
    yield group(what, graph, root, ["x"], {"dim": "int"}, calls)

    graph = Graph()
    root = graph.index("permuted", graph.axis("dims"), name="x")
    calls = []
    for shape in ((), (3,), (2, 3), (2, 3, 4)):
        for dims in itertools.permutations(range(len(shape))):
            out = tuple(shape[d] for d in dims)
            gives = []
            for here in elements(out):
                source = [0] * len(shape)
                for axis, d in enumerate(dims):
                    source[d] = here[axis]
                gives.append(place(source, shape))
            calls.append(call([tensor("f32", shape)], out, gives, dims=list(dims)))
    yield group("the place before its axes were permuted (9)", graph, root, ["x"],
                {"dims": "ints"}, calls)  # fmt: skip

    graph = Graph()
    root = graph.index("broadcast", name="x")
    calls = []
    for shape, out in (((), ()), ((), (2, 2)), ((3,), (2, 3)), ((1,), (4,)), ((2, 1), (2, 3)),
                       ((1, 3), (2, 3)), ((2, 3), (2, 3)), ((3, 1), (2, 3, 2)),
                       ((2, 1, 2), (2, 3, 2))):  # fmt: skip
        gives = []
        for here in elements(out):
            mine = here[len(out) - len(shape) :]
            gives.append(place([0 if n == 1 else k for k, n in zip(mine, shape, strict=True)],
                               shape))  # fmt: skip
        calls.append(call([tensor("f32", shape)], out, gives))
    yield group("the place in a broadcast operand (10.1)", graph, root, ["x"], {}, calls)


# -- reductions (3.3) ------------------------------------------------------------------------------
_REDUCTIONS: tuple[tuple[Shape, Any], ...] = (
    ((), None), ((), []), ((), [0]), ((4,), None), ((4,), [-1]), ((2, 3), []), ((2, 3), [0]),
    ((2, 3), [1]), ((2, 3), [1, 0]), ((2, 3, 2), [1]), ((2, 3, 2), [0, 2]), ((2, 3, 2), [-1, 0]),
    ((2, 3, 2), [-2]), ((2, 0), [1]), ((2, 2, 1, 3), [3, 1]), ((2, 3), 1), ((2, 3), -2), ((), 0),
)  # fmt: skip


def reductions() -> Iterator[dict[str, Any]]:
    for kind in ("reduced", "reduced place"):
        for attributes in ({}, {"dim": "ints", "keepdim": "bool"}, {"dim": "int"}):
            graph, calls = Graph(), []
            root = graph.index(kind)
            for shape, dim in _REDUCTIONS:
                word = "" if dim is None else "int" if isinstance(dim, int) else "ints"
                if word != attributes.get("dim", ""):
                    continue
                attrs: dict[str, Any] = {} if dim is None else {"dim": dim}
                given = [dim] if isinstance(dim, int) else dim or []
                axes = sorted({d % len(shape) for d in given}) if shape else []
                axes = axes or [*range(len(shape))]
                for keep in (False, True) if "keepdim" in attributes else (False,):
                    calls.append(_reduction(kind, shape, axes, keep, attrs))
                    if "keepdim" in attributes:
                        calls[-1]["attributes"] = {**attrs, "keepdim": keep}
            what = "how many elements an output is made of" if kind == "reduced" else "their places"
            yield group(f"{what} (3.3)", graph, root, ["x"], attributes, calls)


def _reduction(
    kind: str, shape: Shape, axes: list[int], keep: bool, attrs: dict[str, Any]
) -> dict[str, Any]:
    kept = [a for a in range(len(shape)) if a not in axes]
    out = tuple(n if a in kept else 1 for a, n in enumerate(shape) if a in kept or keep)
    sizes = tuple(shape[a] for a in axes)
    count = math.prod(sizes)
    gives: list[Any] = []
    for e in range(math.prod(out)):
        others = coordinates(e, tuple(shape[a] for a in kept))
        row = []
        for within in elements(sizes):
            here = dict(zip((*kept, *axes), (*others, *within), strict=True))
            row.append(place([here[a] for a in range(len(shape))], shape))
        gives.append(count if kind == "reduced" else row)
    terms = None if kind == "reduced" else count
    return call([tensor("f32", shape)], out, gives, terms, **attrs)


# -- what is read ----------------------------------------------------------------------------------
def refusals() -> Iterator[dict[str, Any]]:
    numbers = [0, 4, -1, 5, (1 << 62), -(1 << 63), 3]
    graph = Graph()
    index = graph.node("read", "i64", graph.index("element"), name="index")
    root = graph.index("inside", index, graph.index("extent", graph.axis(0), name="x"),
                       name="index")  # fmt: skip
    gives = [n if 0 <= n < 5 else REFUSED for n in numbers]
    inputs = [tensor("f32", (5, 2)), tensor("i64", (len(numbers),), numbers)]
    calls = [call(inputs, (len(numbers),), gives)]
    inputs = [tensor("f32", (0,)), tensor("i64", (2,), [0, -1])]
    calls.append(call(inputs, (2,), [REFUSED, REFUSED]))
    yield group("an index that is inside, or refused", graph, root, ["x", "index"], {}, calls)

    graph = Graph()
    root = graph.index("convert", graph.node("read", "i64", graph.index("element"), name="x"))
    calls = [call([tensor("i64", (len(numbers),), numbers)], (len(numbers),), numbers)]
    yield group("an i64 as a whole number", graph, root, ["x"], {}, calls)


def words() -> Iterator[dict[str, Any]]:
    """8.1, and the known answers of Salmon et al."""
    graph = Graph()
    draw, block = (graph.index("attribute", name=name) for name in ("draw", "block"))
    root = graph.index("word", draw, block, graph.index("element"), name="rng")
    top = (1 << 32) - 1
    calls = []
    for seed, step, drawn, number in (
        (0, 0, 0, 0), (1, 0, 0, 0), (7, 3, 2, 1), ((1 << 63) - 1, top, top, (1 << 63) - 1),
        (123456789012345, 41, 5, (1 << 32) + 9),
    ):  # fmt: skip
        found = philox((number & top, number >> 32, drawn, step), (seed & top, seed >> 32))
        rng = tensor("i64", (2,), [seed, step])
        calls.append(call([rng], (4,), [*found], draw=drawn, block=number))
    for seed, step in ((-1, 0), (0, -1), (0, 1 << 32)):
        rng = tensor("i64", (2,), [seed, step])
        calls.append(call([rng], (4,), [REFUSED] * 4, draw=0, block=0))
    attributes = {"draw": "int", "block": "int"}
    yield group("a Philox word, or a key that is refused", graph, root, ["rng"], attributes, calls)


def document() -> dict[str, list[dict[str, Any]]]:
    """The groups, one a line."""
    makers = (arithmetic, leaves, along, placed, reductions, refusals, words)
    return {"groups": [made for maker in makers for made in maker()]}
