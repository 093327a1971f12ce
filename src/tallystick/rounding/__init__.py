"""Rounding logs of `replay/1`: what they say, the files that carry them, writing and following."""
