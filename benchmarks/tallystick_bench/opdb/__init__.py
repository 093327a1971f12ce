"""PyTorch's own operator tests, through `tallystick.reproducible()` and `capture`."""
