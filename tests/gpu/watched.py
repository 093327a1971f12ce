"""The environment of a Python whose emulated GPU looks closely: "memcheck" or "racecheck"
(emulated_gpu.py, WATCH). GCC makes both."""

from __future__ import annotations

import os
import subprocess

WATCHES = ("memcheck", "racecheck")


def environment(watch: str) -> dict[str, str]:
    """That of this process, and what the watch needs."""
    made = {**os.environ, "TALLYSTICK_EMULATION": watch}
    if watch == "memcheck":
        # Python itself is not made for the sanitizers, so it must load theirs first.
        compiler = os.environ.get("CXX", "c++").split()
        libraries = [
            subprocess.run(
                [*compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True
            ).stdout.strip()
            for name in ("libasan.so", "libubsan.so")
        ]
        made["LD_PRELOAD"] = " ".join(libraries)
        made["ASAN_OPTIONS"] = "detect_leaks=0:detect_stack_use_after_return=0"
        made["UBSAN_OPTIONS"] = "print_stacktrace=0"
    return made
