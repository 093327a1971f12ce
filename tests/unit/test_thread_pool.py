"""The core's pool on a machine that gives it no threads, or no memory: slower, never other bits
and never the end of the process (NUMERICS 1.8)."""

from __future__ import annotations

import signal
from pathlib import Path

from environment_shim import preloaded, shim_path

_THREADS = """
import ctypes, sys
import numpy as np
from tallystick import _core
shim = ctypes.CDLL(None)
x = np.arange(1 << 20, dtype=np.float32)

def total():
    out = np.empty(1, np.float32)
    _core.reduce_sum(x, 1, x.size, 1, out)
    product = np.empty((300, 300), np.float32)
    _core.mm(x[:90000].reshape(300, 300), x[-90000:].reshape(300, 300), product)
    return out.tobytes() + product.tobytes()

_core.set_threads(1)
expected = total()
for allowed in map(int, sys.argv[1:]):
    shim.threads_allowed(allowed)
    _core.set_threads(5 + allowed)  # another number: a new pool
    assert total() == expected and total() == expected, allowed
shim.threads_allowed(-1)
_core.set_threads(3)
assert total() == expected
print("equal")
"""


def test_a_pool_runs_with_the_threads_it_gets(tmp_path: Path) -> None:
    script = tmp_path / "threads.py"
    script.write_text(_THREADS)
    done = preloaded([str(script), "0", "1", "2"], "default")
    assert (done.stdout, done.returncode) == ("equal\n", 0), done.stderr


_MEMORY = """
import resource
import numpy as np
from tallystick import _core

_core.set_threads(2)
n, channels = 1 << 22, 2  # each thread wants room for a channel: 16 MiB
x = np.arange(n * channels, dtype=np.float32).reshape(1, channels, n)

def norm():
    small = [np.empty(channels, np.float32) for _ in range(2)]
    _core.batch_norm(x, None, None, None, None, 0.1, 1e-5, y, *small, None, None)
    return y.tobytes()[:1000] + b"".join(s.tobytes() for s in small)

y = np.empty_like(x)
y.fill(0)
_core.set_threads(1)
expected = norm()
_core.set_threads(2)
out = np.empty(1, np.float32)
short = x[0, 0, : 1 << 18]
pages = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
_, hard = resource.getrlimit(resource.RLIMIT_AS)
for spare in (0, 20 << 20):  # for nobody; for one of both
    resource.setrlimit(resource.RLIMIT_AS, (pages + spare, hard))
    for _ in range(20):
        _core.reduce_sum(short, 1, short.size, 1, out)  # the workers are awake
        try:
            norm()
            print("enough")
        except MemoryError:
            print("MemoryError")
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    assert norm() == expected
print("equal")
"""


def test_a_task_without_memory_is_a_memory_error(tmp_path: Path) -> None:
    """In a worker too, where nothing above it would catch the exception."""
    shim_path()  # skips where this is no Linux
    script = tmp_path / "memory.py"
    script.write_text(_MEMORY)
    done = preloaded([str(script)], "default")
    assert done.returncode != -signal.SIGABRT, done.stderr
    assert done.returncode == 0, done.stderr
    lines = done.stdout.split()
    assert lines[:20] == ["MemoryError"] * 20 and lines[-1] == "equal", lines


_FORK = """
import os
_core.set_threads(2)
assert total() == expected
child = os.fork()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_child_starts_its_own_pool_or_does_without(tmp_path: Path) -> None:
    before, loop, after = _THREADS.partition("for allowed in")
    script = tmp_path / "fork.py"
    script.write_text(before + _FORK + loop + after)
    done = preloaded([str(script), "0", "1"], "default")
    assert done.returncode == 0, done.stderr
