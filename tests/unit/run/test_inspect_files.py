"""`inspect` of a file: what it is, what it claims, what that proves, and the next command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from unit.delegation.offers import CLAIM, CLIENT, OFFER, PARTIES, SESSION, P, outcome

from tallystick import api
from tallystick.cli.main import run as command
from tallystick.commit.encoding import canonical_json
from tallystick.delegation.documents import Acceptance, sign_document
from tallystick.delegation.outcome import Fate
from tallystick.delegation.statement import outcome_json
from tallystick.run.show.summary import RunSummary

Told = Callable[..., dict[str, Any]]


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Told:
    """The JSON of `inspect PATH`; its text says the same."""

    def ask(path: Path) -> dict[str, Any]:
        capsys.readouterr()
        assert command(["inspect", str(path)]) == 0
        text = capsys.readouterr().out
        assert command(["inspect", str(path), "--json"]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        assert f"what        {found['what']}" in text
        assert f"proves      {found['proves']}" in text
        assert f"next        {found['next_action']}" in text
        for name, value in found["claims"].items():
            assert f"claims      {name} {value}" in text
        return found

    return ask


def test_a_commitment_a_model_and_a_key(logreg_run: RunSummary, tmp_path: Path, told: Told) -> None:
    run = logreg_run.directory
    found = told(run / "commitment.json")
    assert (found["kind"], found["signed_by"]) == ("commitment", [logreg_run.signer])
    assert found["claims"]["run_root"] == logreg_run.run_root.hex()
    assert found["claims"]["steps"] == logreg_run.steps
    model = tmp_path / "model.safetensors"
    assert command(["export", str(run), "-o", str(model)]) == 0
    found = told(model)
    assert found["kind"] == "model"
    assert found["claims"]["run_root"] == logreg_run.run_root.hex()
    assert found["next_action"] == f"tallystick verify-model {model} RUN"
    found = told(run / "signer.pem")
    assert (found["kind"], found["claims"]["key_id"]) == ("key", logreg_run.signer)


def test_evidence_and_a_statement(logreg_run: RunSummary, tmp_path: Path, told: Told) -> None:
    run, job = logreg_run.directory, str(logreg_run.directory / "job")
    played = api.dispute(run, run, Path(job))
    path, claim = tmp_path / "evidence", tmp_path / "statement"
    path.write_bytes(played.evidence)
    found = told(path)
    assert found["kind"] == "evidence"
    assert found["claims"]["run_root_A"] == found["claims"]["run_root_B"]
    assert found["claims"]["job_digest"] == logreg_run.job_digest.hex()
    assert found["signed_by"] == [logreg_run.signer] * 2
    key = str(run / "signer.pem")
    words = ["judge", str(path), "--job", job, "--statement", str(claim), "--key", key]
    assert command(words) == 0
    found = told(claim)
    assert (found["kind"], found["claims"]["steps"]) == ("statement", logreg_run.steps)
    assert found["signed_by"] == [logreg_run.signer]


def test_damaged_and_foreign_files(
    logreg_run: RunSummary, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"no file of ours")
    assert command(["inspect", str(path)]) == 3
    path.write_bytes(b"")
    assert command(["inspect", str(path)]) == 3
    path.write_bytes((100).to_bytes(8, "little") + b"{" + bytes(200))
    assert command(["inspect", str(path)]) == 2
    data = (logreg_run.directory / "commitment.json").read_bytes()
    path.write_bytes(data[:-30])
    assert command(["inspect", str(path)]) == 2
    path.write_bytes(b"tallystick/evidence/1\0" + bytes(100))
    assert command(["inspect", str(path)]) == 2
    capsys.readouterr()


def test_an_offer_and_an_acceptance(tmp_path: Path, told: Told) -> None:
    path = tmp_path / "document"
    path.write_bytes(sign_document(CLIENT, OFFER))
    found = told(path)
    assert (found["kind"], found["signed_by"]) == ("offer", [CLIENT.public.key_id])
    assert found["claims"]["price"] == OFFER.price
    assert found["claims"]["job_digest"] == OFFER.job_digest.hex()
    path.write_bytes(sign_document(PARTIES[0], Acceptance(OFFER.digest, P[0])))
    found = told(path)
    assert (found["kind"], found["claims"]["offer"]) == ("acceptance", OFFER.digest.hex())


def test_the_outcome_of_a_session(tmp_path: Path, told: Told) -> None:
    made = outcome(OFFER.digest, {P[0]: (Fate.REMAINING, CLAIM), P[1]: (Fate.UNOPENED, None)})
    path = tmp_path / "outcome"
    path.write_bytes(canonical_json(outcome_json(made)))
    found = told(path)
    assert (found["kind"], found["signed_by"]) == ("outcome", [])
    assert found["claims"]["offer"] == OFFER.digest.hex()
    assert found["claims"]["session"] == SESSION.hex()
    assert (found["claims"]["accepted"], found["claims"]["parties"]) == (CLAIM.hex(), 2)
