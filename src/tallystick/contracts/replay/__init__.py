"""Rounding logs of `replay/1`: their content; recording, following and judging them; no disk."""
