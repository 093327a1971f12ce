"""A run or a job as one table; no step is executed and no state is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tallystick.commit.checkpoint import run_root
from tallystick.commit.signing import verify_run
from tallystick.commit.stream import DROP, RUN_ON, SEQUENTIAL, SHORT, JobProgram
from tallystick.commit.timetable import Timetable
from tallystick.devices.environment import exact_environment
from tallystick.job.job import Job, check_program_fits
from tallystick.job.job_file import load_job
from tallystick.run.logs.report import follow_report
from tallystick.run.show.summary import seconds_a_step, series
from tallystick.run.store.directory import RunStore
from tallystick.run.store.journal import loss_value
from tallystick.run.store.unsigned import read_declaration


@exact_environment()
def inspect_job(directory: Path) -> dict[str, Any]:
    """The job at `directory`: its digest and all that it fixes."""
    job = load_job(directory)
    c, timetable = job.commitment, job.commitment.timetable
    first = timetable.programs[0]
    data = timetable.data_of(0)
    return {
        "kind": "job",
        "job_digest": job.digest,
        "contract": c.contract,
        "steps": c.steps,
        "checkpoint_interval": c.checkpoint_interval,
        "format_version": c.format_version,
        "batch_size": first.batch_size,
        "records": data.record_count if data else 0,
        "seed": c.rng_seed,
        "order_seed": data.order_seed if data else 0,
        "stop_on_non_finite": c.stop_on_non_finite,
        "stop_on_slot": c.stop_on_slot,
        "continues": _continues(job),
        "program_digest": first.digest,
        "genesis_root": c.genesis_root,
        "data_root": data.root if data else None,
        "programs": [
            {
                "name": p.name,
                "program_digest": p.digest,
                "data": None if p.data is None else timetable.data[p.data].name,
                "batch_size": p.batch_size,
                "micro_batches": p.micro_batches,
                "by_pass": p.by_pass,
                "first": p.first,
                **_beyond_two(timetable, p),
            }
            for p in timetable.programs
        ],
        "schedule": [
            {"program": timetable.programs[t.program].name, "steps": t.steps}
            for t in timetable.turns
        ],
        "scalars_digest": c.scalars_digest,
        "recipe": job.recipe["name"] if job.recipe else None,
        "settings": job.recipe["settings"] if job.recipe else {},
        "parameters": parameter_count(job),
        "nodes": len(job.program.nodes),
        "about": job.about,
    }


def _beyond_two(timetable: Timetable, program: JobProgram) -> dict[str, Any]:
    """What a job of format 3 says besides of a program: the stream that it reads, the end of that
    stream's epochs, and the order of its records (COMMITMENTS 7.7)."""
    if timetable.plain:
        return {}
    stream = program.stream
    order = end = None
    if stream.data is not None:
        data = timetable.data[stream.data]
        order = SEQUENTIAL if stream.by_pass else data.order
        end = SHORT if stream.epoch_records == data.record_count else DROP
        end = RUN_ON if stream.epoch_records is None else end
    said = {"stream": stream.name, "order": order, "end": end}
    return {**said, "epoch_records": stream.epoch_records}


def _continues(job: Job) -> dict[str, Any] | None:
    """The run that the job continues: checked, but its signer is not compared with known ones."""
    run = job.verify_continuation()
    if run is None:
        return None
    return {"run_root": run.run_root, "final_step": run.final_step, "signer": run.signer.key_id}


def parameter_count(job: Job) -> int:
    """The number of weights, trained and frozen together."""
    types = job.program.state_types
    return sum(t.numel for name, t in types.items() if name.startswith("param."))


@exact_environment()
def inspect_run(directory: Path) -> dict[str, Any]:
    """The run at `directory`; the keys of DESIGN 9 and some more.

    `signature` is "valid", or "absent" for an unfinished run; an invalid signature raises. `damage`
    says why the journal of a signed run is not whole, and is None if it is whole.
    """
    store = RunStore(directory)
    job = store.job()
    check_program_fits(job)
    journal = store.journal(job)
    declared = read_declaration(store.override_path)
    envelope = store.envelope()
    signer = None
    if envelope is not None:
        commitment, _ = verify_run(envelope)
        signer = commitment.signer.key_id
    # kill -9 leaves a torn end in an unfinished run; a signed run has none.
    damaged = envelope is not None and not (journal.finished and not journal.torn_bytes)
    followed = follow_report(journal)
    session = journal.sessions[-1] if journal.sessions else {}
    last = journal.checkpoints[-1][1] if journal.checkpoints else None
    evaluations = [(step, loss_value(bits)) for step, bits in journal.evaluations]
    found = series(job, [loss_value(bits) for bits in journal.losses], evaluations)
    return {
        "kind": "run",
        "job_digest": job.digest,
        "contract": job.commitment.contract,
        "steps": len(journal.losses),
        "job_steps": job.steps,
        "checkpoint_interval": job.interval,
        "finished": journal.finished,
        "declared_override": declared.attack if declared else None,
        "damage": journal.torn_why or "its end is missing" if damaged else None,
        "reason": journal.reason,
        "checkpoints": [{"step": s, "state_root": r} for s, r in journal.checkpoints],
        "stored_checkpoints": store.stored_steps(),
        "traced_steps": store.traced_steps(),
        "run_root": run_root(job.digest, journal.checkpoints) if journal.checkpoints else None,
        "final_state_root": last if journal.finished else None,
        "signer": signer,
        "signature": "valid" if envelope is not None else "absent",
        "loss": list(found.training),
        "loss_of": {name: list(losses) for name, losses in found.by_stream.items()},
        "validation": [{"step": s, "loss": loss} for s, loss in found.validation],
        "log_bytes": store.log_bytes(),
        "followed": followed and followed.as_dict(),
        "isa": session.get("isa"),
        "threads": session.get("threads"),
        "workers": session.get("workers", 1),
        "sessions": journal.sessions,
        "step_seconds": seconds_a_step(journal.sessions),
        "recipe": job.recipe["name"] if job.recipe else None,
        "disk_bytes": store.disk_bytes(),
    }
