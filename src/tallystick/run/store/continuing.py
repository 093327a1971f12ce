"""A new job out of a finished run: the same programs and records, from its final state, moments
included (COMMITMENTS 7.6.8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tallystick.commit.checkpoint import prove_continuation
from tallystick.commit.job import STOP_SLOT, JobCommitment2, ScalarTable, scalars_digest
from tallystick.commit.signing import PublicKey
from tallystick.commit.state import is_finite
from tallystick.commit.timetable import Timetable
from tallystick.devices.environment import exact_environment
from tallystick.disk.files import clone_or_copy, make_directory, share_or_copy, write_file
from tallystick.disk.manifest import manifest_bytes, refuse_taken, written_anew
from tallystick.disk.tensorfile import write_tensors
from tallystick.errors import CannotCheckError, UsageError
from tallystick.job.continued import CONTINUES, continuation_file, continued_run
from tallystick.job.job import (
    EVAL_PROGRAM,
    FORWARD_PROGRAM,
    JOB_DIRECTORY,
    MANIFEST,
    STATE0,
    VALIDATION,
    Job,
)
from tallystick.job.job_file import job_manifest, load_job
from tallystick.job.scalars import BY_STEP, DERIVED
from tallystick.numerics.contracts import parse_contract
from tallystick.program.state import State
from tallystick.run.store.claim import read_claim
from tallystick.run.store.directory import RunStore
from tallystick.run.store.export import final_state


@exact_environment()
def continue_run(
    run: Path,
    directory: Path,
    steps: int,
    schedules: Mapping[str, ScalarTable] | None = None,
    trust: Sequence[PublicKey] | None = None,
    overwrite: bool = False,
) -> Job:
    """Write the job that trains `steps` more steps from the end of the finished run at `run`.

    Data order, random numbers and moments go on where the run ended, so that the parameters are
    those of a run that never stopped. `schedules` gives new values for scalars that were tables:
    a number, or one number for each step. Another table goes on with its last value.

    A run that a rule of its own has stopped goes on to the end: the new job stops by no slot. A job
    at `directory` is refused, or with `overwrite` replaced.
    Raises the errors of `read_claim` and UsageError.
    """
    directory = Path(directory)
    if not overwrite:
        refuse_taken(directory, JOB_DIRECTORY)
    if steps < 1:
        raise UsageError(
            f"steps is {steps}, but a job needs at least one more step.", "Give at least one step."
        )
    store = RunStore(Path(run))
    store.require()
    job = store.job()
    c = job.commitment
    if parse_contract(job.commitment.contract).keeps_log:
        raise CannotCheckError(
            f"A run under {job.commitment.contract} cannot be continued: its rounding logs end "
            "with it.",
            "Continue a run whose contract keeps no log.",
        )
    claim = read_claim(store, job, trust)
    state = final_state(store, job, claim.last_step, claim.commitment.final_state_root)
    losses = claim.journal.losses
    if c.stop_on_non_finite and losses and not is_finite(losses[-1]):
        raise UsageError(
            "The run ended with a loss that is not finite, so the next run would start from such "
            "a state.",
            "Train again from an earlier state, or with other settings.",
        )
    if BY_STEP in job.about:
        raise UsageError(
            "The job's loss depends on the number of the step (PROGRAM 5.21), and only for the "
            "job's own steps.",
            "Train a job with all the steps from the beginning.",
        )
    stopped = STOP_SLOT in state.slots and bool(state.slots[STOP_SLOT])
    timetable = c.timetable.after(claim.last_step)
    scalars = _scalars(job, timetable, timetable.training_steps(steps), schedules or {})
    proof = prove_continuation(state.digests(), state.loss_chain, state.log_chain)
    commitment = JobCommitment2(
        contract=c.contract,
        genesis_root=State(state.slots).root(),
        timetable=timetable,
        rng_seed=c.rng_seed,
        steps=timetable.training_steps(steps),
        checkpoint_interval=c.checkpoint_interval,
        scalars_digest=scalars_digest(scalars),
        stop_on_non_finite=c.stop_on_non_finite,
        stop_on_slot=c.stop_on_slot and not stopped,
        continues=continued_run(claim.commitment).digest(),
    )
    about = {**job.about, "continues": f"run {claim.run_root.hex()[:16]}"}
    proved = continuation_file(store.commitment_bytes(), proof)
    with written_anew(directory, JOB_DIRECTORY, overwrite) as place:
        made = replace(
            job, directory=place, commitment=commitment, scalars=scalars, fills={}, about=about
        )
        made = replace(made, recipe=None)  # the recipe gives neither this state nor these tables
        _write(job, made, state, proved)
    return load_job(directory)


def _scalars(
    job: Job, timetable: Timetable, steps: int, given: Mapping[str, ScalarTable]
) -> dict[str, ScalarTable]:
    if unknown := sorted(set(given) - set(job.scalars)):
        raise UsageError(
            f"The job has no scalar {unknown[0]!r}.",
            f"Choose from {', '.join(sorted(job.scalars))}.",
        )
    derived = sorted({*job.about.get(DERIVED, "").split()} & set(job.scalars) - set(given))
    if derived:
        raise UsageError(
            f"The values of {derived[0]} depend on the number of the step (PROGRAM 8.2), so the "
            "last value cannot be kept.",
            f"Pass schedules={{{derived[0]!r}: [...]}} with the values for the further steps.",
        )
    found: dict[str, ScalarTable] = {}
    for name, before in job.scalars.items():
        reads = [n for n, text in enumerate(job.texts) if name in text.scalar_names]
        passes = all(timetable.programs[n].by_pass for n in reads)
        value = given.get(name, before if isinstance(before, float) or passes else before[-1])
        rows = timetable.rows(reads[0], steps)
        if not isinstance(value, (int, float)) and len(value) != rows:
            raise UsageError(
                f"The table {name} has {len(value)} values, but the job has {rows} steps.",
                "Give one number for each training step.",
            )
        found[name] = float(value) if isinstance(value, (int, float)) else list(map(float, value))
    return found


def _write(old: Job, made: Job, state: State, continuation: bytes) -> None:
    directory, timetable = made.directory, made.commitment.timetable
    make_directory(directory / "data")
    for number, text in enumerate(old.texts):
        write_file(directory / made.program_file(number), [text.text().encode("ascii")])
    for number in range(len(timetable.data)):
        source = old.directory / old.data_file(number)
        share_or_copy(source, directory / made.data_file(number), old.directory)
    for name in (VALIDATION, EVAL_PROGRAM, FORWARD_PROGRAM):
        if name in old.files():
            put = share_or_copy if name == VALIDATION else clone_or_copy
            put(old.directory / name, directory / name, old.directory)
    tensors = {name: state.tensors()[name] for name in old.texts[0].state_types}
    write_tensors(directory / STATE0, tensors)
    write_file(directory / CONTINUES, [continuation])
    write_file(directory / MANIFEST, [manifest_bytes(job_manifest(made))])
