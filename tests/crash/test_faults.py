"""Faults of the machine: what fails while a prover answers or a judge judges is no lie (P2, P9).

A few calls to the C library fail here, one in a child each; all of them in docs/proofs/faults.md.
"""

from __future__ import annotations

import errno
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import fault_driver

from tallystick.commit import signing
from tallystick.commit.signing import PrivateKey, PublicKey
from tallystick.errors import CannotCheckError, MachineFaultError, TallystickError
from tallystick.job.job import Job
from tallystick.protocol import queries as q
from tallystick.prover.cheating import party_of
from tallystick.prover.local import ATTEMPTS, SilenceError, play
from tallystick.prover.prover import Prover
from tallystick.run.cheats.training import declared_cheat
from tallystick.run.execute.engine import Engine
from tallystick.run.execute.trainer import Options, RunSummary, train_job

A, F = fault_driver.ALLOCATION, fault_driver.FILES
# Subject, contract, kinds of calls, from there on, every how many-th call.
SAMPLES = [
    ("prover", "ordered/1", F, "--lasting", 11),
    ("prover", "rounded/1", A, "", 3001),
    ("prover", "replay/1", F, "", 17),
    ("game", "ordered/1", A, "", 1201),
    ("judge", "ordered/1", A, "--lasting", 197),
]


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = fault_driver.build_shim(tmp_path_factory.mktemp("shim"))
    if built is None:
        pytest.skip("the shim needs a C compiler and Linux")
    return built


@pytest.mark.parametrize(("subject", "contract", "kinds", "lasting", "stride"), SAMPLES)
def test_a_call_that_fails_is_no_lie(
    subject: str,
    contract: str,
    kinds: int,
    lasting: str,
    stride: int,
    shim: Path,
    is_exhaustive: bool,
) -> None:
    words = [
        subject,
        "--contract",
        contract,
        "--kinds",
        str(kinds),
        "--stride",
        str(stride if is_exhaustive else 3 * stride),
    ]
    found = fault_driver.run_preloaded(shim, [*words, *filter(None, [lasting])], malloc=False)
    assert found["false"] == [] and "FALSE" not in found["outcomes"], found
    assert found["points"] >= 3 and found["outcomes"].get("refused", 0) > 0, found


# --- what a prover and local play do about it -----------------------------------------------------
FAULTS: list[Exception] = [
    MemoryError(),
    OSError(errno.ENOSPC, "No space left on device"),
    OSError(errno.EMFILE, "Too many open files"),
    RuntimeError("can't start new thread"),
]


class Failing:
    """An engine whose steps fail so many times before they run."""

    def __init__(self, fault: BaseException, times: int, patch: pytest.MonkeyPatch) -> None:
        self.left, honest = times, Engine.execute_step

        def execute(engine: Engine, *arguments: Any, **named: Any) -> object:
            if self.left:
                self.left -= 1
                raise fault
            return honest(engine, *arguments, **named)

        patch.setattr(Engine, "execute_step", execute)


@pytest.fixture(scope="module")
def liar(mlp_job: Job, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tallystick.run.store.unsigned import Declaration

    out = tmp_path_factory.mktemp("faults") / "liar"
    train_job(
        mlp_job, out, Options(maker=declared_cheat(mlp_job, Declaration("lie-output", {"step": 7})))
    )
    return out


@pytest.mark.parametrize("fault", FAULTS, ids=repr)
def test_it_is_told_and_tried_again(
    fault: Exception,
    mlp_job: Job,
    mlp_run: RunSummary,
    liar: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """PROTOCOL 2.8: no answer yet, and then the answer; a lasting fault ends the game undecided."""
    told: list[tuple[int, str]] = []

    def game(times: int) -> list[int]:
        told.clear()
        with Prover(mlp_run.directory) as good, party_of(liar, as_attack=True) as bad:
            Failing(fault, times, monkeypatch)
            played = play(
                mlp_job.terms, [good, bad], on_fault=lambda party, why: told.append((party, why))
            )
        return [conviction.party for conviction in played.verdict.convicted]

    assert game(ATTEMPTS - 1) == [1]
    assert len(told) == ATTEMPTS - 1 and all("attempt" in why for _, why in told)
    with pytest.raises(CannotCheckError, match="could not be played to its end") as caught:
        game(10**6)
    assert caught.value.exit_code == 2 and len(told) == ATTEMPTS


def test_silence_is_not_a_fault(mlp_job: Job, mlp_run: RunSummary) -> None:
    class Mute(Prover):
        def answer(self, query: bytes) -> bytes:
            raise SilenceError("It says nothing.")

    other = PrivateKey.generate()
    with Prover(mlp_run.directory) as good, Mute(mlp_run.directory) as bad:
        verdict = play(mlp_job.terms, [good, bad], key=other).verdict
    assert verdict.forfeit or verdict.agreement


# --- signatures -----------------------------------------------------------------------------------
def _says(answers: list[bool]) -> Callable[[PublicKey, bytes, bytes], bool]:
    """A library that answers so, and truly after that."""
    honest = PublicKey.library_verifies

    def verified(self: PublicKey, signature: bytes, message: bytes) -> bool:
        return answers.pop(0) if answers else honest(self, signature, message)

    return verified


def test_a_library_that_cannot_verify_refuses_no_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenSSL says "invalid" for want of memory: 9 of 557 games convicted an honest party so."""
    key = PrivateKey(bytes(32))
    good = key.sign(b"message")
    assert signing.PublicKey(signing.KNOWN_KEY).library_verifies(signing.KNOWN_SIGNATURE, b"")
    with monkeypatch.context() as patch:
        patch.setattr(PublicKey, "library_verifies", _says([False]))
        assert key.public.verifies(good, b"message")
    with monkeypatch.context() as patch:
        patch.setattr(PublicKey, "library_verifies", lambda *_: False)
        with pytest.raises(MachineFaultError) as caught:
            key.public.verifies(good, b"message")
        assert isinstance(caught.value, TallystickError) and caught.value.exit_code == 2
    assert not key.public.verifies(good, b"another")


# --- other bits without an error ------------------------------------------------------------------
def _once_wrong(times: int, patch: pytest.MonkeyPatch) -> None:
    """A memory cell that flips: the state after so many executed steps has a wrong bit."""
    left, honest = [times], Engine.run

    def run(engine: Engine, *arguments: Any, **named: Any) -> Any:
        result = honest(engine, *arguments, **named)
        if left[0]:
            left[0] -= 1
            name = sorted(n for n, a in engine.state.slots.items() if a.dtype == np.float32)[0]
            engine.state.slots[name].reshape(-1).view(np.uint32)[0] ^= 1
        return result

    patch.setattr(Engine, "run", run)


@pytest.mark.parametrize("query", [q.States((8,)), q.Slot(10, "chain.loss"), q.Nodes(7)], ids=str)
def test_a_machine_that_computes_otherwise_signs_nothing_false(
    query: q.Query, mlp_run: RunSummary, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """P2: what is executed is held against what is committed, and once more against itself."""
    run = tmp_path / "run"
    shutil.copytree(mlp_run.directory, run)
    for path in (run / "checkpoints").iterdir():
        path.unlink()  # everything is executed
    asked = [q.encode_query(one) for one in (query, q.Nodes(9), q.Slot(10, "chain.loss"))]
    with Prover(run) as prover:
        truth = [prover.answer(one) for one in asked]
    with Prover(run) as prover, monkeypatch.context() as patch:
        _once_wrong(1, patch)
        said = []
        for one in asked:
            try:
                said.append(prover.answer(one))
            except MachineFaultError as error:
                said.append(b"")
                assert "Nothing was signed" in error.next_action
    # A state between two checkpoints is held against nothing until the nodes are asked for; what
    # the game convicts by, nodes and slots of committed states, is never false.
    for one, mine, true in zip(asked, said, truth, strict=True):
        if not isinstance(q.decode_query(one), q.States):
            assert mine in (b"", true), q.decode_query(one)


def test_a_false_commitment_is_the_same_twice(mlp_job: Job, tmp_path: Path) -> None:
    """PROTOCOL 5.3: a run that no execution gives is not excused by the second one."""
    from tallystick.run.store.unsigned import Declaration

    train_job(
        mlp_job,
        tmp_path / "cheat",
        Options(maker=declared_cheat(mlp_job, Declaration("data-poisoning"))),
    )
    train_job(mlp_job, tmp_path / "honest", Options())
    with Prover(tmp_path / "honest") as good, Prover(tmp_path / "cheat") as undeclared:
        verdict = play(mlp_job.terms, [good, undeclared]).verdict
    assert [(c.party, c.clause) for c in verdict.convicted] == [(1, "5.3")]
