"""Bounded rounding logs (NUMERICS 14.2 to 14.8): an entry where a boundary is near."""
