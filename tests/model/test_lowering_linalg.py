"""Linear algebra written out (PROGRAM 5.2): captured and eager, against torch in float64."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from tallystick.errors import UnsupportedOperatorError  # noqa: E402
from tallystick_bench.opdb.case import Case  # noqa: E402
from tallystick_bench.opdb.verdict import same_bits, worst_of  # noqa: E402


class Sample:
    """As op_db's: operands that have gradients, and the function's other arguments."""

    def __init__(self, *tensors, **kwargs):
        self.input, *self.args = (t.requires_grad_() for t in tensors)
        self.kwargs = kwargs


def square(*shape):
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.rand(*shape, shape[-1], generator=generator) + torch.eye(shape[-1])


def definite(x):
    return x @ x.mT + torch.eye(x.shape[-1])


SYMMETRIC = {
    "cholesky": lambda a: torch.linalg.cholesky(definite(a)),
    "cholesky upper": lambda a: torch.linalg.cholesky(definite(a), upper=True),
    "cholesky_solve": lambda a: torch.cholesky_solve(
        a[..., :2], torch.linalg.cholesky(definite(a))
    ),
    "cholesky_inverse": lambda a: torch.cholesky_inverse(torch.linalg.cholesky(definite(a))),
    "solve_triangular": lambda a: torch.linalg.solve_triangular(a, a.mT, upper=True, left=False),
    "unit": lambda a: torch.linalg.solve_triangular(a, a.mT, upper=False, unitriangular=True),
    "lu": lambda a: torch.linalg.lu(a),
    "lu_solve": lambda a: torch.linalg.lu_solve(*torch.linalg.lu_factor(a), a.mT),
    "solve": lambda a: torch.linalg.solve(a, a.mT + 1.0),
    "solve of a transpose": lambda a: torch.linalg.solve(a.mT, a[..., :1] + 1.0),
    "solve of a sum": lambda a: torch.linalg.solve(torch.eye(a.shape[-1]) + 0.3 * a, a),
    "solve from the right": lambda a: torch.linalg.solve(a, a.mT + 1.0, left=False),
    "solve from the right, transposed": lambda a: torch.linalg.solve(a.mT, a + 1.0, left=False),
    "lu_solve from the right": lambda a: torch.linalg.lu_solve(
        *torch.linalg.lu_factor(a), a.mT + 1.0, left=False
    ),
    "inv": lambda a: torch.linalg.inv(a),
    "qr": lambda a: torch.linalg.qr(a),
    "qr tall": lambda a: torch.linalg.qr(torch.cat([a, a.mT, a + 1.0], -2)),
    "qr wide": lambda a: torch.linalg.qr(torch.cat([a, a.mT + 1.0], -1)),
    "qr complete": lambda a: torch.linalg.qr(torch.cat([a, a.mT + 1.0], -2).detach(), "complete"),
    "qr without q": lambda a: torch.linalg.qr(a.detach(), "r")[1],
    "det": lambda a: torch.linalg.det(a),
    "slogdet": lambda a: torch.linalg.slogdet(a),
    "det of a transpose": lambda a: torch.linalg.det(a.mT),
    "slogdet of a transpose": lambda a: torch.linalg.slogdet(a.mT),
    "inv of a transpose": lambda a: torch.linalg.inv(a.mT),
}


# Functions of a transpose go the way of the function and of "solve of a transpose".
NAMES = [
    pytest.param(
        name, marks=[pytest.mark.long] * ("transpose" in name and name != "solve of a transpose")
    )
    for name in SYMMETRIC
]


@pytest.mark.parametrize("name", NAMES)
def test_linear_algebra(name):
    """Forward and gradient within float32's rounding of float64, eager as captured."""
    for a in (square(2), square(2, 3), square(1, 1)):
        case = Case(SYMMETRIC[name], Sample(a))
        truth = case.truth()
        ours = case.ours()
        error, where = worst_of(ours, truth, 2e-4, 2e-5)
        assert error <= 1, (where, error)
        assert not ours.arithmetic
        assert not same_bits(ours, case.captured())


def test_a_singular_matrix():
    case = Case(lambda a: torch.linalg.det(a), Sample(torch.tensor([[0.0, 2.0], [0.0, 4.0]])))
    case.truth()
    assert case.ours().outputs[0] == 0


def test_large_matrices_are_refused():
    case = Case(lambda a: torch.linalg.inv(a), Sample(torch.eye(65)))
    case.truth()
    with pytest.raises(UnsupportedOperatorError, match=r"at most 64 rows.*65"):
        case.ours()
