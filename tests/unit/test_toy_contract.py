"""A contract of a folder outside of the package is played through a dispute, on the processor and
on the emulated GPU (numerics/contracts.py says what a contract is)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")

from emulated_gpu import emulated_gpu
from toy_contract.contract import CHUNK, Toy

import tallystick
from tallystick.devices.context import DEFAULT, ExecutionContext
from tallystick.job.job import Job
from tallystick.job.recipes import new_job
from tallystick.numerics.contracts import (
    contract_family,
    families,
    find_contract,
    parse_contract,
    withdraw_family,
)
from tallystick.prover.cheating import party_of
from tallystick.prover.local import play
from tallystick.prover.prover import Prover
from tallystick.run.cheats.training import declared_cheat
from tallystick.run.execute.trainer import Options, train_job
from tallystick.run.store.unsigned import Declaration

STEPS = 100


@pytest.fixture(autouse=True, scope="module")
def declared() -> Iterator[None]:
    """Other tests list the contracts of this build: ours is one of them only here."""
    contract_family(Toy)
    yield
    withdrawn()


def withdrawn() -> None:
    withdraw_family(Toy.name)


withdrawn()  # the import above has declared it


@pytest.fixture(scope="module")
def job(declared: None, tmp_path_factory: pytest.TempPathFactory) -> Job:
    where = tmp_path_factory.mktemp("toy") / "job"
    pairs = {"hidden": "70", "batch_size": "50"}
    return new_job("mlp", where, pairs, contract="toy/1", steps=STEPS, checkpoint_interval=20)


def chained(a: np.ndarray, b: np.ndarray, chunk: int) -> np.ndarray:
    """The product of two matrices by the definition: chunks of fma chains, added left to right."""
    out = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for begin in range(0, a.shape[1], chunk):
        part = np.zeros_like(out)
        for k in range(begin, min(begin + chunk, a.shape[1])):
            terms = a[:, k, None].astype(np.float64) * b[None, k].astype(np.float64)
            part = (terms + part).astype(np.float32)
        out = part if begin == 0 else out + part
    return out


def test_its_name_is_known_as_any_other() -> None:
    assert find_contract("toy/1") == Toy() == parse_contract("toy/1-draft.1")
    assert families()["toy/1"] is Toy


@pytest.mark.parametrize("length", (5, 32, 33, 200))
def test_its_products_are_those_of_the_definition(length: int) -> None:
    # Few bits, so that binary64 holds each term and sum: one rounding to binary32, as an fma has.
    rng = np.random.default_rng(length)
    a, b = (rng.integers(-999, 999, s).astype(np.float32) for s in ((4, length), (length, 3)))
    found = tallystick.evaluate("aten.mm", a, b, contract="toy/1")
    assert isinstance(found, np.ndarray)
    assert found.tobytes() == chained(a, b, CHUNK).tobytes()


def test_a_dispute_on_processor_and_gpu(job: Job, tmp_path: Path) -> None:
    gpu = emulated_gpu(seed=35)
    there = ExecutionContext(device=gpu)
    here = train_job(job, tmp_path / "here")
    run = train_job(job, tmp_path / "there", Options(there))
    assert here.run_root == run.run_root
    ordinary = new_job("mlp", tmp_path / "ordered", {"hidden": "70", "batch_size": "50"}, steps=9)
    assert train_job(ordinary, tmp_path / "other").losses != here.losses[:9]
    lie = declared_cheat(job, Declaration("lie-output", {"step": 37}))
    train_job(job, tmp_path / "cheat", Options(maker=lie))
    for name, context in (("here", DEFAULT), ("there", there)):
        honest = Prover(tmp_path / name, context=context)
        game = play(job.terms, (honest, party_of(tmp_path / "cheat", as_attack=True)))
        (conviction,) = game.verdict.convicted
        assert conviction.party == 1 and game.verdict.accepted == 0
        assert game.verdict.place.step == 37 and game.verdict.place.operator == "aten.mm"
        assert game.verdict.place.quantity is not None and 0 < game.verdict.terms <= CHUNK
        judged = tallystick.judge(game.evidence.to_bytes(), job)
        assert [c.party for c in judged.verdict.convicted] == [1]
    gpu.driver.check()
