"""Two traces side by side: the steps at hand, and what stands beside their operators.

The optimizers' settings, the generators, what the loops ran on, and the sizes of their batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tallystick.commit.tensor import Array
from tallystick.comparing.found import Cause
from tallystick.comparing.steps import (
    ABSENT,
    ATTRIBUTES,
    ExecutedOperator,
    OperandRecord,
    StepApart,
)
from tallystick.comparing.tracefile import TracedStep, TraceReader
from tallystick.job.numbers import count

Absent = tuple[int, StepApart, tuple[list[ExecutedOperator], list[ExecutedOperator]]]

_GENERATORS = ("torch seed", "torch generator", "numpy generator", "python generator")


class TracedPair:
    """Two traces as far as they have been read: the steps at hand, and what earlier ones showed."""

    def __init__(self, readers: tuple[TraceReader, TraceReader]) -> None:
        self.readers = readers
        self.steps = (TracedStep(0), TracedStep(0))
        self.absent: Absent | None = None
        self.usual: int | None = None  # the records of a batch in the first step
        # Generators of numpy and Python that a loop has drawn from so far, and "torch".
        self.drawn: set[str] = set()
        self._seen: set[str] = set()
        self._before: set[str] = set()

    def enter(self, ours: TracedStep, theirs: TracedStep, found: StepApart | None) -> None:
        """Go on to the next step of both."""
        self.steps = (ours, theirs)
        self._before = set(self._seen)
        if self.usual is None:
            self.usual = batch_size(ours)
        for step in self.steps:
            self.drawn |= step.moved | ({"torch"} if step.draws else set())
        self._seen |= {i.name for e in ours.operators for i in e.inputs if i.name}
        if found is not None and found.side in (ABSENT, ATTRIBUTES) and self.absent is None:
            self.absent = ours.number, found, (ours.operators, theirs.operators)

    def was_seen(self, operand: OperandRecord) -> bool:
        """True if an earlier step has read a tensor of this name, so that it was equal then."""
        return operand.name in self._before

    def values(self, operands: Sequence[OperandRecord]) -> tuple[Array | None, Array | None]:
        if operands[0].type != operands[1].type:
            return None, None
        found = [r.value(o) for r, o in zip(self.readers, operands, strict=True)]
        return found[0], found[1]

    def settings(self) -> list[tuple[str, str, str, str]]:
        """Settings that differ in this step: the optimizer, the name, and both values."""
        theirs = dict(self.steps[1].settings)
        return [
            (name, key, own.get(key, "absent"), theirs[name].get(key, "absent"))
            for name, own in self.steps[0].settings
            if name in theirs
            for key in own | theirs[name]
            if own.get(key) != theirs[name].get(key)
        ]

    def other_optimizers(self) -> bool:
        names = [[name for name, _ in step.settings] for step in self.steps]
        return bool(names[0] and names[1]) and names[0] != names[1]

    def about(self, name: str) -> tuple[str, str]:
        ours, theirs = (reader.about.get(name, "absent") for reader in self.readers)
        return ours, theirs

    def environment(self) -> str:
        """What differs in what the loops ran on, as a clause; empty where nothing does."""
        known = self.readers[0].about | self.readers[1].about
        names = [n for n in known if n not in _GENERATORS]
        apart = [(n, *self.about(n)) for n in names if self.about(n)[0] != self.about(n)[1]]
        return "; ".join(f"{n}: {a} in A, {b} in B" for n, a, b in apart)


# -- what stands beside ----------------------------------------------------------------------------
def rates(pair: TracedPair) -> Iterator[Cause]:
    """Settings of the optimizers, the learning rate first."""
    apart = pair.settings()
    for name, key, ours, theirs in sorted(apart, key=lambda row: row[1] != "lr"):
        kind = "rate" if key == "lr" else "setting"
        yield Cause(kind, f"{key} of {name} is {ours} in A and {theirs} in B.")


def torch_seeds(pair: TracedPair) -> Iterator[Cause]:
    """Seeds of torch's generator, which weights, records and masks may come from."""
    ours, theirs = pair.about("torch seed")
    if ours != theirs:
        yield Cause("seed", f"Torch's seed is {ours} in A and {theirs} in B.")


def seeds(pair: TracedPair) -> Iterator[Cause]:
    """Generators that stood elsewhere as the loops began, and that a loop has drawn from."""
    yield from torch_seeds(pair)
    for name in ("torch", "numpy", "python"):
        ours, theirs = pair.about(f"{name} generator")
        if ours != theirs and name in pair.drawn:
            said = (
                f"{name.capitalize()}'s generator starts in different states, and the loop draws "
                "from it."
            )
            yield Cause("seed", said)


def precisions(pair: TracedPair) -> Iterator[Cause]:
    beside = pair.environment()
    if beside:
        yield Cause("rounding", f"The loops ran with different settings: {beside}.")


def causes_of_end(pair: TracedPair, longer: TracedStep, name: str) -> list[Cause]:
    """Why one loop goes on: its last batch is a short one, or it has more steps."""
    size = batch_size(longer)
    if size is not None and pair.usual is not None and size < pair.usual:
        said = (
            f"{name} has a step more, whose batch has {count(size, 'record')}; a whole batch has "
            f"{pair.usual:,}."
        )
        return [Cause("last batch", said)]
    return [Cause("steps", f"{name} goes on in step {longer.number}, where the other loop ends.")]


def batch_size(step: TracedStep) -> int | None:
    """The records of a step's batch: what the first module was given, else the first data."""
    given = step.calls[0] if step.calls else next((o.type for o in _data(step)), None)
    return None if given is None else _size(given)


def _data(step: TracedStep) -> Iterator[OperandRecord]:
    for entry in step.operators:
        for operand in entry.inputs:
            if operand.kind == "data" and operand.source is None and "[" in operand.type:
                yield operand


def _size(form: str) -> int:
    """The first size of a type such as f32[8,6]."""
    inner = form.partition("[")[2].rstrip("]")
    first = inner.partition(",")[0]
    return int(first) if first.isdecimal() else 1


def cause_of_batches(pair: TracedPair) -> Cause | None:
    """Batches of two sizes in one step."""
    sizes = batch_size(pair.steps[0]), batch_size(pair.steps[1])
    if sizes[0] is None or sizes[1] is None or sizes[0] == sizes[1]:
        return None
    step = pair.steps[0].number
    said = f"The batch of step {step} has {count(sizes[0], 'record')} in A and {sizes[1]:,} in B."
    return Cause("last batch" if step and pair.usual in sizes else "batch size", said)
