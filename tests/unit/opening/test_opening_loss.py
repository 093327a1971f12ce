"""Opening rules of the losses (NUMERICS 7.1 - 7.4)."""

from __future__ import annotations

import numpy as np
import pytest
from disputes import check_changed_operand, check_lies, check_values, sites

from tallystick import evaluate
from tallystick.errors import UsageError
from tallystick.opening.quantity import Local, TermsQuantity, opening_rule
from tallystick.opening.values import WholeSource, value_of
from tallystick.opening.views import View, locate, view_dtypes, view_values

CE, NLL = "tallystick.cross_entropy", "aten.nll_loss_forward"
IGNORE = -100
SIZES = [(1, 1), (31, 5), (257, 3), (3, 257), (2, 700), (700, 2)]


def _case(rows: int, classes: int, ignored: str = "some") -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(rows * 1000 + classes)
    x = rng.standard_normal((rows, classes)).astype(np.float32)
    t = rng.integers(0, classes, rows)
    if ignored != "none":
        t[:: 3 if ignored == "some" else 1] = IGNORE
    return x, t


def _attrs(reduction: str) -> dict[str, object]:
    return {"ignore_index": IGNORE, "reduction": reduction}


def _grad(rows: int, reduction: str) -> np.ndarray:
    g = np.random.default_rng(5).standard_normal(rows).astype(np.float32)
    return g if reduction == "none" else np.asarray(g[0])


def _ce_gradient(x: np.ndarray, t: np.ndarray, reduction: str) -> list[np.ndarray]:
    _, m, s = evaluate(CE, x, t, **_attrs(reduction))
    return [_grad(len(t), reduction), x, t, m, s]


def _nll_gradient(x: np.ndarray, t: np.ndarray, reduction: str) -> list[np.ndarray]:
    return [_grad(len(t), reduction), x, t, evaluate(NLL, x, t, **_attrs(reduction))[1]]


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("ignored", ["none", "some", "all"])
@pytest.mark.parametrize("size", SIZES)
def test_values(size: tuple[int, int], ignored: str, reduction: str) -> None:
    x, t = _case(*size, ignored)
    attrs = _attrs(reduction)
    check_values(CE, attrs, x, t, most=20)
    check_values(NLL, attrs, x, t, most=20)
    check_values(f"{CE}_backward", attrs, *_ce_gradient(x, t, reduction), most=50)
    check_values("aten.nll_loss_backward", attrs, *_nll_gradient(x, t, reduction), most=50)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_values_at_targets(reduction: str) -> None:
    x, t = _case(6, 4)
    attrs = _attrs(reduction)
    check_values(f"{CE}_backward", attrs, *_ce_gradient(x, t, reduction), most=24)
    check_values("aten.nll_loss_backward", attrs, *_nll_gradient(x, t, reduction), most=24)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_special_rows(reduction: str) -> None:
    x, t = _case(6, 300, "none")
    x[0, 9] = np.nan
    x[1, 50:] = -np.inf
    x[2] = -np.inf
    x[3, 3] = np.inf
    x[4] = 0.5
    t[5] = IGNORE
    for kept in (slice(1, 2), slice(4, 6), slice(0, 6)):
        rows, targets = x[kept].copy(), t[kept].copy()
        attrs = _attrs(reduction)
        check_values(CE, attrs, rows, targets)
        check_values(NLL, attrs, rows, targets)
        check_values(f"{CE}_backward", attrs, *_ce_gradient(rows, targets, reduction), most=100)


def test_no_rows() -> None:
    x, t = np.zeros((0, 3), np.float32), np.zeros(0, np.int64)
    for reduction in ("mean", "sum"):
        check_values(CE, _attrs(reduction), x, t)
        check_values(NLL, _attrs(reduction), x, t)


def test_sums_of_three_levels() -> None:
    x, t = _case(70_000, 2)
    check_values(CE, _attrs("mean"), x, t, most=2)
    check_values(NLL, _attrs("mean"), x, t, most=2)
    outcome = check_changed_operand(
        CE, _attrs("mean"), x, t, operand=0, positions=[2 * 66_001], value=4.0
    )
    assert outcome.path[:2] == (0, 66_001)  # the sum, then its term
    assert outcome.quantity in ("m", "s")


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("size", [(300, 3), (3, 300), (1, 2)])
def test_lies(size: tuple[int, int], reduction: str) -> None:
    x, t = _case(*size, "none")
    t[-1] = IGNORE if len(t) > 1 else t[-1]
    attrs = _attrs(reduction)
    check_lies(CE, attrs, x, t)
    check_lies(NLL, attrs, x, t)
    check_lies(f"{CE}_backward", attrs, *_ce_gradient(x, t, reduction), most=7)
    check_lies("aten.nll_loss_backward", attrs, *_nll_gradient(x, t, reduction), most=7)


def test_a_lie_about_the_loss_comes_down_to_a_row() -> None:
    x, t = _case(300, 40, "none")
    verdicts = check_lies(CE, _attrs("mean"), x, t)
    assert {v.quantity for v in verdicts} >= {"loss", "SUM(l)", "count", "l_r", "m", "s"}
    assert {v.clause for v in verdicts} >= {"6.5", "6.6", "6.8"}
    few = check_lies(CE, _attrs("sum"), x[:9], t[:9])
    assert "6.9" in {v.clause for v in few}


def test_an_ignored_row_that_was_counted() -> None:
    x, t = _case(300, 3, "some")
    outcome = check_changed_operand(CE, _attrs("mean"), x, t, operand=1, positions=[297], value=0)
    assert outcome.quantity == "l_r"
    outcome = check_changed_operand(
        "aten.nll_loss_forward", _attrs("mean"), x, t, operand=1, positions=[297], value=0, out=1
    )
    assert (outcome.quantity, outcome.terms) == ("count", 44)


def test_a_target_that_is_no_class_has_no_value() -> None:
    x, t = _case(4, 3, "none")
    for op, operands in (
        (CE, [x, t]),
        (NLL, [x, t]),
        (f"{CE}_backward", _ce_gradient(x, t, "sum")),
        ("aten.nll_loss_backward", _nll_gradient(x, t, "sum")),
    ):
        rule = opening_rule(sites(op, _attrs("sum"), operands)[0][0])
        bad = [np.where(a == a, 3, a) if a.dtype == np.int64 else a for a in operands]
        with pytest.raises(UsageError, match="target 3 "):
            value_of(rule, WholeSource(bad))


# --- Terms ----------------------------------------------------------------------------------------
def test_terms_are_what_each_term_is() -> None:
    x, t = _case(300, 70)
    total = opening_rule(sites(CE, _attrs("sum"), [x, t])[0][0])
    assert isinstance(total, TermsQuantity)
    source = WholeSource([x, t])
    stated = view_values(total, View("terms", 256, 300), source)
    single = [value_of(total.term(i), source) for i in range(256, 300)]
    assert np.array(stated).tobytes() == np.array(single).tobytes()


def test_paths_and_views_of_terms() -> None:
    x, t = _case(300, 3)
    mean = opening_rule(sites(CE, _attrs("mean"), [x, t])[0][0])
    total = locate(mean, (0,))
    row = locate(mean, (0, 299))
    assert isinstance(row, Local) and row.name == "l_r"
    assert locate(mean, (0, 299, 1, 0)).name == "m"
    for path in ((0, 300), (1, 0), (2,), (0, -1)):
        with pytest.raises(LookupError):
            locate(mean, path)
    assert len(view_dtypes(total, View("terms", 0, 256))) == 256
    assert len(view_dtypes(total, View("blocks", 1, 0))) == 2
    for view in (View("terms", 1, 257), View("terms", 0, 255), View("terms", 256, 512)):
        with pytest.raises(LookupError):
            view_dtypes(total, view)
    with pytest.raises(LookupError):
        view_dtypes(locate(mean, (1,)), View("terms", 0, 256))


# --- mse_loss -------------------------------------------------------------------------------------
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("shape", [(), (31,), (257,), (7, 100), (0,)])
def test_mse_values_and_lies(shape: tuple[int, ...], reduction: str) -> None:
    rng = np.random.default_rng(3)
    x, y = (np.asarray(rng.standard_normal(shape), np.float32) for _ in range(2))
    check_values("aten.mse_loss", {"reduction": reduction}, x, y)
    if x.size:
        check_lies("aten.mse_loss", {"reduction": reduction}, x, y)
        x.reshape(-1)[-1] = np.nan
        check_values("aten.mse_loss", {"reduction": reduction}, x, y)
