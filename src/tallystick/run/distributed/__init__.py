"""One run, executed by several workers: the same run root (docs/adr/0020)."""
