"""Every x of a stock kernel lies within the bound of its opening rule (NUMERICS 14.10, 14.11)."""

from __future__ import annotations

import ast
import math
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from vectors.kernel_format import Case

pytest.importorskip("torch", reason="the published form runs on torch")

from unit.opening.disputes import check_lies
from unit.rounding.test_torch_stock import OPS, STOCKS, UNLOGGED, cases, logged, tamed

from tallystick.contracts.replay import opening
from tallystick.numerics.contracts import find_contract
from tallystick.numerics.registry import all_ops, summed_operators
from tallystick.numerics.types import DTYPES, TensorType
from tallystick.opening import approx, real_pointwise
from tallystick.opening import real_functions as f
from tallystick.opening.approx import Approx, real, unpacked
from tallystick.opening.quantity import REAL, Logged, Site, opening_rule
from tallystick.opening.values import WholeSource, needs_of

CONTRACT = find_contract("replay/1;form=published").text
# Bounded by the exact sum of their terms (14.4), and tested there.
BY_SUMS = summed_operators()
MARGIN = 2.0**-6  # of the bound that an honest kernel may use
ELEMENTS = 3  # of an output that are looked at
NAMES = {np.dtype(dtype): name for name, dtype in DTYPES.items()}

Arrays = list[np.ndarray | None]


def changed(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Case], Arrays]:
    """A call's operands with all finite binary32 numbers changed."""

    def of(case: Case) -> Arrays:
        found: Arrays = []
        for x in tamed(case)[0]:
            if x is not None and x.dtype == np.float32:
                x = np.asarray(change(x), np.float32)
            found.append(x)
        return found

    return of


OPERANDS: dict[str, Callable[[Case], Arrays]] = {
    "golden": lambda case: list(case.inputs),
    "tame": lambda case: tamed(case)[0],
    "far from zero": changed(lambda x: x * np.float32(2.0**-6) + np.float32(1000)),
    "tiny": changed(lambda x: x * np.float32(2.0**-70)),
    "of all sizes": changed(lambda x: x * np.exp2(np.arange(x.size).reshape(x.shape) % 61 - 30)),
}


def site_of(case: Case, inputs: Arrays, out: int, element: int) -> Site:
    types = tuple(None if x is None else TensorType(NAMES[x.dtype], x.shape) for x in inputs)
    made = tuple(TensorType(NAMES[y.dtype], y.shape) for y in case.outputs)
    return Site(case.op, dict(case.attrs), types, made, out, element, CONTRACT)


def reference(site: Site, inputs: Arrays) -> tuple[float, float]:
    """x* and E of an element."""
    q, source = opening_rule(site), WholeSource(inputs)
    assert isinstance(q, Logged) and q.name == "R(x)"
    (need,) = needs_of(q, source)
    x = unpacked(need) if np.asarray(need).dtype == REAL else real(need)
    return float(x.value), float(x.error)


def elements(case: Case, inputs: Arrays, kind: str) -> Iterator[tuple[int, int, float]]:
    """Output, element and x of some elements, by a stock kernel."""
    spec = all_ops()[case.op]
    outputs = [np.zeros(y.shape, y.dtype) for y in case.outputs]
    with np.errstate(all="ignore"):
        found = STOCKS[kind].compute(spec, dict(case.attrs), inputs, outputs)
    rng = np.random.default_rng(len(case.outputs[0].shape))
    for out, x in enumerate(found):
        if x is not None and x.size:
            for at in rng.choice(x.size, min(x.size, ELEMENTS), replace=False).tolist():
                yield out, at, float(x.reshape(-1)[at])


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("kind", "operands"), [*(("torch", name) for name in OPERANDS), ("reordered", "tame")]
)
def test_stock_kernels_stay_far_within_the_bounds(kind: str, operands: str) -> None:
    judged: Counter[str] = Counter()
    outside, refused = [], Counter[str]()
    for case in cases():
        if not logged(case) or case.op in BY_SUMS:
            continue
        inputs = OPERANDS[operands](case)
        for out, at, x in elements(case, inputs, kind):
            value, error = reference(site_of(case, inputs, out, at), inputs)
            if not (math.isfinite(value) and math.isfinite(error)):
                refused[case.op] += math.isfinite(x)
                continue
            judged[case.op] += 1
            if not abs(x - value) <= MARGIN * error:
                outside.append((case.op, dict(case.attrs), out, at, x, value, error))
    assert outside == []
    if operands in ("golden", "tame"):
        needed = {n for n, s in OPS.items() if not s.is_unlogged} - UNLOGGED - BY_SUMS
        assert needed - set(judged) == set(), "operators none of whose elements are bounded"
    if operands == "tame":  # nothing is overlooked where nothing is extreme
        assert sum(refused.values()) * 50 < sum(judged.values()), refused


def test_bounds_are_no_wider_than_a_rounding_of_most_elements() -> None:
    """A lie of one binary32 rounding is seen nearly everywhere."""
    narrow = wide = 0
    for case in cases():
        if not logged(case) or case.op in BY_SUMS:
            continue
        inputs = tamed(case)[0]
        for out, at, _ in elements(case, inputs, "torch"):
            value, error = reference(site_of(case, inputs, out, at), inputs)
            if 0 < abs(value) < 1e38:
                fits = error < float(np.spacing(np.float32(abs(value)))) / 4
                narrow, wide = narrow + fits, wide + (not fits)
    assert wide * 20 < narrow


def of(*shape: int) -> np.ndarray:
    rng = np.random.default_rng(sum(shape))
    return (rng.standard_normal(shape) + 0.5).astype(np.float32)


SCALAR = np.array(1.3, np.float32)
N = 600  # more than two blocks of a sum
ROW = np.arange(3, dtype=np.int64)
STATS = (of(3, 1), np.abs(of(3, 1)) + 1)
ADAM = {"beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "weight_decay": 0.1}
CLASSES = {"ignore_index": -100, "reduction": "mean"}
GAMES: dict[str, tuple[dict[str, object], tuple[np.ndarray | None, ...]]] = {
    "aten._softmax": ({"dim": -1}, (of(3, N),)),
    "aten._log_softmax": ({"dim": -1}, (of(3, N),)),
    "aten._softmax_backward_data": ({"dim": -1}, (of(3, N), of(3, N))),
    "aten._log_softmax_backward_data": ({"dim": -1}, (of(3, N), of(3, N))),
    "aten.native_layer_norm": (
        {"normalized_shape": (N,), "eps": 1e-5},
        (of(3, N), of(N), of(N)),
    ),
    "aten.native_layer_norm_backward": (
        {"normalized_shape": (N,), "output_mask": (True, True, True)},
        (of(3, N), of(3, N), *STATS, of(N), of(N)),
    ),
    "aten._native_batch_norm_legit_functional": (
        {"momentum": 0.1, "eps": 1e-5},
        (of(N, 2), of(2), of(2), of(2), np.abs(of(2))),
    ),
    "aten.mean.dim": ({"dim": (1,), "keepdim": False}, (of(3, N),)),
    "aten.mse_loss": ({"reduction": "mean"}, (of(3, N), of(3, N))),
    "tallystick.sum_squares": ({}, (of(3, N),)),
    "tallystick.clip_coef": ({"max_norm": 1.0}, (SCALAR, SCALAR, SCALAR)),
    "tallystick.cross_entropy": (CLASSES, (of(3, N), ROW)),
    "tallystick.cross_entropy_backward": (
        CLASSES,
        (SCALAR, of(3, N), ROW, of(3), np.abs(of(3)) + 9),
    ),
    "tallystick.adamw_step": (
        ADAM,
        (of(4), of(4), of(4), np.abs(of(4)), *(np.array(x) for x in (1e-3, 0.9, 0.99))),
    ),
    "aten.embedding_dense_backward": (
        {"num_weights": 3, "padding_idx": -1, "scale_grad_by_freq": False},
        (of(N, 2), np.arange(N) % 3),
    ),
    "aten.gelu": ({"approximate": "tanh"}, (of(7),)),
}  # fmt: skip


@pytest.mark.parametrize("op", GAMES)
def test_a_lie_about_any_quantity_convicts_the_liar(op: str) -> None:
    """PROTOCOL 6.3 to 6.11 on real numbers: whichever value or bound below an element is false."""
    attrs, operands = GAMES[op]
    outcomes = check_lies(op, dict(attrs), *operands, most=2, contract=CONTRACT)
    assert {o.clause for o in outcomes} <= {"6.5", "6.6", "6.8", "6.9", "6.11"}
    assert "6.11" in {o.clause for o in outcomes}


@pytest.mark.parametrize(
    ("name", "own", "low", "high"),
    [
        ("exp", f.exp, -700.0, 700.0),
        ("expm1", f.expm1, -40.0, 700.0),
        ("log", f.log, 2.0**-140, 2.0**120),
        ("log1p", f.log1p, -0.999, 100.0),
        ("tanh", f.tanh, -30.0, 30.0),
        ("erf", f.erf, -7.0, 7.0),
        ("sin", f.sine, -1e6, 1e6),
        ("cos", f.cosine, -1e6, 1e6),
    ],
)
def test_functions_are_near_the_libraries(
    name: str, own: Callable[[np.ndarray], np.ndarray], low: float, high: float
) -> None:
    rng = np.random.default_rng(5)
    x = np.concatenate([rng.uniform(low, high, 500), rng.uniform(-1, 1, 500) * 2.0**-20])
    x = np.concatenate([x, [max(low, -0.35), 0.35, 0.4, 1.0, 1 + 2.0**-23]])
    x = x[(x >= low) & (x <= high)]
    true = np.array([getattr(math, name)(v) for v in x.tolist()])
    assert np.all(np.abs(own(x) - true) <= 2.0**-48 * np.abs(true))


# Exact, or correctly rounded by IEEE-754; everything else is some library's and not the same
# everywhere.
SAME_EVERYWHERE = {
    "math": {"factorial", "inf", "isfinite", "nan", "pi", "sqrt"},
    "np": {
        "abs", "array", "asarray", "bool_", "broadcast_to", "clip", "copysign", "empty",
        "errstate", "float32", "float64", "frexp", "full", "inf", "int32", "isfinite", "isinf",
        "isnan", "ldexp", "maximum", "minimum", "nan", "ndarray", "rint", "shape", "sqrt",
        "where", "zeros",
    },
}  # fmt: skip


@pytest.mark.parametrize("module", [approx, f, opening, real_pointwise], ids=lambda m: m.__name__)
def test_the_reference_calls_no_librarys_functions(module: object) -> None:
    """14.11: x* and E are the same on every machine."""
    tree = ast.parse(Path(str(module.__file__)).read_text("utf-8"))  # type: ignore[attr-defined]
    called = [
        (node.value.id, node.attr)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    ]
    assert {n for n, _ in called} & set(SAME_EVERYWHERE)
    for name, attribute in called:
        assert attribute in SAME_EVERYWHERE.get(name, {attribute}), f"{name}.{attribute}"


@pytest.mark.parametrize("y", [-np.inf, -3.0, -2.0, -0.5, 0.0, 0.5, 2.0, 3.0, np.inf])
def test_powers_of_zero_and_one(y: float) -> None:
    """6.5 in the real numbers: where the logarithm says nothing, signed zeros kept."""
    x = np.array([0.0, -0.0, 1.0])
    with np.errstate(all="ignore"):
        found = real_pointwise.real_graph["aten.pow.Tensor_Scalar"]({"exponent": y}, [Approx(x)])
        want = np.power(x, np.full(3, y))  # an array: numpy has a root for the number 0.5
    assert found.value.tobytes() == want.tobytes() and not found.error.any()


def test_infinities_and_nans_are_not_bounded() -> None:
    inf = Approx(np.inf)
    assert (inf - 1.0).error == 0 and float((inf - 1.0).value) == np.inf
    assert not np.isfinite((inf - inf).error) and not np.isfinite((Approx(1.0) / 0.0).error)
    assert not np.isfinite(unpacked(np.array((1.0, -1.0), REAL)).error)
    assert not np.isfinite(unpacked(np.array((1.0, np.nan), REAL)).error)


@pytest.mark.parametrize("a", [0.0, -0.0])
@pytest.mark.parametrize("b", [0.0, -0.0])
def test_two_zeros_have_one_larger_one(a: float, b: float) -> None:
    """NUMERICS 1.11: numpy's is the second operand on x86-64 and the positive one on Arm, and both
    parties state the bits of the pair."""
    x, y = (np.array([v], np.float32) for v in (a, b))
    larger, smaller = (
        max(math.copysign(1, v) for v in (a, b)),
        min(math.copysign(1, v) for v in (a, b)),
    )
    wanted: dict[str, tuple[dict[str, float], Arrays, float]] = {
        "aten.maximum": ({}, [x, y], larger),
        "aten.minimum": ({}, [x, y], smaller),
        "aten.clamp": ({"min": b}, [x], larger),
        "aten.relu": ({}, [x], 1.0),
    }
    for op, (attrs, inputs, sign) in wanted.items():
        case = Case(op, attrs, tuple(inputs), (x,))
        found, _ = reference(site_of(case, inputs, 0, 0), inputs)
        assert found == 0 and math.copysign(1, found) == sign, op
    case = Case("aten.clamp", {"max": b}, (x,), (x,))
    found, _ = reference(site_of(case, [x], 0, 0), [x])
    assert math.copysign(1, found) == smaller


def test_a_large_start_leaves_room_for_every_order() -> None:
    """14.11: an `index_add` whose own element outweighs its sources, added in any order."""
    rng = np.random.default_rng(5)
    x = np.array([1e8], np.float32)
    added = rng.uniform(5e-4, 2e-3, 300).astype(np.float32)
    inputs: Arrays = [x, np.zeros(300, np.int64), added]
    case = Case("aten.index_add", {"dim": 0}, tuple(inputs), (x,))
    value, error = reference(site_of(case, inputs, 0, 0), inputs)
    terms = np.append(x, added).astype(np.float64)
    made = [float(np.add.accumulate(rng.permutation(terms))[-1]) for _ in range(200)]
    assert max(made) > min(made)
    assert max(abs(v - value) for v in (*made, math.fsum(terms))) <= error * MARGIN
