"""`dispute` and `judge` from the command line: outcomes, exit codes, keys (DESIGN 9)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")

import claim_tools
from claim_schemas import fits
from commands import Run, as_json

from tallystick.cli.main import run
from tallystick.commit.encoding import sha256
from tallystick.commit.signed import PAYLOAD_TYPE, read_statement
from tallystick.commit.signing import Envelope, PrivateKey, verify_envelope, verify_run
from tallystick.disk.keys import save_private_key
from tallystick.job.job import Job
from tallystick.job.recipes import new_job
from tallystick.protocol.evidence import Evidence
from tallystick.run.cheats.training import declared_cheat
from tallystick.run.execute.trainer import Options, RunSummary, train_job
from tallystick.run.store.unsigned import Declaration

KEYS = {
    "agreement", "convicted", "accepted", "accepted_party", "phase", "case", "clause", "interval",
    "step", "node", "operator", "side", "operand", "element", "quantity", "claimed", "value",
    "choices", "undecided", "forfeit", "rests_on", "referee", "run_roots", "signers", "trusted",
    "rounds", "received_bytes", "terms", "evidence", "evidence_digest",
}  # fmt: skip
CONVICTION_KEYS = {"party", "run_root", "signer", "trusted", "case", "clause", "sentence"}


@pytest.fixture(scope="module")
def cheat(mlp_job: Job, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with one falsified number, declared."""
    path = tmp_path_factory.mktemp("cheat") / "run"
    train_job(
        mlp_job,
        path,
        Options(maker=declared_cheat(mlp_job, Declaration("lie-output", {"step": 7}))),
    )
    return path


@pytest.fixture(scope="module")
def mute(mlp_job: Job, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that falls silent in a dispute."""
    path = tmp_path_factory.mktemp("mute") / "run"
    train_job(mlp_job, path, Options(maker=declared_cheat(mlp_job, Declaration("silent"))))
    return path


@pytest.fixture(scope="module")
def terms(mlp_job: Job, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What referee and judge need of a job: no state, no records."""
    path = tmp_path_factory.mktemp("terms")
    for name in ("job.json", "program.txt"):
        shutil.copy(mlp_job.directory / name, path)
    return path


@pytest.fixture(scope="module")
def evidence(
    mlp_run: RunSummary, cheat: Path, terms: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Honest run is A, cheat is B."""
    path = tmp_path_factory.mktemp("evidence") / "case"
    runs = [str(mlp_run.directory), str(cheat), *AS_B]
    assert run(["dispute", *runs, *_job(terms), "--out", str(path)])
    return path


# Play the cheat that the run in this seat declares.
AS_A, AS_B = ("--as-attack", "A"), ("--as-attack", "B")


def _job(path: Path) -> list[str]:
    return ["--job", str(path)]


def test_both_commands_say_the_same(
    ts: Run, mlp_run: RunSummary, cheat: Path, terms: Path, tmp_path: Path
) -> None:
    out, a, b = tmp_path / "case", mlp_run.directory, cheat
    words = (*_job(terms), "--arity", 2, "--json")
    found = as_json(ts("dispute", a, b, *AS_B, "--out", out, *words), 1)
    assert set(found) == KEYS | {"executed_steps", "logs"}
    assert found["evidence_digest"] == sha256(out.read_bytes()).hex()
    (guilty,) = found["convicted"]
    assert set(guilty) == CONVICTION_KEYS
    assert guilty["party"] == "B" and guilty["run_root"] == found["run_roots"][1]
    assert guilty["clause"] == found["clause"] == "6.5"
    assert found["accepted"] == mlp_run.run_root.hex() and found["accepted_party"] == "A"
    assert (found["phase"], found["case"], found["step"], found["choices"]["left"]) == (
        3,
        "3",
        7,
        0,
    )
    assert found["operator"] and found["element"] is not None and 0 < found["terms"] <= 256
    assert not found["agreement"] and not found["forfeit"] and found["referee"] is None
    judged = as_json(ts("judge", out, *_job(terms), "--json"), 1)
    assert judged == {name: found[name] for name in KEYS}
    # The seats swapped: the same run is convicted, as A.
    other = as_json(ts("dispute", b, a, *AS_A, "--out", tmp_path / "swap", *words), 1)
    assert [c["party"] for c in other["convicted"]] == ["A"]
    assert other["accepted"] == found["accepted"]


def test_what_a_person_reads(ts: Run, mlp_run: RunSummary, cheat: Path, terms: Path) -> None:
    out = cheat.parent / "words"
    words = (*AS_B, *_job(terms), "--out", out)
    code, text, errors = ts("dispute", mlp_run.directory, cheat, *words)
    assert code == 1 and errors == ""
    assert "phase 1" in text and "first differing node" in text
    code, judged, _ = ts("judge", out, *_job(terms))
    assert code == 1
    assert text.endswith(judged)  # a dispute tells its way there, then the same
    for part in ("run A", "run B", "step 7", "element", "A claims", "B claims", "it is", "case "):
        assert part in judged, part
    assert "CONVICTED   B" in judged and "PROTOCOL 6.5" in judged
    assert f"ACCEPTED    A: run root {mlp_run.run_root.hex()}" in judged
    assert "not shown wrong against this opponent" in judged


def test_equal_runs_agree(ts: Run, mlp_run: RunSummary, terms: Path, tmp_path: Path) -> None:
    out, a = tmp_path / "case", mlp_run.directory
    found = as_json(ts("dispute", a, a, *_job(terms), "--out", out, "--json"), 0)
    assert found["agreement"] and found["convicted"] == [] and found["clause"] is None
    assert found["executed_steps"] == 0
    code, text, _ = ts("judge", out, *_job(terms))
    assert code == 0 and "AGREEMENT" in text


def test_trust_says_who_is_unknown(
    ts: Run, mlp_run: RunSummary, evidence: Path, terms: Path, tmp_path: Path
) -> None:
    honest, stranger = tmp_path / "honest.pub", tmp_path / "stranger.pub"
    signer = verify_signer(mlp_run.directory)
    honest.write_bytes(signer)
    stranger.write_bytes(PrivateKey(bytes(32)).public.pem())
    found = as_json(ts("judge", evidence, *_job(terms), "--trust", honest, "--json"), 1)
    assert found["trusted"] == [True, False] and found["convicted"][0]["trusted"] is False
    code, text, _ = ts("judge", evidence, *_job(terms), "--trust", stranger)
    assert code == 1 and text.count("not among --trust") == 2
    code, text, _ = ts("judge", evidence, *_job(terms))
    assert text.count("unknown to you") == 2


def verify_signer(directory: Path) -> bytes:
    """The PEM of a run's signer."""
    envelope = Envelope.from_bytes((directory / "commitment.json").read_bytes())
    return verify_run(envelope)[0].signer.pem()


# --- silence (PROTOCOL 2.10) ----------------------------------------------------------------------
def test_silence_convicts_for_those_who_trust_the_referee(
    ts: Run, mlp_run: RunSummary, mute: Path, terms: Path, tmp_path: Path
) -> None:
    out, key, other = tmp_path / "case", tmp_path / "referee.pem", tmp_path / "other.pub"
    save_private_key(PrivateKey(bytes([3]) * 32), key)
    public = tmp_path / "referee.pub"
    public.write_bytes(PrivateKey(bytes([3]) * 32).public.pem())
    other.write_bytes(PrivateKey(bytes(32)).public.pem())
    a, b = mute, mlp_run.directory
    words = (*AS_A, *_job(terms), "--out", out, "--key", key, "--json")
    found = as_json(ts("dispute", a, b, *words), 1)
    assert found["forfeit"] and found["clause"] == "2.10"
    assert [c["party"] for c in found["convicted"]] == ["A"]
    assert found["rests_on"] == "referee"
    # --trust is about signers of runs: it makes nobody a referee.
    for trust in ((), ("--trust", other), ("--trust", public), ("--trust-referee", other)):
        code, text, errors = ts("judge", out, *_job(terms), *trust)
        assert code == 2 and "--trust-referee" in errors and "CONVICTED" not in text
    believe = ("--trust-referee", public)
    judged = as_json(ts("judge", out, *_job(terms), *believe, "--json"), 1)
    assert judged["rests_on"] == "referee" and judged["trusted"] == [None, None]
    assert judged["convicted"][0]["party"] == "A"
    assert judged["referee"] == PrivateKey(bytes([3]) * 32).public.key_id
    code, text, _ = ts("judge", out, *_job(terms), *believe)
    assert code == 1 and "by silence" in text and "word of the referee" in text
    # A forfeit whose signature is another's convicts nobody, and its exit code says so.
    e = Evidence.from_bytes(out.read_bytes())
    forged = json.loads(e.forfeits[0])
    forged["signatures"][0]["sig"] = "A" * 86 + "=="
    data = json.dumps(forged, separators=(",", ":"), sort_keys=True).encode()
    out.write_bytes(replace(e, forfeits=(data,)).to_bytes())
    code, _, errors = ts("judge", out, *_job(terms), *believe)
    assert code == 2 and "refused" in errors


# --- what cannot be checked, and wrong usage ------------------------------------------------------
def test_evidence_that_is_refused_convicts_nobody(
    ts: Run, evidence: Path, terms: Path, logreg_job: Job, tmp_path: Path
) -> None:
    bad = tmp_path / "bad"
    data = bytearray(evidence.read_bytes())
    data[len(data) // 2] ^= 1
    bad.write_bytes(data)
    e = Evidence.from_bytes(evidence.read_bytes())
    short = tmp_path / "short"
    short.write_bytes(replace(e, messages=e.messages[:-1]).to_bytes())
    signer = tmp_path / "signer"
    forged = e.commitments[0].replace(b'"sig":"', b'"sig":"AA', 1)
    signer.write_bytes(replace(e, commitments=(forged, e.commitments[1])).to_bytes())
    for path in (bad, short, signer, tmp_path / "none"):
        code, text, errors = ts("judge", path, *_job(terms))
        assert code == 2 and "CONVICTED" not in text and errors, path
    code, _, errors = ts("judge", evidence, "--job", logreg_job.directory)
    assert code == 2 and "another job" in errors
    report = as_json(ts("judge", bad, *_job(terms), "--json"), 2)
    assert report["exit_code"] == 2 and report["next_action"]


def test_a_damaged_job_or_run_is_nobodys_guilt(
    ts: Run,
    evidence: Path,
    terms: Path,
    mlp_run: RunSummary,
    cheat: Path,
    copied: Callable[[Path], Path],
    tmp_path: Path,
) -> None:
    """Exit code 1 is a conviction, so what is merely damaged ends with 2."""
    other = copied(terms)
    program = other / "program.txt"
    program.write_bytes(program.read_bytes().replace(b"aten", b"Aten", 1))
    code, text, errors = ts("judge", evidence, *_job(other))
    assert code == 2 and text == "" and errors
    damaged = copied(mlp_run.directory)
    path = damaged / "commitment.json"
    path.write_bytes(path.read_bytes().replace(b'"sig":"', b'"sig":"AA', 1))
    out = tmp_path / "case"
    for runs in ((damaged, cheat), (cheat, damaged)):
        code, text, errors = ts("dispute", *runs, *_job(terms), "--out", out)
        assert code == 2 and "CONVICTED" not in text and errors
        assert not out.exists()


def test_wrong_usage(
    ts: Run,
    evidence: Path,
    terms: Path,
    mlp_run: RunSummary,
    cheat: Path,
    logreg_run: RunSummary,
    tmp_path: Path,
) -> None:
    a, out = mlp_run.directory, tmp_path / "case"
    assert ts("dispute", a, cheat, "--out", out)[0] == 3
    assert ts("dispute", a, *_job(terms), "--out", out)[0] == 3
    for arity in (1, 257):
        assert ts("dispute", a, cheat, *_job(terms), "--out", out, "--arity", arity)[0] == 3
    code, _, errors = ts("dispute", a, logreg_run.directory, *_job(terms), "--out", out)
    assert code == 3 and "another job" in errors
    assert ts("dispute", a, cheat, *_job(terms), "--out", tmp_path)[0] == 3
    code, _, errors = ts("dispute", a, cheat, *_job(terms), "--out", tmp_path / "no" / "case")
    assert code == 3 and "directory" in errors
    assert ts("judge", evidence)[0] == 3
    assert ts("judge", evidence, *_job(tmp_path))[0] == 3
    code, _, errors = ts("judge", evidence, *_job(terms), "--statement", tmp_path / "claim")
    assert code == 3 and "--key" in errors
    key = tmp_path / "other.pem"
    save_private_key(PrivateKey(bytes(32)), key)
    assert ts("dispute", a, cheat, *_job(terms), "--out", out, "--key-a", key)[0] == 3
    assert not out.exists()


def test_keys_that_the_runs_do_not_hold(
    ts: Run, mlp_run: RunSummary, cheat: Path, terms: Path, copied: Callable[[Path], Path]
) -> None:
    mine, theirs = copied(mlp_run.directory), copied(cheat.parent) / "run"
    out, keys = mine.parent / "case", []
    for number, directory in enumerate((mine, theirs)):
        keys.append((directory / "signer.pem").rename(mine.parent / f"{number}.pem"))
    assert ts("dispute", mine, theirs, *_job(terms), "--out", out)[0] in (2, 3)
    given = ("--key-a", keys[0], "--key-b", keys[1], "--threads", 1)
    words = (*AS_B, *_job(terms), "--out", out, *given, "--json")
    found = as_json(ts("dispute", mine, theirs, *words), 1)
    assert [c["party"] for c in found["convicted"]] == ["B"]


# --- the accepted claim (PROTOCOL 9) --------------------------------------------------------------
def test_the_accepted_claim(
    ts: Run, evidence: Path, terms: Path, mlp_run: RunSummary, tmp_path: Path
) -> None:
    key, claim = tmp_path / "key.pem", tmp_path / "claim.json"
    save_private_key(PrivateKey(bytes([4]) * 32), key)
    code, _, _ = ts("judge", evidence, *_job(terms), "--statement", claim, "--key", key)
    assert code == 1
    envelope = Envelope.from_bytes(claim.read_bytes())
    verify_envelope(envelope, PAYLOAD_TYPE, [PrivateKey(bytes([4]) * 32).public], None)
    value = json.loads(envelope.payload)
    fits(value, "run")
    commitment = (mlp_run.directory / "commitment.json").read_bytes()
    assert value["subject"][0]["digest"] == {"sha256": sha256(commitment).hex()}
    assert value["subject"][1]["digest"] == {"tallystickRunRoot": mlp_run.run_root.hex()}
    assert value["predicate"]["evidence"] == sha256(evidence.read_bytes()).hex()


def test_a_conviction_for_other_tools(
    ts: Run, evidence: Path, terms: Path, mlp_run: RunSummary, tmp_path: Path
) -> None:
    """CLAIMS 4."""
    key, claim = tmp_path / "key.pem", tmp_path / "claim.json"
    save_private_key(PrivateKey(bytes([4]) * 32), key)
    assert ts("judge", evidence, *_job(terms), "--claim", claim)[0] == 3
    assert ts("judge", evidence, *_job(terms), "--claim", claim, "--key", key)[0] == 1
    found = read_statement(claim.read_bytes(), [PrivateKey(bytes([4]) * 32).public])
    assert found.predicate_type == "https://tallystick.dev/claims/conviction/v1"
    assert found.names_of(sha256(evidence.read_bytes())) == ["evidence"]
    assert found.predicate["accepted"] == mlp_run.run_root.hex()
    if (claim_tools.PLACE / "in_toto_attestation").is_dir():
        kind, subjects = claim_tools.read_by_others(claim, found.signer)
        assert (kind, [name for name, _ in subjects]) == (
            found.predicate_type,
            ["evidence", "commitment-B", "run-B"],
        )
    same, none = tmp_path / "same", tmp_path / "none.json"
    run = mlp_run.directory
    assert ts("dispute", run, run, *_job(terms), "--out", same)[0] == 0
    code, _, errors = ts("judge", same, *_job(terms), "--claim", none, "--key", key)
    assert code == 0 and "nobody is convicted" in errors and not none.exists()


def test_no_claim_where_neither_is_accepted(
    ts: Run, cheat: Path, mlp_job: Job, terms: Path, tmp_path: Path
) -> None:
    """The verdict is told all the same."""
    other, out, claim = tmp_path / "other", tmp_path / "case", tmp_path / "claim.json"
    lie = Declaration("lie-output", {"step": 7, "bit": 21})
    train_job(mlp_job, other, Options(maker=declared_cheat(mlp_job, lie)))
    key = tmp_path / "key.pem"
    save_private_key(PrivateKey(bytes([4]) * 32), key)
    words = (*AS_A, *AS_B, *_job(terms), "--out", out, "--json")
    found = as_json(ts("dispute", cheat, other, *words), 1)
    assert [c["party"] for c in found["convicted"]] == ["A", "B"]
    assert found["accepted"] is None and found["accepted_party"] is None
    code, text, errors = ts("judge", out, *_job(terms), "--statement", claim, "--key", key)
    assert code == 1 and "ACCEPTED    neither" in text and "No statement was written" in errors
    assert not claim.exists()


def test_another_job_of_the_same_recipe(ts: Run, evidence: Path, tmp_path: Path) -> None:
    """One hyper-parameter apart is another job: its referee would ask other things."""
    pairs = {"features": "6", "classes": "3", "records": "64", "hidden": "8", "batch_size": "8"}
    new_job("mlp", tmp_path / "job", pairs, steps=12, checkpoint_interval=5)
    assert ts("judge", evidence, *_job(tmp_path / "job"))[0] == 2
