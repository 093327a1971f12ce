"""The cases of vectors/rounded/bounded.json and published.json, from the plain references.

Bits of a binary32 or a binary64 are hexadecimal digits, the most significant first.
"""

from __future__ import annotations

import json
import math
import struct
from fractions import Fraction
from typing import Any

import numpy as np
from make_log_vectors import bounded_blocks, published_bytes
from reference import published as paper
from reference.floats import canonical
from reference.logs import C, Element, order
from reference.nasty import near_boundaries
from reference.rounded import abs_sums, grid_pattern, rounded_sum, square_sums

Case = dict[str, Any]
BOUNDED_FORMAT = "tallystick-bounded-log-vectors/1"
PUBLISHED_FORMAT = "tallystick-published-log-vectors/1"
T = 1 << 15  # 0.25·2⁻²³ in units of 2⁻⁴⁰


def hex32(pattern: int) -> str:
    return f"{pattern:08x}"


def hex64(x: float) -> str:
    return struct.pack(">d", x).hex()


def bits32(x: np.ndarray) -> list[str]:
    return [hex32(n) for n in np.ascontiguousarray(x, np.float32).reshape(-1).view(np.uint32)]


def _text(form: str, lists: dict[str, list[Case]]) -> str:
    parts = []
    for name, cases in lists.items():
        inside = ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases)
        parts.append(f'"{name}":[\n{inside}\n]')
    return f'{{"format":"{form}",' + ",".join(parts) + "}\n"


# ---- bounded: 14.4 to 14.7 ----------------------------------------------------------------------


class One:
    """An element by its terms and E, those that are not finite included (13.4, 14.7)."""

    def __init__(self, terms: list[float], bound: float, b: int) -> None:
        self.bound, self._exact = bound, rounded_sum(terms, b)
        finite = all(map(math.isfinite, terms))
        self.element = Element([Fraction(t) for t in terms], bound, b) if finite else None

    def value(self, direction: int | None) -> int:
        return self._exact if self.element is None else self.element.value(direction)

    def forged(self, direction: int) -> bool:
        return self.element is None or self.element.forged(direction)


def _products(a: np.ndarray, b: np.ndarray, c: np.ndarray | None, bits: int) -> list[One]:
    k = float(a.shape[1] + (c is not None)) * C
    left, right = np.sqrt(square_sums(a.T)), np.sqrt(square_sums(b))
    made = []
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            terms = [float(x) * float(y) for x, y in zip(a[i], b[:, j], strict=True)]
            bound = float((k * left[i]) * right[j])
            if c is not None:
                terms.append(float(c[i, j]))
                bound = bound + k * abs(float(c[i, j]))
            made.append(One(terms, bound, bits))
    return made


def _sums(x: np.ndarray, bits: int) -> list[One]:
    bounds = float(x.shape[1]) * C * abs_sums(x.T)
    return [One([float(v) for v in row], float(e), bits) for row, e in zip(x, bounds, strict=True)]


def _calls(bits: int, seed: int) -> list[tuple[str, dict[str, Any], list[np.ndarray], list[One]]]:
    a, b = near_boundaries(8, 17, 5, seed, bits)
    wild = a.copy()
    wild[0, 0], wild[1, 1], wild[2, 2] = np.nan, np.inf, -np.inf
    c = np.resize(a, (8, 5)).copy()
    with np.errstate(all="ignore"):
        rows = a * b[:, 1]
        return [
            ("aten.mm", {}, [a, b], _products(a, b, None, bits)),
            ("aten.mm", {}, [wild, b], _products(wild, b, None, bits)),
            ("aten.addmm", {"alpha": 1, "beta": 1}, [c, a, b], _products(a, b, c, bits)),
            ("aten.addmm", {"alpha": 1, "beta": 0}, [c, a, b], _products(a, b, None, bits)),
            ("aten.addmm", {"alpha": 0.5, "beta": 2}, [c, a, b], _products(a, b, None, bits)),
            ("aten.sum.dim_IntList", {"dim": [1], "keepdim": False}, [rows], _sums(rows, bits)),
            ("aten.mean.dim", {"dim": [1], "keepdim": False}, [rows], _sums(rows, bits)),
        ]


def _finished(op: str, attrs: dict[str, Any], inputs: list[np.ndarray], r: np.ndarray) -> Any:
    """What 13.3 does after R."""
    with np.errstate(all="ignore"):
        if op == "aten.mean.dim":
            r = r / np.float32(inputs[0].shape[1])
        if op == "aten.addmm" and attrs["alpha"] != 1:
            d = np.float32(attrs["alpha"]) * r
            r = d + np.float32(attrs["beta"]) * inputs[0].reshape(-1)
    return canonical(np.asarray(r, np.float32))


def bounded_cases() -> list[Case]:
    cases = []
    for bits, seed in ((27, 5), (32, 6), (20, 7)):
        for op, attrs, inputs, elements in _calls(bits, seed):
            every = range(len(elements))
            logs: list[list[tuple[int, int]]] = [
                [],
                [(at, at % 2) for at in every],
                [(at, (at + 1) % 2) for at in every],
            ]
            if op == "aten.mm":
                logs += [[(at, d) for at in every if at % 3 == d] for d in (0, 1)]
                logs.append([(1, 0), (len(elements), 1), (4095, 0)])  # no such elements
            held = {
                "contract": f"replay/1-draft.1;b={bits};form=bounded",
                "op": op,
                "attrs": {k: float(v).hex() if k in ("alpha", "beta") else v
                          for k, v in attrs.items()},
                "inputs": [{"shape": list(x.shape), "bits": bits32(x)} for x in inputs],
                "bounds": [hex64(e.bound) for e in elements],
                "logs": [],
            }  # fmt: skip
            for log in logs:
                entry = dict(log)
                r = np.array([e.value(entry.get(at)) for at, e in enumerate(elements)], np.uint32)
                held["logs"].append(
                    {
                        "entries": [list(e) for e in log],
                        "block": _block(log).hex(),
                        "values": bits32(_finished(op, attrs, inputs, r.view(np.float32))),
                        "forged": [
                            at for at, d in log if at >= len(elements) or elements[at].forged(d)
                        ],
                    }
                )
            cases.append(held)
    return cases


def _block(log: list[tuple[int, int]]) -> bytes:
    (block,) = bounded_blocks(lambda n: n.to_bytes(2, "little"), 4096, log)
    return block


def block_cases() -> list[Case]:
    """Bytes that are a block of 4096 elements, and bytes that are none (COMMITMENTS 10.2)."""
    good: list[list[tuple[int, int]]] = [
        [],
        [(0, 0)],
        [(0, 1)],
        [(4095, 1)],
        [(0, 0), (1, 1), (4094, 1), (4095, 0)],
    ]
    bad = {
        "a position twice": [0, 1],
        "positions that descend": [4, 2],
        "the same word twice": [7, 7],
        "a position of the next block": [8192],
        "the greatest word": [65535],
    }
    cases: list[Case] = [
        {"name": f"{len(log)} entries, {n}", "bytes": _block(log).hex(),
         "entries": [list(e) for e in log]}
        for n, log in enumerate(good)
    ]  # fmt: skip
    for name, words in bad.items():
        cases.append({"name": name, "bytes": struct.pack(f"<{len(words)}H", *words).hex()})
    cases.append({"name": "half a word", "bytes": "000200"})
    return [c if "entries" in c else {**c, "refused": True} for c in cases]


def bounded_text() -> str:
    return _text(BOUNDED_FORMAT, {"cases": bounded_cases(), "blocks": block_cases()})


# ---- published: 14.9, 14.10 ---------------------------------------------------------------------


def results(bits: int) -> list[float]:
    """Binary64 results about boundaries, elements of the grid, thresholds and special values."""
    step = 2.0 ** (9 - bits)
    values = [0.0, -0.0, math.inf, -math.inf, math.nan, 5e-324, -5e-324, 2.0**-149, 2.0**-150]
    values += [-(2.0**-150), 1.0000001 * 2.0**-150, 2.0**-126, 3.4028234663852886e38]
    values += [3.4028235677973366e38, 3.40282356779733e38, 1.7e308, -1e300, 1e-5, 1e-45, 9.999e4]
    # The least element of the grid and its boundary with zero, from both sides.
    least = paper.value_of(1 << (32 - bits))
    values += [sign * part * least for sign in (1.0, -1.0) for part in (0.25, 0.5, 0.75, 1.0, 1.25)]
    for base in (1.0, -1.0 - step, 2.0 - step, -0.1875, 1024.0 + 1024 * step, -(2.0**-126)):
        unit = step * 2.0 ** (math.frexp(base)[1] - 1)
        tau = 2.0 ** (math.frexp(base)[1] - 1) * T * 2.0**-40
        for away in (0.0, 0.25, 0.5, 0.75):
            middle = base + math.copysign(away * unit, base)
            values += [math.nextafter(middle, -math.inf), middle, math.nextafter(middle, math.inf)]
        edge = base + tau
        values += [math.nextafter(edge, -math.inf), edge, math.nextafter(edge, math.inf)]
    return values


def value_cases() -> list[Case]:
    """x and the value that each entry makes of it."""
    cases = []
    for bits in (32, 27, 20):
        for x in results(bits):
            made = [paper.rev(x, bits, c) for c in (0, 1, 2)]
            patterns = [0x7FC00000 if v != v else paper.bits_of(v) for v in made]
            cases.append({"b": bits, "x": hex64(x), "values": list(map(hex32, patterns))})
    return cases


def entry_cases() -> list[Case]:
    """A party's own entries, and the bytes that they are packed to (COMMITMENTS 10.3)."""
    cases = []
    for bits in (32, 27, 20):
        xs = results(bits)
        for threshold, scale in ((T, "binary"), (T, "decimal"), (0, "binary"), (49152, "decimal")):
            for count in (len(xs), 1, 4, 5, 6):
                entries = [paper.log(x, bits, threshold, scale == "decimal") for x in xs[-count:]]
                cases.append(
                    {
                        "b": bits,
                        "scale": scale,
                        "T": threshold,
                        "x": [hex64(x) for x in xs[-count:]] if count < 7 else "all",
                        "entries": "".join(map(str, entries)),
                        "bytes": published_bytes(entries).hex(),
                    }
                )
    return cases


def packed_cases() -> list[Case]:
    """Bytes that are the entries of so many elements, and bytes that are not."""
    good = ["", "0", "2", "00000", "22222", "11111", "012012", "21012010"]
    cases: list[Case] = [
        {"elements": len(e), "bytes": published_bytes([int(c) for c in e]).hex(), "entries": e}
        for e in good
    ]
    bad = [(5, "f3"), (5, "ff"), (1, "00"), (4, "28"), (5, ""), (5, "7979"), (6, "79"), (0, "79")]
    return cases + [{"elements": n, "bytes": data, "refused": True} for n, data in bad]


def _reversed(x: Fraction, bits: int, c: int) -> int:
    """rev(x, c) as a number of the grid's order, by the second table of 14.10."""
    step = 1 << (32 - bits)
    at = order(grid_pattern(x, bits))
    top = 0x7F800000
    number = None if abs(at) == top else Fraction(float(paper.value_of(abs(at)))) * (at > 0 or -1)
    if c == 0 and (at == top or (number is not None and number > x)):
        return at - step
    if c == 2 and (at == -top or (number is not None and number < x)):
        return at + step
    return at


def reach_cases() -> list[Case]:
    """V(c) of an x* and an E: the patterns of its ends, and which entries are forged."""
    cases = []
    for bits in (32, 27, 20):
        step = 2.0 ** (9 - bits)
        for base in (0.0, 1.0, -1.0, 1.0 + step, -0.75, 2.0**-126, 3.4028234663852886e38):
            unit = step * 2.0 ** (math.frexp(base)[1] - 1) if base else 2.0 ** (-117 - bits)
            for away in (0.0, 0.3, 0.5, -0.5, 0.9):
                for part in (0.0, 2.0**-20, 0.25, 1.5):
                    x, e = base + away * unit, part * unit
                    exact, slack = Fraction(x), Fraction(e)
                    ends = [
                        [_reversed(exact + s, bits, c) for s in (-slack, slack)] for c in (0, 1, 2)
                    ]
                    low, high = ends[1]
                    forged = [c for c in (0, 2) if ends[c][1] < low or ends[c][0] > high]
                    patterns = [
                        [hex32(n if n >= 0 else 0x80000000 | -n) for n in two] for two in ends
                    ]
                    cases.append(
                        {"b": bits, "x": hex64(x), "E": hex64(e), "V": patterns, "forged": forged}
                    )
    return cases


def published_text() -> str:
    lists = {
        "values": value_cases(),
        "entries": entry_cases(),
        "packed": packed_cases(),
        "reach": reach_cases(),
    }
    return _text(PUBLISHED_FORMAT, lists)
