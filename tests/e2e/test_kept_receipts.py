"""A kept answer outlives its server, and is defended over a network; a false one is convicted."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import Run, as_json

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")
pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("httpx2")

from adversary.three_judges import JUDGE, OtherJudge, built, of_package, plain
from reference.judge.evidence import judge as by_the_text
from service.processes import Served, command
from service.transports import until
from stated_models import save_stated

import tallystick
from tallystick.answers.files import AnswerFiles
from tallystick.answers.receipt import read_receipt, sign_receipt
from tallystick.api.answering import Answering
from tallystick.disk import files
from tallystick.disk.entry_log import EntryLog
from tallystick.disk.keys import load_private_key
from tallystick.errors import TallystickError
from tallystick.job import job_file
from tallystick.job.job_file import load_job
from tallystick.serving.kept.answers import KeptAnswers
from tallystick.serving.kept.reader import KeptReader
from tallystick.serving.kept.space import LEAST_BUDGET

FAST = ("--sealing", "60s", "--opening", "60s", "--budget", "60s", "--extension", "20s")


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with its statement, and keys."""
    from tallystick.cli.main import run as main

    place = tmp_path_factory.mktemp("kept")
    save_stated(place / "model", "12:4", "24:8")
    for name in ("server", "client", "referee"):
        assert main(["keys", "new", str(place / f"{name}.pem")]) == 0
    return place


@pytest.fixture(scope="module")
def killed(stage: Path) -> list[tuple[str, str]]:
    """The ids and texts that a server had said before kill -9."""
    server = Served(
        stage / "model", "--listen", "127.0.0.1:0", "--key", stage / "server.pem",
        "--keep", stage / "kept", verb="serve-model", forked=True,
    )  # fmt: skip
    found = []
    asked = {"model": "model", "prompt": "abc", "max_tokens": 6, "temperature": 2.0}
    for seed in range(3):
        body = json.dumps({**asked, "seed": seed}).encode()
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(f"{server.url}/completions", body, headers)
        with urllib.request.urlopen(request) as answer:
            (choice,) = json.load(answer)["choices"]
        found.append((choice["tallystick"]["id"], choice["tallystick"]["answer"]["text"]))
    server.stop(signal.SIGKILL)
    return found


def serving(stage: Path, kept: Path, at: str = "127.0.0.1:0") -> Served:
    key, referee = stage / "server.pem", stage / "referee.pem.pub"
    listen = ("--listen", at, "--referee", referee)
    return Served("--answers", kept, *listen, "--key", key, "--threads", "1", forked=True)


def test_what_a_killed_server_has_promised_is_there(
    stage: Path, killed: list[tuple[str, str]], ts: Run
) -> None:
    with KeptReader(stage / "kept") as reader:
        for id_, text in killed:
            kept = reader.find(id_, "local")
            assert kept is not None and kept.spoken.text == text
            _, job, program = kept.bound()
            place = stage / f"answer-{id_}"
            AnswerFiles.of(kept.receipt, replace(job, spoken=kept.spoken), program).write(place)
            report = tallystick.check(place, stage / "model")
            assert report.accepted and report.executed
    said = as_json(ts("kept", stage / "kept", "--check", "--json"))
    assert said["answers"] == 3 and said["damaged"] == []
    assert said["models"][0]["answers"] == 3


@pytest.fixture(scope="module")
def other_judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OtherJudge | None]:
    if shutil.which("npx") is None or not (JUDGE / "node_modules").is_dir():
        yield None
        return
    other = OtherJudge(built(tmp_path_factory.mktemp("judge")))
    yield other
    other.close()


def judged_alike(
    job_place: Path, evidence: bytes, liar: Path | None, tmp: Path, other: OtherJudge | None
) -> None:
    """The package, the judge from the text, and the one in TypeScript convict the same party: the
    one that signs with `liar`, or with None the one beside the server."""
    job = load_job(job_place)
    texts = {name: (job_place / name).read_bytes() for name in ("job.json", "program.txt")}
    said = tallystick.judge(evidence, job)
    server = load_private_key(liar or tmp / "server.pem").public.key_id
    seat = said.signers.index(server)
    party = 1 - seat if liar is None else seat
    assert [c.party for c in said.verdict.convicted] == [party]
    found = by_the_text(texts["job.json"], [texts["program.txt"]], evidence)
    assert [who for who, _ in found["convicted"]] == ["AB"[party]]
    if other is None:
        return
    elsewhere = other.judge(other.knows(texts), evidence, [])
    assert plain(elsewhere["found"]) == of_package(job.terms, evidence, [])


def disputed(
    stage: Path, kept: Path, answer: Path, other: Sequence[object], tmp: Path, kill: bool
) -> tuple[dict[str, Any], bytes, list[str]]:
    """A session between the kept answers' server and a party that serves a run. With `kill` the
    server is killed in the middle, and started again."""
    job, out = tmp / "mine" / "job", tmp / "session"
    digest = read_receipt((answer / "receipt.json").read_bytes()).receipt.job.hex()
    believed = ("--referee", stage / "referee.pem.pub")
    ours = serving(stage, kept)
    theirs = Served(*other, "--listen", "127.0.0.1:0", *believed, forked=True)
    try:
        urls = [f"{ours.url}/answers/{digest}", theirs.url]
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{ours.url}/answers/{bytes(32).hex()}/v1/party")
        words = ("referee", job, "--party", urls[0], "--party", urls[1], "--out", out)
        session = subprocess.Popen(
            command(*words, "--key", stage / "referee.pem", *FAST, "--json"),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        if kill:  # both have sealed: the promise is not the process's
            until(lambda: entries(out) >= 3, 60)
            port = ours.port
            ours.stop(signal.SIGKILL)
            ours = serving(stage, kept, f"127.0.0.1:{port}")
        said, errors = session.communicate(timeout=120)
        assert session.returncode == 1, (said, errors)
        found: dict[str, Any] = json.loads(said)
        (game,) = found["games"]
        return found, (out / game["evidence"]).read_bytes(), urls
    finally:
        ended = [ours.stop(), theirs.stop()]
        assert [code for code, _ in ended] == [0, 0], ended


def entries(out: Path) -> int:
    try:
        return len(EntryLog(out))
    except TallystickError:
        return 0


def test_a_lying_party_is_convicted_by_a_kept_answer(
    stage: Path, killed: list[tuple[str, str]], tmp_path: Path, ts: Run,
    monkeypatch: pytest.MonkeyPatch, other_judge: OtherJudge | None,
) -> None:  # fmt: skip
    answer = kept_files(stage, killed[0][0], tmp_path / "answer")
    mine = ("answer-run", answer, "--model", stage / "model", "-o", tmp_path / "mine")
    copied = list[str]()

    def copying(source: Path, target: Path, inside: Path | None = None) -> None:
        copied.append(source.name)
        copy(source, target, inside)

    copy = files.clone_or_copy
    for module in (files, job_file):
        monkeypatch.setattr(module, "clone_or_copy", copying)
    assert ts(*mine, "--key", stage / "client.pem")[0] == 0
    assert "job.json" in copied and "state0.safetensors" not in copied  # it has a second name
    job = tmp_path / "mine" / "job"
    assert ts("attack", "other-weight", job, "--out", tmp_path / "lie", "--quiet")[0] == 0
    liar = (tmp_path / "lie", "--as-attack")
    found, evidence, urls = disputed(stage, stage / "kept", answer, liar, tmp_path, kill=True)
    states = {party["url"]: party["state"] for party in found["parties"]}
    assert states == {urls[0]: "left", urls[1]: "lost"}
    assert found["outcome"] == "accepted"
    shutil.copy(stage / "server.pem", tmp_path)
    judged_alike(job, evidence, None, tmp_path, other_judge)


def kept_files(stage: Path, id_: str, out: Path) -> Path:
    with KeptReader(stage / "kept") as reader:
        kept = reader.find(id_, "local")
    assert kept is not None
    _, job, program = kept.bound()
    AnswerFiles.of(kept.receipt, job, program).write(out)
    return out


def test_a_false_kept_answer_is_convicted_by_its_client(
    stage: Path, tmp_path: Path, ts: Run, other_judge: OtherJudge | None
) -> None:
    """The server's key has signed a log-probability that the model does not give."""
    key = load_private_key(stage / "server.pem")
    answering = Answering(stage / "model")
    (true,) = tallystick.generate(answering, prompt="abc", max_tokens=4, seed=1, key=key)
    lie = np.array(true.job.spoken.logprobs)
    lie[0] *= np.float32(0.5)
    job = replace(true.job, spoken=replace(true.job.spoken, logprobs=lie))
    final, root = job.roots()
    receipt = replace(read_receipt(true.receipt).receipt, state=final, root=root)
    false = replace(true, job=job, receipt=sign_receipt(key, receipt))
    with KeptAnswers(tmp_path / "kept", LEAST_BUDGET) as keeper:
        keeper.uses(answering.statement, stage / "model")
        keeper.keep(false, "anna")
    answer = tmp_path / "answer"
    false.save(answer)
    code, out, _ = ts("check", answer, "--model", stage / "model")
    assert code == 1 and "MISMATCH" in out
    mine = ("answer-run", answer, "--model", stage / "model", "-o", tmp_path / "mine")
    assert ts(*mine, "--key", stage / "client.pem")[0] == 0
    client = (tmp_path / "mine", "--key", stage / "client.pem")
    found, evidence, urls = disputed(stage, tmp_path / "kept", answer, client, tmp_path, kill=False)
    states = {party["url"]: party["state"] for party in found["parties"]}
    assert states == {urls[0]: "lost", urls[1]: "left"}
    place = tmp_path / "mine" / "job"
    judged_alike(place, evidence, stage / "server.pem", tmp_path, other_judge)
