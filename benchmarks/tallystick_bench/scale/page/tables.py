"""The tables of docs/SCALE.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tallystick_bench.scale import checking
from tallystick_bench.scale.assumed import ASSUMED
from tallystick_bench.scale.costs import COSTS, Training
from tallystick_bench.scale.jobs import GROWTH, JOBS
from tallystick_bench.scale.page.show import shown, table
from tallystick_bench.scale.simulate.scenarios import CATCHING
from tallystick_bench.scale.step_parts import StepParts
from tallystick_bench.scale.units import Measured

DRAWN = (0.001, 0.01, 0.05, 0.1)
LYING = (1.0, 0.1, 0.01)
SHOWN = (8, 64, 256, 1024, 4096, 16384)


def measured(found: Measured) -> str:
    """Unit cost, figure."""
    u = found.units
    rows = [
        (f"digest of a tensor (SHA-256, {threads} thread{'s' * (threads != '1')})", rate, "B/s")
        for threads, rate in sorted(u.digest_bytes_s.items())
    ]
    rows += [
        (f"checksum of a message (XXH3, {threads} thread{'s' * (threads != '1')})", rate, "B/s")
        for threads, rate in sorted(u.checksum_bytes_s.items())
    ]
    rows += [
        (f"fold of 8 partial sums, bytes read ({u.fold_threads} threads)", u.fold_bytes_s, "B/s"),
        ("checkpoint written, fsync included", u.write_bytes_s, "B/s"),
        ("checkpoint read, not from the page cache", u.read_bytes_s, "B/s"),
        ("a signature made", u.sign_s, "s"),
        ("a signature verified", u.verify_s, "s"),
        ("a node's digest, without its tensors'", u.node_s, "s"),
        ("a record appended to the journal", u.append_s, "s"),
        ("the same, durable (fsync)", u.journal_s, "s"),
        ("an audit over the training that it repeats", u.audit_ratio, ""),
        ("gloo between two processes", u.gloo_bytes_s, "B/s"),
        ("a message of 64 bytes through gloo", u.gloo_message_s, "s"),
        ("bounded rounding log, for each element of a product", found.log_bytes, "B each"),
    ]
    games = found.extra["disputes"].items()
    lines = [[what, shown(number, unit)] for what, number, unit in rows]
    lines += [
        [
            f"a dispute over one number of `{operator}`",
            f"{game['rounds']:.0f} rounds, {shown(game['received_bytes'], 'B')}, referee "
            f"{shown(game['referee_seconds'], 's')}",
        ]
        for operator, game in games
    ]
    return table(("unit cost", "measured"), lines)


def assumed() -> str:
    """What, figure, source."""
    rows = ([a.what, shown(a.value, a.unit), a.source] for a in ASSUMED.values())
    return table(("assumption", "value", "source"), rows)


def costs(found: Measured) -> str:
    """Every cost of every job, with its formula."""
    trainings = [Training(job, found) for job in JOBS]
    blocks, group = [], ""
    rows: list[list[str]] = []
    for cost in COSTS:
        if cost.group != group:
            group = cost.group
            rows.append([f"**{group}**", *[""] * (len(JOBS) + 1)])
        figures = [shown(cost.of(training), cost.unit) for training in trainings]
        rows.append([cost.name, *figures, cost.formula])
    blocks.append(table(("", *(job.name for job in JOBS), "formula"), rows))
    return "\n".join(blocks)


def caught() -> str:
    """Steps until a liar is caught with 99 %, by the share drawn."""
    rows = []
    for q in DRAWN:
        found = [checking.steps_to_catch(0.99, q, 1, share) for share in LYING]
        before = checking.false_steps_before(q)
        rows.append(
            [
                shown(q, "share"),
                shown(q, "share"),
                *(f"{checking.longer(q, workers):.2f}" for workers in (8, 1024)),
                *(f"{n:,}" for n in found),
                f"{before:,.0f}",
            ]
        )
    head = ["drawn q", "more computation", "a step with W = 8", "with W = 1,024"]
    head += [
        f"steps until caught with 99 %: lies in {shown(share, 'share')} of them" for share in LYING
    ]
    return table((*head, "false steps before, mean"), rows)


def growth(found: Measured) -> str:
    """Seconds of the parts of a step, over the workers."""
    blocks = []
    for job in GROWTH:
        steps = {w: StepParts(job, found, w).parts() for w in SHOWN}
        names = [name for name in steps[SHOWN[0]] if any(steps[w][name] for w in SHOWN)]
        rows = [[name, *(shown(steps[w][name], "s") for w in SHOWN)] for name in names]
        shares = [steps[w]["compute"] / sum(steps[w].values()) for w in SHOWN]
        rows.append(["**compute, of the whole**", *(shown(x, "share") for x in shares)])
        blocks.append(table((f"{job.name}, W =", *(f"{w:,}" for w in SHOWN)), rows))
    return "\n".join(blocks)


def runs(outcomes: Mapping[str, Any]) -> str:
    """The simulated runs, side by side."""
    given: Sequence[Mapping[str, Any]] = outcomes["runs"]
    causes = list(dict.fromkeys(cause for run in given for cause in run["lost"]))
    causes = [c for c in causes if any(run["lost"].get(c) for run in given)]
    rank0 = [shown(r["rank0_bytes_a_step"], "B") for r in given]
    rows = [
        ["machines: workers, spares",
         *(f"{r['workers']:,}, {r['spares']}" for r in given)],
        ["failures of workers", *(str(r["failures"]) for r in given)],
        ["fewest workers", *(f"{r['least_workers']:,}" for r in given)],
        ["liars, caught",
         *(f"{len(r['liars'])}, {sum(x['caught'] for x in r['liars'])}" for r in given)],
        ["steps executed", *(f"{r['steps_executed']:,}" for r in given)],
        ["steps kept", *(f"{r['steps_kept']:,}" for r in given)],
        ["worker 0 receives in a step, without tensors", *rank0],
        ["**compute (goodput)**", *(shown(r["goodput"], "share") for r in given)],
    ]  # fmt: skip
    for cause in causes:
        rows.append(
            [cause, *(shown(r["lost"].get(cause, 0) / r["seconds"], "share") for r in given)]
        )
    return table(("30 days", *(r["name"] for r in given)), rows)


def audits(outcomes: Mapping[str, Any]) -> str:
    """Days by auditors."""
    rows = [
        [
            str(a["auditors"]),
            shown(a["seconds"], "s"),
            str(a["retries"]),
            shown(a["busy_share"], "share"),
        ]
        for a in outcomes["audits"]
    ]
    return table(("auditors", "until the audit has ended", "segments begun anew", "busy"), rows)


def agreement(outcomes: Mapping[str, Any]) -> tuple[float, float, float, int]:
    """Of the scenario with many liars: mean steps until caught, the formula's, the half width of
    the interval of 99 % around the formula's, and how many were caught."""
    steps = [x["steps"] for x in outcomes["catching"]["liars"] if x["caught"]]
    once = checking.caught_in_a_step(CATCHING.drawn, 1, CATCHING.lies)
    # A geometric distribution's standard deviation, over the root of their number.
    width = 2.576 * (1 - once) ** 0.5 / once / len(steps) ** 0.5
    return sum(steps) / len(steps), 1 / once, width, len(steps)
