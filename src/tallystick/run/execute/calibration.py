"""Calibration of the published form's thresholds: samples of several machines give a job.

A sample file is data from another party. Sizes and ranges are checked before use, and nothing in
the file is executed. At worst a false sample makes a threshold smaller than it needs to be, or
larger, by hiding disagreements. So take samples from machines you trust.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from tallystick.contracts.replay.calibration import (
    ELEMENTS,
    Sample,
    Sampler,
    Threshold,
    calibrate,
    published_contract,
    with_thresholds,
)
from tallystick.contracts.replay.sections import sections_of
from tallystick.contracts.replay.stock.emulated import kind_named
from tallystick.devices.context import DEFAULT, ExecutionContext
from tallystick.devices.environment import exact_environment
from tallystick.disk.files import clone_or_copy, make_directory, write_file
from tallystick.disk.manifest import manifest_bytes, refuse_taken, written_anew
from tallystick.disk.tensorfile import FileTypes, read_tensors, write_tensors
from tallystick.errors import CorruptFileError, UsageError
from tallystick.job.job import (
    EVAL_PROGRAM,
    FORWARD_PROGRAM,
    JOB_DIRECTORY,
    MANIFEST,
    Job,
)
from tallystick.job.job_file import job_manifest, load_job
from tallystick.numerics.contracts import Contract
from tallystick.program.ir import Program
from tallystick.run.execute.engine import Engine

FORMAT = "tallystick-calibration/1"
_COLUMNS = ("element", "section", "step", "x")
_FACTS = ("elements", "format", "job", "kind", "steps")


@dataclass(frozen=True)
class SampleFile:
    """A sample with the description in its file: the job, its settings, the kind of hardware."""

    path: Path
    sample: Sample
    steps: int
    elements: int
    kind: str


@exact_environment()
def take_sample(
    job: Job,
    path: Path,
    steps: int = 1,
    elements: int = ELEMENTS,
    kind: str = "plain",
    context: ExecutionContext = DEFAULT,
) -> SampleFile:
    """Execute the first `steps` steps of `job` and write the results of this machine's kernels.

    `kind` is a kind of hardware of contracts/replay/stock/emulated.py. Raises UsageError for a job
    without thresholds or steps, StorageError.
    """
    if not 1 <= steps <= job.steps:
        raise UsageError(
            f"--steps is {steps}, but the job has {job.steps} steps.", "Sample fewer steps."
        )
    stock = kind_named(kind).stock()
    sampler = Sampler(job.program, job.commitment.rng_seed, elements, stock)
    engine = Engine(job, job.genesis(), context=context, log=sampler)
    for _ in range(steps):
        engine.run()
    found = sampler.sample()
    facts = {
        "elements": str(elements),
        "format": FORMAT,
        "job": job.digest.hex(),
        "kind": f"{kind}: {stock.name}",
        "steps": str(steps),
    }
    columns = {name: getattr(found, name) for name in _COLUMNS}
    write_tensors(path, columns, facts)
    return SampleFile(path, found, steps, elements, facts["kind"])


@exact_environment()
def read_sample(job: Job, path: Path) -> SampleFile:
    """The sample at `path`, checked to be one of `job`.

    Raises StorageError, CorruptFileError for a file that is no sample, UsageError for a sample of
    another job.
    """

    def fail(why: str) -> NoReturn:
        raise CorruptFileError(
            f"{path} is not a calibration sample: {why}.",
            "Make one with `tallystick calibrate sample`.",
        )

    def check(types: FileTypes, _: Mapping[str, str]) -> None:
        """Allow no more rows than this job's sections have elements, whatever number of steps
        the file states."""
        most = job.steps * sum(s.elements for s in sections_of(job.program, contract))
        if any(shape and shape[0] > most for _, shape in types.values()):
            fail("it has more results than the job")

    contract = published_contract(job.program)
    columns, facts = read_tensors(path, "calibration sample", copy=True, check=check)
    if set(facts) != set(_FACTS) or facts["format"] != FORMAT:
        fail("it does not say so")
    if set(columns) != set(_COLUMNS):
        fail("its columns have other names")
    numbers = []
    for name in ("steps", "elements"):
        text = facts[name]
        if not (text.isascii() and text.isdecimal() and len(text) <= 18):
            fail(f"{name} is not a number")
        numbers.append(int(text))
    steps, elements = numbers
    if facts["job"] != job.digest.hex():
        raise UsageError(
            f"The sample {path} is from another job.",
            f"Take the samples of {job.directory} on every machine.",
        )
    if not 1 <= steps <= job.steps:
        fail(f"it has {steps} steps and the job {job.steps}")
    sample = Sample(*(columns[name] for name in ("step", "section", "element", "x")))
    try:
        sample.check(sections_of(job.program, contract), steps)
    except UsageError as error:
        fail(error.message.partition(": ")[2].rstrip("."))
    return SampleFile(path, sample, steps, elements, facts["kind"])


@exact_environment()
def merge_samples(
    job: Job, paths: Sequence[Path], out: Path, overwrite: bool = False
) -> tuple[Job, list[Threshold]]:
    """Apply Algorithm 4 to the samples at `paths`, and write the job with the thresholds to `out`.

    Raises UsageError where samples do not fit together, and the errors of `read_sample`.
    """
    published_contract(job.program)
    files = [read_sample(job, path) for path in paths]
    for file in files[1:]:
        if (file.steps, file.elements) != (files[0].steps, files[0].elements):
            raise UsageError(
                f"{file.path} and {files[0].path} were taken with different --steps or --elements.",
                "Take all samples with the same ones.",
            )
    found = calibrate(job.program, [file.sample for file in files])
    contract = with_thresholds(published_contract(job.program), found)
    return job_under(job, contract, out, overwrite), found


def job_under(job: Job, contract: Contract, directory: Path, overwrite: bool = False) -> Job:
    """Write `job` under another contract to `directory`. Raises UsageError, StorageError."""
    if not overwrite:
        refuse_taken(directory, JOB_DIRECTORY)
    job.verify()

    def under(program: Program) -> Program:
        return replace(program, contract=contract.text)

    texts = {job.program_file(n): under(text) for n, text in enumerate(job.texts)}
    commitment = job.commitment.under(contract.text, [text.digest() for text in texts.values()])
    programs = dict(texts)
    evaluation, forward = job.evaluation, job.forward_digest
    if job.eval_program is not None and evaluation is not None:
        programs[EVAL_PROGRAM] = under(job.eval_program)
        evaluation = replace(evaluation, program_digest=programs[EVAL_PROGRAM].digest())
    if job.forward_program is not None:
        programs[FORWARD_PROGRAM] = under(job.forward_program)
        forward = programs[FORWARD_PROGRAM].digest()
    with written_anew(directory, JOB_DIRECTORY, overwrite) as place:
        made = replace(
            job,
            directory=place,
            commitment=commitment,
            evaluation=evaluation,
            forward_digest=forward,
        )
        make_directory(place / "data")
        for name in job.files():
            if name not in programs and name != MANIFEST:
                clone_or_copy(job.directory / name, place / name, job.directory)
        for name, program in programs.items():
            write_file(place / name, [program.text().encode("ascii")])
        write_file(place / MANIFEST, [manifest_bytes(job_manifest(made))])
    return load_job(directory)
