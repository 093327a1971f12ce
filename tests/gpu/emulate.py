"""`make gpu-emulate`: every golden vector of every contract that the GPU has, and calls of odd
sizes, on the kernel sources.

Run: PYTHONPATH=tests:tests/vectors python tests/gpu/emulate.py [--seeds N] [--watch memcheck]
The last line counts. Exit code 1 if anything is wrong or an operator has no kernel.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time

import kernel_format as fmt
from check.replay import wrong_logs
from device_calls import KINDS, Checked, check_cases, check_vectors
from emulated_gpu import emulated_gpu
from make_exact_vectors import CONTRACTS as EXACT
from make_exact_vectors import ROOT as EXACT_ROOT
from make_exact_vectors import WIDTHS
from make_rounded_vectors import CONTRACTS as ROUNDED
from make_rounded_vectors import ROOT as ROUNDED_ROOT
from odd_shapes import Odd, check_odd_shapes
from test_rounded_vectors import BOUNDED_LOGS
from watched import WATCHES, environment

from tallystick.contracts.exact.cuda.ways import FORCED, ways


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="orders of threads (default 3)")
    parser.add_argument("--watch", choices=WATCHES, help="how closely to look (emulated_gpu.py)")
    asked = parser.parse_args()
    if asked.watch and os.environ.get("TALLYSTICK_EMULATION") != asked.watch:
        return subprocess.run([sys.executable, *sys.argv], env=environment(asked.watch)).returncode
    seeds = range(asked.seeds)
    vectors, odd, launched, logs = Checked(), Odd(), 0, 0
    for seed in seeds:
        for group in fmt.device_groups():
            began = time.monotonic()
            gpu = emulated_gpu(1000 * seed)
            found, other = check_vectors(gpu, [group]), check_odd_shapes(gpu, seed, [group])
            gpu.driver.check()
            launched += sum(gpu.driver.launched.values())
            vectors.add(found)
            odd.add(other)
            spent = f"{time.monotonic() - began:.1f} s"
            print(f"seed {seed} {group}: {found}; {other}; {spent}", flush=True)
        for group, contract in ROUNDED.items():
            gpu = emulated_gpu(1000 * seed)
            found = check_cases(
                gpu, group, fmt.load(group, KINDS, ROUNDED_ROOT, contract), contract=contract
            )
            gpu.driver.check()
            launched += sum(gpu.driver.launched.values())
            vectors.add(found)
            print(f"seed {seed} {contract}: {found}", flush=True)
        gpu = emulated_gpu(1000 * seed)
        followed, wrong = wrong_logs(gpu, BOUNDED_LOGS["cases"], count=seed % 2 == 1)
        gpu.driver.check()
        launched += sum(gpu.driver.launched.values())
        logs += followed
        vectors.wrong += wrong
        print(
            f"seed {seed} replay/1, bounded form: {followed} logs, {len(wrong)} wrong", flush=True
        )
        for group, contract in EXACT.items():
            cases = fmt.load(group, KINDS, EXACT_ROOT, contract)
            for way in (None, *(way.name for way in ways(WIDTHS[group]))):
                began, FORCED.way = time.monotonic(), way
                gpu = emulated_gpu(1000 * seed)
                found = check_cases(gpu, f"{group} {way}", cases, contract=contract)
                gpu.driver.check()
                launched += sum(gpu.driver.launched.values())
                vectors.add(found)
                spent = f"{time.monotonic() - began:.1f} s"
                print(
                    f"seed {seed} {contract} by {way or 'the table'}: {found}; {spent}", flush=True
                )
            FORCED.way = None
    for line in (*vectors.wrong, *odd.wrong):
        print(line)
    for op in sorted(vectors.missing):
        print(f"{op} has no kernel")
    print(
        f"golden vectors: {vectors}; {odd}; {logs} rounding logs followed; {len(seeds)} seeds, "
        f"{launched} launches{f', {asked.watch}' if asked.watch else ''}"
    )
    return 1 if vectors.wrong or odd.wrong or vectors.missing else 0


if __name__ == "__main__":
    sys.exit(main())
