"""How much of a run a dispute executes again, measured in steps (PROTOCOL 4.6)."""

from __future__ import annotations

from pathlib import Path

import pytest
from unit.protocol.scenarios import SMALL, Drift

from tallystick.job.recipes import new_job
from tallystick.protocol.referee import Referee
from tallystick.prover.cheating import CheatingProver
from tallystick.prover.prover import Prover
from tallystick.run.cheats.training import Cheat
from tallystick.run.execute.trainer import Options, train_job
from tallystick.run.store.directory import RunStore


@pytest.mark.parametrize(
    ("steps", "interval", "kept", "arity", "share", "liars"),
    [(400, 20, 20, 20, 0.06, (0, 379, 387, 399)), (10_000, 100, 100, 20, 0.011, (9_999,))],
    ids=["twenty", "hundred"],
)
def test_the_share_executed_again(
    steps: int,
    interval: int,
    kept: int,
    arity: int,
    share: float,
    liars: tuple[int, ...],
    tmp_path: Path,
    is_exhaustive: bool,
) -> None:
    """Whole disputes, looks into the disputed step included, at the worst steps too."""
    if steps > 1000 and not is_exhaustive:
        pytest.skip("10,000 steps run with --exhaustive (docs/proofs/README.md)")
    job = new_job(
        "logreg",
        tmp_path / "job",
        SMALL,
        steps=steps,
        checkpoint_interval=interval,
        evaluate_every=0,
    )
    train_job(job, tmp_path / "honest", Options(keep=kept))
    stored = RunStore(tmp_path / "honest").stored_steps()
    assert stored == list(range(steps // kept, steps + 1, steps // kept))
    for step in liars:
        lie = Drift(step)
        out = tmp_path / f"liar{step}"
        train_job(job, out, Options(keep=kept, maker=Cheat(lie)))
        with Prover(tmp_path / "honest") as good, CheatingProver(out, override=lie) as bad:
            referee = Referee(job.terms, (good.commitment, bad.commitment), arity)
            while referee.verdict is None:
                for party, query in sorted(referee.pending.items()):
                    referee.receive(party, (good, bad)[party].answer(query))
            verdict = referee.verdict
            assert [c.party for c in verdict.convicted] == [1]
            assert verdict.place.step == step
            assert good.executed_steps < share * steps
            assert bad.executed_steps < share * steps


@pytest.mark.parametrize("arity", [2, 7, 64])
def test_any_arity_narrows_without_repeating(arity: int, tmp_path: Path) -> None:
    """Scratch states: a narrower question begins where the last one has left off."""
    job = new_job("logreg", tmp_path / "job", SMALL, steps=64, checkpoint_interval=64)
    train_job(job, tmp_path / "honest", Options())
    lie = Drift(63)
    train_job(job, tmp_path / "liar", Options(maker=Cheat(lie)))
    with (
        Prover(tmp_path / "honest") as good,
        CheatingProver(tmp_path / "liar", override=lie) as bad,
    ):
        referee = Referee(job.terms, (good.commitment, bad.commitment), arity)
        while referee.verdict is None:
            for party, query in sorted(referee.pending.items()):
                referee.receive(party, (good, bad)[party].answer(query))
        assert referee.verdict.place.step == 63
        assert good.executed_steps <= 64 + 2
