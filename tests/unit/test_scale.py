"""docs/SCALE.md comes from its results; its formulas and its simulation agree."""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from tallystick.errors import UsageError
from tallystick.numerics.operators.reduction import split
from tallystick_bench.scale import checking
from tallystick_bench.scale.assumed import ASSUMED
from tallystick_bench.scale.jobs import GROWTH, WIDE_CUT, ScaleJob
from tallystick_bench.scale.page.page import page
from tallystick_bench.scale.simulate import ledger
from tallystick_bench.scale.simulate.audits import audit
from tallystick_bench.scale.simulate.cluster import Scenario, simulate
from tallystick_bench.scale.split import (
    largest_share,
    mean_subtrees,
    most_subtrees,
    share,
    subtrees,
    trees,
)
from tallystick_bench.scale.step_parts import StepParts, slowest
from tallystick_bench.scale.units import Measured, read

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
SMALL = replace(WIDE_CUT, micro_batches=128)


@pytest.fixture(scope="module")
def found() -> Measured:
    return read(RESULTS / "scale", RESULTS / "ovt")


# -- the page --------------------------------------------------------------------------------------


def test_the_page_is_that_of_its_results(found: Measured) -> None:
    outcomes = json.loads((RESULTS / "scale" / "simulation.json").read_text())
    assert (ROOT / "docs" / "SCALE.md").read_text() == page(found, outcomes)
    for name in ("step", "growth", "liars", "audit"):
        assert (ROOT / "docs" / "images" / f"scale-{name}.png").is_file()


def test_a_simulation_of_other_unit_costs_is_refused(found: Measured) -> None:
    outcomes = json.loads((RESULTS / "scale" / "simulation.json").read_text())
    other = replace(found, units=replace(found.units, verify_s=2 * found.units.verify_s))
    with pytest.raises(UsageError, match="other unit costs"):
        page(other, outcomes)


# -- shares and partial sums -----------------------------------------------------------------------


def _leaves(parts: int) -> list[range]:
    """Every subtree of a fold of `parts` values, as the range of its leaves."""
    found, open_ = [], [range(parts)]
    while open_:
        tree = open_.pop()
        found.append(tree)
        if len(tree) > 1:
            left = split(len(tree))
            open_ += [tree[:left], tree[left:]]
    return found


@pytest.mark.parametrize("parts", [1, 2, 5, 8, 13])
def test_the_fewest_subtrees_make_up_a_share(parts: int) -> None:
    trees = _leaves(parts)
    for first, last in combinations(range(parts + 1), 2):
        inside = [t for t in trees if first <= t.start and t.stop <= last]
        # Those that are in no larger one of them.
        whole = [t for t in inside if not any(t != o and o.start <= t.start and t.stop <= o.stop
                                              for o in inside)]  # fmt: skip
        assert sum(map(len, whole)) == last - first
        assert subtrees(parts, first, last) == len(whole)


def test_shares_cover_the_micro_batches_and_aligned_ones_are_one_sum() -> None:
    for workers in (1, 3, 8, 13):
        ends = [share(64, workers, rank) for rank in range(workers)]
        assert [first for first, _ in ends] == [0, *(last for _, last in ends[:-1])]
        assert ends[-1][1] == 64
    assert most_subtrees(64, 8) == 1 < most_subtrees(64, 7)
    for parts, workers in ((64, 1), (64, 5), (64, 8), (61, 7), (61, 60)):
        found = trees(parts, workers)
        assert [at for _, at, _ in found] == list(np.cumsum([0, *(n for _, _, n in found)]))[:-1]
        counts = Counter(r for r, _, _ in found)
        assert max(counts.values()) == most_subtrees(parts, workers)
        assert mean_subtrees(parts, workers) == pytest.approx(len(found) / workers)
        assert counts == {r: subtrees(parts, *share(parts, workers, r)) for r in range(workers)}


def test_the_largest_tensor_goes_to_one_owner() -> None:
    tensors = ((50, 1), (20, 2), (10, 3))
    assert [largest_share(tensors, w) for w in (1, 2, 3, 100)] == [120, 60, 50, 50]


# -- the cost of a step ----------------------------------------------------------------------------


def test_the_slowest_of_many_is_their_largest() -> None:
    drawn = np.random.default_rng(0).lognormal(0.0, 0.05, (4000, 64)).max(axis=1)
    assert float(np.median(drawn)) == pytest.approx(slowest(0.5, 64, 0.05), rel=2e-3)
    assert float(np.quantile(drawn, 0.9)) == pytest.approx(slowest(0.9, 64, 0.05), rel=3e-3)


@pytest.mark.parametrize("job", GROWTH, ids=lambda job: job.name)
def test_more_workers_compute_less_each_and_send_no_less(job: ScaleJob, found: Measured) -> None:
    few, many = StepParts(job, found, 64), StepParts(job, found, 4096)
    assert few.compute_s == pytest.approx(64 * many.compute_s)
    gradient = found.shapes[job.shape].gradient_bytes
    assert few.sent_bytes == pytest.approx(2 * 63 / 64 * gradient)
    largest = max(size for size, _ in found.shapes[job.shape].tensors)
    assert many.owned == (gradient / 4096 if job.cut else largest)
    if job.cut:
        assert few.spread_bytes + few.gathered_bytes == pytest.approx(few.sent_bytes)
        assert few.network_s == pytest.approx(many.network_s, rel=0.02)
    else:  # one owner of the largest tensor receives it from all, and sends it to all
        assert many.network_s == pytest.approx(4095 / 63 * few.network_s, rel=0.1)
    signed = StepParts(job, found, 64, checked=True)
    assert signed.hash_s > few.hash_s and signed.rank0_s > few.rank0_s
    assert signed.rank0_bytes > few.rank0_bytes
    # A worker too few: another one has one micro-batch more, and sends several partial sums.
    odd = StepParts(job, found, 4095)
    assert odd.compute_s == pytest.approx(1.25 * many.compute_s)
    assert odd.sent_bytes > many.sent_bytes


# -- drawn micro-batches ---------------------------------------------------------------------------


def test_the_formulas_of_drawing() -> None:
    assert checking.caught_in_a_step(0.1, false=2) == pytest.approx(0.19)
    assert checking.caught_in_a_step(0.1, share=0.5, colluding=0.2) == pytest.approx(0.04)
    steps = checking.steps_to_catch(0.99, 0.01, share=0.1)
    assert checking.caught_within(steps, 0.01, share=0.1) >= 0.99
    assert checking.caught_within(steps - 1, 0.01, share=0.1) < 0.99
    assert checking.false_steps_before(0.01) == pytest.approx(99)
    random = np.random.default_rng(0)
    for q, workers in ((0.01, 8), (0.05, 64)):
        most = [
            np.bincount(random.integers(0, workers, random.binomial(workers, q)), minlength=1).max()
            for _ in range(4000)
        ]
        assert 1 + np.mean(most) == pytest.approx(checking.longer(q, workers), abs=0.03)


def test_what_a_sampled_audit_misses() -> None:
    draws = list(combinations(range(7), 3))
    missed = sum(not {0, 1} & set(draw) for draw in draws) / len(draws)
    assert checking.missed_by_sample(7, 2, 3) == pytest.approx(missed)
    assert checking.missed_by_sample(7, 2, 6) == 0


def test_liars_are_caught_when_the_formula_says(found: Measured) -> None:
    """200 liars on one run: the mean lies in the interval of 99.9 %, and so do shares caught."""
    job = replace(WIDE_CUT, micro_batches=512)
    liars = Scenario(
        "liars", job, 512, 1e7, liars=200, lies=0.5, drawn=0.1, fails=False, seed=1,
        until_caught=True,
    )  # fmt: skip
    told = simulate(liars, found).told()
    steps = [liar["steps"] for liar in told["liars"]]
    assert all(liar["caught"] for liar in told["liars"])
    once = checking.caught_in_a_step(0.1, share=0.5)
    width = 3.29 * math.sqrt(1 - once) / once / math.sqrt(len(steps))
    assert statistics.mean(steps) == pytest.approx(1 / once, abs=width)
    for within in (10, 30, 60):
        p = checking.caught_within(within, 0.1, share=0.5)
        caught = sum(n <= within for n in steps) / len(steps)
        assert caught == pytest.approx(p, abs=3.29 * math.sqrt(p * (1 - p) / len(steps)))
    # Of its false steps, one in ten is drawn; that one is not in the run.
    false = sum(liar["false"] for liar in told["liars"])
    assert false / len(steps) - 1 == pytest.approx(checking.false_steps_before(0.1), rel=0.25)


# -- the simulated run -----------------------------------------------------------------------------


def test_a_run_without_trouble_takes_the_formulas_time(found: Measured) -> None:
    quiet = Scenario("quiet", SMALL, 64, 1e5, fails=False)
    told = simulate(quiet, found).told()
    parts = StepParts(SMALL, found, 64)
    fixed = sum(parts.fixed().values())
    per_step = (told["seconds"] - told["lost"]["stragglers"]) / told["steps_executed"]
    assert per_step == pytest.approx(parts.ideal_s + fixed)
    assert told["lost"]["stragglers"] / told["steps_executed"] == pytest.approx(
        parts.straggler_s, rel=0.02
    )
    assert told["rank0_bytes_a_step"] == parts.rank0_bytes


@pytest.mark.parametrize("spares", [0, 16])
def test_every_second_has_one_cause_and_failures_cost_an_interval_at_most(
    spares: int, found: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    often = replace(ASSUMED["gpu_mtbf_s"], value=4e6)
    monkeypatch.setitem(ASSUMED, "gpu_mtbf_s", often)
    scenario = Scenario("failing", SMALL, 64, 3e5, spares=spares, seed=3)
    run = simulate(scenario, found)
    assert sum(run.ledger.totals().values()) == pytest.approx(run.now)
    told = run.told()
    assert run.failures > 20
    again = told["steps_executed"] - told["steps_kept"]
    # The newest state may still be on its way: two intervals.
    assert 0 < again < 2 * told["interval"] * run.failures
    assert (told["least_workers"] < 64) is (spares == 0)
    assert (told["lost"]["uneven shares"] > 0) is (spares == 0)
    assert told == simulate(scenario, found).told()


def test_a_liar_takes_its_false_steps_with_it(found: Measured) -> None:
    scenario = Scenario("liar", SMALL, 64, 1e6, spares=1, liars=1, drawn=0.02, fails=False, seed=5)
    run = simulate(scenario, found)
    (liar,) = run.liars.values()
    assert liar.caught and liar.machine not in run.ranks and len(run.ranks) == 64
    assert run.executed - run.step == liar.steps  # it lied from its first step on
    lost = Counter(run.ledger.totals())
    assert lost[ledger.AGAIN_LIE] > 0 and lost[ledger.DISPUTE] > 0
    assert sum(lost.values()) == pytest.approx(run.now)


def test_auditors_share_the_segments(found: Measured) -> None:
    one, many = (audit(SMALL, 40, 20, k, found, seed=1) for k in (1, 8))
    assert one["seconds"] == pytest.approx(40 * one["segment_s"], rel=0.1)
    assert one["seconds"] / 8 <= 1.1 * many["seconds"]
    assert many["seconds"] >= 5 * 0.9 * many["segment_s"]
    assert 0.8 < many["busy_share"] <= 1
