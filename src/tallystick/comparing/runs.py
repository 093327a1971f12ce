"""Two runs: the first step, operator and element that differ.

Theory of operation. The records come first: the losses of both journals and the roots of their
checkpoints. Up to the last checkpoint with one root nothing differs. From there on both runs are
executed again, each by its own job, until a step reads or computes something else. That step is
executed node by node in both, and the nodes are aligned by structure. On the way each run's record
is held against what its own job gives here: a run that does not follow its job differs there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

import numpy as np

from tallystick.commit.tensor import Array, dtype_name
from tallystick.comparing.causes import NO_SUCH, cause_of_stored, causes_in_run
from tallystick.comparing.found import (
    RUNS,
    Cause,
    Comparison,
    FirstApart,
    InputApart,
)
from tallystick.comparing.jobs import beside_apart, job_causes
from tallystick.comparing.programs import ProgramLines
from tallystick.comparing.repeated import Repeated
from tallystick.comparing.steps import (
    ABSENT,
    INPUT,
    OUTPUT,
    ExecutedOperator,
    StepApart,
    compare_step,
    inputs_said,
    operand_at,
)
from tallystick.comparing.values import ElementApart, elements_apart
from tallystick.errors import CounterpartyError
from tallystick.job.numbers import count, shape_of
from tallystick.job.words import against, words_of
from tallystick.job.words.sentences import Apart
from tallystick.program.state import State
from tallystick.protocol.verdict import PARTIES
from tallystick.run.store.journal import loss_value

_WHY_RECORD = "a run keeps digests of its operators, and no values"


@dataclass(frozen=True)
class _FirstEnd:
    """The first difference, with its causes. `first` is None where only the jobs differ."""

    first: FirstApart | None
    causes: tuple[Cause, ...]
    programs: tuple[str, ...] = ()


class RunsComparison:
    """Two runs under comparison."""

    def __init__(self, first: Repeated, second: Repeated) -> None:
        self.both = (first, second)
        ours, theirs = words_of(first.job), words_of(second.job)
        self.one_job = first.job.digest == second.job.digest
        self.of_jobs = tuple(job_causes(ours, theirs))
        self.fields: tuple[Apart, ...] = tuple(against(ours, theirs))
        self.uncommitted = tuple(beside_apart(ours, theirs))
        self.programs: tuple[str, ...] = ()
        self._also: list[str] = []  # notices
        self._start = 0  # the last step at which both have recorded one state
        self._alone = False  # one job gives every step of both
        # A step whose programs differ while no operator that both have does.
        self._absent: tuple[int, FirstApart, tuple[Cause, ...]] | None = None

    def compare(self) -> Comparison:
        """Find the first difference. Raises as an execution of the steps does."""
        a, b = self.both
        compared: dict[str, object] = {
            "job digests": [run.job.digest.hex() for run in self.both],
            "steps": [run.steps for run in self.both],
        }
        if self.same_records():
            return self._agreed(compared)
        start = self._start = self.last_equal()
        compared["equal up to step"] = start
        ended = self._walk(start, min(a.steps, b.steps))
        if ended is None and self.one_job and self._records_agree():
            return self._agreed(compared)
        if ended is None:
            ended = self._after(min(a.steps, b.steps))
        return Comparison(
            RUNS,
            False,
            ended.causes,
            ended.first,
            self.fields,
            self.uncommitted,
            ended.programs or self.programs,
            tuple(self._notices()),
            compared=compared,
        )

    def _agreed(self, compared: Mapping[str, object]) -> Comparison:
        """Two runs of one job whose records agree: equal, unless a stored file has changed."""
        kept, notices = self._kept_apart(), tuple(self._notices())
        if kept is not None:
            return Comparison(
                RUNS, False, kept.causes, kept.first, notices=notices, compared=compared
            )
        return Comparison(
            RUNS, True, uncommitted=self.uncommitted, notices=notices, compared=compared
        )

    # -- by the records ------------------------------------------------------------------------
    def same_records(self) -> bool:
        a, b = self.both
        return (
            self.one_job
            and a.journal.losses == b.journal.losses
            and a.journal.checkpoints == b.journal.checkpoints
        )

    def _records_agree(self) -> bool:
        """True if two records of one job have no loss and no root apart. One may lack the end, or
        roots that the other has."""
        a, b = self.both
        theirs = dict(b.journal.checkpoints)
        roots = all(theirs.get(at, root) == root for at, root in a.journal.checkpoints)
        return roots and a.journal.losses == b.journal.losses

    def _notices(self) -> Iterator[str]:
        yield from self._also
        for name, run in zip(PARTIES, self.both, strict=True):
            if run.journal.torn_bytes:
                yield (
                    f"The journal of {name} ends in {run.journal.torn_bytes:,} bytes that do not "
                    f"fit: {run.journal.torn_why}."
                )
            elif not run.journal.finished:
                yield f"{name} has not ended: its record stops after {count(run.steps, 'step')}."

    def _kept_apart(self) -> _FirstEnd | None:
        """The first stored state in which two runs with one record differ: a file has changed
        since."""
        a, b = self.both
        for at in sorted(set(a.store.stored_steps()) & set(b.store.stored_steps())):
            states = [run.store.read_state(run.job, at, copy=True) for run in self.both]
            theirs = _arrays(states[1])
            pairs = [
                (slot, mine, theirs[slot])
                for slot, mine in _arrays(states[0]).items()
                if elements_apart(mine, theirs[slot]) is not None
            ]
            if not pairs:
                continue
            slot, *pair = pairs[0]
            elements, unknown = _elements((pair[0], pair[1]))
            nowhere, where = (None, None), f"the slot {slot} of the stored state of step {at}"
            first = FirstApart(at, nowhere, nowhere, ("", ""), where, elements, unknown)
            said = (
                f"Both runs have recorded the same state of step {at}, but "
                f"{self._changed_file(states, at)} holds another one."
            )
            record = Cause("record", said)
            shown = cause_of_stored(pairs, f"the stored state of step {at}")
            if shown is not None and shown.kind == "flipped bit":
                return _FirstEnd(first, (shown, record))
            return _FirstEnd(first, (record,))
        return None

    def _changed_file(self, states: Sequence[State], at: int) -> str:
        """Whose stored state has another root than both records; one of the two where it is not
        known."""
        root = dict(self.both[0].journal.checkpoints).get(at)
        apart = [name for name, state in zip(PARTIES, states, strict=True) if state.root() != root]
        return f"the file of {apart[0]}" if root is not None and len(apart) == 1 else "one file"

    def last_equal(self) -> int:
        """The last step at which both runs have recorded one state; 0 where they have none."""
        ours, theirs = (dict(run.journal.checkpoints) for run in self.both)
        common = sorted(set(ours) & set(theirs))
        equal = list(takewhile(lambda s: ours[s] == theirs[s], common))
        losses = zip(self.both[0].journal.losses, self.both[1].journal.losses, strict=False)
        apart = next((step for step, (x, y) in enumerate(losses) if x != y), None)
        return max((s for s in equal if apart is None or s <= apart), default=0)

    # -- by executing --------------------------------------------------------------------------
    def _walk(self, start: int, last: int) -> _FirstEnd | None:
        """Execute both from `start` to the first difference before step `last`."""
        a, b = self.both
        alone = self._alone = self.one_job and a.follows_job and b.follows_job
        looks = not (a.follows_job and b.follows_job)
        # The record of step `start` has one root in both, so its states are equal.
        equal = alone or a.slots(start) == b.slots(start)
        for step in range(start, last):
            if not alone and (looks or not equal or self._reads_other(step)):
                ended = self._look(step)
                if ended is not None:
                    return ended
            if alone and self._traced(step):
                ended = self._by_trace(step)
                if ended is not None:
                    return ended
            runs = self.both[:1] if alone else self.both
            bits = [run.states.repeat(step) for run in runs]
            ended = self._left(step) or self._record(step, bits if len(bits) == 2 else bits * 2)
            if ended is not None:
                return ended
        return None

    def _reads_other(self, step: int) -> bool:
        a, b = self.both
        if a.inputs(step) != b.inputs(step):
            return True
        return a.program(step) is not b.program(step) and a.program(step) != b.program(step)

    def _look(self, step: int) -> _FirstEnd | None:
        """Execute a step node by node in both, and compare."""
        entries = (self.both[0].traced(step)[0], self.both[1].traced(step)[0])
        found = compare_step(*entries)
        if found is None:
            return None
        lines = ProgramLines()
        lines.add(step, found, *entries)
        self.programs = self.programs or lines.said()
        if found.side == ABSENT or found.pair[0] is None or found.pair[1] is None:
            first = _place(step, found, entries)
            causes = causes_in_run(found, entries, step, self.of_jobs, (None, None))
            self._absent = step, first, tuple(causes)
            return None  # what the step leaves in the state says whether it differs
        ours, theirs = entries[0][found.pair[0]], entries[1][found.pair[1]]
        mine, other = (operand_at(e, found.side, found.operand) for e in (ours, theirs))
        values: tuple[Array | None, Array | None] = (None, None)
        elements, unknown = None, NO_SUCH
        if mine is not None and other is not None:
            values = self._values(step, found)
            elements, unknown = _elements(values)
        operand = mine or other
        of_jobs = self.of_jobs
        if self.one_job and found.side == INPUT and operand is not None and operand.kind == "batch":
            of_jobs = (*of_jobs, *self._other_order(step))
        causes = causes_in_run(found, entries, step, of_jobs, values)
        name = operand.name if operand is not None and found.side == INPUT else ""
        first = FirstApart(
            step,
            (ours.operator, theirs.operator),
            found.pair,
            operand=f"{found.side} {found.operand}{f' ({name})' if name else ''}",
            elements=elements,
            unknown=unknown,
            inputs=tuple(
                InputApart(n, inputs_said(operand_at(ours, INPUT, n), operand_at(theirs, INPUT, n)))
                for n in found.inputs
            ),
        )
        return _FirstEnd(first, tuple(causes))

    def _other_order(self, step: int) -> Iterator[Cause]:
        """What a step of two runs of one job reads, where its records differ."""
        known = [run.reads_own_records(step) for run in self.both]
        if all(known):
            said = f"Step {step} reads other records of the job, or the same ones in another order."
            yield Cause("data order", said)
        elif False in known:
            name = PARTIES[known.index(False)]
            said = (
                f"In step {step} {name} reads a record that the job does not have, or reads one "
                "more often than the job has it."
            )
            yield Cause("data", said)

    def _left(self, step: int) -> _FirstEnd | None:
        """The first slot that differs after a step whose programs differ, if one does."""
        if self._absent is None or self._absent[0] != step:
            return None
        _, first, causes = self._absent
        ours, theirs = (run.slots(step + 1) for run in self.both)
        slot = next((n for n in ours if n in theirs and ours[n] != theirs[n]), None)
        if slot is None:
            return None
        states = [run.states.at(step + 1).state for run in self.both]
        a, b = (state.device.host(state.slots[slot]) for state in states)
        elements, unknown = _elements((a, b))
        where = f"the slot {slot} after the step"
        return _FirstEnd(replace(first, operand=where, elements=elements, unknown=unknown), causes)

    def _values(self, step: int, found: StepApart) -> tuple[Array | None, Array | None]:
        if found.side not in (INPUT, OUTPUT):
            return None, None
        pair = [
            run.value(step, node, found.side, found.operand)
            for run, node in zip(self.both, found.pair, strict=True)
            if node is not None
        ]
        return pair[0], pair[1]

    # -- a run against its own job -------------------------------------------------------------
    def _traced(self, step: int) -> list[int]:
        """Which of the runs have recorded the nodes of a step."""
        return [n for n, run in enumerate(self.both) if step in run.store.traced_steps()]

    def _by_trace(self, step: int) -> _FirstEnd | None:
        """The first node of which a run's own trace has another digest than its job gives."""
        entries, tracer = self.both[0].traced(step)
        mine = tracer.trace()
        for which in self._traced(step):
            run = self.both[which]
            try:
                node = mine.first_difference(run.store.load_trace(run.job, step))
            except CounterpartyError:
                continue  # a damaged trace says nothing; the losses and states still do
            if node is None or node >= len(entries):
                continue
            entry = entries[node]
            said = (
                f"{PARTIES[which]} has recorded other digests of operator {node} "
                f"({entry.operator}) of step {step} than its job gives."
            )
            first = FirstApart(
                step,
                (entry.operator, entry.operator),
                (node, node),
                operand="the digests of its operands",
                unknown=_WHY_RECORD,
            )
            return _FirstEnd(first, (Cause("record", said),))
        return None

    def _record(self, step: int, bits: Sequence[int]) -> _FirstEnd | None:
        """Hold the records after a step against what the jobs give."""
        for which, run in enumerate(self.both):
            recorded = run.journal.losses[step]
            if recorded != bits[which]:
                pair = (loss_value(recorded), loss_value(bits[which]))
                said = (
                    f"{PARTIES[which]} has recorded the loss {pair[0]!r} of step {step}, but its "
                    f"job gives {pair[1]!r}. The run has left its job in step {step} or before."
                )
                return self._off(step, which, said)
            root = dict(run.journal.checkpoints).get(step + 1)
            repeated = self.both[0] if self.one_job and self.both[0].follows_job else run
            if root is not None and not run.plays:
                state = repeated.states.at(step + 1).state
                if state.root() != root:
                    said = (
                        f"{PARTIES[which]} has recorded another state after step {step} than its "
                        f"job gives (another root of checkpoint {step + 1}). The run has left its "
                        f"job in step {step} or before."
                    )
                    return self._off(step, which, said)
        return None

    def _off(self, step: int, which: int, said: str) -> _FirstEnd:
        """A run that does not follow its job: what its stored states show of it."""
        self._also += filter(None, [self._next_action(step, which)])
        record = Cause("record", said)
        shown = list(self._stored(step, which))
        if not shown:
            first = FirstApart(step, (None, None), (None, None), operand="record")
            return _FirstEnd(first, (record,))
        at, slot, *pair = shown[0]
        elements, unknown = _elements((pair[0], pair[1]))
        where = f"the state after step {at - 1}"
        first = FirstApart(
            step,
            (None, None),
            (None, None),
            operand=f"the slot {slot} of {where}",
            elements=elements,
            unknown=unknown,
        )
        # A state that was stored later shows what training has made of the difference.
        by_values = cause_of_stored([one[1:] for one in shown], where) if at == step + 1 else None
        return _FirstEnd(first, (record,) if by_values is None else (record, by_values))

    def _next_action(self, step: int, which: int) -> str:
        """How a user learns the operator of a run that does not follow its job; empty where
        nothing more can be learnt of it."""
        name, run = PARTIES[which], self.both[which]
        if not run.plays and run.declares:
            return (
                f"The directory of {name} declares a cheat. With `--as-attack {name}` a comparison "
                "plays it, and can name the operator."
            )
        if run.plays or not self._alone:
            return ""
        last = f"steps {self._start} to {step}" if self._start < step else f"step {step}"
        return (
            f"To name the operator, a comparison needs the digests of {last} of {name}. "
            f"`tallystick train --trace {self._start}:{step + 1}` records them."
        )

    def _stored(self, step: int, which: int) -> Iterator[tuple[int, str, Array, Array]]:
        """The slots that differ in the first stored state after a step, with both values in the
        order of A and B."""
        run = self.both[which]
        at = next((s for s in run.store.stored_steps() if s > step), None)
        honest = self.both[0] if self.one_job and self.both[0].follows_job else run
        if at is None or run.plays:
            return
        try:
            theirs = run.store.read_state(run.job, at, copy=True)
        except CounterpartyError:
            return
        for between in range(step + 1, at):  # its own stored states may be false ones
            honest.states.repeat(between)
        state = honest.states.at(at).state
        mine = {name: state.device.host(t) for name, t in state.slots.items()}
        for slot in sorted(mine):
            given = theirs.slots[slot]
            if elements_apart(mine[slot], given) is not None:
                pair = (given, mine[slot]) if which == 0 else (mine[slot], given)
                yield at, slot, *pair

    # -- nothing executed differs --------------------------------------------------------------
    def _after(self, last: int) -> _FirstEnd:
        """Two runs of which one goes on, or whose jobs differ in nothing that a step has read."""
        a, b = self.both
        if a.steps != b.steps:
            said = (
                f"A has {count(a.steps, 'step')} and B {count(b.steps, 'step')}; "
                f"{'the first one is' if last == 1 else f'the first {last:,} are'} equal."
            )
            rest = tuple(c for c in self.of_jobs if c.kind != "steps")
            first = FirstApart(last, (None, None), (None, None), operand="end")
            return _FirstEnd(first, (Cause("steps", said), *rest))
        if self.one_job:  # a cheat plays here, and its job alone would not give its record
            return self._by_records()
        self._also.append(
            f"In none of the {count(last, 'step')} do A and B read or compute anything different."
        )
        return _FirstEnd(None, self.of_jobs)

    def _by_records(self) -> _FirstEnd:
        """The first record that differs in two runs of one job whose steps are equal."""
        a, b = self.both
        losses = zip(a.journal.losses, b.journal.losses, strict=False)
        loss = next((step for step, (x, y) in enumerate(losses) if x != y), None)
        theirs = dict(b.journal.checkpoints)
        roots = (at for at, root in a.journal.checkpoints if theirs.get(at, root) != root)
        root = next(roots, None)
        if loss is not None and (root is None or loss < root):
            step, what = loss, f"another loss of step {loss}"
            values = [repr(loss_value(run.journal.losses[loss])) for run in self.both]
            numbers = f" ({values[0]} in A, {values[1]} in B)"
        else:
            assert root is not None, "the records differ"
            step, what, numbers = root - 1, f"another state after step {root - 1}", ""
        alone = [name for name, run in zip(PARTIES, self.both, strict=True) if run.plays]
        name, other = (alone[0], "AB".replace(alone[0], "")) if len(alone) == 1 else ("B", "A")
        said = (
            f"{name} has recorded {what} than {other}{numbers}, though both compute the same in "
            "every step."
        )
        first = FirstApart(step, (None, None), (None, None), operand="record")
        return _FirstEnd(first, (Cause("record", said),))


def _place(
    step: int,
    found: StepApart,
    entries: tuple[Sequence[ExecutedOperator], Sequence[ExecutedOperator]],
) -> FirstApart:
    """An operator that only one of the two has."""
    a, b = found.pair
    operators = (
        None if a is None else entries[0][a].operator,
        None if b is None else entries[1][b].operator,
    )
    return FirstApart(step, operators, found.pair)


def _arrays(state: State) -> dict[str, Array]:
    """The slots of a state read from a file, and its chains."""
    chains = {"loss chain": state.loss_chain, "log chain": state.log_chain}
    return {**state.slots, **{n: np.frombuffer(c, np.uint8) for n, c in chains.items()}}


def _elements(pair: tuple[Array | None, Array | None]) -> tuple[ElementApart | None, str]:
    ours, theirs = pair
    if ours is None or theirs is None:
        return None, "the repeated step does not show them"
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        kinds = [shape_of(dtype_name(one.dtype), one.shape) for one in (ours, theirs)]
        return None, f"the tensor is {kinds[0]} in A and {kinds[1]} in B"
    return elements_apart(ours, theirs), ""
