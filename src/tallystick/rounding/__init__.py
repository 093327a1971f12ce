"""Rounding logs of `replay/1`: their content, their files, recording and following them."""
