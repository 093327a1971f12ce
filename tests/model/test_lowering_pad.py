"""Pads, shifts, windows and diagonals in captured programs (PROGRAM 5.2, NUMERICS 9, 4.3)."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from lowering_check import Op, check  # noqa: E402
from torch import Tensor  # noqa: E402


def assigned(x: Tensor, y: Tensor) -> Tensor:
    z = x.clone()
    z[:, 1:3] = y
    z[0] = 2.0
    return z


CASES = {
    "constant": Op(lambda x: F.pad(x, (1, 2, 0, 3), value=1.5), [(2, 3, 5)], eager=True),
    "constant, cut": Op(lambda x: F.pad(x, (-1, 2, 1, -2)), [(2, 5, 5)]),
    "constant, of nothing": Op(lambda x: F.pad(x, (1, 1), value=3.0), [(2, 0)]),
    "reflect 1d": Op(lambda x: F.pad(x, (2, 1), mode="reflect"), [(3, 5)], eager=True),
    "reflect 2d": Op(lambda x: F.pad(x, (2, 1, 1, 3), mode="reflect"), [(2, 3, 5, 4)]),
    "reflect 3d": Op(lambda x: F.pad(x, (2, 1, 1, 3, 0, 2), mode="reflect"), [(1, 2, 4, 5, 4)]),
    "replicate 1d": Op(lambda x: F.pad(x, (2, 0), mode="replicate"), [(1, 3, 5)], eager=True),
    "replicate 2d": Op(lambda x: F.pad(x, (2, 1, 1, 3), mode="replicate"), [(2, 3, 5, 4)]),
    "replicate 2d, cut": Op(lambda x: F.pad(x, (-1, 2, 2, -2), mode="replicate"), [(1, 2, 5, 6)]),
    "replicate 3d": Op(lambda x: F.pad(x, (2, 1, 1, 3, 0, 2), mode="replicate"), [(1, 2, 2, 3, 4)]),
    "circular": Op(lambda x: F.pad(x, (2, 1, 1, 3), mode="circular"), [(2, 3, 5, 4)]),
    "roll": Op(lambda x: x.roll((1, -2), (0, 2)), [(3, 4, 5)], eager=True),
    "roll, flat": Op(lambda x: x.roll(3), [(3, 5)]),
    "roll, whole turns": Op(lambda x: x.roll(5, 1), [(3, 5)]),
    "flip": Op(lambda x: x.flip(0, -1), [(3, 4, 5)]),
    "rot90": Op(lambda x: torch.rot90(x, 1, (0, 2)), [(3, 4, 5)]),
    "rot180": Op(lambda x: x.rot90(2), [(3, 4)]),
    "rot270": Op(lambda x: x.rot90(-1), [(3, 4)]),
    "eye": Op(lambda x: x @ torch.eye(5, 4) + torch.eye(4)[0], [(3, 5)], eager=True),
    "diagonal": Op(lambda x: x.diagonal(1, 0, 2), [(3, 4, 5)], eager=True),
    "diagonal, below": Op(lambda x: x.diagonal(-1), [(5, 4)]),
    "diagonal, outside": Op(lambda x: x.diagonal(7), [(5, 4)]),
    "diagonal_scatter": Op(lambda x, y: x.diagonal_scatter(y, 1), [(4, 5), (4,)]),
    "diag": Op(lambda x: torch.diag(x, -1), [(4,)]),
    "diag_embed": Op(lambda x: torch.diag_embed(x, 1, 0, 2), [(3, 4)]),
    "trace": Op(torch.trace, [(4, 5)]),
    "unfold": Op(lambda x: x.unfold(1, 3, 2), [(2, 8, 3)], eager=True),
    "unfold, overlapping": Op(lambda x: x.unfold(-1, 3, 1), [(2, 8)]),
    "unfold, tiling": Op(lambda x: x.unfold(-1, 3, 3), [(2, 8)]),
    "unfold, one window": Op(lambda x: x.unfold(0, 4, 4), [(4, 3)]),
    "im2col": Op(
        lambda x: F.unfold(x, (2, 3), dilation=(2, 1), padding=(1, 2), stride=(1, 2)),
        [(2, 3, 5, 6)],
        eager=True,
    ),
    "im2col, one image": Op(lambda x: F.unfold(x, 2), [(3, 4, 4)]),
    "col2im": Op(lambda x: F.fold(x, (5, 6), (2, 3), padding=(1, 2), stride=(1, 2)), [(2, 12, 24)]),
    "pixel_shuffle": Op(lambda x: F.pixel_shuffle(x, 2), [(2, 8, 3, 4)], eager=True),
    "pixel_unshuffle": Op(lambda x: F.pixel_unshuffle(x, 2), [(2, 4, 6)]),
    "channel_shuffle": Op(lambda x: F.channel_shuffle(x, 2), [(2, 6, 3, 4)]),
    "repeat_interleave": Op(lambda x: x.repeat_interleave(3, 1), [(2, 3, 4)]),
    "tile": Op(lambda x: x.tile(2, 1, 3), [(2, 3)]),
    "movedim": Op(lambda x: x.movedim(0, -1) * 1.0, [(2, 3, 4)]),
    "select_scatter": Op(lambda x, y: x.select_scatter(y, 1, -1), [(3, 4), (3,)]),
    "slice_scatter": Op(lambda x, y: x.slice_scatter(y, 1, 1, 4, 2), [(3, 5), (3, 2)]),
    "assignment": Op(assigned, [(3, 5), (3, 2)]),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_torchs(name: str) -> None:
    check(CASES[name])


def test_a_constant_pad_is_one_copy_per_axis() -> None:
    used = check(Op(lambda x: F.pad(x, (1, 2, 2, 1)), [(2, 3, 5)]))
    assert used.count("aten.cat") == 2 and "aten.slice_scatter" not in used


def test_an_unfold_that_tiles_moves_nothing() -> None:
    used = check(Op(lambda x: x.unfold(-1, 2, 2), [(2, 8)]))
    assert not {"aten.index_select", "aten.index_add", "aten.cat"} & set(used)
