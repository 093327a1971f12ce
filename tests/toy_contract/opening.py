"""The opening rule: a chain of chunks of 32 terms."""

from __future__ import annotations

from tallystick.opening.dot import dot, product
from tallystick.opening.quantity import Quantity, Site


def short_chunks(site: Site, chunk: int) -> Quantity:
    """An element of a matrix product."""
    return dot(product(site, 0), chunk)
