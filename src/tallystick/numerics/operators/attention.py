"""Attention over the keys that a query may see: scores, weights, values (NUMERICS 18)."""

from __future__ import annotations

from tallystick.errors import UsageError
from tallystick.numerics.operators.common import (
    FLOAT,
    Result,
    Types,
    check_dtype,
    check_floats,
    declares,
    flag,
    integer,
    operands,
)
from tallystick.numerics.registry import AttrSpec
from tallystick.numerics.types import Attrs, TensorType
from tallystick.numerics.values.graph import (
    Expr,
    attribute,
    case,
    function,
    has,
    is_,
    primitive,
    select,
)
from tallystick.numerics.values.positions import (
    Part,
    as_float,
    choice,
    dot,
    element,
    entry,
    extent,
    extremum,
    local,
    part,
    read,
    term,
    tree,
    whole,
)

# Kernels hold places in 64 bits; a text is shorter than this.
_MAX_PLACE = 2**31 - 1
_SEEN = {
    "causal": AttrSpec("bool", True),
    "first": AttrSpec("int", 0),
    "window": AttrSpec("int", 0),
}
# Only these have the operators: the others would need grids, logs or integers of their own (18.1).
_attention = declares("composite", only_under=("ordered/1", "rounded/1"))


# --- which keys a query sees (18.2) ---------------------------------------------------------------
_HERE = element()
_ROW = _HERE // extent("", 3)  # of (batch, head, query)
_HEAD = _ROW // extent("", 2)  # of (batch, head)
_PLACE = entry("first") + _ROW % extent("", 2)


def _last(keys: Expr) -> Expr:
    """hi: the last key that the element's query sees."""
    return case(is_("causal", True), primitive("min", _PLACE, keys - 1), keys - 1)


_FIRST = case(is_("window", 0), whole(0), primitive("max", _PLACE - entry("window") + 1, 0))


def _seen(key: Expr, keys: Expr) -> Expr:
    """Whether the element's query sees a key."""
    return primitive("and", primitive("ge", key, _FIRST), primitive("le", key, _last(keys)))


def _group(shared: str, heads: str) -> Expr:
    """The (batch, head) of keys or values that the element's head shares with its group."""
    return _HEAD // (extent(heads, 1) // extent(shared, 1))


def _check_places(op: str, attrs: Attrs, queries: int, keys: int) -> None:
    """Raises UsageError unless every query sees a key."""
    first, window = integer(attrs, "first"), integer(attrs, "window")
    if not (0 <= first <= _MAX_PLACE and 0 <= window <= _MAX_PLACE):
        raise UsageError(f"{op}: first and window must be from 0 to {_MAX_PLACE}.")
    if window and not flag(attrs, "causal"):
        raise UsageError(f"{op}: only a causal call has a window.")
    if keys == 0 or (window and first + queries - window >= keys):
        raise UsageError(f"{op}: a query sees none of {keys} keys.")


def _check_axes(op: str, *types: TensorType) -> None:
    for t in types:
        check_dtype(op, t, ("f32",))
        if len(t.shape) != 4:
            raise UsageError(f"{op}: takes f32 of 4 axes, got {t}.")


def _check_groups(op: str, heads: TensorType, shared: TensorType) -> None:
    """Raises UsageError unless whole groups of heads share keys or values of the same batch."""
    groups = shared.shape[1]
    if heads.shape[0] != shared.shape[0] or groups == 0 or heads.shape[1] % groups:
        raise UsageError(f"{op}: the heads of {heads} do not share those of {shared}.")


def _check_of_heads(op: str, what: str, given: Types, position: int, heads: int) -> None:
    t = given[position] if position < len(given) else None
    if t is not None:
        check_floats(op, what, t, (heads,))


# --- scores (18.3) --------------------------------------------------------------------------------
def _scores() -> Part:
    keys, width, key = extent("k", 2), extent("q", 3), _HERE % extent("", 3)
    seen = _seen(key, keys)
    product = dot(
        "dot",
        select(seen, width, 0),
        whole(1),
        read("q", _ROW * width + term()),
        read("k", (_group("k", "q") * keys + key) * width + term()),
    )
    s = part(product) * attribute("scale", "f32")
    cap = attribute("softcap", "f32")
    s = case(is_("softcap", 0.0), s, function("tanh", s / cap) * cap)
    sloped = s + read("slopes", _HEAD % extent("q", 1)) * as_float(key)
    return local("out", choice(seen, case(has("slopes"), sloped, s), 0.0))


@_attention(
    "tallystick.attention_scores",
    "18.3",
    ("q", "k", "slopes?"),
    _scores(),
    {"scale": FLOAT, "softcap": AttrSpec("float", 0.0), **_SEEN},
)
def _scores_type(op: str, attrs: Attrs, inputs: Types) -> Result:
    q, k = operands(op, inputs[:2], 2)
    _check_axes(op, q, k)
    _check_groups(op, q, k)
    if q.shape[3] != k.shape[3]:
        raise UsageError(f"{op}: {q} and {k} have rows of different lengths.")
    _check_of_heads(op, "the slopes", inputs, 2, q.shape[1])
    _check_places(op, attrs, q.shape[2], k.shape[2])
    return (TensorType("f32", (*q.shape[:3], k.shape[2])),)


# --- weights (18.4) -------------------------------------------------------------------------------
def _weights() -> Part:
    keys = extent("s", 3)
    last, base = _last(keys), _ROW * keys
    sink = read("sinks", _HEAD % extent("s", 1))
    top = extremum("max", last - _FIRST + 1, read("s", base + _FIRST + term()), "max")
    with_sink = local("m", primitive("max", part(top), sink))
    m = case(has("sinks"), part(with_sink), part(top))

    def of(key: Expr) -> Expr:
        there = primitive("ge", key, _FIRST)
        return choice(there, function("exp", read("s", base + key) - m), 0.0)

    # A sink stands before the keys.
    first = choice(primitive("eq", term(), 0), function("exp", sink - m), of(term() - 1))
    total = tree("s", case(has("sinks"), last + 2, last + 1), case(has("sinks"), first, of(term())))
    y = function("exp", read("s", _HERE) - m) / part(total)
    return local("y", choice(_seen(_HERE % keys, keys), y, 0.0))


@_attention("tallystick.attention_weights", "18.4", ("s", "sinks?"), _weights(), _SEEN)
def _weights_type(op: str, attrs: Attrs, inputs: Types) -> Result:
    (s,) = operands(op, inputs[:1], 1)
    _check_axes(op, s)
    _check_of_heads(op, "the sinks", inputs, 1, s.shape[1])
    _check_places(op, attrs, s.shape[2], s.shape[3])
    return (s,)


# --- values (18.5) --------------------------------------------------------------------------------
def _values() -> Part:
    keys, width = extent("p", 3), extent("", 3)
    there = primitive("ge", term(), _FIRST)
    weight = read("p", _ROW * keys + term())
    value = read("v", (_group("v", "p") * keys + term()) * width + _HERE % width)
    count = _last(keys) + 1
    return dot("dot", count, whole(1), choice(there, weight, 0.0), choice(there, value, 0.0))


@_attention("tallystick.attention_values", "18.5", ("p", "v"), _values(), _SEEN)
def _values_type(op: str, attrs: Attrs, inputs: Types) -> Result:
    p, v = operands(op, inputs, 2)
    _check_axes(op, p, v)
    _check_groups(op, p, v)
    if p.shape[3] != v.shape[2]:
        raise UsageError(f"{op}: {p} and {v} have different numbers of keys.")
    _check_places(op, attrs, p.shape[2], p.shape[3])
    return (TensorType("f32", (*p.shape[:3], v.shape[3])),)
