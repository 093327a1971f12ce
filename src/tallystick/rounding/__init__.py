"""Rounding logs of `replay/1`: what they say, recording, following and judging them; no disk."""
