"""Coverage-guided fuzzing of one target with atheris (libFuzzer); `slices.py` starts it.

    PYTHONPATH=tests python tests/adversary/fuzzing/harness.py WORLD TARGET COUNTS [OPTIONS]

WORLD is a directory of `make_world`, OPTIONS are libFuzzer's. The counts of inputs, taken and
refused, are in the file COUNTS. A finding ends the process, and libFuzzer keeps its input.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["tallystick"]):
    from adversary.fuzzing.targets import target, tried
    from adversary.fuzzing.world import World
    from adversary.limits import bound_memory

TELL_EVERY = 500


def main() -> None:
    world, name, counts = World(Path(sys.argv[1])), sys.argv[2], Path(sys.argv[3])
    check, taken, refused = target(name, world), 0, 0
    for seed in world.seeds(name).iterdir():  # imports and caches are there now
        tried(name, check, seed.read_bytes())
    bound_memory()

    def one(data: bytes) -> None:
        nonlocal taken, refused
        try:
            if tried(name, check, data):
                taken += 1
            else:
                refused += 1
        finally:
            if not (taken + refused) % TELL_EVERY:
                counts.write_text(json.dumps({"taken": taken, "refused": refused}))

    atheris.Setup([sys.argv[0], *sys.argv[4:]], one, enable_python_coverage=True)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
