"""Phase 0: the commitments fit the job, and their first and last checkpoints (PROTOCOL 3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tallystick.commit import merkle
from tallystick.commit.checkpoint import checkpoint_count, checkpoint_leaf, run_root_of
from tallystick.protocol.bodies import RootsBody
from tallystick.protocol.game import BOTH, Asking, Game, Next, Rounds, ask, convict, shorts
from tallystick.protocol.queries import Checkpoints
from tallystick.protocol.results import Between, Ends
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
