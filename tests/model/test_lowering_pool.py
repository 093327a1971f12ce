"""Average, adaptive and three-axis max pooling in captured programs (NUMERICS 6.15, 6.16, 10.2)."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from lowering_check import Op, check  # noqa: E402

IMAGE = (2, 3, 7, 8)
VOLUME = (1, 2, 5, 4, 6)

CASES = {
    "average 1d": Op(lambda x: F.avg_pool1d(x, 3, 2, 1), [(2, 3, 8)]),
    "average 1d, many taps": Op(lambda x: F.avg_pool1d(x, 11, 1, 5), [(2, 3, 12)], eager=True),
    "average 1d, many taps tiled": Op(lambda x: F.avg_pool1d(x, 9), [(2, 20)]),
    "average 2d, tiled": Op(lambda x: F.avg_pool2d(x, 2), [IMAGE], eager=True),
    "average 2d": Op(lambda x: F.avg_pool2d(x, 3, 2, 1), [IMAGE], eager=True),
    "average 2d, padding not counted": Op(
        lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), [IMAGE], eager=True
    ),
    "average 2d, ceil": Op(
        lambda x: F.avg_pool2d(x, (3, 2), (2, 3), (1, 0), ceil_mode=True), [(2, 3, 8, 7)]
    ),
    "average 2d, ceil, padding not counted": Op(
        lambda x: F.avg_pool2d(x, (3, 2), (2, 3), (1, 0), True, False), [(3, 8, 7)]
    ),
    "average 2d, divisor": Op(lambda x: F.avg_pool2d(x, 3, divisor_override=5), [IMAGE]),
    "average 2d, gaps": Op(lambda x: F.avg_pool2d(x, 2, 3), [IMAGE]),
    "average 3d": Op(lambda x: F.avg_pool3d(x, 2), [VOLUME]),
    "average 3d, uneven": Op(
        lambda x: F.avg_pool3d(x, (3, 2, 3), (2, 1, 2), (1, 0, 1), True, False), [VOLUME]
    ),
    "adaptive average 1d": Op(lambda x: F.adaptive_avg_pool1d(x, 3), [(2, 3, 8)]),
    "adaptive average 2d, even": Op(lambda x: F.adaptive_avg_pool2d(x, (4, 3)), [(2, 3, 8, 6)]),
    "adaptive average 2d": Op(lambda x: F.adaptive_avg_pool2d(x, (3, 5)), [IMAGE], eager=True),
    "adaptive average 2d, one": Op(lambda x: F.adaptive_avg_pool2d(x, (1, 1)), [IMAGE]),
    "adaptive average 2d, rows": Op(lambda x: F.adaptive_avg_pool2d(x, (1, None)), [IMAGE]),
    "adaptive average 2d, larger": Op(lambda x: F.adaptive_avg_pool2d(x, (9, 9)), [(1, 2, 4, 6)]),
    "adaptive average 3d": Op(lambda x: F.adaptive_avg_pool3d(x, (2, 3, 4)), [VOLUME]),
    "adaptive max 1d": Op(lambda x: F.adaptive_max_pool1d(x, 4), [(2, 3, 8)]),
    "adaptive max 2d, even": Op(lambda x: F.adaptive_max_pool2d(x, (4, 3)), [(2, 3, 8, 6)]),
    "adaptive max 2d": Op(lambda x: F.adaptive_max_pool2d(x, (3, 5)), [IMAGE], eager=True),
    "adaptive max 2d, larger": Op(lambda x: F.adaptive_max_pool2d(x, (9, 3)), [(1, 2, 4, 6)]),
    "adaptive max 3d": Op(lambda x: F.adaptive_max_pool3d(x, (2, 3, 4)), [VOLUME]),
    "adaptive max 3d, even": Op(lambda x: F.adaptive_max_pool3d(x, (1, 2, 3)), [VOLUME]),
    "max 1d": Op(lambda x: F.max_pool1d(x, 3, 2, 1, 2, ceil_mode=True), [(3, 9)]),
    "max 3d": Op(lambda x: F.max_pool3d(x, 3, 2, 1), [(2, 3, 5, 6, 7)], eager=True),
    "max 3d, ceil": Op(
        lambda x: F.max_pool3d(x, (2, 3, 2), (1, 2, 2), 0, (2, 1, 1), ceil_mode=True),
        [(2, 5, 6, 7)],
    ),
    "lp 1d": Op(lambda x: F.lp_pool1d(x, 2, 3, 2), [(2, 3, 9)]),
    "lp 2d": Op(lambda x: F.lp_pool2d(x, 2, (2, 3)), [(2, 3, 6, 6)]),
    "area": Op(lambda x: F.interpolate(x, size=(3, 2), mode="area"), [(2, 3, 6, 5)]),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_torchs(name: str) -> None:
    check(CASES[name])


@pytest.mark.parametrize(
    "pool",
    [
        lambda x: F.max_pool3d(x, 2, 1, return_indices=True),
        lambda x: F.adaptive_max_pool3d(x, (3, 3, 3), return_indices=True),
        lambda x: F.adaptive_max_pool2d(x[0], (3, 3), return_indices=True),
    ],
)
def test_of_equal_maxima_the_first_is_taken(pool: object) -> None:
    """6.15: the lowest position; torch's scan of a window finds the same."""
    ties = torch.tensor([0.0, 1.0, 1.0, -0.0]).repeat(2 * 5 * 4 * 5).reshape(1, 2, 5, 4, 20)

    def places(x: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
        return x.sum() * 0.0 + pool(given)[1].to(torch.float32)  # type: ignore[operator]

    check(Op(places, [(2,), ties], frozen=(1,)))
