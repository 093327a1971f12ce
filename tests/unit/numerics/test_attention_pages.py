"""Attention over pages has the bits of the three operators (NUMERICS 18), whatever pages there are.

A text is appended to pages in any order of them, and each of its places is asked by itself or
among others. The operators see the whole text, every query at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.data import Gen
from vectors.kernel_format import same_bits

from tallystick import _core, evaluate

PAGE = 16
Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def _own_threads() -> Iterator[None]:
    before = _core.isa(), _core.threads()
    yield
    _core.set_isa(before[0])
    _core.set_threads(before[1])


@dataclass
class Shape:
    heads: int
    groups: int
    depth: int
    width: int


@dataclass
class Rule:
    scale: float
    softcap: float
    window: int
    slopes: Array | None
    sinks: Array | None


def attended(q: Array, k: Array, v: Array, rule: Rule, first: int = 0) -> Array:
    """The three operators, one after the other: q[B,H,T,D] at places first, first + 1, ..."""
    seen: dict[str, Any] = {"causal": True, "first": first, "window": rule.window}
    scores: Any = evaluate("tallystick.attention_scores", q, k, rule.slopes, scale=rule.scale,
                      softcap=rule.softcap, **seen)  # fmt: skip
    weights: Any = evaluate("tallystick.attention_weights", scores, rule.sinks, **seen)
    return np.asarray(evaluate("tallystick.attention_values", weights, v, **seen))


class Pages:
    """Texts in pages that are taken from one pool in no order."""

    def __init__(self, g: Gen, shape: Shape, texts: list[tuple[Array, Array]]) -> None:
        counts = [-(-k.shape[1] // PAGE) for k, _ in texts]
        floats = shape.groups * PAGE * (shape.depth + shape.width)
        pool = np.full((sum(counts) + 2, floats), np.nan, np.float32)  # of no text, yet
        order = np.argsort(g.words(len(pool)))[: sum(counts)].astype(np.int64)
        # Something else stands between the tables of two texts.
        tables = [np.append(part, -7) for part in np.split(order, np.cumsum(counts)[:-1])]
        self.tables = np.concatenate(tables)
        self.starts = np.cumsum([0, *(len(t) for t in tables[:-1])]).astype(np.int64)
        self.pool, self.shape = pool, shape
        for text, (k, v) in enumerate(texts):
            places = np.arange(k.shape[1])
            starts = np.full(len(places), self.starts[text])
            key, value = (np.ascontiguousarray(x.transpose(1, 0, 2)) for x in (k, v))
            _core.attention_append(key, value, pool, self.tables, starts, places)

    def attend(self, q: Array, texts: Array, places: Array, rule: Rule) -> Array:
        out = np.empty((len(q), self.shape.heads, self.shape.width), np.float32)
        _core.attention_pages(
            q, self.pool, self.tables, self.starts[texts], places, self.shape.groups, out,
            rule.scale, rule.softcap, rule.window, rule.slopes, rule.sinks,
        )  # fmt: skip
        return out


def compare(label: str, shape: Shape, lengths: list[int], rule: Rule, maker: str) -> None:
    g = Gen(label)
    make = getattr(g, maker)
    texts = [(make(shape.groups, n, shape.depth), make(shape.groups, n, shape.width))
             for n in lengths]  # fmt: skip
    queries = [make(1, shape.heads, n, shape.depth) for n in lengths]
    pages = Pages(g, shape, texts)
    which = np.repeat(np.arange(len(lengths)), lengths)
    places = np.concatenate([np.arange(n) for n in lengths])
    rows = np.concatenate([q[0].transpose(1, 0, 2) for q in queries])
    wanted = [attended(q, k[None], v[None], rule)[0].transpose(1, 0, 2)
              for q, (k, v) in zip(queries, texts, strict=True)]  # fmt: skip
    # Rows in no order, and of every text together; a large text by some of its places.
    taken = np.argsort(g.words(len(rows)))[:150]
    found = pages.attend(np.ascontiguousarray(rows[taken]), which[taken], places[taken], rule)
    assert same_bits(found, np.ascontiguousarray(np.concatenate(wanted)[taken]))
    # In their order, so in blocks.
    rows = np.ascontiguousarray(rows)
    assert same_bits(pages.attend(rows, which, places, rule), np.concatenate(wanted))


SHAPES = [
    Shape(9, 3, 64, 64), Shape(1, 1, 1, 1), Shape(4, 4, 16, 24), Shape(8, 1, 5, 3),
    Shape(4, 2, 130, 33), Shape(6, 3, 8, 100), Shape(2, 1, 257, 7),
]  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from(SHAPES),
    st.lists(st.integers(1, 90), min_size=1, max_size=4),
    st.sampled_from([0, 0, 1, 2, 15, 16, 17, 40, 1000]),
    st.sampled_from([0.0, 30.0]),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["floats", "mixed", "wide"]),
    st.integers(1, 3),
    st.sampled_from(_core.supported_isas()),
)
def test_any_pages(
    label: int, shape: Shape, lengths: list[int], window: int, softcap: float, sloped: bool,
    sunk: bool, maker: str, threads: int, isa: str,
) -> None:  # fmt: skip
    _core.set_isa(isa)
    _core.set_threads(threads)
    g = Gen(f"heads {label}")
    slopes, sinks = (g.floats(shape.heads) if on else None for on in (sloped, sunk))
    rule = Rule(0.125, softcap, window, slopes, sinks)
    compare(f"pages {label}", shape, lengths, rule, maker)


@pytest.mark.sample(3)
@pytest.mark.parametrize("isa", _core.supported_isas())
@pytest.mark.parametrize("window", [0, 1, 100, 127, 128, 129, 300])
@pytest.mark.parametrize("sunk", [False, True])
def test_long_texts(isa: str, window: int, sunk: bool) -> None:
    """Chunks of values, blocks of the sum, and what a window leaves out of both."""
    _core.set_isa(isa)
    _core.set_threads(2)
    sinks = Gen("sinks").floats(3) if sunk else None
    rule = Rule(1.0, 0.0, window, None, sinks)
    compare(f"long {window}", Shape(3, 1, 8, 17), [700, 257], rule, "floats")


@pytest.mark.parametrize("isa", _core.supported_isas())
def test_products_that_round_to_minus_zero(isa: str) -> None:
    """A chunk that a window leaves out is +0, and is added (18.6)."""
    _core.set_isa(isa)
    shape, g = Shape(1, 1, 1, 1), Gen("minus zero")
    k, v = np.zeros((1, 300, 1), np.float32), np.full((1, 300, 1), -1e-45, np.float32)
    pages = Pages(g, shape, [(k, v)])
    q = np.zeros((1, 1, 1), np.float32)
    signs = []
    for window in (0, 300, 200, 172, 10):
        rule = Rule(1.0, 0.0, window, None, None)
        found = pages.attend(q, np.zeros(1, np.int64), np.array([299]), rule)
        assert same_bits(found[None].reshape(1, 1, 1, 1),
                         attended(q[None], k[None], v[None], rule, 299))  # fmt: skip
        signs.append(bool(np.signbit(found[0, 0, 0])))
    # Chunks begin at key 128: without its first chunk, a sum is not -0 any more.
    assert signs == [True, True, True, False, False]


def test_pages_below_a_window_are_not_looked_at() -> None:
    shape, g = Shape(2, 1, 4, 4), Gen("gone")
    texts = [(g.floats(1, 70, 4), g.floats(1, 70, 4))]
    pages, q, one = Pages(g, shape, texts), g.floats(1, 2, 4), np.zeros(1, np.int64)
    rule = Rule(0.5, 0.0, 20, None, None)
    before = pages.attend(q, one, np.array([69]), rule)
    pages.tables[:3] = -1
    assert same_bits(before, pages.attend(q, one, np.array([69]), rule))
    with pytest.raises(ValueError, match="names no page"):
        pages.attend(q, one, np.array([66]), rule)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"places": np.array([80])}, "shorter than its row's place"),
        ({"places": np.array([-1])}, "a place is out of range"),
        ({"starts": np.array([1])}, "shorter than its row's place"),
        ({"starts": np.array([-1])}, "shorter than its row's place"),
        ({"tables": np.array([0, 1, 2, 3, 99])}, "names no page"),
        ({"groups": 2}, "does not fit"),
        ({"groups": 0}, "groups do not divide"),
        ({"window": -1}, "window is out of range"),
        ({"sinks": np.zeros(3, np.float32)}, "do not fit the heads"),
    ],
)
def test_what_does_not_fit_is_refused(change: dict[str, Any], why: str) -> None:
    arguments: dict[str, Any] = {
        "q": np.zeros((1, 2, 4), np.float32), "pool": np.zeros((6, 16 * 8), np.float32),
        "tables": np.arange(5), "starts": np.zeros(1, np.int64), "places": np.array([79]),
        "groups": 1, "out": np.zeros((1, 2, 4), np.float32), "scale": 1.0, "softcap": 0.0,
        "window": 0, "slopes": None, "sinks": None,
    }  # fmt: skip
    _core.attention_pages(**arguments)
    with pytest.raises(ValueError, match=why):
        _core.attention_pages(**{**arguments, **change})
