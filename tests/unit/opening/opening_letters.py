"""The reads that OPENING 7 states: its formulas evaluated, its letters bound per clause."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import CodeType
from typing import Any

import numpy as np
from reference.judge.trees_quantised import bytes_of
from reference.quantised import SIZES
from unit.opening.opening_text import TEXT, block, code, tables

from tallystick.opening.quantity import (
    Array,
    Quantity,
    Site,
)

Env = dict[str, Any]
Positions = list[int]


# --- formulas of the text -------------------------------------------------------------------------
def at(f: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """OPENING 1.9."""
    found = []
    for size in reversed(shape):
        found.append(f % size)
        f //= size
    return tuple(reversed(found))


def flat(c: tuple[int, ...], shape: tuple[int, ...]) -> int:
    position = 0
    for size, coordinate in zip(shape, c, strict=True):
        position = position * size + coordinate
    return position


def bcast(f: int, out: tuple[int, ...], shape: tuple[int, ...]) -> int:
    last = at(f, out)[len(out) - len(shape) :]
    return flat(tuple(0 if n == 1 else k for k, n in zip(last, shape, strict=True)), shape)


def put(c: tuple[int, ...], a: int, value: int) -> tuple[int, ...]:
    """`c with a ← value` of 7.2.1."""
    return (*c[:a], value, *c[a + 1 :]) if c else ()


_SIGNS = {"·": "*", "−": "-", " div ": "//", " mod ": "%", "|Q|": "len(Q)", "'": "_"}
_SIGNS |= {digit: str(k) for k, digit in enumerate("₀₁₂")}


def value(formula: str, env: Mapping[str, Any]) -> Any:
    """A formula of the text, in integers."""
    return eval(_in_python(formula), {"at": at, "flat": flat, "bcast": bcast, "put": put, **env})


@cache
def _in_python(formula: str) -> CodeType:
    written = re.sub(r"c with a ← (.*), (S\w*)\)$", r"put(c, a, \1), \2)", formula)
    for sign, python in _SIGNS.items():
        written = written.replace(sign, python)
    return compile(written.strip(), formula, "eval")


def defined(clause: str, env: Env, *, only: tuple[str, ...] = ()) -> Env:
    """`env` with what the clause's formulas define; those of an index become functions."""
    env = dict(env)
    for line in block(clause):
        left, right = line.split(" = ", 1)
        if only and left not in only:
            continue
        function = re.fullmatch(r"(\w+)\((\w)\)", left)
        if function is not None:
            env[function[1]] = _function(function[2], right, env)
        elif left.startswith("("):
            env |= zip(re.findall(r"\w+", left), value(right, env), strict=True)
        else:
            env[left.replace("'", "_")] = value(right, env)
    return env


def _function(name: str, formula: str, env: Env) -> Callable[[int], int]:
    own = dict(env)
    return lambda i: int(value(formula, {**own, name: i}))


def per_term(clause: str, env: Env, k: int) -> Env:
    """The formulas of a DOT's clause for term k; a(k), b(k) become positions `a`, `b`."""
    env = {**env, "k": k}
    for line in block(clause):
        left, right = line.split(" = ", 1)
        if left in ("a(k)", "b(k)"):
            operand = re.fullmatch(r"\w\[(.*)\]", right)
            assert operand is not None
            env[left[0]] = value(operand[1], env)
        elif left.startswith("("):
            env |= zip(re.findall(r"\w+", left), value(right, env), strict=True)
        else:
            env[left.replace("'", "_")] = value(right, env)
    return env


# --- reads ----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Read:
    """One read of a table: the operand as written, the formula, whether it may be absent."""

    operand: str
    formula: str
    optional: bool


@cache
def read_rows() -> dict[tuple[str, str], tuple[Read, ...]]:
    """(operator, quantity) to its reads; rows `with train` and `without train` apart."""
    found: dict[tuple[str, str], tuple[Read, ...]] = {}
    for rows in tables("operator", "quantity", "count", "reads"):
        for ops, name, _, reads, _ in rows:
            for op in code(ops):
                key = op + (" " + ops.split("` ")[1] if "train" in ops.split("`")[-1] else "")
                assert (key, code(name)[0]) not in found
                found[key, code(name)[0]] = tuple(_read(r) for r in code(reads))
    return found


def _read(text: str) -> Read:
    parts = re.fullmatch(r"(\w+)\[(.*)\](\?)?", text)
    assert parts is not None, text
    return Read(parts[1], parts[2], bool(parts[3]))


# --- letters that the clauses bind in prose -------------------------------------------------------
@dataclass
class Place:
    """A quantity of a golden call: `numbers` are those of the executed terms, links, elements."""

    site: Site
    q: Quantity
    operands: tuple[np.ndarray | None, ...]
    needs: tuple[Any, ...]
    term: int  # the term of a `terms` it is below, else -1

    def shape(self, operand: int) -> tuple[int, ...]:
        return self.site.type_of(operand).shape

    def attribute(self, name: str) -> Any:
        return self.site.attrs[name]

    def both(self, name: str) -> tuple[int, int]:
        """1.10."""
        given = self.attribute(name)
        return (*given, *given)[:2] if len(given) == 1 else given

    def axis(self, shape: tuple[int, ...]) -> int:
        return int(self.attribute("dim")) % max(len(shape), 1)

    def flat_operand(self, operand: int) -> Array:
        array = self.operands[operand]
        assert array is not None
        return array.reshape(-1)


# The positions of one read for the numbers i, by the table's formula.
Expected = Callable[[Read, range], tuple[int, Positions]]


def simple(env: Env, keep: Mapping[str, Callable[[int], bool]] | None = None) -> Expected:
    """Formulas of i; `keep` says for an operand which i are read."""

    def expected(read: Read, numbers: range) -> tuple[int, Positions]:
        operand = int(env.get(read.operand, read.operand))
        wanted = [i for i in numbers if keep is None or keep.get(read.operand, bool_)(i)]
        found = [value(read.formula, {**env, "i": i}) for i in wanted]
        if found and isinstance(found[0], tuple):  # `0[0, 1]`
            return operand, list(found[0])
        # A position that does not depend on i is read once.
        return operand, found if re.search(r"\bi\b", read.formula) or not found else found[:1]

    return expected


def bool_(_: int) -> bool:
    return True


def movement(p: Place) -> Expected:
    """7.2."""
    site, op, out = p.site, p.site.op, p.site.outputs[0].shape
    shapes = {f"S{k}": p.shape(k) for k in range(len(site.inputs))}
    env: Env = {"e": site.element, "O": out, "c": at(site.element, out), **shapes, **site.attrs}
    if not site.inputs:
        return simple(env)
    env["S"] = shapes["S0"]
    if "dim" in site.attrs:
        env["a"] = p.axis(env["S"])
    if op == "aten.permute":
        b = [0] * len(out)
        for j, dim in enumerate(p.attribute("dims")):
            b[dim] = env["c"][j]
        env["b"] = tuple(b)
    if op == "aten.cat":
        k, before = 0, 0
        while env["c"][env["a"]] >= before + shapes[f"S{k}"][env["a"]]:
            before, k = before + shapes[f"S{k}"][env["a"]], k + 1
        env |= {"k": k, "before": before, "S_k": shapes[f"S{k}"]}
    if op == "aten.embedding":
        env["W"] = env["S"][1]
    if op == "aten.scatter.src":
        return _selecting(p, env)
    if op in ("aten.embedding", "aten.gather", "aten.index_select"):
        first = read_rows()[op, "out"][0]
        env["v"] = int(p.flat_operand(1)[value(first.formula, env)])
    return simple(env)


def _selecting(p: Place, env: Env) -> Expected:
    """7.2.3: link 0 reads x, the others an index each, and a stretch the last source met."""
    mine = env["c"][env["a"]] if env["c"] else 0
    indices = p.flat_operand(1)

    def expected(read: Read, numbers: range) -> tuple[int, Positions]:
        links = [i for i in numbers if (i == 0) == (read.operand == "0")]
        found = [value(read.formula, {**env, "i": i}) for i in links]
        if read.operand == "2":
            found = [at for at in found if indices[at] == mine][-1:]
        return int(read.operand), found

    return expected


def products(p: Place, clause: str, letters: Env, inside: Callable[[Env], bool]) -> Expected:
    """7.3: a link c has the terms 128·c and so on; a tap outside is not read."""
    env = {"e": p.site.element, "O": p.site.outputs[p.site.out].shape, **letters}

    def expected(read: Read, numbers: range) -> tuple[int, Positions]:
        letter, found = read.formula[0], []
        length = per_term(clause, env, 0).get("K", letters.get("K"))
        assert length is not None
        for k in range(128 * numbers.start, min(128 * numbers.stop, length)):
            term = per_term(clause, env, k)
            if not read.optional or inside(term):
                found.append(term[letter])
        return int(read.operand), found

    return expected


def matrices(p: Place) -> Expected:
    left = 1 if p.site.op == "aten.addmm" else 0
    if p.q.name == "out":
        return simple(pointwise_env(p))
    m, k = p.shape(left)[-2:]
    letters = {"M": m, "K": k, "N": p.shape(left + 1)[-1]}
    return products(p, "7.3.2", letters, lambda _: True)


def convolution(p: Place) -> Expected:
    backward = p.site.op.endswith("backward")
    x, w = (1, 2) if backward else (0, 1)
    image, weight = p.shape(x), p.shape(w)
    grad = p.shape(0) if backward else p.site.outputs[0].shape
    env: Env = dict(zip("nCHW", image, strict=True))
    env |= zip("FDhv", weight, strict=True)
    env |= zip("YX", grad[2:], strict=True)
    env |= {"g": p.attribute("groups")}
    env |= {n[0]: p.both(n) for n in ("stride", "padding", "dilation")}
    env["x"], env["e"] = 0, p.site.element
    if p.q.name == "out":
        return simple({**env, "o": at(p.site.element, p.site.outputs[0].shape)[1]})
    if p.q.name == "bias gradient":
        return simple(env)
    clause = {"dot": "7.3.3", "input gradient": "7.3.5", "weight gradient": "7.3.6"}[p.q.name]

    def inside(t: Env) -> bool:
        if clause == "7.3.5":
            met = t["R_"] % t["s"][0] == 0 and t["Q_"] % t["s"][1] == 0
            row, column = t["R_"] // t["s"][0], t["Q_"] // t["s"][1]
            return met and 0 <= row < t["Y"] and 0 <= column < t["X"]
        return 0 <= t["R"] < t["H"] and 0 <= t["Q"] < t["W"]

    return products(p, clause, env, inside)


def pointwise_env(p: Place) -> Env:
    shapes = {f"S{k}": t.shape for k, t in enumerate(p.site.inputs) if t is not None}
    return {"e": p.site.element, "O": p.site.outputs[p.site.out].shape, **shapes}


def reduction(p: Place) -> Expected:
    """7.4.1, by numpy's own transposition."""
    shape, dim = p.shape(0), p.site.attrs.get("dim", ())
    dims = (dim,) if isinstance(dim, int) else tuple(dim)  # type: ignore[arg-type]
    reduced = sorted(d % max(len(shape), 1) for d in dims) if shape else []
    reduced = reduced or list(range(len(shape)))
    kept = [a for a in range(len(shape)) if a not in reduced]
    places = np.arange(math.prod(shape)).reshape(shape).transpose((*kept, *reduced))
    row = places.reshape(math.prod(shape[a] for a in kept), -1)[p.site.element]
    return simple({"x": lambda i: int(row[i])})


def scatter(p: Place) -> Expected:
    """7.5."""
    e, op = p.site.element, p.site.op
    if p.q.name == "x":
        return simple({"e": e})
    index = p.flat_operand(2 if "pool" in op else 1)
    env: Env = {"e": e}
    if op == "aten.embedding_dense_backward":
        env["W"] = p.site.outputs[0].shape[-1]
        row, source, base = e // env["W"], "0", 0
    elif op == "aten.index_add":
        shape = p.shape(0)
        a = p.axis(shape)
        env |= {"I": math.prod(shape[a + 1 :]), "n": len(index)}
        env["outer"] = e // (env["I"] * shape[a])
        row, source, base = e // env["I"] % shape[a], "2", 0
    else:
        size = math.prod(p.shape(1)[-2:])
        env |= {"Z": math.prod(p.shape(0)[-2:]), "plane": e // size}
        row, source, base = e % size, "0", env["Z"] * env["plane"]
    return simple(env, {source: lambda i: int(index[base + i]) == row})


def softmax(p: Place) -> Expected:
    """7.6.1."""
    shape = p.site.outputs[0].shape or (1,)
    a, e = p.axis(shape), p.site.element
    env: Env = {"e": e, "n": shape[a], "inner": math.prod(shape[a + 1 :])}
    return simple(defined("7.6.1", env, only=("base", "p(i)")))


def cumulative(p: Place) -> Expected:
    """7.4.2."""
    shape = p.shape(0) or (1,)
    a, e = p.axis(shape), p.site.element
    env: Env = {"e": e, "n": shape[a], "inner": math.prod(shape[a + 1 :])}
    return simple(defined("7.4.2", env, only=("j", "base")))


def by_class(p: Place) -> Expected:
    """7.4.4 and 7.10: of operators that have an element for each row and class."""
    shape = p.site.outputs[0].shape or (1,)
    return simple({"e": p.site.element, "V": shape[-1], "r": p.site.element // shape[-1]})


def layer_norm(p: Place) -> Expected:
    """7.6.2."""
    n, e = math.prod(p.attribute("normalized_shape")), p.site.element
    backward = p.site.op.endswith("backward")
    large = p.site.outputs[p.site.out].shape == p.shape(1 if backward else 0)
    rows = p.q.name in ("dw", "db")
    r = e // n if large or backward else e
    return simple({"e": e, "n": n, "r": None if rows else r, "t": e % max(n, 1)})


def batch_norm(p: Place) -> Expected:
    """7.7."""
    backward, e = p.site.op.endswith("_backward"), p.site.element
    shape = p.shape(1 if backward else 0)
    small = p.site.outputs[p.site.out].shape == shape[1:2]
    inner = math.prod(shape[2:])
    env: Env = {"e": e, "C": shape[1], "J": inner, "c": e if small else e // inner % shape[1]}
    if backward:
        env |= {"A": 5, "B": 6} if p.attribute("train") else {"A": 3, "B": 4}
    return simple(defined("7.7.1", env))


def pool(p: Place) -> Expected:
    """7.8."""
    height, width = p.shape(0)[-2:]
    rows, columns = p.site.outputs[0].shape[-2:]
    e, sides = p.site.element, []
    for side, size, j in ((0, height, e // columns % rows), (1, width, e % columns)):
        k, s, pad, d = (p.both(n)[side] for n in ("kernel_size", "stride", "padding", "dilation"))
        taps = (j * s - pad + i * d for i in range(k))
        sides.append([t for t in taps if 0 <= t < size])
    env: Env = {"R": sides[0], "Q": sides[1], "n": len(sides[0]) * len(sides[1])}
    env |= {"H": height, "W": width, "plane": e // (rows * columns)}
    if p.needs:
        env["tap"] = int(p.needs[0])
    return simple(defined("7.8.2", env))


def losses(p: Place) -> Expected:
    """7.9."""
    op, e, name = p.site.op, p.site.element, p.q.name
    if op == "aten.mse_loss":
        return simple({"e": e})
    backward = op.endswith("_backward")
    targets = p.flat_operand(2 if backward else 1)
    classes = p.shape(1 if backward else 0)[1]
    r = e // classes if backward else (p.term if p.term >= 0 else e)
    env: Env = {"e": e, "V": classes, "r": r, "G": r if p.attribute("reduction") == "none" else 0}
    if name == "SUM(l)":

        def expected(read: Read, numbers: range) -> tuple[int, Positions]:
            kept = [i for i in numbers if targets[i] != p.attribute("ignore_index")]
            asked = kept if read.optional else numbers
            given = [value(read.formula, {**env, "i": i, "t": int(targets[i])}) for i in asked]
            return int(read.operand), given

        return expected
    if name in ("l_r", "out") and len(targets):
        env["t"] = int(targets[r])
    return simple(env)


def attention(p: Place) -> Expected:
    """7.11."""
    op, e = p.site.op.removeprefix("tallystick.attention_"), p.site.element
    env: Env = {"e": e, **dict(zip("BHTN", p.site.outputs[0].shape, strict=True))}
    env |= {"G": 1 if op == "weights" else p.shape(1)[1], "S": p.shape(0)[-1]}
    if op == "scores":
        env |= {"S": env["N"], "D": p.shape(0)[-1]}
    env = defined("7.11.1", env)
    place, window = p.attribute("first") + env["t"], p.attribute("window")
    hi = min(place, env["S"] - 1) if p.attribute("causal") else env["S"] - 1
    lo = max(0, place - window + 1) if window else 0
    env |= {"lo": lo, "w": int(op == "weights" and p.site.has(1))}
    if p.q.name == "dot" and op == "scores":
        env["K"] = env["D"] if lo <= env["j"] <= hi else 0
        return products(p, "7.11.2", env, lambda _: True)
    if p.q.name == "dot":
        return products(p, "7.11.3", {**env, "K": hi + 1}, lambda t: bool(t["k"] >= lo))
    if p.q.name != "s":
        return simple(env)
    return simple(env, {"1": lambda i: i < env["w"], "0": lambda i: i - env["w"] >= lo})


def quantised(p: Place) -> Expected:
    """7.12."""
    name = p.site.attrs["format"]
    assert isinstance(name, str)
    elements, size = SIZES[name]
    block_, j = divmod(p.site.element, elements)
    found = list(dict.fromkeys(bytes_of(name, j)))
    return simple({"o": block_ * size, "y": lambda i: found[i] if i < len(found) else -1 - size})


def norms(p: Place) -> Expected:
    if p.q.name.startswith("s["):
        return simple({"i": p.term})
    return simple({**pointwise_env(p), "i": p.term})


# What keeps the rows of 7.4, where a reduction leaves one element of each.
ROWS: dict[str, Callable[[Place], Expected]] = {
    "aten.cumsum": cumulative,
    "tallystick.rank": softmax,
    "tallystick.occurrences": by_class,
}
FAMILIES: tuple[tuple[str, Callable[[Place], Expected]], ...] = (
    ("### 7.1 ", norms),
    ("### 7.2 ", movement),
    ("### 7.3 ", lambda p: (convolution if "conv" in p.site.op else matrices)(p)),
    ("### 7.4 ", lambda p: ROWS.get(p.site.op, reduction)(p)),
    ("### 7.5 ", scatter),
    ("### 7.6 ", lambda p: (softmax if "softmax" in p.site.op else layer_norm)(p)),
    ("### 7.7 ", batch_norm),
    ("### 7.8 ", pool),
    ("### 7.9 ", losses),
    ("### 7.10 ", by_class),
    ("### 7.11 ", attention),
    ("### 7.12 ", quantised),
)


@cache
def family(op: str) -> Callable[[Place], Expected]:
    """The letters of the subsection whose table names the operator."""
    sections = re.split(r"\n(?=##)", TEXT)
    (found,) = [
        bind
        for head, bind in FAMILIES
        for section in sections
        if section.startswith(head) and re.search(rf"\n\|[^|]*`{re.escape(op)}`", section)
    ]
    return found
