"""Softmax, layer_norm and batch normalisation with their gradients (NUMERICS 6.1 to 6.6, 6.12 to
6.14)."""

from __future__ import annotations

from tallystick.errors import UsageError
from tallystick.numerics.operators.common import (
    FLOATS,
    INT,
    INTS,
    MASK,
    Result,
    Types,
    axis_of,
    check_dtype,
    check_floats,
    declares,
    describe,
    flag,
    integer,
    integers,
    masked,
    operands,
)
from tallystick.numerics.registry import AttrSpec
from tallystick.numerics.types import Attrs, TensorType
from tallystick.numerics.values.graph import (
    Expr,
    attribute,
    case,
    convert,
    fma,
    function,
    has,
    is_,
    primitive,
)
from tallystick.numerics.values.positions import (
    Part,
    as_float,
    either,
    element,
    extent,
    extremum,
    in_reals,
    inner,
    local,
    numel,
    part,
    product,
    read,
    term,
    tree,
)

_composite = declares("composite")


def _same_f32(op: str, inputs: Types, count: int) -> TensorType:
    """`count` f32 operands of one shape; that type. Raises UsageError."""
    types = operands(op, inputs, count)
    for t in types:
        check_floats(op, "each operand", t, types[0].shape)
    return types[0]


# --- softmax (6.1 - 6.4) --------------------------------------------------------------------------
_ROW, _STEP, _HERE = extent(""), inner(""), element()
# The place of an element of the row along `dim` that this one is in.
_IN_ROW = _HERE // (_ROW * _STEP) * (_ROW * _STEP) + _HERE % _STEP + term() * _STEP


def _softmax(name: str, clause: str, names: tuple[str, ...], y: Part) -> None:
    @_composite(name, clause, names, y, {"dim": INT})
    def rule(op: str, attrs: Attrs, inputs: Types) -> Result:
        t = _same_f32(op, inputs, len(names))
        axis_of(op, integer(attrs, "dim"), len(t.shape))
        return (t,)


def _declare_softmax() -> None:
    x, grad, y = (read(name, _HERE) for name in ("x", "grad", "y"))
    m = extremum("m", _ROW, read("x", _IN_ROW), "max")
    s = tree("s", _ROW, function("exp", read("x", _IN_ROW) - part(m)))
    log_s = local("l", function("log", part(s)))
    products = tree("s", _ROW, read("grad", _IN_ROW) * read("y", _IN_ROW))
    total = tree("s", _ROW, read("grad", _IN_ROW))
    of_x, of_y = ("x",), ("grad", "y")
    exponential = function("exp", x - part(m))
    _softmax("aten._softmax", "6.1", of_x, local("y", exponential / part(s)))
    _softmax("aten._log_softmax", "6.2", of_x, local("y", (x - part(m)) - part(log_s)))
    back = local("out", y * (grad - part(products)))
    _softmax("aten._softmax_backward_data", "6.3", of_y, back)
    back = local("out", grad - function("exp", y) * part(total), reads=(y,))
    _softmax("aten._log_softmax_backward_data", "6.4", of_y, back)


_declare_softmax()


# --- layer_norm (6.5, 6.6) ------------------------------------------------------------------------
def _normalized(op: str, attrs: Attrs, x: TensorType) -> tuple[int, ...]:
    """normalized_shape, if it is x's trailing shape. Raises UsageError."""
    shape = integers(attrs, "normalized_shape")
    if not shape or len(shape) > len(x.shape) or x.shape[len(x.shape) - len(shape) :] != shape:
        raise UsageError(f"{op}: normalized_shape {list(shape)} is not the trailing shape of {x}.")
    return shape


def _statistics_shape(x: TensorType, shape: tuple[int, ...]) -> tuple[int, ...]:
    return x.shape[: len(x.shape) - len(shape)] + (1,) * len(shape)


def _check_affine(op: str, inputs: Types, first: int, shape: tuple[int, ...]) -> None:
    """Weight and bias at `first` and after it, either absent or f32 of `shape`."""
    for what, t in zip(("the weight", "the bias"), inputs[first:], strict=False):
        if t is not None:
            check_floats(op, what, t, shape)


def affine(h: Expr, weight: Expr, bias: Expr) -> Expr:
    """h with weight and bias, where they are present."""
    weighted = case(has("bias"), fma(h, weight, bias), h * weight)
    return case(has("weight"), weighted, case(has("bias"), h + bias, h))


_N = product("normalized_shape")
_RN = as_float(_N)


def _statistics(row: Expr) -> tuple[Part, Part]:
    """mean and rstd of a row."""
    x = read("x", row * _N + term())
    mean = local("mean", part(tree("SUM(x)", _N, x)) / _RN)
    d = x - part(mean)
    var = local("var", part(tree("SUM(d*d)", _N, d * d)) / _RN)
    return mean, local("rstd", function("rsqrt", part(var) + attribute("eps", "f32")))


def _layer_norm_parts() -> tuple[Part, ...]:
    here = element()
    mean, rstd = _statistics(here // _N)
    h = (read("x", here) - part(mean)) * part(rstd)
    y = affine(h, read("weight", here % _N), read("bias", here % _N))
    return local("y", y), *_statistics(here)


@_composite(
    "aten.native_layer_norm",
    "6.5",
    ("x", "weight?", "bias?"),
    _layer_norm_parts(),
    {"normalized_shape": INTS, "eps": AttrSpec("float", 1e-5)},
)
def _layer_norm(op: str, attrs: Attrs, inputs: Types) -> Result:
    x = _same_f32(op, inputs[:1], 1)
    shape = _normalized(op, attrs, x)
    _check_affine(op, inputs, 1, shape)
    statistics = TensorType("f32", _statistics_shape(x, shape))
    return x, statistics, statistics


def _layer_norm_gradient() -> tuple[Part, ...]:
    here, row = element(), element() // _N

    def h(at: Expr, of: Expr) -> Expr:
        return (read("x", at) - read("mean", of)) * read("rstd", of)

    def k(at: Expr, column: Expr) -> Expr:
        grad = read("grad", at)
        return case(has("weight"), grad * read("weight", column), grad)

    at = row * _N + term()
    s1 = local("s1", part(tree("SUM(k)", _N, k(at, term()))) / _RN)
    s2 = local("s2", part(tree("SUM(k*h)", _N, k(at, term()) * h(at, row))) / _RN)
    rest = (k(here, here % _N) - part(s1)) - h(here, row) * part(s2)
    # The parameters' gradients are sums over the rows.
    rows, below = numel("x") // _N, here + term() * _N
    dw = tree("dw", rows, read("grad", below) * h(below, term()))
    db = tree("db", rows, read("grad", below))
    return local("dx", rest * read("rstd", row)), dw, db


@_composite(
    "aten.native_layer_norm_backward",
    "6.6",
    ("grad", "x", "mean", "rstd", "weight?", "bias?"),
    _layer_norm_gradient(),
    {"normalized_shape": INTS, **MASK},
    masked_by="output_mask",
)
def _layer_norm_backward(op: str, attrs: Attrs, inputs: Types) -> Result:
    x = _same_f32(op, inputs[:2], 2)
    shape = _normalized(op, attrs, x)
    for what, t in zip(("the mean", "rstd"), operands(op, inputs[2:4], 2), strict=True):
        check_floats(op, what, t, _statistics_shape(x, shape))
    _check_affine(op, inputs, 4, shape)
    affine = TensorType("f32", shape)
    return masked(op, attrs, x, affine, affine)


# --- batch normalisation: training, its gradient, and by running statistics (6.12 - 6.14) ---------
_EPS = {"eps": AttrSpec("float", 1e-5)}
_TRAIN = is_("train", True)


def _channels(op: str, x: TensorType) -> TensorType:
    """f32[C] of an x[N, C, ...]. Raises UsageError."""
    check_dtype(op, x, FLOATS)
    if len(x.shape) < 2:
        raise UsageError(f"{op}: x needs a batch axis and a channel axis, got {x}.")
    return TensorType("f32", x.shape[1:2])


def _padded(inputs: Types, count: int) -> Types:
    """`inputs` with absent ones written out."""
    return inputs + (None,) * (count - len(inputs))


def _per_channel(op: str, channels: TensorType, given: Types) -> None:
    """Every one of `given` is absent or f32[C]. Raises UsageError."""
    for t in given:
        if t is not None:
            check_floats(op, "what is per channel", t, channels.shape)


def _both(op: str, pair: Types, wanted: bool | None, what: str) -> bool:
    """True if both of `pair` are present. Raises UsageError unless that is `wanted` (None: any)."""
    here = [t is not None for t in pair]
    if here[0] != here[1] or (wanted is not None and here[0] != wanted):
        needs = "both or neither" if wanted is None else ("present" if wanted else "absent")
        raise UsageError(f"{op}: {what} must be {needs}, got {describe(pair)}.")
    return here[0]


# --- what a channel is (6.12) ---------------------------------------------------------------------
_CHANNELS, _INNER = extent("x", 1), inner("x", 1)
_COUNT = extent("x", 0) * _INNER
_WIDE, _NARROW = as_float(_COUNT, "f64"), as_float(_COUNT)
# The channel of an element of x, and of an element of what is per channel.
_OF_X, _OWN = _HERE // _INNER % _CHANNELS, _HERE


def _in(channel: Expr) -> Expr:
    """The place in x of the channel's element number `term()`."""
    return (term() // _INNER * _CHANNELS + channel) * _INNER + term() % _INNER


def _by_variance(channel: Expr) -> Expr:
    return function("rsqrt", read("running_var", channel) + attribute("eps", "f32"))


# --- training (6.12) ------------------------------------------------------------------------------
def _moments(channel: Expr) -> tuple[Part, Part, Part]:
    """The mean in binary64, the mean, and the sum of squared deviations."""
    x = convert(read("x", _in(channel)), "f64")
    wide = local("m", part(tree("SUM64(x)", _COUNT, x)) / _WIDE)
    d = x - part(wide)
    return wide, local("mean", convert(part(wide), "f32")), tree("q", _COUNT, d * d)


def _rstd(q: Part) -> Part:
    # In the real numbers an attribute is RN32 first (14.9.1).
    eps = in_reals(attribute("eps", "f64"), convert(attribute("eps", "f32"), "f64"))
    var = local("var", part(q) / _WIDE)
    return local("rstd", convert(1.0 / primitive("sqrt", part(var) + eps), "f32"))


def _observed(name: str, of: Part) -> Part:
    running = read(name, _OWN)
    return local(name, fma(attribute("momentum", "f32"), part(of) - running, running))


def _training_parts() -> tuple[Part, ...]:
    _, mean, q = _moments(_OF_X)
    h = (read("x", _HERE) - part(mean)) * part(_rstd(q))
    y = affine(h, read("weight", _OF_X), read("bias", _OF_X))
    _, mean, q = _moments(_OWN)
    rest = as_float(primitive("max", _COUNT - 1, 0), "f64")
    unbiased = local("u", convert(part(local("q/(n - 1)", part(q) / rest)), "f32"))
    running = _observed("running_mean", mean), _observed("running_var", unbiased)
    return local("y", y), mean, _rstd(q), *running


@_composite(
    "aten._native_batch_norm_legit_functional",
    "6.12",
    ("x", "weight?", "bias?", "running_mean?", "running_var?"),
    _training_parts(),
    {"momentum": AttrSpec("float", 0.1), **_EPS},
)
def _training(op: str, attrs: Attrs, inputs: Types) -> Result:
    (x,) = operands(op, inputs[:1], 1)
    channels = _channels(op, x)
    rest = _padded(inputs, 5)[1:]
    _per_channel(op, channels, rest)
    running = _both(op, rest[2:], None, "running mean and variance")
    return (x,) + (channels,) * (4 if running else 2)


# --- the gradient (6.13) --------------------------------------------------------------------------
def _gradient_parts() -> tuple[Part, ...]:
    def h(at: Expr, channel: Expr) -> Expr:
        mean = case(_TRAIN, read("mean", channel), read("running_mean", channel))
        return (read("x", at) - mean) * rstd(channel)

    def rstd(channel: Expr) -> Expr:
        return case(_TRAIN, read("rstd", channel), _by_variance(channel))

    def sums(channel: Expr) -> tuple[Part, Part]:
        grad = read("grad", _in(channel))
        return tree("dw", _COUNT, grad * h(_in(channel), channel)), tree("db", _COUNT, grad)

    dw, db = sums(_OF_X)
    s1, s2 = local("s1", part(db) / _NARROW), local("s2", part(dw) / _NARROW)
    r, grad = rstd(_OF_X), read("grad", _HERE)
    factor = case(has("weight"), r * read("weight", _OF_X), r)
    centred = grad - part(s1)
    trained = local("dx", fma(-h(_HERE, _OF_X), part(s2), centred) * factor, (s1, s2), (centred,))
    return either(_TRAIN, trained, local("dx", grad * factor)), *sums(_OWN)


@_composite(
    "aten.native_batch_norm_backward",
    "6.13",
    ("grad", "x", "weight?", "running_mean?", "running_var?", "mean?", "rstd?"),
    _gradient_parts(),
    {"train": AttrSpec("bool", True), **_EPS, **MASK},
    masked_by="output_mask",
)
def _backward(op: str, attrs: Attrs, inputs: Types) -> Result:
    grad, x = operands(op, inputs[:2], 2)
    channels = _channels(op, x)
    check_floats(op, "the gradient", grad, x.shape)
    rest = _padded(inputs, 7)[2:]
    _per_channel(op, channels, rest)
    train = flag(attrs, "train")
    _both(op, rest[1:3], not train, f"running statistics with train={train}")
    _both(op, rest[3:5], train, f"mean and rstd with train={train}")
    return masked(op, attrs, x, channels, channels)


def statistics_at(attrs: Attrs) -> tuple[int, int]:
    """Positions of the statistics: mean and rstd, or running mean and variance."""
    return (5, 6) if flag(attrs, "train") else (3, 4)


# --- by running statistics (6.14) -----------------------------------------------------------------
def _by_running_parts() -> Part:
    h = (read("x", _HERE) - read("running_mean", _OF_X)) * _by_variance(_OF_X)
    return local("y", affine(h, read("weight", _OF_X), read("bias", _OF_X)))


@_composite(
    "aten._native_batch_norm_legit_no_training",
    "6.14",
    ("x", "weight?", "bias?", "running_mean", "running_var"),
    _by_running_parts(),
    _EPS,
)
def _by_running(op: str, attrs: Attrs, inputs: Types) -> Result:
    (x,) = operands(op, inputs[:1], 1)
    channels = _channels(op, x)
    rest = _padded(inputs, 5)[1:]
    _per_channel(op, channels, rest)
    _both(op, rest[2:], True, "running mean and variance")
    return (x,)
