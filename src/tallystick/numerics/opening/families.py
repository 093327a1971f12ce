"""Imports every family of opening rules, so that they register themselves."""

from __future__ import annotations

from tallystick.numerics.opening import batch_norm as batch_norm
from tallystick.numerics.opening import dot as dot
from tallystick.numerics.opening import loss as loss
from tallystick.numerics.opening import movement as movement
from tallystick.numerics.opening import normalisation as normalisation
from tallystick.numerics.opening import pointwise as pointwise
from tallystick.numerics.opening import pool as pool
from tallystick.numerics.opening import random as random
from tallystick.numerics.opening import reduction as reduction
from tallystick.numerics.opening import scatter as scatter
