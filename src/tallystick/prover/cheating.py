"""The prover of a declared cheat: the honest one, whose states, nodes and answers its hooks change.

The prover repeats a cheat's run with that cheat. Only the `answer` hook can make the prover's
answers differ from the repetition. `party_of` is the one place where a prover is told to cheat: by
its owner, never by a file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tallystick.commit.signing import PrivateKey, RunCommitment
from tallystick.devices.context import DEFAULT, ExecutionContext
from tallystick.job.job import Job
from tallystick.program.runner import Tap
from tallystick.program.state import State
from tallystick.protocol.bodies import Body
from tallystick.protocol.facts import Facts
from tallystick.protocol.messages import Query
from tallystick.prover.covered import Logs, Notice
from tallystick.prover.prover import Prover
from tallystick.prover.states import RunStates
from tallystick.prover.steps import Place, Steps
from tallystick.run.cheats.attacks import declared_override
from tallystick.run.cheats.engine import CheatingEngine
from tallystick.run.cheats.override import Override
from tallystick.run.execute.engine import Engine
from tallystick.run.execute.nodes import NodeTracer
from tallystick.run.store.directory import RunStore
from tallystick.run.store.journal import JournalContent


def party_of(
    run: Path,
    key: PrivateKey | None = None,
    context: ExecutionContext = DEFAULT,
    as_attack: bool = False,
    notice: Notice = lambda _: None,
) -> Prover:
    """The prover of the run at `run`.

    With `as_attack` it plays the cheat that the run's directory declares. Without `as_attack` the
    declaration is a file that does not belong there. Raises as Prover, and UsageError where the
    directory declares no cheat."""
    if as_attack:
        return CheatingProver(run, key, context, notice=notice)
    return Prover(run, key, context, notice)


class CheatingProver(Prover):
    """The party that cheats by `override`, which has the hooks of a cheat. None stands for the
    cheat that the run's directory declares."""

    def __init__(
        self,
        run: Path,
        key: PrivateKey | None = None,
        context: ExecutionContext = DEFAULT,
        override: Override | None = None,
        notice: Notice = lambda _: None,
    ) -> None:
        self._given = override
        super().__init__(run, key, context, notice)

    def _usable_journal(self, store: RunStore, notice: Notice) -> JournalContent:
        """The journal as it is: the cheat made it."""
        given = self._given
        self._override = declared_override(store, self.job) if given is None else given
        self._override.begin(self.job)
        return store.journal(self.job)

    def _run_states(self, store: RunStore, notice: Notice) -> RunStates:
        return CheatingStates(store, self.job, self._journal, self.context, notice, self._override)

    def _make_good(self, run: RunCommitment, notice: Notice) -> None:
        """Do nothing: the signed run of a cheat need not be the one that its repetition gives."""

    def _begin(self) -> None:
        self._steps = CheatingSteps(self._states, self._facts, self._override)
        self._logs = CheatingAnswers(self._states)

    def _body(self, query: Query[Any]) -> Body | None:
        lied = self._override.answer(query, super()._body(query))
        assert lied is None or isinstance(lied, Body)
        return lied


class CheatingStates(RunStates):
    """The states of a run that cheats by `override`."""

    def __init__(
        self,
        store: RunStore,
        job: Job,
        journal: JournalContent,
        context: ExecutionContext,
        notice: Callable[[str], None],
        override: Override,
    ) -> None:
        super().__init__(store, job, journal, context, notice)
        self._override = override

    def look(self, step: int, tap: Tap) -> tuple[int, int]:
        self._keep(step)  # the hooks are about to change the state
        try:
            return super().look(step, tap)
        finally:
            self._live = False

    def look_at(self, step: int, node: int, tap: Tap) -> None:
        self.look(step, tap)

    def _genesis(self) -> State:
        state = super()._genesis()
        self._override.genesis(state)
        return state

    def _stated(self, step: int, root: bytes) -> bytes:
        return self._override.root(step, root)

    def _make_engine(self, state: State, step: int) -> Engine:
        logs, lie = self._own_logs(), self._override
        return CheatingEngine(self.job, state, step, self.context, log=logs, override=lie)

    def _enter(self, step: int, state: State) -> Engine:
        engine = super()._enter(step, state)
        assert isinstance(engine, CheatingEngine)
        losses = self.journal.losses  # hints: only a cheat that skips steps reads its last loss
        engine.last_bits = losses[step - 1] if 0 < step <= len(losses) else 0
        return engine

    def _check(self, step: int, digests: dict[str, bytes]) -> None:
        """Do nothing: a cheat may have committed to another state than it has."""


class CheatingSteps(Steps):
    """Looks into the steps of a run that cheats by `override`."""

    def __init__(self, states: RunStates, facts: Facts, override: Override) -> None:
        super().__init__(states, facts)
        self._override = override

    def _traced(self, step: int) -> NodeTracer:
        """The nodes as the cheat states them."""
        done = self._executed(step)
        records = enumerate(done.records)
        done.records = [self._override.record(step, index, record) for index, record in records]
        return done

    def _confirm_operands(self, step: int, node: int, found: Mapping[Place, bytes]) -> None:
        """Do nothing: the record of a cheat may state other operands."""


class CheatingAnswers(Logs):
    """The logs of a cheat, which answers about them whatever chain they give."""

    def _check_chain(self, step: int, chain: bytes) -> None:
        """Do nothing: the chain of a cheat may be another one."""


def cheating_states(
    store: RunStore,
    job: Job,
    journal: JournalContent,
    context: ExecutionContext,
    notice: Callable[[str], None],
) -> CheatingStates:
    """The states of a run that plays the cheat which its directory declares. Raises UsageError
    where the directory declares none."""
    override = declared_override(store, job)
    override.begin(job)
    return CheatingStates(store, job, journal, context, notice, override)
