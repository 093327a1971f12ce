"""Interpolation along axes and at points of a grid (PROGRAM 5.2, NUMERICS 9, 4.3)."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from lowering_check import Op, check  # noqa: E402

import tallystick  # noqa: E402
from tallystick.errors import UnsupportedOperatorError  # noqa: E402

SHAPE = (2, 3, 4, 5, 3)
SIZES = (7, 3, 5)
AXES = {"nearest": 2, "nearest-exact": 2, "linear": 1, "bilinear": 2, "bicubic": 2, "trilinear": 3}


def upsampled(mode: str, axes: int, **how: object) -> Op:
    options = {"mode": mode, **how}
    if options.pop("sized", False):
        options["size"] = SIZES[:axes]
    return Op(lambda x: F.interpolate(x, **options), [SHAPE[: 2 + axes]])


CASES = {f"{mode} x2": upsampled(mode, axes, scale_factor=2) for mode, axes in AXES.items()} | {
    f"{mode} to a size": upsampled(mode, axes, sized=True)
    for mode, axes in AXES.items()
    if mode != "bicubic"
}
CASES |= {
    f"{mode} by corners": upsampled(mode, axes, sized=True, align_corners=True)
    for mode, axes in AXES.items()
    if mode in ("bilinear", "bicubic")
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


def sampled(mode: str, padding: str, align: bool, axes: int = 2, eager: bool = False) -> Op:
    image, grid = (2, 3, 4, 5, 3)[: 2 + axes], ((2, 3, 4, 2), (2, 3, 2, 2, 3))[axes - 2]
    return Op(lambda x, g: F.grid_sample(x, g, mode, padding, align), [image, grid], eager)


# The points are normal numbers, so that about a third lies outside of the image.
CASES |= {
    "grid, zeros outside": sampled("bilinear", "zeros", False, eager=True),
    "grid, border": sampled("bilinear", "border", True),
    "grid, reflection": sampled("bilinear", "reflection", False),
    "grid, reflection by corners": sampled("bilinear", "reflection", True),
    "grid, nearest": sampled("nearest", "reflection", False),
    "grid, bicubic": sampled("bicubic", "border", False),
    "grid, volume": sampled("bilinear", "zeros", True, axes=3),
    "grid, volume, nearest": sampled("nearest", "border", False, axes=3),
    "affine_grid": Op(lambda t: F.affine_grid(t, (2, 3, 4, 5), align_corners=False), [(2, 2, 3)]),
    "affine_grid, volume": Op(
        lambda t: F.affine_grid(t, (2, 3, 4, 5, 2), align_corners=True), [(2, 3, 4)]
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_torchs(name: str) -> None:
    check(CASES[name])


@pytest.mark.parametrize("name", ["nearest to a size", "bilinear x2"])
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


def test_a_point_outside_reads_zeros_whatever_the_image_holds() -> None:
    image = torch.full((1, 1, 2, 2), float("inf"))
    points = torch.tensor([[5.0, 5.0], [-3.5, 0.0], [0.0, 1e9], [-1e30, 3.0]])

    def outside(x: torch.Tensor, given: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
        return F.grid_sample(given, grid, align_corners=False).sum() + x

    check(Op(outside, [(2,), image, points.reshape(1, 2, 2, 2)], frozen=(1, 2)))


@pytest.mark.sample(3)
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize(
    ("mode", "axes"),
    [("bilinear", 2), ("nearest", 2), ("bicubic", 2), ("bilinear", 3), ("nearest", 3)],
)
def test_a_point_that_is_not_finite_has_torchs_sample(mode: str, padding: str, axes: int) -> None:
    """As torch's kernels for the CPU have it: NaN, or an element at an edge."""
    odd = [float(x) for x in ("nan", "inf", "-inf")]
    pairs = [(a, b) for a in (*odd, 0.3) for b in (*odd, -0.7)]
    points = torch.tensor([[*pair, 0.1][:axes] for pair in pairs])
    grid = points.reshape(1, *(1,) * (axes - 1), 16, axes)
    image = torch.arange(2.0 * 3 * 4 * 5).reshape(1, 2, 3, 4, 5)
    image = image if axes == 3 else image.flatten(2, 3)
    for align in (True, False):
        with tallystick.reproducible():
            found = F.grid_sample(image, grid, mode, padding, align)
        wanted = F.grid_sample(image, grid, mode, padding, align)
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5, equal_nan=True)


def test_antialiasing_is_refused_by_name() -> None:
    op = Op(
        lambda x: F.interpolate(x, size=(3, 2), mode="bilinear", antialias=True), [(1, 2, 6, 5)]
    )
    with pytest.raises(UnsupportedOperatorError, match="_upsample_bilinear2d_aa"):
        check(op)
