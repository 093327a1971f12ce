"""Rounding, real functions, powers, scans and norms as compositions (PROGRAM 5.2)."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")
from lowering_cases import Case, assert_same_values, check  # noqa: E402
from torch import Tensor  # noqa: E402

INF, NAN = math.inf, math.nan
SPECIAL = torch.tensor(
    [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 1.5, -1.5, 2.5, -2.5, 3.0, -3.0, 0.49999997, 8388607.5,
     -8388607.5, 8388609.0, 4194304.5, 1e20, -1e20, 1e-40, -1e-40, INF, -INF, NAN]
)  # fmt: skip


def spread(low: float, high: float, count: int = 23) -> Tensor:
    """Points in [low, high] with different digits."""
    return torch.linspace(low, high, count, dtype=torch.float64).float()


ROUNDING = {
    "floor": torch.floor,
    "ceil": torch.ceil,
    "trunc": torch.trunc,
    "round": torch.round,
    "frac": torch.frac,
    "decimals": lambda x: torch.round(x, decimals=2),
    "negative decimals": lambda x: torch.round(x, decimals=-1),
}
KINDS = {
    "isnan": torch.isnan,
    "isinf": torch.isinf,
    "isfinite": torch.isfinite,
    "isposinf": torch.isposinf,
    "isneginf": torch.isneginf,
    "signbit": torch.signbit,
    "nan_to_num": torch.nan_to_num,
    "sign": torch.sign,
    "angle": torch.angle,
    "heaviside": lambda x: torch.heaviside(x, torch.tensor(0.25)),
    "logical_xor": lambda x: torch.logical_xor(x, x > 0),
}


@pytest.mark.parametrize("name", sorted(ROUNDING | KINDS))
def test_values_at_halves_large_numbers_zeros_and_nan_are_torchs(name: str) -> None:
    atol = 1e-6 if "decimals" in name else 0.0
    assert_same_values((ROUNDING | KINDS)[name], SPECIAL, atol=atol)


@pytest.mark.parametrize("name", ["fmod", "remainder", "floor_divide", "div trunc", "atan2",
                                  "hypot", "copysign", "pow", "fmax", "fmin"])  # fmt: skip
def test_pairs_of_special_values_are_torchs(name: str) -> None:
    """Every pair of signs, zeros, infinities and NaN. The signs of zeros are torch's too."""
    points = torch.tensor([0.0, -0.0, 1.0, -1.0, 0.75, -0.75, 2.0, -2.0, 3.0, 7.25, -7.25, 1e30,
                           INF, -INF, NAN])  # fmt: skip
    if name in ("fmod", "remainder", "floor_divide"):
        points = points[points.abs() != 1e30]  # quotients above 2⁴³: NaN here
    a, b = (t.reshape(-1).contiguous() for t in torch.meshgrid(points, points, indexing="ij"))
    function = {
        "div trunc": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    }.get(name) or getattr(torch, name)
    assert_same_values(function, a, b)


def test_a_remainder_is_exact_for_quotients_up_to_2_to_the_43() -> None:
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(3000, generator=generator) * torch.exp2(
        torch.randint(-20, 21, (3000,), generator=generator).float()
    )
    y = torch.randn(3000, generator=generator) * torch.exp2(
        torch.randint(-20, 21, (3000,), generator=generator).float()
    )
    assert_same_values(torch.fmod, x, y, rtol=0.0)
    huge = torch.tensor([1e30, 3e38]), torch.tensor([3.0, 1e-20])
    with __import__("tallystick").reproducible("ordered/1"):
        assert torch.fmod(*huge).isnan().all(), "loud, never a wrong remainder"


REAL = {
    "atan": (torch.atan, -20.0, 20.0),
    "asin": (torch.asin, -0.9999, 0.9999),
    "acos": (torch.acos, -0.9999, 0.9999),
    "tan": (torch.tan, -1.5, 1.5),
    "sinh": (torch.sinh, -9.0, 9.0),
    "cosh": (torch.cosh, -9.0, 9.0),
    "asinh": (torch.asinh, -40.0, 40.0),
    "acosh": (torch.acosh, 1.01, 40.0),
    "atanh": (torch.atanh, -0.9999, 0.9999),
    "log10": (torch.log10, 0.01, 900.0),
    "erfc": (torch.erfc, -3.0, 4.0),
    "erfcx": (torch.special.erfcx, -2.0, 30.0),
    "erfinv": (torch.erfinv, -0.99, 0.99),
    "ndtri": (torch.special.ndtri, 0.001, 0.98),
    "log_ndtr": (torch.special.log_ndtr, -12.0, 6.0),
    "logit": (torch.logit, 0.01, 0.99),
    "sinc": (torch.sinc, -3.3, 3.3),
    "pow scalar": (lambda x: torch.pow(3.0, x), -5.0, 5.0),
    "pow two": (lambda x: 2.0**x, -5.0, 5.0),
    "entr": (torch.special.entr, 0.1, 4.0),
    "softplus": (torch.nn.functional.softplus, -40.0, 40.0),
    "logsigmoid": (torch.nn.functional.logsigmoid, -90.0, 90.0),
    "frac": (torch.frac, -3.3, 3.3),
}


@pytest.mark.parametrize("name", sorted(REAL))
def test_real_functions_and_their_gradients_are_those_of_binary64(name: str) -> None:
    function, low, high = REAL[name]
    check(Case(function, (spread(low, high),)))


@pytest.mark.parametrize("name", ["atan", "asin", "acos", "sinh", "cosh", "asinh", "acosh",
                                  "atanh", "erfc", "erfinv", "log10", "tan", "sinc"])  # fmt: skip
def test_real_functions_at_zeros_poles_and_infinities_are_torchs(name: str) -> None:
    points = torch.tensor([0.0, -0.0, 1.0, -1.0, 1e-30, -1e-30, 2.0, -2.0, 88.5, -88.5, 3e38,
                           -3e38, INF, -INF, NAN])  # fmt: skip
    if name in ("tan", "sinc"):
        points = points[points.abs() < 10]
    # erfc of −88.5 and beyond: torch's own underflow.
    assert_same_values(getattr(torch, name), points, rtol=2e-6, atol=1e-37)


def pairs() -> tuple[Tensor, Tensor]:
    return spread(0.2, 3.0, 12).reshape(3, 4), spread(-2.0, 2.5, 4)


TWO = {
    "pow": torch.pow,
    "atan2": torch.atan2,
    "hypot": torch.hypot,
    "xlogy": lambda x, y: torch.xlogy(y, x),
    "xlog1py": lambda x, y: torch.special.xlog1py(y, x),
    "logaddexp": torch.logaddexp,
    "logaddexp2": torch.logaddexp2,
    "fmod": torch.fmod,
    "remainder": torch.remainder,
    "copysign": torch.copysign,
    "lerp": lambda x, y: torch.lerp(x, y.expand(3, 4), x * 0.3),
    "outer": lambda x, y: torch.outer(x.flatten(), y),
    "kron": lambda x, y: torch.kron(x, y.reshape(2, 2)),
    "tensordot": lambda x, y: torch.tensordot(x, y, dims=1),
    "addmv": lambda x, y: torch.addmv(x[:, 0], x, y, beta=0.5, alpha=2.0),
    "addr": lambda x, y: torch.addr(x, x[:, 1], y),
    "cross": lambda x, y: torch.linalg.cross(x[:, :3], y[:3].expand(3, 3)),
    "fmax": torch.fmax,
}


@pytest.mark.parametrize("name", sorted(TWO))
def test_functions_of_two_broadcast_operands_and_their_gradients(name: str) -> None:
    check(Case(TWO[name], pairs()))


def test_a_power_is_accurate_where_logarithm_times_exponent_is_not() -> None:
    """exp(y·log x) would be off by 5·10⁻⁶ near overflow."""
    generator = torch.Generator().manual_seed(2)
    x = torch.rand(2000, generator=generator) * 40 + 0.01
    y = torch.rand(2000, generator=generator) * 40 - 20
    wanted = torch.pow(x.double(), y.double()).float()
    with __import__("tallystick").reproducible("ordered/1"):
        got = torch.pow(x, y)
    torch.testing.assert_close(got, wanted, rtol=3e-7, atol=0.0)


def table() -> Tensor:
    x = torch.tensor([[0.5, -1.5, 2.0, 2.0, 0.25], [-1.0, 0.75, -0.5, 1.25, -2.5],
                      [1.5, 1.5, 0.5, -0.25, 1.5]])  # fmt: skip
    return torch.stack([x, x.flip(0) * 0.7, x.flip(1) + 0.1])


SCANS = {
    "cumprod": lambda x: x.cumprod(1),
    "cumprod of a zero": lambda x: (x * (x != 2.0)).cumprod(-1),
    "prod": lambda x: x.prod(2),
    "prod of all": lambda x: x[:, :2].prod(),
    "prod of a zero": lambda x: (x * (x != 2.0)).prod(-1, keepdim=True),
    "logcumsumexp": lambda x: (x * 9.0).logcumsumexp(1),
    "logsumexp": lambda x: torch.logsumexp(x, (0, 2)),
    "amax shares ties": lambda x: x.amax(2),
    "amin": lambda x: x.amin((0, 1), keepdim=True),
    "aminmax": lambda x: torch.aminmax(x, dim=1),
    "norm 0": lambda x: torch.linalg.vector_norm(x, 0, dim=1) * x.sum(1),
    "norm 1": lambda x: x.norm(p=1, dim=1),
    "norm 2": lambda x: x.norm(dim=(0, 2)),
    "norm 3": lambda x: torch.linalg.vector_norm(x, 3, dim=2, keepdim=True),
    "norm 2.5": lambda x: torch.linalg.vector_norm(x, 2.5, dim=(0, 1)),
    "norm inf shares ties": lambda x: torch.linalg.vector_norm(x, INF, dim=2),
    "norm -inf": lambda x: torch.linalg.vector_norm(x, -INF, dim=0),
    "frobenius": lambda x: torch.linalg.matrix_norm(x),
    "matrix norm 1": lambda x: torch.linalg.matrix_norm(x, 1),
    "renorm": lambda x: x.renorm(2, 1, 1.5),
    "cdist 2": lambda x: torch.cdist(x, x.flip(0) + 0.3),
    "cdist 1": lambda x: torch.cdist(x, x.flip(0) + 0.3, p=1),
    "cdist inf": lambda x: torch.cdist(x, x.flip(0) + 0.3, p=INF),
    "cdist 3": lambda x: torch.cdist(x, x.flip(0) + 0.3, p=3),
    "cdist 1.5": lambda x: torch.cdist(x, x.flip(0) + 0.3, p=1.5),
    "pdist": lambda x: torch.nn.functional.pdist(x.flatten(0, 1)[:4] * 1.5),
    "dist": lambda x: torch.dist(x[0], x[1], 3),
    "cosine_similarity": lambda x: torch.nn.functional.cosine_similarity(x[0], x[1]),
    "normalize": lambda x: torch.nn.functional.normalize(x, p=1.5, dim=1),
    "pairwise_distance": lambda x: torch.nn.functional.pairwise_distance(x[0], x[1], p=1),
    "weight_norm": lambda x: torch._weight_norm(x, x[:1, :1, :].abs().sum() + x[:, :1, :1], 0),
    "nansum": lambda x: torch.nansum(x, 1),
    "count_nonzero": lambda x: x * torch.count_nonzero(x > 0.5, 1).unsqueeze(1),
    "any and all": lambda x: x[torch.arange(3)] * ((x > 1).any(1) & (x < 9).all(1))[:, None],
    "baddbmm": lambda x: torch.baddbmm(x[:, :, :3], x, x.mT, beta=0.5, alpha=2.0),
    "addbmm": lambda x: torch.addbmm(x[0, :, :3], x, x.mT, beta=0.5),
    "bilinear": lambda x: torch.nn.functional.bilinear(x[0], x[1, :, :4], x[2].repeat(2, 1, 1)[:, None].expand(2, 5, 3, 5)[:, :, 0, :4]),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(SCANS))
def test_scans_norms_and_products_and_their_gradients(name: str) -> None:
    # Distances from a difference of squares lose half the digits in any binary32.
    check(Case(SCANS[name], (table(),)))


def test_points_at_distance_zero_have_the_gradient_zero() -> None:
    x = torch.tensor([[1.0, 2.0], [1.0, 2.0], [0.5, 0.25]])
    for p in (1.0, 2.0, INF, 3.0):
        check(Case(lambda a, p=p: torch.cdist(a, a * 1.0, p=p), (x,)))


EMPTY = {
    "prod": lambda x: x.prod(1),
    "cumprod": lambda x: x.cumprod(1),
    "logcumsumexp": lambda x: x.logcumsumexp(0),
    "cummax": lambda x: torch.cummax(x, 1).values,
    "norm": lambda x: torch.linalg.vector_norm(x, 3, dim=0),
    "cdist": lambda x: torch.cdist(x, x),
    "floor": torch.floor,
    "remainder": lambda x: torch.remainder(x, 2.5),
}


@pytest.mark.parametrize("name", sorted(EMPTY))
@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
def test_tensors_without_elements(name: str, shape: tuple[int, int]) -> None:
    if (name, shape) == ("norm", (0, 3)) or (name, shape) == ("cummax", (3, 0)):
        shape = (0, 0)
    assert_same_values(EMPTY[name], torch.empty(shape))


@pytest.mark.parametrize("function", [torch.prod, torch.sum, torch.amax, torch.argmin, torch.any,
                                      lambda x: torch.min(x, 0).values])  # fmt: skip
def test_tensors_of_no_axes(function: object) -> None:
    assert_same_values(function, torch.tensor(2.5))  # type: ignore[arg-type]


WHOLE = {
    "abs": torch.abs,
    "neg": torch.neg,
    "sign": torch.sign,
    "square": torch.square,
    "cube": lambda x: x**3,
    "prod": lambda x: x.prod(1),
    "cumsum": lambda x: x.cumsum(0),
    "cumprod": lambda x: x.cumprod(1),
    "cummax": lambda x: x.cummax(1),
    "cummin": lambda x: x.cummin(0),
    "max": lambda x: torch.max(x, 1),
    "min": lambda x: torch.min(x, 1),
    "argmin": lambda x: x.argmin(1),
    "amin": lambda x: x.amin(0),
    "sum": lambda x: (x > 0).sum(1),
    "and": lambda x: (x > 0) * (x < 3),
    "or": lambda x: (x > 0) + (x < -3),
    "xor": lambda x: (x > 0) ^ (x < 3),
    "max of truths": lambda x: (x > 0).amax(1),
    "floor": torch.floor,
    "isfinite": torch.isfinite,
    "to int32": lambda x: (x > 0).to(torch.int32),
    "int32 to float": lambda x: (x > 0).to(torch.int32).float(),
}


@pytest.mark.parametrize("name", sorted(WHOLE))
def test_integers_and_truth_values(name: str) -> None:
    x = torch.tensor([[3, -2, 0, 7, 7], [-5, 1, -5, 4, 0]])
    assert_same_values(WHOLE[name], x)


def test_running_extremes_keep_nan_and_take_the_last_of_equals() -> None:
    x = torch.tensor([2.0, 1.0, 2.0, -0.0, 0.0, NAN, 3.0, INF])
    assert_same_values(lambda t: torch.cummax(t, 0), x)
    assert_same_values(lambda t: torch.cummin(t, 0), x)
    assert_same_values(lambda t: torch.cummax(t.flip(0), 0), x)


def test_a_log_sum_of_nothing_but_minus_infinity_is_minus_infinity() -> None:
    x = torch.tensor([[-INF, -INF], [-INF, 1.0], [INF, 1.0], [NAN, 1.0]])
    assert_same_values(lambda t: torch.logsumexp(t, 1), x)
    assert_same_values(lambda t: torch.logcumsumexp(t, 1), x)


def test_a_product_of_a_vector_and_a_matrix_keeps_its_shape_in_eager_code() -> None:
    """torch squeezes the result in place, which changes a shape and no value."""
    a, b = spread(-1, 1, 3), spread(-1, 1, 12).reshape(3, 4)
    assert_same_values(torch.matmul, a, b)
