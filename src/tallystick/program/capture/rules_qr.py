"""QR by Householder reflections, column by column; every step has the same shapes (PROGRAM 5.2).

The signs are LAPACK's: a diagonal element of R is negative where its column's head is not, and a
column without anything below its head is left as it is.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tallystick.program.capture.decompose import composition
from tallystick.program.capture.rules_linalg import checked


def qr(a: Tensor, mode: str = "reduced") -> tuple[Tensor, Tensor]:
    """Q and R of a, (..., rows, columns); the modes are torch.linalg.qr's."""
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
