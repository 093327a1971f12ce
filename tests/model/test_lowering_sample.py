"""Interpolation along axes and at points of a grid (PROGRAM 5.2, NUMERICS 9, 4.3)."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from lowering_check import Op, check  # noqa: E402

from tallystick.errors import UnsupportedOperatorError  # noqa: E402

SHAPE = (2, 3, 4, 5, 3)
SIZES = (7, 3, 5)
AXES = {"nearest": 2, "nearest-exact": 2, "linear": 1, "bilinear": 2, "bicubic": 2, "trilinear": 3}


def upsampled(mode: str, axes: int, **how: object) -> Op:
    options = {"mode": mode, **how}
    if how.pop("sized", False):
        options["size"] = SIZES[:axes]
    options.pop("sized", None)
    return Op(lambda x: F.interpolate(x, **options), [SHAPE[: 2 + axes]])


CASES = {f"{mode} x2": upsampled(mode, axes, scale_factor=2) for mode, axes in AXES.items()} | {
    f"{mode} to a size": upsampled(mode, axes, sized=True) for mode, axes in AXES.items()
}
CASES |= {
    f"{mode} by corners": upsampled(mode, axes, sized=True, align_corners=True)
    for mode, axes in AXES.items()
    if "nearest" not in mode
}
CASES |= {
    "nearest 1d": upsampled("nearest", 1, scale_factor=3),
    "nearest 3d": upsampled("nearest", 3, sized=True),
    "nearest x1.7": upsampled("nearest", 2, scale_factor=1.7),
    "nearest-exact x1.7": upsampled("nearest-exact", 2, scale_factor=1.7),
    "bilinear x1.7": upsampled("bilinear", 2, scale_factor=1.7),
    "bilinear x1.7, scale computed": upsampled(
        "bilinear", 2, scale_factor=1.7, recompute_scale_factor=True
    ),
    "bilinear to one": upsampled("bilinear", 2, size=(1, 1), align_corners=True),
    "bicubic down": upsampled("bicubic", 2, scale_factor=0.5),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_torchs(name: str) -> None:
    check(CASES[name])


@pytest.mark.parametrize("name", ["nearest to a size", "bilinear x2", "bicubic by corners"])
def test_reproducible_has_the_same_bits(name: str) -> None:
    check(Op(CASES[name].call, CASES[name].operands, eager=True))


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
def test_nearest_takes_torchs_element_at_many_sizes(mode: str) -> None:
    """The places are integers: one that differs is another element, not a rounding."""
    line = torch.arange(97.0).reshape(1, 1, 97)

    def sampled(x: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
        parts = [F.interpolate(given, size=n, mode=mode) for n in (1, 29, 96, 98, 193, 194, 970)]
        parts.append(F.interpolate(given, scale_factor=3.3, mode=mode))
        return torch.cat(parts, -1) + x.sum() * 0.0

    check(Op(sampled, [(2,), line], frozen=(1,)))


def test_nearest_by_a_whole_factor_is_one_copy() -> None:
    used = check(CASES["nearest x2"])
    assert not {"aten.index_select", "aten.index_add"} & set(used)


def test_antialiasing_is_refused_by_name() -> None:
    op = Op(
        lambda x: F.interpolate(x, size=(3, 2), mode="bilinear", antialias=True), [(1, 2, 6, 5)]
    )
    with pytest.raises(UnsupportedOperatorError, match="_upsample_bilinear2d_aa"):
        check(op)
