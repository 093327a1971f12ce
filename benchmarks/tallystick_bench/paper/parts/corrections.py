"""`bench paper`, corrections: OVT's Table 3 and Figure 5 a and b at the paper's sizes, a few steps.

`bench ovt` has hundreds of steps of smaller models between three kinds of hardware. Here there are
two kinds, each in a process of its own on one thread.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from tallystick.cli.output import note
from tallystick_bench.machine import machine
from tallystick_bench.ovt.models import LARGE, MODELS, QUICK
from tallystick_bench.ovt.parties.arms import hardware
from tallystick_bench.ovt.parties.lockstep import Child, children, run_arm
from tallystick_bench.ovt.results.paper import BITS
from tallystick_bench.ovt.results.store import part_file
from tallystick_bench.paper.context import Context

# The entry's name, the arm, its contract, whether it has a log.
_ARMS = (
    ("float32", "float32", None, False),
    ("round", "round", None, False),
    ("rounded", "rounded", "rounded/1", False),
)
STEPS, CORRECTED_STEPS = 2, 1


def measure(out: Path, context: Context) -> None:
    """One entry an arm, and one a number of bits."""
    kinds = hardware()[:2]
    for name in QUICK[:1] if context.quick else LARGE:
        if context.models and name not in context.models:
            continue
        about = {
            "machine": machine() | {"threads": 1},
            "recipe": MODELS[name].recipe,
            "settings": dict(MODELS[name].pairs),
            "data": context.data(MODELS[name]),
            "steps": f"{STEPS}; by bits {CORRECTED_STEPS}",
            "hardware": {kind.name: kind.settings for kind in kinds},
        }
        with part_file(out, "corrections", name, about, "paper") as part, ExitStack() as stack:
            made: list[Child] = []

            def run(
                arm: str, contract: str | None, steps: int, logged: bool,
                stack: ExitStack = stack, made: list[Child] = made, name: str = name,
            ) -> dict[str, Any]:  # fmt: skip
                if not made:
                    work = context.work / f"corrections-{name}"
                    work.mkdir()
                    made += stack.enter_context(children(kinds, work, 1))
                note(f"corrections: {name}, {contract or arm}")
                return run_arm(made, context.job(name).directory, arm, contract, steps, logged)

            for key, arm, contract, logged in _ARMS:
                part.get(key, partial(run, arm, contract, STEPS, logged))
            for bits in (BITS[0], BITS[-1]) if context.quick else BITS:
                wanted = f"replay/1;b={bits};form=published"
                part.get(f"b{bits}", partial(run, "published", wanted, CORRECTED_STEPS, True))
