"""Export of a run's weights, and the check of an exported file against the final state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tallystick.commit.signing import PublicKey
from tallystick.commit.tensor import Array, canonical_array
from tallystick.disk.regular import is_directory
from tallystick.disk.tensorfile import is_canonical, read_tensors, write_tensors
from tallystick.errors import CorruptFileError, DigestMismatchError, StorageError, UsageError
from tallystick.job.job import Job
from tallystick.program.ema import EMA_PREFIX
from tallystick.program.module_names import names_of
from tallystick.program.state import State
from tallystick.run.store.claim import Claim, read_claim
from tallystick.run.store.directory import RunStore

PREFIXES = ("param.", "buffer.")
_EXPORT_AGAIN = "Write the canonical file with `tallystick export RUN -o FILE`, and use that one."


@dataclass(frozen=True)
class ModelReport:
    """The commitment and the job to which an exported or verified model is bound."""

    path: Path
    tensors: int
    step: int
    run_root: bytes
    state_root: bytes
    job_digest: bytes
    signer: str
    trusted: bool | None


def module_name(slot: str) -> str | None:
    """The module's own name of a state slot; None for optimizer slots and chains."""
    for prefix in PREFIXES:
        if slot.startswith(prefix):
            return slot[len(prefix) :]
    return None


def final_state(store: RunStore, job: Job, step: int, root: bytes, copy: bool = False) -> State:
    """Load the committed final state from its stored file."""
    if step == 0:
        return job.genesis()
    if step not in store.stored_steps():
        raise StorageError(
            f"{store.directory} does not hold the state of step {step}.",
            "Ask the run's owner for it, or train the job again.",
        )
    return store.load_state(job, step, root, copy)


def export_model(
    run: Path, output: Path, trust: Sequence[PublicKey] | None = None, average: bool = False
) -> ModelReport:
    """Write the final weights of a finished run as safetensors, under the module's names.

    The names are those of the module's state_dict: tied ones each, and no buffer that it does not
    save. `average` takes the averages of the parameters (PROGRAM 8.10) in their place. Raises the
    errors of `read_claim`, UsageError where the run has no averages, and DigestMismatchError when
    the stored final state is not the committed one.
    """
    job, claim, weights = _final_weights(Path(run), trust, average)
    output = Path(output)
    if is_directory(output):
        raise UsageError(f"{output} is a directory.", "Name a file, as model.safetensors.")
    write_tensors(output, weights, _metadata(claim, job, average))
    return _report(output, len(weights), claim, job)


def _final_weights(
    run: Path, trust: Sequence[PublicKey] | None, average: bool
) -> tuple[Job, Claim, dict[str, Array]]:
    """The job of a finished run, its claim, and its final weights under the module's names.

    Raises the errors of `read_claim` and `final_state`.
    """
    store = RunStore(run)
    store.require()
    job = store.job()
    claim = read_claim(store, job, trust)
    state = final_state(store, job, claim.last_step, claim.commitment.final_state_root)
    tensors = state.tensors()
    averages = _averages(tensors, run) if average else {}
    return job, claim, named_weights(job, tensors, averages)


def named_weights(
    job: Job, tensors: Mapping[str, Array], averages: Mapping[str, Array] | None = None
) -> dict[str, Array]:
    """The weights of a state under the names of the module's state_dict: tied ones each, and no
    buffer that it does not save. `averages` take the place of parameters."""
    named = ((module_name(slot), array) for slot, array in tensors.items())
    weights = {name: array for name, array in named if name is not None}
    names = names_of(job.about, set(weights))
    weights |= averages or {}
    weights |= {alias: weights[name] for alias, name in names.tied.items()}
    return {n: array for n, array in weights.items() if n not in names.transient}


def _averages(tensors: Mapping[str, Array], run: Path) -> dict[str, Array]:
    """The averaged parameters under the module's names. Raises UsageError where there are none."""
    ends = len(EMA_PREFIX)
    found = {slot[ends:]: a for slot, a in tensors.items() if slot.startswith(EMA_PREFIX)}
    if not found:
        raise UsageError(
            f"The run {run} keeps no average of its parameters.",
            "Capture with ema=0.999, or make the job with --set ema=0.999.",
        )
    return found


def _metadata(claim: Claim, job: Job, average: bool) -> dict[str, str]:
    """The metadata of an exported file: a function of the run's commitment."""
    return {
        **({"tallystick.average": "ema"} if average else {}),
        "format": "pt",  # transformers and other readers look for this
        "tallystick.job_digest": job.digest.hex(),
        "tallystick.run_root": claim.run_root.hex(),
        "tallystick.state_root": claim.commitment.final_state_root.hex(),
        "tallystick.step": str(claim.last_step),
    }


def verify_model(
    path: Path, run: Path, trust: Sequence[PublicKey] | None = None, average: bool = False
) -> ModelReport:
    """Check that the file is, byte for byte, the one that `export_model` writes for the run.

    The weights of a run have one canonical file, metadata included. Any other file could carry
    bytes that no digest covers. Raises DigestMismatchError, which names the first tensor that
    differs, or says that the tensors agree but the file does not. Raises StorageError where the
    file cannot be read.
    """
    job, claim, wanted = _final_weights(Path(run), trust, average)
    try:
        tensors, _ = read_tensors(Path(path), "model file", strict=False)
    except CorruptFileError as error:
        raise DigestMismatchError(
            f"{error.message} So it is not this run's model.", _EXPORT_AGAIN
        ) from error
    if set(tensors) != set(wanted):
        odd = sorted(set(tensors) ^ set(wanted))[0]
        where = "lacks" if odd in wanted else "has a foreign"
        raise DigestMismatchError(
            f"The model file {path} {where} tensor {odd}.", "It is not this run's model."
        )
    for name in sorted(wanted):
        if not _same_bytes(tensors[name], wanted[name]):
            raise DigestMismatchError(
                f"Tensor {name} of {path} is not the one of the committed final state.",
                "It is not this run's model, or it was altered.",
            )
    if not is_canonical(Path(path), wanted, _metadata(claim, job, average)):
        raise DigestMismatchError(
            f"The tensors of {path} are those of the committed final state, but the file is not "
            "the one that `tallystick export` writes for this run: it may carry other bytes.",
            _EXPORT_AGAIN,
        )
    return _report(Path(path), len(tensors), claim, job)


def _same_bytes(a: Array, b: Array) -> bool:
    """True for equal dtypes, shapes and bytes; values that compare equal may differ (-0, NaN)."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if not a.size:
        return True
    mine, theirs = (x.reshape(-1).view(np.uint8) for x in (a, canonical_array(b)))
    return np.array_equal(mine, theirs)


def _report(path: Path, tensors: int, claim: Claim, job: Job) -> ModelReport:
    c = claim.commitment
    return ModelReport(
        path,
        tensors,
        c.final_step,
        c.run_root,
        c.final_state_root,
        job.digest,
        c.signer.key_id,
        claim.trusted,
    )
