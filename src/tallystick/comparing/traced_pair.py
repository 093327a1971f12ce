"""Two traces side by side: the steps at hand, and what stands beside their operators.

The optimizers' settings, the generators, and what the loops ran on.
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
        # How two loops have shuffled differently without an effect so far, in a sentence.
        self.shuffled = ""
        self._settings: dict[object, tuple[int, list[dict[str, str]]]] = {}
        self._seen: set[str] = set()
        self._before: set[str] = set()

    def enter(self, ours: TracedStep, theirs: TracedStep, found: StepApart | None) -> None:
        """Go on to the next step of both."""
        self._keep_settings()
        self.steps = (ours, theirs)
        self._before = set(self._seen)
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

    @property
    def schemas(self) -> dict[str, tuple[tuple[str, str], ...]]:
        """The arguments of operators, as far as the traces name them."""
        return self.readers[1].schemas | self.readers[0].schemas

    def schema(self, operator: str) -> tuple[tuple[str, str], ...]:
        """The arguments of an operator; empty in older traces."""
        return self.schemas.get(operator, ())

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

    def _keep_settings(self) -> None:
        """Remember the settings of the step that is left."""
        theirs = dict(self.steps[1].settings)
        for name, own in self.steps[0].settings:
            if name in theirs:
                both = [own, theirs[name]]
                self._settings[self._which(name)] = self.steps[0].number, both

    def earlier(self, name: str) -> tuple[int, list[dict[str, str]]] | None:
        """The last earlier step of an optimizer of this step, and its settings then in both."""
        return self._settings.get(self._which(name))

    def _which(self, name: str) -> object:
        """What tells an optimizer from others of its class: its number, or, in older traces, the
        parameters that it updates."""
        progress = self.progress(name)[0]
        if progress is not None:
            return name, progress[0]
        entries = (e for e in self.steps[0].operators if e.place.startswith("optimizer"))
        return name, frozenset((i.name, i.type) for e in entries for i in e.inputs if i.name)

    def progress(self, name: str) -> list[tuple[int, int, int] | None]:
        """The number of an optimizer among those of its class, how many of its group's parameters
        have a state, and the steps that it has counted: in A and in B."""
        return [
            next(
                (p for (n, _), p in zip(step.settings, step.progress, strict=False) if n == name),
                None,
            )
            for step in self.steps
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
