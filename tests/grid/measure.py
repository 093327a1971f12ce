"""A signed run of the grid beside its plain loop: one plain step from every committed state.

The plain loop runs in float64, in float32, and in float64 from parameters that are shaken by up to
2⁻²² and 2⁻¹⁹ of each number. (With Adam an element whose gradient is nearly 0 goes anywhere.)
Before each step parameters, buffers and moments are those that the run committed to; the random
numbers are the contract's. The next committed state may differ from float64's by 16 times the
largest error of the others, and the small floors below (PROGRAM 5.9).
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from grid.case import Case, Loop, Order
from torch import Tensor
from torch.utils.data import DataLoader

import tallystick
from tallystick.errors import TallystickError
from tallystick.job.job_file import load_job
from tallystick.program.capture.plain import original
from tallystick.program.capture.stand_ins import StandIns
from tallystick.program.capture.torch_step import EagerStep, default_dtype
from tallystick.run.execute.engine import Engine
from tallystick.trainer.records import rebuilt

TIMES, UPDATE, WHOLE, ITSELF = 16.0, 2.0**-13, 2.0**-18, 2.0**-21
NEARLY = 2.0**-12
SHAKES = 2.0**-22, 2.0**-19, 2.0**-19
_MOMENTS = {
    "exp_avg": ("m",),
    "exp_avg_sq": ("v",),
    "momentum_buffer": ("buf",),
    "square_avg": ("v",),
    "grad_avg": ("avg",),
    "sum": ("sum",),
}


@dataclass
class Outcome:
    """What became of a case: "as written", "different", "refused" or "error"."""

    case: str
    outcome: str
    detail: str = ""
    order: str = ""
    worst: float = 0.0  # the largest distance, in units of what is allowed
    steps: int = 0


@dataclass
class Step:
    """A training step of the run: its inputs, and the committed states around it."""

    batch: dict[str, np.ndarray]
    key: tuple[int, int]
    records: np.ndarray
    before: dict[str, np.ndarray]
    after: dict[str, np.ndarray] = field(default_factory=dict)
    draws: int = 0  # made in the step before the loop


def committed(run: Any) -> list[Step]:
    """The training steps of a signed run, executed again from its job."""
    job = load_job(Path(run.directory) / "job")
    engine = Engine(job, job.verify())
    timetable = job.commitment.timetable
    steps: list[Step] = []
    while engine.step < run.steps:
        training = timetable.trains(engine.step)
        if training:
            batch, key = engine.batch(engine.step), job.commitment.random_key(engine.step)
            at = timetable.at(engine.step)
            records = timetable.indices(at) if batch else np.zeros(0, np.int64)
            steps.append(Step(copy.deepcopy(batch), key, records, _slots(engine)))
        engine.run()
        if training:
            steps[-1].after = _slots(engine)
    assert engine.root() == run.final_state_root
    return steps


def _slots(engine: Engine) -> dict[str, np.ndarray]:
    return {name: np.array(array) for name, array in engine.state.slots.items()}


class Side:
    """The plain loop in one dtype; `shake` is the number of the shake of its parameters."""

    def __init__(self, loop: Loop, face: str, dtype: torch.dtype, shake: int | None) -> None:
        self.shake = 0.0 if shake is None else SHAKES[shake]
        self.loop, self.face, self.dtype = loop, face, dtype
        self.drawn = None if shake is None else np.random.default_rng(shake)
        self.module = copy.deepcopy(original(loop.model)).to(dtype)
        self.queue: list[Any] = []
        self.optimizers: list[torch.optim.Optimizer] = []
        # A captured step gets a dict, as it is.
        self.form = next(iter(loop.loader())) if loop.loader and face != "capture" else None
        with default_dtype(dtype):
            self.running = loop.plain(self.module, self._batches())

    def _batches(self) -> Iterator[Any]:
        if self.face == "reproducible":  # the very batches of the run, however many a step takes
            for batch in self.loop.loader():
                yield self._converted(batch)
        while True:
            yield self.queue.pop(0)

    def _converted(self, batch: Any) -> Any:
        if isinstance(batch, Tensor):
            return batch.to(self.dtype) if batch.is_floating_point() else batch
        if isinstance(batch, dict):
            return {key: self._converted(value) for key, value in batch.items()}
        return type(batch)(map(self._converted, batch))

    def _tensor(self, array: np.ndarray) -> Tensor:
        made = torch.from_numpy(np.array(array))
        return made.to(self.dtype) if made.is_floating_point() else made

    def give(self, step: Step) -> None:
        """Put the step's micro-batches in the queue, in the form of the script's loader."""
        size = self.loop.epochs_say.batch
        count = len(step.records)
        for start in range(0, count, size):
            part = {k: self._tensor(v[start : start + size]) for k, v in step.batch.items()}
            self.queue.append(self._as_given(part))

    def _as_given(self, part: dict[str, Tensor]) -> Any:
        """A batch in the form of the script's loader; without an example, by its names."""
        if self.form is not None:
            return rebuilt(self.form, part)
        if self.face != "capture" and all(name.startswith("field") for name in part):
            return [part[name] for name in sorted(part, key=lambda name: int(name[5:]))]
        return part

    def force(self, state: dict[str, np.ndarray]) -> None:
        """The committed parameters, buffers and moments in the places of the loop's."""
        names = {}
        with torch.no_grad():
            for name, parameter in self.module.named_parameters():
                names[id(parameter)] = name
                value = self._tensor(state[f"param.{name}"])
                if self.drawn is not None:
                    noise = self.drawn.uniform(-1.0, 1.0, tuple(value.shape))
                    value = value * (1.0 + self.shake * torch.from_numpy(noise).to(self.dtype))
                parameter.data.copy_(value)
            for name, buffer in self.module.named_buffers():
                if f"buffer.{name}" in state:
                    buffer.data.copy_(self._tensor(state[f"buffer.{name}"]))
            for optimizer in self.optimizers:
                for parameter, held in optimizer.state.items():
                    name = names.get(id(parameter))
                    for key, kinds in _MOMENTS.items():
                        for kind in kinds:
                            found = state.get(f"opt.{kind}.{name}")
                            if found is not None and isinstance(held.get(key), Tensor):
                                held[key].copy_(self._tensor(found).reshape(held[key].shape))

    def undecided(self) -> dict[str, np.ndarray]:
        """Of each parameter that Adam or its like has moved, the elements whose gradients are so
        near 0 that a rounding decides the sign of a whole step: they are not compared."""
        names = {id(p): n for n, p in self.module.named_parameters()}
        found = {}
        for optimizer in self.optimizers:
            for parameter, held in optimizer.state.items():
                if "exp_avg" in held:
                    moment = held["exp_avg"].abs()
                    least = NEARLY * moment.square().mean().sqrt()
                    found[f"param.{names.get(id(parameter))}"] = (moment < least).numpy()
        return found

    def step(self, step: Step) -> dict[str, np.ndarray]:
        """One step of the plain loop; parameters and buffers after it."""
        self.force(step.before)
        self.give(step)
        eager = EagerStep(step.key, self.dtype, StandIns({}, {}))
        eager.draws = step.draws
        with default_dtype(self.dtype), torch.enable_grad(), eager.installed():
            found = next(self.running)
        self.optimizers = list(found) if isinstance(found, (tuple, list)) else [found]
        self.queue.clear()
        own = {f"param.{n}": p for n, p in self.module.named_parameters()}
        own |= {f"buffer.{n}": b for n, b in self.module.named_buffers()}
        return {n: t.detach().to(torch.float64).numpy().copy() for n, t in own.items()}


def _distance(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.linalg.norm((one.astype(np.float64) - other).reshape(-1)))


def worst_of(
    step: Step,
    exact: dict[str, np.ndarray],
    others: list[dict[str, np.ndarray]],
    undecided: dict[str, np.ndarray],
) -> Any:
    """The slot that lies farthest out, in units of what is allowed; and by how much."""
    moved = {n: _distance(step.before[n], exact[n]) for n in exact if n in step.before}
    whole = math.sqrt(sum(d * d for n, d in moved.items() if n.startswith("param.")))
    most, where = 0.0, ""
    for name, moving in moved.items():
        own = max(_distance(other[name], exact[name]) for other in others)
        size = float(np.linalg.norm(exact[name].reshape(-1)))
        allowed = TIMES * own + UPDATE * moving + WHOLE * whole + ITSELF * size + 1e-30
        apart = np.where(undecided.get(name, False), exact[name], step.after[name])
        found = _distance(apart, exact[name])
        if not found <= most * allowed:
            most, where = found / allowed, name
    return most, where


def order_of(steps: list[Step], say: Order, updates: int) -> str:
    """ "same", or how the records of the run differ from the script's order and ends of epochs."""
    if len(steps) != updates:
        return f"{len(steps)} updates, the script makes {updates}"
    seen = [int(r) for step in steps for r in step.records]
    per_epoch = say.records // say.batch * say.batch if say.drop_last else say.records
    for start in range(0, len(seen), per_epoch):
        epoch = seen[start : start + per_epoch]
        if not say.shuffled and epoch != list(range(len(epoch))):
            return f"records {epoch[:8]} where the script reads in sequence"
        if len(set(epoch)) != len(epoch):
            return "an epoch has a record twice"
    ends = np.cumsum([len(step.records) for step in steps])
    for epoch in range(1, len(seen) // per_epoch + 1):
        if epoch * per_epoch not in ends:
            return "an update runs across the end of an epoch"
    return "same"


def measured(case: Case, out: Path) -> Outcome:
    """Run the case; what became of it."""
    loop = case.make()
    seen = Seen()
    try:
        with seen.watching():
            run = loop.signed(out)
    except TallystickError as error:
        return Outcome(case.name, "refused", str(error))
    except Exception as error:  # the point of the measurement
        return Outcome(case.name, "error", f"{type(error).__name__}: {error}")
    return compared(case, run, seen)


@dataclass
class Seen:
    """What a run took in: the batches of its loaders, in order, and the seed of its block.

    `draws` says how many random numbers the block had drawn in a step when it got the batch: a
    loader draws the seed of its workers when it begins.
    """

    batches: list[Any] = field(default_factory=list)
    draws: list[int] = field(default_factory=list)
    seed: int = 0
    block: Any = None

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        begin, open_block = DataLoader.__iter__, tallystick.reproducible

        def loaded(loader: Any) -> Iterator[Any]:
            for batch in begin(loader):
                self.batches.append(batch)
                self.draws.append(self.block.draws if self.block else 0)
                yield batch

        @contextlib.contextmanager
        def opened(*given: Any, **named: Any) -> Iterator[Any]:
            self.seed = named.get("seed") or 0
            with open_block(*given, **named) as self.block:
                yield self.block

        with (
            mock.patch.object(DataLoader, "__iter__", loaded),
            mock.patch.object(tallystick, "reproducible", opened),
        ):
            yield


def eager_steps(loop: Loop, states: list[dict[str, Tensor]], seed: int) -> list[Step]:
    """The steps of a block of `reproducible(seed=...)`, by the states after them."""
    model = original(loop.model)
    kinds = {n: "param" for n, _ in model.named_parameters()}
    kinds |= {n: "buffer" for n, _ in model.named_buffers()}

    def named(state: Any) -> dict[str, np.ndarray]:
        return {
            f"{kinds[n]}.{n}": t.detach().numpy().copy() for n, t in state.items() if n in kinds
        }

    each = [named(model.state_dict()), *map(named, states)]
    none = np.zeros(0, np.int64)
    return [
        Step({}, (seed, t), none, before, after)
        for t, (before, after) in enumerate(itertools.pairwise(each))
    ]


def compared(case: Case, run: Any, seen: Seen | None = None) -> Outcome:
    """The run beside its plain loop; `seen` is for the face "reproducible"."""
    loop, make = case.make(), case.make
    if case.face == "reproducible":
        assert seen is not None
        steps, order = eager_steps(loop, run, seen.seed), "same"
        if loop.loader is None:  # the script says nothing of its batches: the run's own
            for step, draws in zip(steps, seen.draws, strict=False):
                step.draws = draws

            def make() -> Loop:
                return replace(case.make(), loader=lambda: itertools.cycle(seen.batches))

        if len(steps) != loop.updates:
            order = f"{len(steps)} updates, the script makes {loop.updates}"
    else:
        steps = committed(run)
        order = order_of(steps, loop.epochs_say, loop.updates)
    if case.face == "capture" and len(steps) == loop.updates:
        order = "same"  # the author says the order to save_job, not to a loader
    for name, tensor in original(loop.model).named_parameters():
        if not np.array_equal(tensor.detach().numpy(), steps[0].before[f"param.{name}"]):
            return Outcome(case.name, "different", f"state[0] has another {name}", order)
    loops = [make() for _ in range(2 + len(SHAKES))]
    exact = Side(loops[0], case.face, torch.float64, None)
    sides = [Side(loops[1], case.face, torch.float32, None)]
    sides += [Side(loops[2 + i], case.face, torch.float64, i) for i in range(len(SHAKES))]
    most = 0.0
    for number, step in enumerate(steps):
        try:
            true = exact.step(step)
            others = [side.step(step) for side in sides]
        except StopIteration:
            return Outcome(case.name, "different", f"the script ends before step {number}", order)
        found, where = worst_of(step, true, others, exact.undecided())
        most = max(most, found)
        if not found <= 1.0:
            text = f"step {number}: {where} is {found:.3g} times what is allowed away"
            return Outcome(case.name, "different", text, order, found, number)
    outcome = "as written" if order == "same" else "different"
    return Outcome(case.name, outcome, "" if order == "same" else "order", order, most, len(steps))
