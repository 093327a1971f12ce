"""Past a step whose values are equal and whose logs are not (PROTOCOL 6.14).

Both parties' logs of the step are sound as far as 6.13 has looked, so the states differ in their
log chains only. A party that withholds a log must not hide a later lie behind it. From here on the
referee compares states without their log chains. The inclusion path of slot `chain.log` is made of
all other slots' leaves, so two states differ in another slot exactly if their paths differ.
"""

from __future__ import annotations

from tallystick.commit.state import LOG_CHAIN_SLOT, SlotProof
from tallystick.protocol.bodies import SlotBody
from tallystick.protocol.game import BOTH, Asking, Game, Next, Rounds, ask, convict, shorts
from tallystick.protocol.phase0 import prove
from tallystick.protocol.queries import Slot, States
from tallystick.protocol.results import DisputedStep
from tallystick.protocol.verdict import UNDECIDED, Place

# The proofs of both parties, by step.
Known = dict[int, dict[int, SlotBody]]


def beyond(game: Game, given: DisputedStep) -> Rounds:
    """6.14: the first step after which the states differ in more than their log chains."""
    start, end = given.step + 1, min(run.final_step for run in game.runs)
    known: Known = {}
    if (yield from _alike(game, known, end)):
        if game.runs[0].final_step != game.runs[1].final_step:
            return Next("stop")
        why = "the final states are equal but for their log chains"
        game.story.note(1, "6.14", why)
        return Next(UNDECIDED)
    low, high = yield from _between_checkpoints(game, known, start, end)
    while high - low > 1:
        middle = (low + high) // 2
        if (yield from _alike(game, known, middle)):
            low = middle
        else:
            high = middle
    chains = yield from _log_chains(game, known, low)
    game.story.choices, game.story.place = (0, 0), Place(step=low)
    roots = (game.states[0][high], game.states[1][high])
    game.story.note(1, "6.14", f"values differ first after step {low}", shorts(roots))
    return Next("nodes", DisputedStep(low, (chains[0].digest, chains[1].digest)))


def _between_checkpoints(game: Game, known: Known, start: int, end: int) -> Asking[tuple[int, int]]:
    """Two steps, at most an interval apart: the states are alike at the first only."""
    interval = game.facts.job.checkpoint_interval
    # Common checkpoints strictly between the ends, which are alike and not alike.
    low, high = start // interval, -(-end // interval)
    while high - low > 1:
        middle = (low + high) // 2
        if (yield from _alike(game, known, middle * interval)):
            low = middle
        else:
            high = middle
    return max(low * interval, start), min(high * interval, end)


def _alike(game: Game, known: Known, step: int) -> Asking[bool]:
    """True if both parties' state[step] differ in their log chains at most."""
    proofs = yield from _log_chains(game, known, step)
    return proofs[0].proof == proofs[1].proof


def _log_chains(game: Game, known: Known, step: int) -> Asking[dict[int, SlotBody]]:
    """Both parties prove slot chain.log in their own state[step], which they pin first."""
    if step in known:  # no query is asked twice
        return known[step]
    yield from _pinned(game, step)
    bodies = yield from ask({p: Slot(step, LOG_CHAIN_SLOT) for p in BOTH})
    index, size = game.facts.slots.index(LOG_CHAIN_SLOT), len(game.facts.slots)
    why = f"its proof of slot {LOG_CHAIN_SLOT} does not give its own state after {step} steps"
    convict(
        {
            p: ("6.14", why)
            for p, body in bodies.items()
            if not SlotProof(LOG_CHAIN_SLOT, body.digest, index, size, body.proof).proves(
                game.states[p][step], LOG_CHAIN_SLOT, index, size
            )
        }
    )
    known[step] = bodies
    return bodies


def _pinned(game: Game, step: int) -> Asking[None]:
    """Pin state[step] of each party that has not stated it, by a checkpoint proof if it is one."""
    silent = [p for p in BOTH if step not in game.states[p]]
    index, rest = divmod(step, game.facts.job.checkpoint_interval)
    if not rest:
        yield from prove(game, dict.fromkeys(silent, (index,)))
        return
    if silent:
        bodies = yield from ask({p: States((step,)) for p in silent})
        for party, body in bodies.items():
            game.states[party][step] = body.roots[0]
