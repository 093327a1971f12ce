"""The opening rule: a chain of chunks of 32 terms."""

from __future__ import annotations

from typing import cast

from tallystick.opening.dot import Products, dot
from tallystick.opening.parts import summed
from tallystick.opening.quantity import Quantity, Site


def short_chunks(site: Site, chunk: int) -> Quantity:
    """An element of a matrix product."""
    return dot(cast(Products, summed(site).terms), chunk)
