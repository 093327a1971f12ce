"""Linear algebra with a fixed number of steps: triangular systems, Cholesky, LU with pivots, QR.

Each is written out row by row or column by column, in the order of the textbook, from products,
divisions and roots. Iterations whose number depends on values (eigenvalues, singular values) have
no such form, and are refused. A matrix that has no factor gives NaN and a nonzero `info`: a program
cannot raise.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tallystick.errors import UnsupportedOperatorError
from tallystick.program.capture.decompose import composition

# Rows that are written out: the nodes of a factorisation grow with them.
_LARGEST = 64


def checked(size: int) -> int:
    if size > _LARGEST:
        raise UnsupportedOperatorError(
            f"Linear algebra is written out for at most {_LARGEST} rows; this matrix has {size}.",
            "Use smaller matrices, or compute the factor outside of the model.",
        )
    return size


def _identity(like: Tensor, rows: int, columns: int) -> Tensor:
    return torch.eye(rows, columns, dtype=like.dtype, device=like.device)


def _as_i32(x: Tensor, largest: int) -> Tensor:
    """x, from 0 to `largest`, in i32: read from a table, since no clause converts from i64."""
    values = [torch.full((1,), v, dtype=torch.int32, device=x.device) for v in range(largest + 1)]
    return torch.cat(values).index_select(0, x.reshape(-1)).reshape(x.shape)


def _substitute(a: Tensor, b: Tensor, upper: bool, unit: bool) -> Tensor:
    """The solution of a x = b, a triangular: row by row, each from all rows before it."""
    n = checked(a.shape[-1])
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])  # type: ignore[no-untyped-call]
    a, b = a.expand(*batch, n, n), b.expand(*batch, *b.shape[-2:])
    rows: list[Tensor] = []
    for i in reversed(range(n)) if upper else range(n):
        row = b[..., i : i + 1, :]
        if rows:
            before = a[..., i : i + 1, i + 1 :] if upper else a[..., i : i + 1, :i]
            row = row - before @ torch.cat(rows, -2)
        if not unit:
            row = row / a[..., i : i + 1, i : i + 1]
        rows = [row, *rows] if upper else [*rows, row]
    return torch.cat(rows, -2) if rows else b.clone()


@composition("aten.linalg_solve_triangular")
def _solve_triangular(
    a: Tensor, b: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    if left:
        return _substitute(a, b, upper, unitriangular)
    return _substitute(a.mT, b.mT, not upper, unitriangular).mT.clone()


@composition("aten.triangular_solve")
def _triangular_solve(
    b: Tensor, a: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> Any:
    turned = a.mT if transpose else a
    return _substitute(turned, b, upper != transpose, unitriangular), a.clone()


# -- Cholesky -----------------------------------------------------------------------------------


def _factor(a: Tensor) -> Tensor:
    """The lower factor of a symmetric matrix, column by column; reads the lower triangle."""
    n = checked(a.shape[-1])
    columns: list[Tensor] = []
    for j in range(n):
        column = a[..., j:, j : j + 1]
        if columns:
            done = torch.cat(columns, -1)
            column = column - done[..., j:, :] @ done[..., j : j + 1, :].mT
        root = column[..., :1, :].sqrt()
        above = torch.zeros_like(a[..., :j, :1])
        columns.append(torch.cat([above, root, column[..., 1:, :] / root], -2))
    return torch.cat(columns, -1) if columns else a.clone()


def _first(bad: Tensor) -> Tensor:
    """The place of the first true value, counted from 1; 0 where there is none."""
    n = bad.shape[-1]
    if n == 0:
        return torch.zeros(bad.shape[:-1], dtype=torch.int32, device=bad.device)
    places = torch.where(bad, torch.arange(1, n + 1, device=bad.device), n + 1).amin(-1)
    return _as_i32(torch.where(places == n + 1, 0, places), n)


@composition("aten.linalg_cholesky_ex")
def _cholesky_ex(a: Tensor, *, upper: bool = False, check_errors: bool = False) -> Any:
    factor = _factor(a.mT if upper else a)
    info = _first((factor.diagonal(dim1=-2, dim2=-1) > 0).logical_not())
    return factor.mT.clone() if upper else factor, info


@composition("aten.cholesky")
def _cholesky(a: Tensor, upper: bool = False) -> Tensor:
    return _factor(a.mT).mT.clone() if upper else _factor(a)


@composition("aten.cholesky_solve")
def _cholesky_solve(b: Tensor, factor: Tensor, upper: bool = False) -> Tensor:
    lower = factor.mT if upper else factor
    return _substitute(lower.mT, _substitute(lower, b, False, False), True, False)


@composition("aten.cholesky_inverse")
def _cholesky_inverse(factor: Tensor, upper: bool = False) -> Tensor:
    n = factor.shape[-1]
    return _cholesky_solve(_identity(factor, n, n), factor, upper)


# -- LU with partial pivots ---------------------------------------------------------------------


def _swapped(x: Tensor, j: int, p: Tensor) -> Tensor:
    """x with its rows j and p exchanged; p has one place for each matrix."""
    n = x.shape[-2]
    place = p[..., None, None]
    here = x[..., j : j + 1, :]
    there = x.gather(-2, place.expand(*x.shape[:-2], 1, x.shape[-1]))
    x = torch.where(torch.arange(n, device=x.device)[:, None] == place, here, x)
    return torch.cat([x[..., :j, :], there, x[..., j + 1 :, :]], -2)


def _lu(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """L below the diagonal and U on and above it; the pivots, counted from 1; and info."""
    rows, columns = a.shape[-2:]
    count = checked(min(rows, columns))
    pivots: list[Tensor] = []
    for j in range(count):
        pivot = a[..., j:, j].abs().argmax(-1) + j
        a = _swapped(a, j, pivot)
        pivots.append(pivot + 1)
        head = a[..., j : j + 1, j : j + 1]
        # A column of zeros has no pivot and stays.
        factors = a[..., j + 1 :, j : j + 1] / torch.where(head == 0, 1.0, head)
        rest = a[..., j + 1 :, j + 1 :] - factors * a[..., j : j + 1, j + 1 :]
        below = torch.cat([a[..., j + 1 :, :j], factors, rest], -1)
        a = torch.cat([a[..., : j + 1, :], below], -2)
    if not pivots:
        empty = torch.zeros((*a.shape[:-2], 0), dtype=torch.int32, device=a.device)
        return a.clone(), empty, _first(a.diagonal(dim1=-2, dim2=-1) == 0)
    info = _first(a.diagonal(dim1=-2, dim2=-1) == 0)
    return a, _as_i32(torch.stack(pivots, -1), rows), info


def _exchange(x: Tensor, pivots: Tensor, back: bool) -> Tensor:
    """The exchanges of rows that `pivots` tells, in their order or back."""
    order = range(pivots.shape[-1])
    batch = torch.broadcast_shapes(x.shape[:-2], pivots.shape[:-1])  # type: ignore[no-untyped-call]
    x, pivots = x.expand(*batch, *x.shape[-2:]), pivots.expand(*batch, pivots.shape[-1])
    for j in reversed(order) if back else order:
        x = _swapped(x, j, pivots[..., j].to(torch.int64) - 1)
    return x


def _lu_solved(lu: Tensor, pivots: Tensor, b: Tensor, adjoint: bool) -> Tensor:
    """x of a x = b, or of aᵀ x = b, by the factors of a."""
    if adjoint:
        x = _substitute(lu.mT, b, False, False)
        return _exchange(_substitute(lu.mT, x, True, True), pivots, back=True)
    x = _substitute(lu, _exchange(b, pivots, back=False), False, True)
    return _substitute(lu, x, True, False)


def _lu_solved_right(lu: Tensor, pivots: Tensor, b: Tensor, adjoint: bool) -> Tensor:
    """x of x a = b, or of x aᵀ = b: aᵀ xᵀ = bᵀ, or a xᵀ = bᵀ."""
    return _lu_solved(lu, pivots, b.mT, not adjoint).mT


@composition("aten.linalg_lu_factor_ex")
def _lu_factor_ex(a: Tensor, *, pivot: bool = True, check_errors: bool = False) -> Any:
    return _lu(a) if pivot else NotImplemented


@composition("aten.linalg_lu_solve")
def _linalg_lu_solve(
    lu: Tensor, pivots: Tensor, b: Tensor, *, left: bool = True, adjoint: bool = False
) -> Tensor:
    return _lu_solved(lu, pivots, b, adjoint) if left else _lu_solved_right(lu, pivots, b, adjoint)


@composition("aten.lu_unpack")
def _lu_unpack(
    lu: Tensor, pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True
) -> Any:
    rows, columns = lu.shape[-2:]
    count = min(rows, columns)
    none = torch.zeros(0, dtype=lu.dtype, device=lu.device)
    lower, upper, permuted = none, none, none
    if unpack_data:
        ones = _identity(lu, rows, count)
        lower = lu[..., :count].tril(-1) + ones
        upper = lu[..., :count, :].triu()
    if unpack_pivots:
        identity = _identity(lu, rows, rows).expand(*lu.shape[:-2], rows, rows)
        permuted = _exchange(identity, pivots, back=True).clone()
    return permuted, lower, upper


@composition("aten.linalg_lu")
def _linalg_lu(a: Tensor, *, pivot: bool = True) -> Any:
    if not pivot:
        return NotImplemented
    lu, pivots, _ = _lu(a)
    return _lu_unpack(lu, pivots)


def _turned(a: Tensor) -> Tensor:
    """torch's determinants factor the transpose of a contiguous matrix; the gradients expect it."""
    return a.mT if a.is_contiguous() else a


@composition("aten._linalg_solve_ex")
def _solve_ex(a: Tensor, b: Tensor, *, left: bool = True, check_errors: bool = False) -> Any:
    is_vector = b.dim() == 1 or (a.dim() - 1 == b.dim() and b.shape == a.shape[:-1])
    right = b[..., None] if is_vector else b
    lu, pivots, info = _lu(a)  # of a itself: the gradient solves with its transpose
    x = (_lu_solved if left else _lu_solved_right)(lu, pivots, right, False)
    return x[..., 0] if is_vector else x, lu, pivots, info


@composition("aten.linalg_inv_ex")
def _inv_ex(a: Tensor, *, check_errors: bool = False) -> Any:
    lu, pivots, info = _lu(a)
    identity = _identity(a, *a.shape[-2:]).expand(a.shape)
    return _lu_solved(lu, pivots, identity, False), info


def _parity(pivots: Tensor, dtype: torch.dtype) -> Tensor:
    """1 or −1: of an even or an odd number of exchanges."""
    places = torch.arange(1, pivots.shape[-1] + 1, device=pivots.device)
    moved = (pivots.to(torch.int64) != places).to(torch.int64).sum(-1)
    return torch.where(moved % 2 == 0, 1.0, -1.0).to(dtype)


@composition("aten._linalg_det")
def _det(a: Tensor) -> Any:
    lu, pivots, _ = _lu(_turned(a))
    diagonal = lu.diagonal(dim1=-2, dim2=-1)
    return diagonal.prod(-1) * _parity(pivots, a.dtype), lu, pivots


@composition("aten._linalg_slogdet")
def _slogdet(a: Tensor) -> Any:
    lu, pivots, _ = _lu(_turned(a))
    diagonal = lu.diagonal(dim1=-2, dim2=-1)
    sign = diagonal.sgn().prod(-1) * _parity(pivots, a.dtype)
    return sign, diagonal.abs().log().sum(-1), lu, pivots


def qr(a: Tensor, mode: str = "reduced") -> tuple[Tensor, Tensor]:
    """Q and R of a, (..., rows, columns), by Householder reflections; the modes are
    torch.linalg.qr's. Every step has the same shapes (PROGRAM 5.2).

    The signs are LAPACK's: a diagonal element of R is negative where its column's head is not, and
    a column without anything below its head is left as it is.
    """
    rows, columns = a.shape[-2:]
    count = min(rows, columns)
    places = torch.arange(rows, device=a.device)[:, None]
    r, mirrors = a, []
    for j in range(count):
        column = r[..., :, j : j + 1]
        head, below = column[..., j : j + 1, :], torch.where(places > j, column, 0.0)
        rest = (below * below).sum(-2, keepdim=True)
        norm = (head * head + rest).sqrt()
        normal = torch.where(places == j, head + torch.where(head < 0, -norm, norm), below)
        length = (normal * normal).sum(-2, keepdim=True)
        # Where nothing is below the head there is nothing to mirror.
        factor = torch.where(rest == 0, 0.0, 2.0 / torch.where(rest == 0, 1.0, length))
        mirrors.append((factor * normal, normal.mT))
        r = r - mirrors[-1][0] @ (mirrors[-1][1] @ r)
    r = r.triu()
    if mode == "r":
        return a.new_zeros(0), r[..., :count, :].clone()
    wide = rows if mode == "complete" else count
    q = torch.eye(rows, wide, dtype=a.dtype, device=a.device).expand(*a.shape[:-2], rows, wide)
    for scaled, turned in reversed(mirrors):
        q = q - scaled @ (turned @ q)
    return q.clone(), r[..., :wide, :].clone()


@composition("aten.linalg_qr")
def _linalg_qr(a: Tensor, mode: str = "reduced") -> tuple[Tensor, Tensor]:
    checked(min(a.shape[-2:]))
    return qr(a, mode)
