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
from tallystick.job.parts import pass_period
from tallystick.program.state import State, names_of
from tallystick.program.update import EMA_PREFIX
from tallystick.program.validation import BEST_PASS, PASSES, best_pass_step
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
            f"{store.directory} does not contain the state of step {step}.",
            "Ask the run's owner for it, or train the job again.",
        )
    return store.load_state(job, step, root, copy)


@dataclass(frozen=True)
class Which:
    """Which weights of a run: the averages of the parameters in their place (PROGRAM 8.10); those
    after the best pass of committed validation (PROGRAM 7) instead of the last ones."""

    average: bool = False
    best: bool = False


LAST = Which()


def export_model(
    run: Path, output: Path, trust: Sequence[PublicKey] | None = None, which: Which = LAST
) -> ModelReport:
    """Write the weights of a finished run as safetensors, under the module's names.

    The names are those of the module's state_dict: tied ones each, and no buffer that it does not
    save. Raises the errors of `read_claim`, UsageError where the run has no averages or no best
    pass, StorageError where it does not hold that state, and DigestMismatchError when the stored
    state is not the committed one.
    """
    found = weights_of(Path(run), trust, which)
    output = Path(output)
    if is_directory(output):
        raise UsageError(
            f"{output} is a directory, not a file.", "Name a file, such as model.safetensors."
        )
    write_tensors(output, found.tensors, found.metadata(which))
    return found.report(output)


@dataclass(frozen=True)
class Weights:
    """Weights of a run under the module's names, and the committed state that they are of.

    `unsaved` are buffers that no state_dict has, those outside of the module (PROGRAM 5.20) too.
    """

    job: Job
    claim: Claim
    step: int
    tensors: dict[str, Array]
    unsaved: dict[str, Array]

    def metadata(self, which: Which) -> dict[str, str]:
        """The metadata of an exported file: a function of the run's commitment."""
        return {
            **({"tallystick.average": "ema"} if which.average else {}),
            **({"tallystick.best": "validation"} if which.best else {}),
            "format": "pt",  # transformers and other readers look for this
            "tallystick.job_digest": self.job.digest.hex(),
            "tallystick.run_root": self.claim.run_root.hex(),
            "tallystick.state_root": self.claim.roots[self.step].hex(),
            "tallystick.step": str(self.step),
        }

    def report(self, path: Path) -> ModelReport:
        c = self.claim.commitment
        return ModelReport(
            path,
            len(self.tensors),
            self.step,
            c.run_root,
            self.claim.roots[self.step],
            self.job.digest,
            c.signer.key_id,
            self.claim.trusted,
        )


@dataclass(frozen=True)
class ChosenState:
    """A committed state of a finished run, with its job and the run's claim."""

    job: Job
    claim: Claim
    step: int
    state: State

    def values(self, which: Which, run: Path) -> dict[str, Array]:
        """The state's slots, averages in the place of the parameters where `which` says so."""
        found = dict(self.state.slots)
        if which.average:
            averages = _averages(self.state.tensors(), run)
            found |= {"param." + name: array for name, array in averages.items()}
        return found


def chosen_state(run: Path, trust: Sequence[PublicKey] | None, which: Which) -> ChosenState:
    """The state that `which` names. Raises the errors of `read_claim` and `final_state`."""
    store = RunStore(run)
    store.require()
    job = store.job()
    claim = read_claim(store, job, trust)
    step = claim.last_step
    state = final_state(store, job, step, claim.commitment.final_state_root)
    if which.best:
        step = _best_step(job, claim, state)
        state = final_state(store, job, step, claim.roots[step])
    return ChosenState(job, claim, step, state)


def weights_of(run: Path, trust: Sequence[PublicKey] | None, which: Which) -> Weights:
    """The weights of a finished run. Raises the errors of `chosen_state`."""
    chosen = chosen_state(run, trust, which)
    job, tensors = chosen.job, chosen.state.tensors()
    named = ((module_name(slot), array) for slot, array in tensors.items())
    weights = {name: array for name, array in named if name is not None}
    names = names_of(job.about, set(weights))
    if which.average:
        weights |= _averages(tensors, run)
    weights |= {alias: weights[name] for alias, name in names.tied.items()}
    kept = {n: array for n, array in weights.items() if n not in names.transient}
    unsaved = {n: weights[n] for n in names.transient}
    return Weights(job, chosen.claim, chosen.step, kept, unsaved)


def _best_step(job: Job, claim: Claim, state: State) -> int:
    """The step of the committed state after the best pass. Raises UsageError without one."""
    found, step = None, claim.last_step
    if BEST_PASS in state.slots:
        best, passes = (int(state.slots[name]) for name in (BEST_PASS, PASSES))
        found = best_pass_step(job.commitment.timetable, best, passes, step)
        if best and found is None:
            raise UsageError(
                "The best validation loss belongs to the run that this one continues.",
                "Export the model from that run.",
            )
    if found is None:
        raise UsageError(
            "The run has no committed validation loss that is the best.",
            "Make the job with --commit-validation or --patience, and with --evaluate-every.",
        )
    if found not in claim.roots:
        raise UsageError(
            f"The state with the best validation loss, after step {found}, is not a checkpoint.",
            "Make the job with a checkpoint interval that divides "
            f"{pass_period(job.commitment.timetable)}.",
        )
    return found


def _averages(tensors: Mapping[str, Array], run: Path) -> dict[str, Array]:
    """The averaged parameters under the module's names. Raises UsageError where there are none."""
    ends = len(EMA_PREFIX)
    found = {slot[ends:]: a for slot, a in tensors.items() if slot.startswith(EMA_PREFIX)}
    if not found:
        raise UsageError(
            f"The run {run} keeps no averaged parameters.",
            "Capture with ema=0.999, or make the job with --set ema=0.999.",
        )
    return found


def verify_model(
    path: Path, run: Path, trust: Sequence[PublicKey] | None = None, which: Which = LAST
) -> ModelReport:
    """Check that the file is, byte for byte, the one that `export_model` writes for the run.

    The weights of a run have one canonical file, metadata included. Any other file could carry
    bytes that no digest covers. Raises DigestMismatchError, which names the first tensor that
    differs, or says that the tensors agree but the file does not. Raises StorageError where the
    file cannot be read.
    """
    found = weights_of(Path(run), trust, which)
    wanted = found.tensors
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
                f"Tensor {name} in {path} is not the one of the committed state.",
                "Do not use the file. It is another model, or it was altered.",
            )
    if not is_canonical(Path(path), wanted, found.metadata(which)):
        raise DigestMismatchError(
            f"The tensors of {path} are those of the committed state, but the file is not what "
            "`tallystick export` writes for this run. It may contain other bytes.",
            _EXPORT_AGAIN,
        )
    return found.report(Path(path))


def _same_bytes(a: Array, b: Array) -> bool:
    """True for equal dtypes, shapes and bytes; values that compare equal may differ (-0, NaN)."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if not a.size:
        return True
    mine, theirs = (x.reshape(-1).view(np.uint8) for x in (a, canonical_array(b)))
    return np.array_equal(mine, theirs)
