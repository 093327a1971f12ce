"""The weights of a finished run, back into the module that it was captured from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import nn

from tallystick.cli.output import note
from tallystick.errors import MismatchError, UsageError
from tallystick.job.job import Job
from tallystick.kernels.context import ExecutionContext
from tallystick.program.state import State
from tallystick.program.validation import BEST_PASS
from tallystick.run.execute.engine import Engine
from tallystick.run.store.claim import read_claim
from tallystick.run.store.directory import RunStore
from tallystick.run.store.export import final_state, named_weights


def best_state(store: RunStore, job: Job, final: State, threads: int | None) -> tuple[State, int]:
    """The state after the best pass of committed validation, and its step; the final one where no
    pass was.

    A run keeps a few states only. So the steps from the newest one before are executed again, and
    the root is compared with the committed one. Raises MismatchError for other bits, UsageError for
    a run without committed validation.
    """
    tensors = final.tensors()
    if BEST_PASS not in tensors:
        raise UsageError(
            "The run has no committed validation, so none of its states is the best.",
            "Evaluate during training, or take the final weights.",
        )
    wanted = int(tensors[BEST_PASS]) * job.commitment.timetable.cycle
    roots = read_claim(store, job, None).roots
    if not wanted or wanted not in roots:
        return final, max(roots)
    start = max((s for s in store.stored_steps() if s <= wanted and s in roots), default=0)
    state = store.load_state(job, start, roots[start]) if start else job.genesis()
    context = ExecutionContext(threads)
    with context.entered():
        engine = Engine(job, state, start, context)
        while engine.step < wanted:
            engine.run()
        if engine.root() != roots[wanted]:
            raise MismatchError(
                f"Repeating steps {start} to {wanted} gives another root than the committed one.",
                "The machine, its memory or its disk is faulty: audit the run on another one.",
            )
    return engine.state, wanted


def load_weights(
    module: nn.Module, run: Path, *, best: bool = False, threads: int | None = None
) -> int:
    """Load the final weights of `run` into `module`, with `best` those after the best pass of
    validation; returns their step. Raises the errors of `read_claim` and `best_state`."""
    store = RunStore(run)
    job = store.job()
    claim = read_claim(store, job, None)
    step = claim.last_step
    state = final_state(store, job, step, claim.commitment.final_state_root)
    if best:
        state, step = best_state(store, job, state, threads)
        note(f"The model gets the weights after step {step}, those of the best pass.")
    weights = named_weights(job, state.tensors())
    # A file's arrays are read-only views; torch's copy_ only reads them.
    found = {name: torch.from_numpy(np.array(array)) for name, array in weights.items()}
    module.load_state_dict(found, strict=True)
    return step
