"""The command line. See docs/ARCHITECTURE.md for what belongs in this room."""

from __future__ import annotations

import os

# numpy's OpenBLAS reads it as it is loaded. By default its threads spin for tens of milliseconds
# after each product, on processors that the core's threads want (benchmarks/NOTES.md, R1). Four is
# the least it takes: 2^4 cycles. This module may set up a process of the command line, but not a
# process that imports the library. Without the variable steps are slower and no bit differs.
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
