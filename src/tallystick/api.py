"""The Python interface (DESIGN 9): every public name of `tallystick` stands in this file.

The functions take jobs, runs and keys as objects or as paths. Only a function that needs PyTorch
loads it, and only when it is called. So a judge never loads PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tallystick.commit.signing import PrivateKey as PrivateKey
from tallystick.commit.signing import PublicKey as PublicKey
from tallystick.data.freeze import Progress as Progress
from tallystick.data.freeze import freeze as freeze_records
from tallystick.data.frozen import Frozen as Frozen
from tallystick.data.frozen import load_frozen as load_frozen
from tallystick.data.rules import Pad as Pad
from tallystick.disk.files import write_file
from tallystick.disk.keys import load_private_key, load_public_key
from tallystick.disk.regular import read_file
from tallystick.errors import CannotCheckError, UsageError
from tallystick.job.columns import Data
from tallystick.job.job import Job as Job
from tallystick.job.job_file import load_job as load_job
from tallystick.job.job_file import load_terms
from tallystick.job.save import save_job as save_step
from tallystick.job.scalars import Schedule
from tallystick.job.several import Held, Schedules, save_several
from tallystick.kernels.context import ExecutionContext
from tallystick.kernels.devices import context_on
from tallystick.kernels.environment import exact_environment
from tallystick.kernels.evaluate import evaluate as evaluate
from tallystick.limits import LIMITS
from tallystick.program.ema import EMA as EMA
from tallystick.program.ir import Program as Program
from tallystick.program.optimizers import LAMB as LAMB
from tallystick.program.optimizers import SGD as SGD
from tallystick.program.optimizers import Adafactor as Adafactor
from tallystick.program.optimizers import Adagrad as Adagrad
from tallystick.program.optimizers import Adam as Adam
from tallystick.program.optimizers import AdamW as AdamW
from tallystick.program.optimizers import Lion as Lion
from tallystick.program.optimizers import Muon as Muon
from tallystick.program.optimizers import RMSprop as RMSprop
from tallystick.program.optimizers import TransformersAdafactor as TransformersAdafactor
from tallystick.program.parameter_groups import ParameterGroup as ParameterGroup
from tallystick.program.parameter_groups import ParameterGroups as ParameterGroups
from tallystick.program.terms import Terms as Terms
from tallystick.program.update import Optimizers
from tallystick.program.validation import StopRule as StopRule
from tallystick.protocol.judge import Judgement as Judgement
from tallystick.protocol.judge import judge as judge_evidence
from tallystick.protocol.verdict import Conviction as Conviction
from tallystick.protocol.verdict import Event as Event
from tallystick.protocol.verdict import Place as Place
from tallystick.protocol.verdict import Verdict as Verdict
from tallystick.prover.cheating import party_of
from tallystick.prover.local import play
from tallystick.prover.prover import Prover
from tallystick.run.execute.auditor import audit_run
from tallystick.run.execute.listener import Listener as Listener
from tallystick.run.execute.trainer import Options, train_job
from tallystick.run.parallel.audit import ParallelOptions, audit_in_parallel
from tallystick.run.parallel.sample import check_secret, read_secret
from tallystick.run.parallel.sample import size_of as sample_size
from tallystick.run.show.audit_report import AuditReport as AuditReport
from tallystick.run.show.audit_report import Difference as Difference
from tallystick.run.show.summary import RunSummary as RunSummary
from tallystick.run.store.continuing import continue_run as continue_finished
from tallystick.run.store.directory import RunStore

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer as TorchOptimizer

    from tallystick.cli.progress import Reporter
    from tallystick.program.capture.api import CapturedStep
    from tallystick.program.capture.trace import BatchLoss
    from tallystick.program.capture.updates import StepFunction

    AnyOptimizer = Optimizers | TorchOptimizer

PathLike = str | Path
PARTIES = ("A", "B")


# -- from a model to a job -------------------------------------------------------------------------
@dataclass(frozen=True)
class Capture:
    """A captured training step with its evaluation programs, ready to become a job."""

    step: CapturedStep
    evaluation: Program
    forward: Program | None

    @property
    def program(self) -> Program:
        """The training step's program; the program digest covers `.text()`."""
        return self.step.program

    def save_job(
        self,
        directory: PathLike,
        data: Data,
        *,
        steps: int,
        seed: int = 0,
        checkpoint_interval: int | None = None,
        schedules: Mapping[str, Schedule] | Any | None = None,
        validation: Data | None = None,
        evaluate_every: int = 0,
        stop_rule: StopRule | None = None,
        compare_first_step: bool = True,
        overwrite: bool = False,
    ) -> Job:
        """Write the job directory; returns the loaded job. A job that is there already is refused,
        or with `overwrite` replaced.

        `data` maps each batch tensor's name to an array (N, *shape of one record), or is a data set
        of `tallystick.freeze` or its directory, as `validation` may be too. `seed` keys
        dropout and the order of the data. `schedules` has a table of `steps` numbers, a function
        of the step or a torch scheduler for a learning rate given by name; or it is the scheduler
        of the torch optimizer that was captured. `validation` are held-out records of the same
        fields, whose loss is taken every `evaluate_every` steps. With `stop_rule` the run commits
        to these losses: `StopRule(patience=3)` ends it after three that are no better than the
        best one, `StopRule()` commits and never stops.

        The first step is compared with the module in float64, which takes the memory and the time
        of such a step; without `compare_first_step` the job's `about` says that it was not. Raises
        UsageError for data that does not fit the program, and for a first step that differs beyond
        the threshold (it names the module),
        StorageError where the directory cannot be written.
        """
        return save_step(
            self.step,
            directory,
            data,
            steps=steps,
            seed=seed,
            checkpoint_interval=checkpoint_interval,
            schedules=schedules,
            validation=validation,
            eval_program=self.evaluation if validation is not None else None,
            evaluate_every=evaluate_every if validation is not None else 0,
            stop_rule=stop_rule,
            forward_program=self.forward,
            compare_first_step=compare_first_step,
            overwrite=overwrite,
        )


@exact_environment()
def capture(
    module: nn.Module,
    loss: BatchLoss | StepFunction,
    batch: Mapping[str, Any],
    optimizer: AnyOptimizer | Mapping[str, AnyOptimizer],
    *,
    clip_norm: float | None = None,
    clip_value: float | None = None,
    grad_norm: bool = False,
    ema: EMA | float | None = None,
    forward: BatchLoss | None = None,
    outputs_grads: bool = False,
    contract: str = "ordered/1",
    mode: str = "train",
    micro_batches: int | None = None,
    loss_over: str = "mean",
    trains: str | None = None,
) -> Capture:
    """Capture a training step of `module`: forward, loss, backward, optimizer update.

    `loss(module, batch)` gets a dict of tensors and returns a scalar f32 tensor; `batch` gives
    an example of every tensor (its first axis is the batch). `optimizer` is one of
    `tallystick.SGD`, `Adam`, `AdamW`, `RMSprop`, `Adagrad`, `Lion`, `LAMB`, `Adafactor`,
    `TransformersAdafactor` and `Muon`, or `ParameterGroups` of them; or an optimizer of torch.optim
    or transformers' Adafactor, read with its groups. `clip_norm` and `clip_value` clip gradients,
    as torch's `clip_grad_norm_` and `clip_grad_value_`; `grad_norm` reports their norm without.
    `ema`, a decay or `EMA`, keeps an average of the parameters. With a dict of optimizers, each for
    a submodule or a parameter by name, `loss` is a step function `loss(module, batch, update)`. It
    calls `update("discriminator", loss)` where torch's loop would call `backward()` and that
    optimizer's `step()`; in validation `update` does nothing. `forward(module, batch)`, if given,
    becomes the inference program that `tallystick sample` and users of the exported model can run.
    `contract` fixes the meaning of every operator: "ordered/1", "rounded/1", "exact/1", "replay/1",
    with numbers as in "rounded/1;b=28".
    `mode` says whether `module` is in training mode ("train") or after `module.eval()` ("eval").
    Capture refuses the other mode and switches none; submodules keep theirs.

    `micro_batches` divides the batch into so many parts, which are computed one after the other in
    the memory of one, with one update at the end. `loss_over="mean"` takes the mean of their
    losses. With "sum" the loss function returns (sum, count), or (sum, count, metrics), and the
    step's loss is the sum of all sums divided by the sum of all counts.

    `trains`, the path of a submodule, says which parameters this step trains, of a module that
    several programs of one job train by turns (`tallystick.save_job`). The others stay.

    What a program cannot carry (autocast, a counter or a random number of Python in forward) is
    refused by name, with the model's file and line. Two traces are compared for it.

    Raises UsageError when the model cannot become a program, UnsupportedOperatorError (naming
    operator and module path) for an operator the contract does not define, CannotCheckError
    without PyTorch.
    """
    captures = _with_torch("tallystick.program.capture.api", "capture")
    several = isinstance(optimizer, Mapping)
    for name, limit in (("clip_norm", clip_norm), ("clip_value", clip_value)):
        if limit is not None and not 0 < limit < float("inf"):
            raise UsageError(f"{name} is {limit}.", "Give a positive number, or None.")
    if isinstance(ema, float):
        ema = EMA(ema)
    step = captures.capture(
        module,
        loss,
        batch,
        optimizer,
        clip_norm=clip_norm,
        clip_value=clip_value,
        grad_norm=grad_norm,
        ema=ema,
        outputs_grads=outputs_grads,
        contract=contract,
        mode=mode,
        micro_batches=micro_batches,
        loss_over=loss_over,
        trains=trains,
    )
    evaluation = captures.capture_eval(
        module, loss, batch, contract, has_updates=several, loss_over=loss_over
    )
    inference = None
    if forward is not None:
        inference = captures.capture_forward(module, batch, forward, contract)
    return Capture(step, evaluation, inference)


def save_job(
    directory: PathLike,
    data: Data | None = None,
    *,
    programs: Mapping[str, Capture],
    schedule: Sequence[tuple[str, int]] | None = None,
    steps: int,
    seed: int = 0,
    own_data: Mapping[str, Data] | None = None,
    checkpoint_interval: int | None = None,
    schedules: Schedules | None = None,
    validation: Data | None = None,
    evaluate: str | None = None,
    evaluate_every: int = 0,
    stop_rule: StopRule | None = None,
    compare_first_step: bool = True,
    overwrite: bool = False,
) -> Job:
    """Write a job whose captured `programs` take turns over one state, as the two nets of a GAN do.

    Capture each from the same module, with `trains="..."` for what it trains. `schedule` has pairs
    of a name and a number of steps, repeated until `steps` steps are made: `[("discriminator", 2),
    ("generator", 1)]`; None is one step of each. `data` are the records of all programs, each of
    which goes through them in an order of the same seed; `own_data` gives a program others, and a
    program whose batch is empty reads none. `schedules` has by program what `Capture.save_job`
    takes. With `validation` the run commits to the loss of held-out records, of the program
    `evaluate` (the first one, if None) in evaluation mode, after every `evaluate_every` steps;
    `stop_rule` may end it by them.

    A program's name is at most 40 of a-z, 0-9 and -. A job that is there
    already is refused, or with `overwrite` replaced. Errors: see `job.several.save_several`.
    """
    held = None
    if validation is not None:
        chosen = next(iter(programs), "") if evaluate is None else evaluate
        if chosen not in programs:
            raise UsageError(f"evaluate={chosen!r} is no program.", "Name one of programs.")
        of = programs[chosen].evaluation
        held = Held(validation, of, evaluate_every, stop_rule or StopRule())
    elif stop_rule is not None or evaluate is not None or evaluate_every:
        raise UsageError("Committed validation needs held-out records.", "Pass validation=... too.")
    return save_several(
        directory,
        {name: captured.step for name, captured in programs.items()},
        data,
        schedule=schedule,
        count=steps,
        seed=seed,
        own_data=own_data,
        checkpoint_interval=checkpoint_interval,
        schedules=schedules,
        held=held,
        compare_first_step=compare_first_step,
        overwrite=overwrite,
    )


def from_onnx(
    file: PathLike,
    *,
    frozen: Sequence[str] = (),
    fixed: Mapping[str, Any] | None = None,
    training: bool = False,
    check_sizes: bool = True,
) -> nn.Module:
    """A trainable torch module from the ONNX file `file`, to be captured like any other.

    Call it with the graph's inputs in their order or by name; it returns the output, or a dict of
    all by name. Float32 initializers become parameters under the file's names
    (`module.parameter_names` maps those that no attribute can have). Running statistics, integer
    constants, and float ones that match a name or pattern in `frozen`, become buffers. `fixed`
    gives values of inputs that fix a shape or the program's form. Dropout and batch normalisation
    do what the file says, mostly inference; with `training` they follow the module's mode, as
    torch's do. Sizes that the file states of inputs are checked; `check_sizes=False` allows others.

    Nothing in the file is trusted: sizes are checked before allocation, and external data lie
    below the file's directory. Raises UsageError for a file that is damaged, too large or needs
    such a value, and where the package onnx is missing; UnsupportedOperatorError with the names of
    all nodes that are not covered; CannotCheckError without PyTorch.
    """
    room = _with_torch("tallystick.program.capture.onnx", "from_onnx")
    module: nn.Module = room.from_onnx(
        file, frozen=frozen, fixed=fixed, training=training, check_sizes=check_sizes
    )
    return module


def reproducible(contract: str = "ordered/1", *, seed: int = 0) -> AbstractContextManager[Any]:
    """Within the block, eager CPU PyTorch computes with the bits of `contract`.

    Covers forward, backward and optimizers that use single-tensor ATen operators (torch.optim
    with foreach=False, fused=False). Dropout and torch's other random calls draw from Philox keyed
    by (seed, step), as in a capture (PROGRAM 5.3); call `.next_step()` on the object that the block
    yields, after each step. torch.optim.Adam's own bias correction uses Python's `pow`; capture
    does not.

    Raises, as the block begins, UnsupportedVersionError for an unknown contract or one that keeps a
    log; within it UnsupportedOperatorError by name for an operator outside of the contract and
    UsageError for tensors that are not on the CPU. CannotCheckError without PyTorch.
    """
    eager = _with_torch("tallystick.program.capture.eager", "reproducible")
    found: AbstractContextManager[Any] = eager.reproducible(contract, seed=seed)
    return found


def _with_torch(module: str, name: str) -> Any:
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "torch":
            raise
        raise CannotCheckError(
            f"tallystick.{name} needs PyTorch.", "pip install 'tallystick[train]'."
        ) from None


# -- data sets -------------------------------------------------------------------------------------
def freeze(
    source: Any,
    directory: PathLike,
    *,
    progress: bool = True,
    on_progress: Callable[[Progress], None] | None = None,
    **rules: Any,
) -> Frozen:
    """Write the records of `source` once into `directory`, for `save_job(data=...)`.

    `source` is a mapping of columns (N, ...), a list, a torch Dataset, IterableDataset or
    DataLoader, a `datasets.Dataset`, or the path of Parquet, .safetensors or .npz files, tar
    shards, text or a folder of images. `rules` (fields, dtype, pad, hold_out, tokenizer, block,
    size, overwrite, ...) and errors: see `data.freeze.freeze`. The memory is that of a few blocks
    of 16 MiB. Progress is drawn on standard error, unless `progress` is false or `on_progress` gets
    it.
    """
    from tallystick.cli.freezing import FreezeBar

    with FreezeBar(quiet=not progress or on_progress is not None) as bar:
        return freeze_records(source, directory, on_progress=on_progress or bar, **rules)


# -- running a job, and repeating it ---------------------------------------------------------------
def train(
    job: Job | PathLike,
    out: PathLike,
    *,
    threads: int | None = None,
    device: str = "cpu",
    keep_checkpoints: int | None = None,
    key: PrivateKey | PathLike | None = None,
    trace: tuple[int, int] | None = None,
    replay: PathLike | None = None,
    compress_logs: bool = False,
    overwrite: bool = False,
    listener: Listener | None = None,
    progress: bool = True,
) -> RunSummary:
    """Train `job` into the run directory `out`, or take up an interrupted run there. With
    `overwrite` a run that is there is removed, and training begins anew.

    Progress is drawn on standard error, unless `progress` is false or a `listener` gets it. Ctrl-C
    ends the run after the step, stores the state, and raises KeyboardInterrupt: the same call goes
    on from there.

    `key` signs the result (a key or its file). Without one, a new key signs it and stays in the
    run's directory. `keep_checkpoints` states are stored evenly over the run.
    `trace` = (A, B) also writes the node digests of steps A to B - 1. Under a contract that keeps
    rounding logs, `replay` is a finished run. The new run follows its logs, and the result's
    `followed` holds the findings about it. `device` is "cpu", "cuda" or "cuda:N"; it changes no
    bit. Errors: see `run.execute.trainer.train_job`.
    """
    made = _job(job)
    options = Options(
        context_on(device, lambda: made.commitment.contract, threads),
        keep=keep_checkpoints,
        key=_private(key),
        trace=trace,
        replay=None if replay is None else Path(replay),
        compress=compress_logs,
        overwrite=overwrite,
    )
    reporter = _reporter("train", progress and listener is None)
    try:
        result = train_job(made, Path(out), options, listener or reporter)
    finally:
        if reporter is not None:
            reporter.close()
    if not result.finished:
        raise KeyboardInterrupt(
            f"Stopped after step {result.steps} of {made.steps}; nothing is lost. The same call "
            "goes on from here."
        )
    return result


def continue_run(
    run: PathLike,
    directory: PathLike,
    steps: int,
    *,
    schedules: Mapping[str, float | Sequence[float]] | None = None,
    overwrite: bool = False,
) -> Job:
    """Write the job of `steps` more steps from the end of the finished run at `run`.

    Data order, random numbers and the optimizer's moments go on, and the job proves which run it
    continues. `schedules` gives new values for a learning rate that was a table: a number, or one
    for each step; another table keeps its last value. Errors: see
    `run.store.continuing.continue_run`.
    """
    return continue_finished(Path(run), Path(directory), steps, schedules, overwrite=overwrite)


def _reporter(verb: str, wanted: bool) -> Reporter | None:
    from tallystick.cli.progress import Reporter

    return Reporter(verb) if wanted else None


def audit(
    run: PathLike,
    job: Job | PathLike | None = None,
    steps: tuple[int, int] | None = None,
    *,
    threads: int | None = None,
    device: str = "cpu",
    trust: Sequence[PublicKey | PathLike] | None = None,
    listener: Listener | None = None,
    progress: bool = True,
    workers: int | None = None,
    ray: str | None = None,
    sample: float | str | Fraction | None = None,
    secret: str | bytes | None = None,
    state: PathLike | None = None,
) -> AuditReport:
    """Repeat the run at `run`, whole or steps A to B - 1, and compare every committed bit.

    Progress is drawn as by `train`.

    The report's `accepted` is true if all are equal; its `difference` says where they are not.
    `job` is your own copy of the job; without it the auditor takes the run's own copy. `trust` are
    the signers that you know. `device` is as in `train`. Errors: see
    `run.execute.auditor.audit_run`.

    With `workers` so many segments between stored states are repeated at once, each in a process of
    `threads` threads (without it they divide this machine's); with `ray`, the address of a Ray
    cluster, on its nodes. The verdict is the same. `state`, a directory of yours, keeps what an
    interrupted audit has done. `sample`, a share (0.05, "5%") or a number of segments (12), repeats
    only segments drawn from a secret: the report's `sampled` is then true, `accepted` speaks about
    `segments` alone, and `confidence` says how likely a false run is caught; `secret` repeats a
    draw. Errors: see also `run.parallel.audit.audit_in_parallel`.
    """
    own = None if job is None else _job(job)

    def contract() -> str:
        return (own or RunStore(Path(run)).job()).commitment.contract

    reporter = _reporter("audit", progress and listener is None)
    try:
        if any(value is not None for value in (workers, ray, sample, secret, state)):
            given = read_secret(secret) if isinstance(secret, str) else check_secret(secret)
            options = ParallelOptions(
                workers=workers,
                threads=threads,
                device=device,
                ray=ray,
                state=None if state is None else Path(state),
                sample=None if sample is None else sample_size(sample),
                secret=given,
            )
            return audit_in_parallel(
                Path(run), own, steps, options, trust=_publics(trust), listener=listener or reporter
            )
        return audit_run(
            Path(run),
            own,
            steps,
            context=context_on(device, contract, threads),
            trust=_publics(trust),
            listener=listener or reporter,
        )
    finally:
        if reporter is not None:
            reporter.close()


# -- deciding between two runs ---------------------------------------------------------------------
@dataclass(frozen=True)
class Dispute:
    """A finished game between two runs: its verdict, and the evidence that `judge` takes."""

    verdict: Verdict
    evidence: bytes

    @property
    def convicted(self) -> tuple[str, ...]:
        """The convicted ones of the runs "A" and "B"."""
        return tuple(PARTIES[c.party] for c in self.verdict.convicted)


def dispute(
    run_a: PathLike,
    run_b: PathLike,
    job: Job | Terms | PathLike,
    *,
    out: PathLike | None = None,
    arity: int = 20,
    as_attack: Sequence[str] = (),
    keys: tuple[PrivateKey | PathLike | None, PrivateKey | PathLike | None] = (None, None),
    threads: int | None = None,
    device: str = "cpu",
    on_event: Callable[[Event], None] | None = None,
) -> Dispute:
    """Let two runs of one job answer a referee, to a verdict.

    `job` is the referee's own copy: its job.json and program.txt are enough. The evidence is
    written to `out`. `keys` sign for runs that do not keep theirs. A run plays honestly unless
    `as_attack` names it ("A", "B"); then it plays the cheat that its directory declares. `on_event`
    receives each finding on the way. The runs answer on `device`, as in `train`.

    Raises UsageError for runs of two jobs, for an unknown party and for a wrong key. Raises
    CannotCheckError for an unfinished run or a machine that fails; that convicts no party. Raises
    CounterpartyError for damaged files, StorageError.
    """
    strangers = set(as_attack) - set(PARTIES)
    if strangers:
        raise UsageError(f"There is no party {sorted(strangers)[0]!r}.", "Name A or B.")
    terms = _terms(job)
    context = context_on(device, lambda: terms.commitment.contract, threads)
    with ExitStack() as stack:
        provers = [
            stack.enter_context(_party(Path(run), key, context, threads, name in as_attack))
            for name, run, key in zip(PARTIES, (run_a, run_b), keys, strict=True)
        ]
        played = play(terms, provers, arity, on_event)
    found = Dispute(played.verdict, played.evidence.to_bytes())
    if out is not None:
        write_file(Path(out), [found.evidence])
    return found


def _party(
    run: Path,
    key: PrivateKey | PathLike | None,
    context: ExecutionContext,
    threads: int | None,
    cheats: bool,
) -> Prover:
    """A run that answers in `context`; a declared cheat, which changes arrays on the host, on the
    processor."""
    where = ExecutionContext(threads) if cheats else context
    return party_of(run, _private(key), where, as_attack=cheats)


def judge(
    evidence: bytes | PathLike,
    job: Job | Terms | PathLike,
    *,
    trust: Sequence[PublicKey | PathLike] | None = None,
    trust_referees: Sequence[PublicKey | PathLike] = (),
) -> Judgement:
    """Play the game in `evidence` (its bytes or its file) again, and return its verdict.

    The judge believes no statement in it. `job` is your own copy of the job: its job.json and
    program.txt are enough. `trust` are the signers of runs that you know. `trust_referees` are the
    referees that you believe about a silence. Raises CorruptFileError for refused evidence,
    CannotCheckError for a silence that rests on a referee whom you did not name, StorageError.
    """
    if isinstance(evidence, bytes):
        data = evidence
    else:
        data = read_file(Path(evidence), LIMITS.evidence_bytes, "evidence file")
    return judge_evidence(_terms(job), data, _publics(trust), _publics(trust_referees) or ())


def _job(job: Job | PathLike) -> Job:
    return job if isinstance(job, Job) else load_job(Path(job))


def _terms(job: Job | Terms | PathLike) -> Terms:
    if isinstance(job, Terms):
        return job
    return job.terms if isinstance(job, Job) else load_terms(Path(job))


def _private(key: PrivateKey | PathLike | None) -> PrivateKey | None:
    return key if key is None or isinstance(key, PrivateKey) else load_private_key(Path(key))


def _publics(keys: Sequence[PublicKey | PathLike] | None) -> list[PublicKey] | None:
    if keys is None:
        return None
    return [k if isinstance(k, PublicKey) else load_public_key(Path(k)) for k in keys]
