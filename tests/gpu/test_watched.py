"""The two close looks at the emulated kernels see what they are for (`make gpu-memcheck`,
`make gpu-racecheck`). They compile the kernels anew."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from watched import environment

pytestmark = pytest.mark.long

HERE = Path(__file__).resolve().parent


def _said(watch: str, body: str) -> str:
    """What a Python with this watch writes when it runs `body`, which begins with a driver `d`."""
    begin = (
        "from emulated_gpu import emulated_gpu, planted, EmulationError\n"
        "from tallystick.devices.cuda.launch import f32, over, padded, whole\n"
        "g = emulated_gpu(1); d = g.driver\n"
        "def negate(x, out, count, fours=0):\n"
        "    slots = whole(count, 1) + padded([count]) + padded([1]) + whole(x, 0, out, fours)\n"
        "    d.launch('pointwise_neg', over(count), 256, slots + f32(0, 0))\n"
    )
    tests = HERE.parent
    env = environment(watch)
    env["PYTHONPATH"] = f"{tests}:{tests / 'vectors'}:{HERE}"
    done = subprocess.run(
        [sys.executable, "-c", begin + body], env=env, capture_output=True, text=True, check=False
    )
    return f"{done.returncode} {done.stdout}{done.stderr}"


def test_memcheck_lets_a_right_call_pass() -> None:
    said = _said("memcheck", "negate(d.allocate(404), d.allocate(404), 101); print('well')")
    assert said.startswith("0 well")


def test_memcheck_sees_a_read_beyond_the_end() -> None:
    said = _said("memcheck", "negate(d.allocate(400), d.allocate(404), 101)")
    assert not said.startswith("0 ") and "AddressSanitizer" in said and "READ" in said


def test_memcheck_sees_a_read_beyond_shared_memory() -> None:
    # A tile of products that is given less dynamic shared memory than it uses.
    body = (
        "import numpy as np; from device_calls import call; from dataclasses import replace\n"
        "from tallystick.contracts.ordered.cuda import dots\n"
        "whole_tile = dots.choose\n"
        "class Less:\n"
        "    def __init__(self, t): self.t = t\n"
        "    def __getattr__(self, n): return getattr(self.t, n)\n"
        "    shared = property(lambda self: self.t.shared - 64)\n"
        "dots.choose = lambda *a: (lambda c: type(c)(Less(c.tile), c.split))(whole_tile(*a))\n"
        "call(g, 'aten.mm', {}, [np.ones((70, 300), 'f4'), np.ones((300, 68), 'f4')])\n"
    )
    said = _said("memcheck", body)
    assert not said.startswith("0 ") and "AddressSanitizer" in said


def test_memcheck_sees_a_wide_read_that_is_not_aligned() -> None:
    said = _said("memcheck", "negate(d.allocate(404) + 4, d.allocate(400), 100, fours=1)")
    assert not said.startswith("0 ") and "misaligned address" in said


@pytest.mark.parametrize("fault", ["missing barrier", "race", "missing wait"])
@pytest.mark.parametrize("seed", range(3))
def test_racecheck_sees_a_fault_in_every_order_of_threads(fault: str, seed: int) -> None:
    body = (
        "import numpy as np; from device_calls import call\n"
        "from tallystick.products.cuda.tiles import FORCED, TILES\n"
        "x, y = np.ones((40, 300), 'f4'), np.ones((300, 72), 'f4')\n"
        "seen = 0\n"
        "for FORCED.tile in TILES:\n"
        f"    FORCED.split = False; g = emulated_gpu({seed}); call(g, 'aten.mm', {{}}, [x, y])\n"
        "    try:\n"
        f"        with planted('{fault}'): call(g, 'aten.mm', {{}}, [x, y])\n"
        "    except EmulationError as error: seen += 'a race' in str(error)\n"
        "print('seen', seen, 'of', len(TILES))\n"
    )
    # The numbers are all 1: no result is wrong, and the race is seen all the same.
    assert _said("racecheck", body).startswith("0 seen 6 of 6")


@pytest.mark.parametrize(
    ("kernel", "threads", "seen"),
    [
        ("faulty_order", 32, "touches what was written"),
        ("faulty_mixed", 64, "touches what was changed atomically|writes what was read"),
        ("faulty_mended", 32, ""),
    ],
)
def test_racecheck_knows_what_orders_two_accesses(kernel: str, threads: int, seen: str) -> None:
    """Kernels of emulation/faulty.cu."""
    body = (
        "for _ in range(9):\n"
        f"    try: d.launch('{kernel}', (1, 1, 1), {threads}, whole(d.allocate(256)))\n"
        "    except EmulationError as error: print(error)\n"
    )
    said = _said("racecheck", body)
    assert said.startswith("0 ")
    lines = [line for line in said[2:].splitlines() if line]
    assert len(lines) == (9 if seen else 0)
    assert all(re.search(seen, line) for line in lines)


def test_racecheck_sees_two_blocks_that_write_the_same_place() -> None:
    # A copy whose target has a stride of 0.
    body = (
        "x, out = d.allocate(4096), d.allocate(4096)\n"
        "slots = whole(600, 1) + padded([600]) + padded([1]) + padded([0]) + whole(x, out)\n"
        "try: d.launch('copy_strided_4', (3, 1, 1), 256, slots)\n"
        "except EmulationError as error: print(error)\n"
    )
    assert "a race: thread" in _said("racecheck", body)
