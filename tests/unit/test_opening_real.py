"""Real numbers with a bound, written anew from the text, against the rules' (OPENING 10, 11).

The constants and the operators' formulas are taken from the text and evaluated on a pair type that
follows its clauses alone, one binary64 operation at a time. Bits must be equal: parties state them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from unit.opening.disputes import value_of
from unit.opening.opening_text import CONTRACTS, block, code, golden_sites, table

from tallystick.numerics.types import TensorType
from tallystick.opening import approx, real_functions
from tallystick.opening.approx import Approx, packed, widened
from tallystick.opening.quantity import Site, opening_rule
from tallystick.opening.values import WholeSource

F64 = np.float64
INFINITY, NAN = F64(math.inf), F64(math.nan)


def constants(clause: str) -> dict[str, F64]:
    """The lines `name = number` of the formulas after a clause."""
    found = {}
    for line in block(clause):
        name, _, text = line.partition(" = ")
        if power := re.fullmatch(r"2\^−(\d+)", text):
            found[name] = F64(2.0 ** -int(power[1]))
        elif re.fullmatch(r"0x1\.[0-9a-f]+p[+-]\d+", text):
            found[name] = F64(float.fromhex(text))
    return found


SMALL = constants("10.1")
C, F, W, T = (SMALL[name] for name in "CFWT")
LN2, HIGH, LOW = (constants("11.1")[name] for name in ("LN2", "HIGH", "LOW"))
PI = int(next(line for line in block("11.9") if line.startswith("P = "))[4:], 16)


# --- §11 ------------------------------------------------------------------------------------------
def t(n: int) -> F64:
    return F64(1.0 / float(math.factorial(n)))


def poly(r: F64, factors: list[F64]) -> F64:
    total = factors[-1]
    for factor in reversed(factors[:-1]):
        total = total * r + factor
    return total


def exp(x: F64) -> F64:
    if np.isnan(x):
        return NAN
    x = min(max(x, F64(-800)), F64(800))
    k = np.rint(x / LN2)
    r = (x - k * HIGH) - k * LOW
    return np.ldexp(poly(r, [t(n) for n in range(20)]), int(k))


def expm1(x: F64) -> F64:
    if abs(x) < float.fromhex("0x1.6666666666666p-2"):
        return x * poly(x, [t(n) for n in range(1, 20)])
    return exp(x) - F64(1)


def atanh2(s: F64) -> F64:
    return (F64(2) * s) * poly(s * s, [F64(1 / n) for n in range(1, 48, 2)])


def log(x: F64) -> F64:
    if np.isnan(x) or x < 0:
        return NAN
    if x == 0 or x == INFINITY:
        return -INFINITY if x == 0 else INFINITY
    m, k = np.frexp(x)
    if m < float.fromhex("0x1.6a09e667f3bcdp-1"):
        m, k = m * F64(2), k - 1
    f = m - F64(1)
    return F64(k) * HIGH + (atanh2(f / (F64(2) + f)) + F64(k) * LOW)


def log1p(x: F64) -> F64:
    if abs(x) < float.fromhex("0x1.999999999999ap-2"):
        return atanh2(x / (F64(2) + x))
    return log(F64(1) + x)


def tanh(x: F64) -> F64:
    if np.isnan(x):
        return NAN
    found = expm1(min(F64(2) * abs(x), F64(80)))
    return np.copysign(found / (found + F64(2)), x)


def erf(x: F64) -> F64:
    if np.isnan(x):
        return NAN
    a = min(abs(x), F64(6))
    q, term, total = a * a, a, a
    for k in range(1, 160):
        term = term * ((F64(2) * q) / F64(2 * k + 1))
        total = total + term
    found = min((total * exp(-q)) * F64(float.fromhex("0x1.20dd750429b6dp+0")), F64(1))
    return np.copysign(found, x)


def circular(x: F64, shift: int) -> F64:
    if not np.isfinite(x):
        return NAN
    if x == 0:
        return F64(1) if shift else x
    quarter = PI // 2
    over, under = float(x).as_integer_ratio()
    scaled = (over << 320) // under
    n = (2 * scaled + quarter) // (2 * quarter)
    r = F64((scaled - n * quarter) / (1 << 320)) if n else x
    j, z, total = (n + shift) % 4, r * r, F64(0)
    for k in range(12 if j % 2 else 11, -1, -1):
        total = total * (-z) + t(2 * k if j % 2 else 2 * k + 1)
    found = total if j % 2 else total * r
    return -found if j >= 2 else found


FUNCTIONS: dict[str, Callable[[F64], F64]] = {
    "exp": exp, "expm1": expm1, "log": log, "log1p": log1p, "tanh": tanh, "erf": erf,
    "sine": lambda x: circular(x, 0), "cosine": lambda x: circular(x, 1),
}  # fmt: skip


def arguments() -> Iterator[F64]:
    """Binary64 numbers of all sizes that binary32 has, and the special ones."""
    rng = np.random.default_rng(20)
    for v in (0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 0.35, 0.4, 710.0, -745.5, 6.0):
        yield F64(v)
    for scale in (1e-300, 1e-30, 1e-3, 0.3, 1.0, 5.0, 90.0, 800.0, 1e9, 3e38):
        yield from (F64(v) for v in rng.normal(size=12) * scale)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    """OPENING 11.2 to 11.9."""
    with np.errstate(all="ignore"):
        for x in arguments():
            theirs = np.asarray(getattr(real_functions, name)(np.array([x])))[0]
            ours = FUNCTIONS[name](x)
            equal = ours.tobytes() == theirs.tobytes()
            assert equal or (np.isnan(ours) and np.isnan(theirs)), (x, ours, theirs)


# --- §10 ------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Pair:
    """10.1."""

    x: F64
    e: F64

    def __neg__(self) -> Pair:
        return Pair(-self.x, self.e)

    def __add__(self, other: Any) -> Pair:
        a, b = self, pair(other)
        return after(a.x + b.x, (a.e + b.e) + C * (abs(a.x) + abs(b.x)), a, b)

    def __radd__(self, other: Any) -> Pair:
        return pair(other) + self

    def __sub__(self, other: Any) -> Pair:
        return self + -pair(other)

    def __rsub__(self, other: Any) -> Pair:
        return pair(other) - self

    def __mul__(self, other: Any) -> Pair:
        a, b = self, pair(other)
        x = a.x * b.x
        lost = T if a.x != 0 and b.x != 0 else F64(0)
        e = (((a.e * abs(b.x) + b.e * abs(a.x)) + a.e * b.e) + C * abs(x)) + lost
        return after(x, e, a, b)

    def __rmul__(self, other: Any) -> Pair:
        return pair(other) * self

    def __truediv__(self, other: Any) -> Pair:
        a, b = self, pair(other)
        s, x = abs(b.x) - b.e, a.x / b.x
        e = ((a.e + abs(x) * b.e) / s + C * abs(x)) + (T if a.x != 0 else F64(0))
        return after(x, e if s > 0 else INFINITY, a, b)

    def __rtruediv__(self, other: Any) -> Pair:
        return pair(other) / self


def pair(x: Any) -> Pair:
    return x if isinstance(x, Pair) else Pair(F64(x), F64(0))


def after(x: F64, e: F64, *of: Pair) -> Pair:
    """10.4."""
    if np.isfinite(x):
        return Pair(x, INFINITY if np.isnan(e) else e)
    certain = np.isinf(x) and any(np.isinf(a.x) and a.e == 0 for a in of)
    return Pair(x, F64(0) if certain else INFINITY)


def root(a: Any) -> Pair:
    a = pair(a)
    x, s = np.sqrt(a.x), F64(0)
    if a.e != 0:
        both = (a.e / x, np.sqrt(a.e))
        s = NAN if any(np.isnan(both)) else min(both)
    return after(x, s + C * x, a)


def _wide(a: Pair) -> F64:
    return F64(2) * a.e if a.e < 1 else INFINITY


def pair_exp(a: Any) -> Pair:
    a = pair(a)
    x = exp(a.x)
    lost = INFINITY if not a.e < 1 else T if np.isfinite(a.x) else F64(0)
    return after(x, x * (_wide(a) + F) + lost, a)


def pair_log(a: Any) -> Pair:
    a = pair(a)
    x, s = log(a.x), a.x - a.e
    return after(x, (a.e / s if s > 0 else INFINITY) + F * abs(x), a)


def smooth(function: Callable[[F64], F64], slope: float) -> Callable[[Any], Pair]:
    def of(a: Any) -> Pair:
        a = pair(a)
        x = function(a.x)
        lost = T if x != 0 or a.x != 0 else F64(0)
        return after(x, (F64(slope) * a.e + F * abs(x)) + lost, a)

    return of


def of_operand(function: Callable[[F64], F64]) -> Callable[[Any], Pair]:
    def of(a: Any) -> Pair:
        a = pair(a)
        x = function(a.x)
        return after(x, F * abs(x) + (T if a.x != 0 else F64(0)), a)

    return of


def pair_sigmoid(a: Any) -> Pair:
    a = pair(a)
    x = F64(1) / (F64(1) + exp(-a.x))
    return after(x, x * (_wide(a) + F) + (F64(0) if np.isinf(a.x) else T), a)


PAIRS: dict[str, Callable[[Any], Pair]] = {
    "exp": pair_exp, "log": pair_log, "sqrt": root, "sigmoid": pair_sigmoid,
    "tanh": smooth(tanh, 1.0), "erf": smooth(erf, 1.25), "sin": smooth(FUNCTIONS["sine"], 1.0),
    "cos": smooth(FUNCTIONS["cosine"], 1.0), "rsqrt": lambda a: 1.0 / root(a),
    "expm1": of_operand(expm1), "log1p": of_operand(log1p),
}  # fmt: skip
_THEIRS = {"sin": "sine", "cos": "cosine"}


def same(ours: Pair, theirs: Any) -> bool:
    """Equal as they are stated: a NaN is canonical (10.8)."""
    row = np.asarray(packed(theirs)).reshape(-1)[0]
    x = NAN if np.isnan(ours.x) else ours.x
    return x.tobytes() + ours.e.tobytes() == row.tobytes()


def pairs_(seed: int, count: int = 250) -> Iterator[Pair]:
    rng = np.random.default_rng(seed)
    special = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, 1e-310, 3e38, -1e-45]
    for _ in range(count):
        x = (
            rng.choice(special)
            if rng.random() < 0.2
            else rng.normal() * 10.0 ** rng.integers(-9, 9)
        )
        e = rng.choice([0.0, 0.0, math.inf, abs(x) * 1e-12, 1e-13, 0.7, 2.0])
        yield Pair(F64(x), INFINITY if np.isnan(e) else F64(e))


def theirs(p: Pair) -> Approx:
    return Approx(p.x, p.e)


def test_arithmetic() -> None:
    """OPENING 10.2, 10.4, 10.5."""
    with np.errstate(all="ignore"):
        for a, b in zip(pairs_(1), pairs_(2), strict=True):
            assert same(a + b, theirs(a) + theirs(b)), (a, b)
            assert same(a - b, theirs(a) - theirs(b)), (a, b)
            assert same(a * b, theirs(a) * theirs(b)), (a, b)
            assert same(a / b, theirs(a) / theirs(b)), (a, b)
            e = a.e + (F64(23) * W) * abs(a.x)
            e = F64(0) if np.isinf(a.x) and a.e == 0 else INFINITY if np.isnan(e) else e
            assert same(Pair(a.x, e), widened(theirs(a), 7)), a


@pytest.mark.parametrize("name", PAIRS)
def test_functions_of_pairs(name: str) -> None:
    """OPENING 10.3, 10.4."""
    operand_only = name in ("expm1", "log1p")
    with np.errstate(all="ignore"):
        for a in pairs_(3):
            a = Pair(a.x, F64(0)) if operand_only else a
            assert same(PAIRS[name](a), getattr(approx, _THEIRS.get(name, name))(theirs(a))), a


# --- operators of one element each (10.9) ---------------------------------------------------------
def formula(text: str) -> str:
    """A formula of the text in Python."""
    text = re.sub(r"√(\w+'?)", r"sqrt(\1)", text).replace("√(", "sqrt(")
    for sign, python in (("·", "*"), ("−", "-"), ("'", "_"), ("⁻²⁴", "**-24"), ("div", "//")):
        text = text.replace(sign, python)
    return re.sub(r"0x1\.[0-9a-f]+p[+-]\d+", lambda m: repr(float.fromhex(m[0])), text)


def evaluated(text: str, env: dict[str, Any]) -> Any:
    """`text`, after definitions `name = formula, …:` of what it uses."""
    head, _, last = text.rpartition(": ")
    env = {**PAIRS, **env}
    for name, given in re.findall(r"(\w+) = ([^,]*)", head):
        env[name] = eval(formula(given), env)
    return eval(formula(last), env)


def gelu(env: dict[str, Any]) -> dict[str, Any]:
    """10.9.1."""
    env = {**env, **constants("10.9.1")}
    (line,) = [line for line in block("10.9.1") if line.startswith("u = ")]
    return {**env, "u": eval(formula(line[4:]), env)}


def rows() -> dict[str, str]:
    return {op: text for ops, text in table("operator", "x") for op in code(ops)}


FORMULAS = (
    *(f"aten.{n}.{form}" for n in ("add", "sub", "mul", "div") for form in ("Tensor", "Scalar")),
    "aten.exp2", "aten.log2", "aten.reciprocal", "aten.square", "aten.silu", "aten.silu_backward",
    "aten.tanh_backward", "aten.sigmoid_backward", "aten.gelu", "aten.gelu_backward",
)  # fmt: skip


def by_text(op: str, attrs: dict[str, Any], operands: list[Pair]) -> Pair:
    """x of 10.9 by the text's formula."""
    text, first, last = rows()[op], operands[0], operands[-1]
    rounded = {k: float(np.float32(v)) for k, v in attrs.items() if isinstance(v, float)}
    env: dict[str, Any] = {"a": first, "b": pair(rounded.get("other", last)), "g": first, **rounded}
    env |= {"x": last, "y": last}
    if op.split(".")[1] in ("add", "sub"):
        plain, scaled = re.split(r" if alpha = 1, else ", text.split(";")[0])
        text = plain if env["alpha"] == 1 else scaled
    if "gelu" in op:
        none, tanh_ = re.fullmatch(r"none: (.*); tanh: (.*)", text).groups()  # type: ignore[union-attr]
        text, env = (none if attrs["approximate"] == "none" else tanh_), gelu(env)
    found = evaluated(text, env)
    assert isinstance(found, Pair)
    return found


@pytest.mark.parametrize("op", FORMULAS)
def test_formulas(op: str) -> None:
    """OPENING 10.9, 10.9.1: the quantity `x` of golden calls."""
    seen = 0
    with np.errstate(all="ignore"):
        for site, case in golden_sites(CONTRACTS["published"], 6, op):
            if site.op != op or site.outputs[0].dtype != "f32":
                continue
            operands = [pair(v) for v in _elements(site, case.inputs)]
            x = value_of(opening_rule(site).needs[0], WholeSource(case.inputs))
            ours, stated = by_text(op, site.attrs, operands), np.asarray(x)
            assert same(ours, Approx(stated["x"], stated["e"])), (site.attrs, operands)
            seen += 1
    assert seen


def _elements(site: Site, inputs: tuple[np.ndarray | None, ...]) -> list[float]:
    out = site.outputs[0].shape
    found = []
    for array in inputs:
        assert array is not None
        found.append(float(np.broadcast_to(array, out).reshape(-1)[site.element]))
    return found


def power(a: F64, y: F64) -> Pair:
    """10.9.2."""
    odd = bool(np.isfinite(y)) and float(y) % 2 == 1
    if not np.isfinite(a):
        return pair(NAN)
    if a == 1 or y == 0:
        return pair(1.0)
    if a == 0:
        z = F64(0) if y > 0 else INFINITY if y < 0 else y
        return pair(np.copysign(z, a) if odd else z)
    if a < 0 and y != np.rint(y):
        return pair(NAN)
    size = pair_exp(pair_log(abs(a)) * pair(y))
    return -size if a < 0 and odd else size


def test_power() -> None:
    """OPENING 10.9.2."""
    rng, seen = np.random.default_rng(5), 0
    for y in (0.0, 1.0, 2.0, 3.0, -1.0, -3.0, 0.5, -0.5, 2.7, math.inf, -math.inf, math.nan, 1e30):
        for a in (0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, *rng.normal(size=9)):
            operand = np.array([a], np.float32)
            given, out = (TensorType("f32", (1,)),), (TensorType("f32", (1,)),)
            attrs = {"exponent": y}
            site = Site("aten.pow.Tensor_Scalar", attrs, given, out, 0, 0, CONTRACTS["published"])
            with np.errstate(all="ignore"):
                x = np.asarray(value_of(opening_rule(site).needs[0], WholeSource([operand])))
                ours = power(F64(operand[0]), F64(np.float32(y)))
            assert same(ours, Approx(x["x"], x["e"])), (a, y)
            seen += 1
    assert seen


STEPS = {"tallystick.adamw_step": "10.9.3", "tallystick.adam_step": "10.9.3",
         "tallystick.sgd_step": "10.9.4"}  # fmt: skip


@pytest.mark.parametrize("op", STEPS)
@pytest.mark.parametrize("decay", [0.0, 0.05])
@pytest.mark.parametrize("clipped", [False, True])
def test_steps(op: str, decay: float, clipped: bool) -> None:
    """OPENING 10.9.3, 10.9.4."""
    rng, adam = np.random.default_rng(4), op != "tallystick.sgd_step"
    names = "p g m v lr b1p b2p c".split() if adam else "p g buf lr c".split()
    wide = ("lr", "b1p", "b2p")
    with np.errstate(all="ignore"):
        for nesterov in (False, True):
            arrays = [abs(rng.normal(size=() if n in wide else (1,))) / 2 for n in names]
            given = [
                a.astype("f8" if n in wide else "f4") for a, n in zip(arrays, names, strict=True)
            ]
            given[-1] = given[-1].reshape(()) if clipped else None  # type: ignore[call-overload]
            attrs = {"weight_decay": decay}
            attrs |= {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8} if adam else {
                "momentum": 0.9, "dampening": 0.1, "nesterov": nesterov}  # fmt: skip
            found = _step(op, STEPS[op], attrs, names, given)
            types = tuple(None if a is None else TensorType(
                "f64" if a.dtype == "f8" else "f32", a.shape) for a in given)  # fmt: skip
            outs = (TensorType("f32", (1,)),) * len(found)
            for k, ours in enumerate(found):
                site = Site(op, attrs, types, outs, k, 0, CONTRACTS["published"])
                x = np.asarray(value_of(opening_rule(site).needs[0], WholeSource(given)))
                assert same(ours, Approx(x["x"], x["e"])), (op, attrs, k)


def _step(op: str, clause: str, attrs: dict[str, Any], names: list[str], given: Any) -> list[Pair]:
    """The lines of a step, in order; their conditions are in words."""
    env: dict[str, Any] = {**PAIRS, **attrs}
    env |= {n: pair(a.reshape(-1)[0]) for n, a in zip(names, given, strict=True) if a is not None}
    decoupled = op == "tallystick.adamw_step"
    for line in block(clause):
        name, right = re.split(r" [←=] ", line, maxsplit=1)
        right, _, _ = right.partition(",")
        if ("operand 7" in line or "operand 4" in line) and given[-1] is None:
            continue
        if line.startswith("g ← g + p") and (attrs["weight_decay"] == 0 or decoupled):
            continue
        if name == "kept":
            right = right.split(" of ")[0] if decoupled else "p"
        if name == "u":
            plain = right.split("; ")[2].removeprefix("else ")
            right = right.split("; ")[1].split(" with ")[0] if attrs["nesterov"] else plain
        env[name.replace("'", "_")] = eval(formula(right), env)
    return [env[n] for n in (("p_", "m_", "v_") if "m_" in env else ("p_", "buf_"))]
