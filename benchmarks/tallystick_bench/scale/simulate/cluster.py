"""The simulated run: steps between events, on a clock of seconds."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tallystick_bench.scale.assumed import value
from tallystick_bench.scale.jobs import ScaleJob
from tallystick_bench.scale.simulate import ledger
from tallystick_bench.scale.simulate.ledger import Ledger
from tallystick_bench.scale.split import share, trees
from tallystick_bench.scale.step_parts import StepParts, slowest
from tallystick_bench.scale.units import Measured

FAIL, BACK = "fails", "is back"


@dataclass(frozen=True)
class Scenario:
    """A run of `job` on `workers` machines for `seconds`, with `spares` machines that stand ready.

    `liars` of the workers falsify, each in a share `lies` of its steps, one of their micro-batches.
    Every share is drawn with probability `drawn`, and another worker computes it again before the
    step's update. `until_caught` ends the run with the last liar. Of the stored
    states the two newest are kept, and every `archive`-th: for going
    back behind a lie.
    """

    name: str
    job: ScaleJob
    workers: int
    seconds: float
    spares: int = 0
    liars: int = 0
    lies: float = 1.0
    drawn: float = 0.0
    fails: bool = True
    archive: int = 50
    until_caught: bool = False
    seed: int = 0


@dataclass
class Liar:
    """A machine that lies: the steps that it took part in, and its first false one that stands."""

    machine: int
    steps: int = 0
    first_false: int | None = None
    false: int = 0
    caught: bool = False


@dataclass
class Run:
    """A simulated run. `simulate` makes one."""

    scenario: Scenario
    found: Measured
    now: float = 0.0
    step: int = 0
    executed: int = 0
    failures: int = 0
    rank0_bytes: int = 0
    ranks: list[int] = field(default_factory=list)
    ready: list[int] = field(default_factory=list)
    liars: dict[int, Liar] = field(default_factory=dict)
    ledger: Ledger = field(default_factory=Ledger)
    least_workers: int = 0

    def __post_init__(self) -> None:
        s = self.scenario
        self._random = np.random.default_rng(s.seed)
        self._parts: dict[int, tuple[StepParts, dict[str, float], float]] = {}
        self.ranks = list(range(s.workers))
        self.ready = list(range(s.workers, s.workers + s.spares))
        chosen = self._random.choice(s.workers, s.liars, replace=False)
        self.liars = {int(machine): Liar(int(machine)) for machine in sorted(chosen)}
        self.least_workers = s.workers
        self._shares: dict[int, list[tuple[int, int, int]]] = {}
        self._interval = StepParts(s.job, self.found, s.workers, s.drawn > 0).interval
        self._ideal = (
            s.job.micro_batches / s.workers * StepParts(s.job, self.found, 1).micro_batch_s
        )
        self._mtbf = value("gpu_mtbf_s") / s.job.gpus
        self._events: list[tuple[float, int, str]] = []
        if s.fails:
            for machine in (*self.ranks, *self.ready):
                self._later(self._mtbf, machine, FAIL)
        # (step, when it is on the store); the first is the job's own.
        self._stored: list[tuple[int, float]] = [(0, 0.0)]
        self.ledger.begin(0)

    def _later(self, mean: float, machine: int, what: str) -> None:
        at = self.now + float(self._random.exponential(mean))
        heapq.heappush(self._events, (at, machine, what))

    # -- a step ------------------------------------------------------------------------------------

    def go(self) -> Run:
        """Runs to the end of the time."""
        s = self.scenario
        while self.now < s.seconds and not (s.until_caught and self._all_caught()):
            parts, fixed, after = self._of(len(self.ranks))
            slow = slowest(float(self._random.random()), len(self.ranks))
            drawn, again = self._drawn(parts) if s.drawn else (set(), 0.0)
            end = self.now + parts.compute_s * slow + after + again
            if self._events and self._events[0][0] < end:
                self._event(*heapq.heappop(self._events))
                continue
            self.now = end
            self.executed += 1
            self.rank0_bytes += parts.rank0_bytes
            self.ledger.step(
                {
                    "compute": self._ideal,
                    "uneven shares": parts.compute_s - self._ideal,
                    "stragglers": parts.compute_s * (slow - 1),
                    "checks": again,
                    **fixed,
                }
            )
            self.step += 1
            caught = self._lies(drawn) if self.liars else []
            if caught:
                self._expel(caught)
            elif self.step % self._interval == 0:
                self._store(parts)
        return self

    def _of(self, workers: int) -> tuple[StepParts, dict[str, float], float]:
        if workers not in self._parts:
            checked = self.scenario.drawn > 0
            parts = StepParts(self.scenario.job, self.found, workers, checked)
            fixed = parts.fixed()
            self._parts[workers] = parts, fixed, sum(fixed.values())
        return self._parts[workers]

    def _store(self, parts: StepParts) -> None:
        """A state is hashed and stored beside the next steps, at most two at a time."""
        flying = [at for _, at in self._stored[-2:] if at > self.now]
        if len(flying) == 2:
            self._wait(flying[0] - self.now, ledger.WAITING)
        begins = max(self.now, self._stored[-1][1])
        self._stored.append((self.step, begins + parts.checkpoint_s))
        self.ledger.begin(self.step)
        self._fill()

    def _wait(self, seconds: float, cause: str) -> None:
        self.now += seconds
        self.ledger.lost[cause] += seconds

    # -- events ------------------------------------------------------------------------------------

    def _event(self, at: float, machine: int, what: str) -> None:
        if machine in self.liars and self.liars[machine].caught:
            return  # expelled
        if what == BACK:
            # It waits for the next checkpoint, where the number of workers may change.
            self.ready.append(machine)
            self._later(self._mtbf, machine, FAIL)
            return
        self._later(value("repair_s"), machine, BACK)
        if machine in self.ready:
            self.ready.remove(machine)
            return
        if machine not in self.ranks:
            return
        self.failures += 1
        if at > self.now:
            self._wait(at - self.now, ledger.CUT)
        self.ranks.remove(machine)
        self._restart(self._last_stored(), ledger.AGAIN_FAILURE)

    def _last_stored(self) -> int:
        return next(step for step, at in reversed(self._stored) if at <= self.now)

    def _restart(self, step: int, cause: str) -> None:
        """Everyone loads the state of `step` and goes on, with as many workers as there are."""
        self._stored = [(s, at) for s, at in self._stored if s <= step]
        self.ledger.back_to(step, cause)
        self.step = step
        for liar in self.liars.values():
            if liar.first_false is not None and liar.first_false >= step:
                liar.first_false = None
        self._fill()
        parts = self._of(len(self.ranks))[0]
        self._wait(value("restart_s") + parts.load_s, ledger.RESTART)

    def _fill(self) -> None:
        """Machines that stand ready take the free places."""
        while self.ready and len(self.ranks) < self.scenario.workers:
            self.ranks.append(self.ready.pop(0))
        self.least_workers = min(self.least_workers, len(self.ranks))

    # -- lies --------------------------------------------------------------------------------------

    def _all_caught(self) -> bool:
        return all(liar.caught for liar in self.liars.values())

    def _drawn(self, parts: StepParts) -> tuple[set[int], float]:
        """The micro-batches of the shares that are computed again in this step, and the seconds
        until the checker with most of them has done so, after its own."""
        workers = len(self.ranks)
        if workers not in self._shares:
            self._shares[workers] = trees(self.scenario.job.micro_batches, workers)
        shares, found = self._shares[workers], set()
        work: dict[int, int] = {}
        for number in np.flatnonzero(self._random.random(len(shares)) < self.scenario.drawn):
            rank, first, count = shares[number]
            found |= set(range(first, first + count))
            checker = int(self._random.integers(workers - 1))
            checker += checker >= rank
            work[checker] = work.get(checker, 0) + count
        return found, max(work.values(), default=0) * parts.micro_batch_s

    def _lies(self, drawn: set[int]) -> list[Liar]:
        """The liars' turn: some falsify a micro-batch. Those whose share is drawn are caught."""
        s = self.scenario
        caught = []
        for liar in self.liars.values():
            if liar.caught or liar.machine not in self.ranks:
                continue
            liar.steps += 1
            if self._random.random() >= s.lies:
                continue
            liar.false += 1
            if liar.first_false is None:
                liar.first_false = self.step - 1
            rank = self.ranks.index(liar.machine)
            first, last = share(s.job.micro_batches, len(self.ranks), rank)
            false = int(self._random.integers(first, last))
            if false in drawn:
                caught.append(liar)
        return caught

    def _expel(self, caught: list[Liar]) -> None:
        """The node game names the liars; the run goes back behind their first false steps. Games
        about one step are played at the same time."""
        self._wait(value("dispute_s"), ledger.DISPUTE)
        for liar in caught:
            liar.caught = True
            self.ranks.remove(liar.machine)
        first = min(x.first_false for x in caught if x.first_false is not None)
        done = [step for step, at in self._stored if at <= self.now]
        # Between the two newest states and those of the archive nothing is kept.
        archive = self.scenario.archive * self._interval
        kept = {step for step in done if step % archive == 0} | set(done[-2:])
        self._restart(max(step for step in kept if step <= first), ledger.AGAIN_LIE)

    # -- what is told ------------------------------------------------------------------------------

    def told(self) -> dict[str, Any]:
        """The outcome as JSON."""
        s, seconds = self.scenario, self.ledger.totals()
        return {
            "name": s.name,
            "job": s.job.name,
            "workers": s.workers,
            "spares": s.spares,
            "gpus": s.job.gpus,
            "micro_batches": s.job.micro_batches,
            "interval": self._interval,
            "drawn": s.drawn,
            "lies": s.lies,
            "seed": s.seed,
            "seconds": self.now,
            "lost": {k: v for k, v in seconds.items() if k != "compute"},
            "goodput": seconds.get("compute", 0.0) / self.now,
            "steps_kept": self.step,
            "steps_executed": self.executed,
            "failures": self.failures,
            "least_workers": self.least_workers,
            "rank0_bytes_a_step": self.rank0_bytes / max(self.executed, 1),
            "liars": [
                {"steps": x.steps, "false": x.false, "caught": x.caught}
                for x in self.liars.values()
            ],
        }


def simulate(scenario: Scenario, found: Measured) -> Run:
    """The whole run of a scenario. Equal scenarios give equal runs."""
    return Run(scenario, found).go()
