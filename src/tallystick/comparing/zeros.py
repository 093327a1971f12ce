"""Zeros of two signs: +0.0 and -0.0 are equal as numbers, and other bits."""

from __future__ import annotations

import numpy as np

from tallystick.commit.tensor import Array
from tallystick.comparing.values import bits_of, is_float, numbers_of


def signs_said(first: Array, second: Array) -> str:
    """Says that two tensors differ in the signs of zeros alone: which one has which. Empty where
    they differ in anything else, or not at all."""
    if not is_float(first) or first.dtype != second.dtype or first.shape != second.shape:
        return ""
    places = np.flatnonzero(bits_of(first) != bits_of(second))
    ours, theirs = numbers_of(first)[places], numbers_of(second)[places]
    if not places.size or ours.any() or theirs.any():
        return ""
    negative = np.signbit(ours)
    if negative.all():
        return "-0.0 in A and +0.0 in B"
    return "+0.0 in A and -0.0 in B" if not negative.any() else "zeros of other signs"
