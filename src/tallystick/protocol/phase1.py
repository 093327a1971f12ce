"""Phases 0 and 1: the commitments fit the job, with their first and last checkpoints (PROTOCOL 3);
then the first diverging step, and runs that end at different steps (4).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tallystick.commit import merkle
from tallystick.commit.checkpoint import checkpoint_count, checkpoint_leaf, run_root_of
from tallystick.commit.job import STOP_SLOT
from tallystick.commit.state import (
    LOSS_CHAIN_SLOT,
    SlotProof,
    chain_digest,
    extend_loss_chain,
    loss_bits,
)
from tallystick.commit.tensor import tensor_digest
from tallystick.protocol.bodies import RootsBody
from tallystick.protocol.game import BOTH, Asking, Game, Guilty, Next, Rounds, ask, convict, shorts
from tallystick.protocol.queries import Checkpoints, Loss, Slot, States
from tallystick.protocol.results import Between, DisputedStep, Ends, Interval
from tallystick.protocol.verdict import AGREEMENT


def commitments(game: Game, _: None) -> Rounds:
    """3.2: the run ends at a step at which the job lets it end."""
    terms, guilt = game.facts.job, {}
    for party, run in enumerate(game.runs):
        early = terms.ends_early and 1 <= run.final_step < terms.steps
        count = checkpoint_count(run.final_step, terms.checkpoint_interval)
        if run.final_step != terms.steps and not early:
            guilt[party] = (
                "3.2",
                f"the run ends after {run.final_step} steps, the job has {terms.steps}",
            )
        elif run.checkpoints != count:
            guilt[party] = (
                "3.2",
                f"the run says it has {run.checkpoints} checkpoints, it must have {count}",
            )
    convict(guilt, "0")
    return Next("ends")
    yield {}  # a generator that asks nothing


def checkpoint_step(game: Game, party: int, index: int) -> int:
    """The step of checkpoint `index` of a party's run (COMMITMENTS 6.2)."""
    return min(index * game.facts.job.checkpoint_interval, game.runs[party].final_step)


def prove(game: Game, wanted: Mapping[int, Sequence[int]]) -> Asking[dict[int, RootsBody]]:
    """Parties prove checkpoints; the roots are pinned (3.3)."""
    queries = {p: Checkpoints(tuple(indices)) for p, indices in wanted.items() if indices}
    if not queries:
        return {}
    bodies = yield from ask(queries)
    guilt = {}
    for party, body in bodies.items():
        run, indices = game.runs[party], queries[party].indices
        steps = [checkpoint_step(game, party, i) for i in indices]
        hashes = map(checkpoint_leaf, steps, body.roots)
        tree = merkle.multi_root(
            dict(zip(indices, hashes, strict=True)), run.checkpoints, body.proof
        )
        job = game.facts.terms.digest
        if tree is None or run_root_of(job, run.checkpoints, tree) != run.run_root:
            guilt[party] = ("3.3", "checkpoints it has proved do not give its run root")
            continue
        game.checkpoints[party].update(zip(indices, body.roots, strict=True))
        game.states[party].update(zip(steps, body.roots, strict=True))
    convict(guilt, "0")
    return bodies


def ends(game: Game, _: None) -> Rounds:
    """3.3 to 3.6: first and last checkpoints."""
    lasts = [run.checkpoints - 1 for run in game.runs]
    bodies = yield from prove(game, {p: sorted({0, lasts[p]}) for p in BOTH})
    guilt = {}
    for party, run in enumerate(game.runs):
        if game.checkpoints[party][0] != game.facts.job.genesis_root:
            guilt[party] = ("3.4", "its run does not start from the job's genesis state")
        elif game.checkpoints[party][lasts[party]] != run.final_state_root:
            guilt[party] = ("3.5", "its last checkpoint is not the final state it has signed")
    convict(guilt, "0")
    a, b = game.runs
    finals = (a.final_state_root, b.final_state_root)
    game.story.note(0, "3.4", "both runs start from the job's genesis state")
    if a.run_root == b.run_root and a.final_step == b.final_step:
        game.story.note(0, "3.6", "the runs are equal", shorts(finals))
        return Next(AGREEMENT)
    game.story.note(0, "3.5", "final states", shorts(finals))
    if a.final_step != b.final_step:
        return Next("common")
    if finals[0] != finals[1]:
        return Next("search", Between(0, lasts[0]))
    return Next("middle", Ends((bodies[0].proof, bodies[1].proof)))


Fetch = Callable[[Sequence[int]], Asking[object]]


def inner_points(low: int, high: int, arity: int) -> list[int]:
    """The points strictly between low and high that a round asks for (4.3)."""
    points = {low - (low - high) * k // arity for k in range(1, arity)}
    return sorted(p for p in points if low < p < high)


def _narrow(
    game: Game, low: int, high: int, stated: tuple[dict[int, bytes], dict[int, bytes]], fetch: Fetch
) -> Asking[int]:
    """The final bound `high` of the search of 4.3: equal before it, different at it.

    The ends stay pinned: the search asks only for points strictly between them. The difference
    high - low shrinks every round, since the points cut it into smaller parts.
    """
    while high - low > 1:
        points = inner_points(low, high, game.arity)
        yield from fetch(points)
        for point in points:
            if stated[0][point] != stated[1][point]:
                high = point
                break
            low = point
    return high


def middle(game: Game, given: Ends) -> Rounds:
    """4.2: equal final states, different run roots: the proofs lead to a checkpoint that differs.

    Both trees have the same size. Opened leaves and the hashes of a proof make up a root. So where
    the roots differ, a leaf or a hash differs. The search follows it, and each round cuts its range
    into smaller parts.
    """
    size = game.runs[0].checkpoints
    indices, proofs = sorted({0, size - 1}), given.proofs
    low, high = 0, size
    while True:
        split = [i for i in indices if game.checkpoints[0][i] != game.checkpoints[1][i]]
        if split:
            return Next("search", Between(0, split[0]))
        ranges = merkle.multi_ranges(indices, size)
        low, high = next(
            part
            for part, a, b in zip(ranges, *proofs, strict=True)
            if a != b and low <= part[0] and part[1] <= high
        )
        indices = inner_points(low - 1, high, game.arity)
        bodies = yield from prove(game, dict.fromkeys(BOTH, indices))
        proofs = (bodies[0].proof, bodies[1].proof)


def common(game: Game, _: None) -> Rounds:
    """4.1, 4.2: different final steps: the last checkpoint that both runs have."""
    index = min(run.final_step for run in game.runs) // game.facts.job.checkpoint_interval
    wanted = {p: () if index in game.checkpoints[p] else (index,) for p in BOTH}
    yield from prove(game, wanted)
    roots = tuple(game.checkpoints[p][index] for p in BOTH)
    step = checkpoint_step(game, 0, index)
    game.story.note(1, "4.2", f"last common checkpoint, step {step}", shorts(roots))
    if roots[0] != roots[1]:
        return Next("search", Between(0, index))
    return Next("shorter", Between(index, index))


def search(game: Game, given: Between) -> Rounds:
    """4.3: two neighbouring checkpoints, equal and different."""

    def fetch(points: Sequence[int]) -> Asking[object]:
        unknown = [i for i in points if not all(i in game.checkpoints[p] for p in BOTH)]
        return (yield from prove(game, dict.fromkeys(BOTH, unknown)))

    high = yield from _narrow(game, given.first, given.last, game.checkpoints, fetch)
    first, last = checkpoint_step(game, 0, high - 1), checkpoint_step(game, 0, high)
    game.story.found(interval=(first, last))
    game.story.note(1, "4.3", f"the runs part between steps {first} and {last}")
    return Next("interval", Interval(first, last))


def _state_roots(game: Game, parties: Sequence[int], steps: Sequence[int]) -> Asking[object]:
    """Parties state roots of states (kind 2): pinned by their signature only (4.4)."""
    bodies = yield from ask({p: States(tuple(steps)) for p in parties})
    for party, body in bodies.items():
        game.states[party].update(zip(steps, body.roots, strict=True))
    return None


def interval(game: Game, given: Interval) -> Rounds:
    """4.4, 4.5: the step t with equal state[t] and different state[t + 1]."""

    def fetch(points: Sequence[int]) -> Asking[object]:
        return (yield from _state_roots(game, BOTH, points))

    high = yield from _narrow(game, given.first, given.last, game.states, fetch)
    step = high - 1
    game.story.found(step=step)
    before = (game.states[0][high - 1], game.states[1][high - 1])
    after = (game.states[0][high], game.states[1][high])
    game.story.note(1, "4.5", f"state before step {step}", shorts(before))
    game.story.note(1, "4.5", f"state after step {step}", shorts(after))
    return Next("nodes", DisputedStep(step))


def shorter(game: Game, given: Between) -> Rounds:
    """4.7: the longer run's statement about the state in which the shorter one ends."""
    a, b = game.runs
    longer, end = int(b.final_step > a.final_step), min(a.final_step, b.final_step)
    start = given.first * game.facts.job.checkpoint_interval
    if end > start:
        yield from _state_roots(game, [longer], [end])
    roots = (game.states[0][end], game.states[1][end])
    game.story.note(1, "4.7", f"state after step {end - 1}, where one run ends", shorts(roots))
    if roots[0] == roots[1]:
        game.story.found(step=end - 1)
        return Next("stop")
    game.story.found(interval=(start, end))
    return Next("interval", Interval(start, end))


def stop(game: Game, _: None) -> Rounds:
    """4.7 to 4.10: the loss of the step after which only one run ends."""
    ends = [run.final_step for run in game.runs]
    end = min(ends)
    if not game.facts.job.stop_on_non_finite:
        return Next("slot_stop")
    body = (yield from ask({0: Loss(end - 1)}))[0]
    loss = np.uint32(body.bits).view(np.float32)
    digest = chain_digest(extend_loss_chain(body.chain, end - 1, loss))
    index, size = game.facts.slots.index(LOSS_CHAIN_SLOT), len(game.facts.slots)
    proof = SlotProof(LOSS_CHAIN_SLOT, digest, index, size, body.proof)
    # Other bits of a NaN would enter the chain as the canonical ones (COMMITMENTS 5.5).
    known = loss_bits(loss) == body.bits
    if not known or not proof.proves(game.states[0][end], LOSS_CHAIN_SLOT, index, size):
        convict({0: ("4.10", "the loss it has proved does not give the agreed state")}, "0")
    finite = bool(np.isfinite(loss))
    game.story.note(1, "4.7", f"the loss of step {end - 1} is {loss}")
    if finite and game.facts.job.stop_on_slot:
        return Next("slot_stop")
    value = f"loss {loss} (0x{body.bits:08x})"
    if finite:
        raise _early(ends, "4.9", f"the loss {loss} is finite", value)
    raise _late(ends, "4.8", f"loss is {loss}", value)


def slot_stop(game: Game, _: None) -> Rounds:
    """4.11: the slot that ends a run, in the state after which only one run ends."""
    ends = [run.final_step for run in game.runs]
    end = min(ends)
    body = (yield from ask({0: Slot(end, STOP_SLOT)}))[0]
    index, size = game.facts.slots.index(STOP_SLOT), len(game.facts.slots)
    proof = SlotProof(STOP_SLOT, body.digest, index, size, body.proof)
    if not proof.proves(game.states[0][end], STOP_SLOT, index, size):
        why = f"its proof of slot {STOP_SLOT} does not give the agreed state"
        convict({0: ("4.11", why)}, "0")
    true = body.digest == tensor_digest(np.array(True))
    game.story.note(1, "4.11", f"{STOP_SLOT} after step {end - 1} is {str(true).lower()}")
    value = f"{STOP_SLOT} {str(true).lower()}"
    if true:
        raise _late(ends, "4.11", f"{STOP_SLOT} is true", value)
    raise _early(ends, "4.11", f"{STOP_SLOT} is not true", value)


def _claims(ends: Sequence[int]) -> tuple[str, str]:
    return f"ends after {ends[0]} steps", f"ends after {ends[1]} steps"


def _early(ends: Sequence[int], clause: str, why: str, value: str) -> Guilty:
    """The shorter run ends without a reason."""
    sentence = f"its run ends although {why}"
    return Guilty({ends.index(min(ends)): (clause, sentence)}, "0", _claims(ends), value)


def _late(ends: Sequence[int], clause: str, why: str, value: str) -> Guilty:
    """The longer run goes on where it has to end."""
    sentence = f"its run goes on after step {min(ends) - 1}, whose {why}"
    return Guilty({ends.index(max(ends)): (clause, sentence)}, "0", _claims(ends), value)
