"""Runs on an S3-compatible server: moto's, started here (docs/proofs/object-stores.md).

moto is no part of the test environment: `pip install 'moto[server]==5.2.5'`, then --exhaustive.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("obstore", reason="obstore is not installed: pip install 'tallystick[objects]'")
pytest.importorskip("moto", reason="moto is not installed: pip install 'moto[server]'")

from e2e.moto_server import BUCKET, Server, serving

from tallystick.cli.main import run as command
from tallystick.disk.objects.opening import opened
from tallystick.errors import StoreConflictError
from tallystick.job.job import Job
from tallystick.job.recipes import new_job
from tallystick.run.execute import published as publishing
from tallystick.run.execute.listener import Silent
from tallystick.run.execute.trainer import Options, train_job
from tallystick.run.store.directory import RunStore

pytestmark = pytest.mark.long

PAIRS = {
    "features": "64",
    "classes": "10",
    "records": "512",
    "hidden": "1200",
    "layers": "2",
    "optimizer": "adamw",
    "batch_size": "8",
}


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("TALLYSTICK_CACHE", str(tmp_path / "cache"))
    with serving() as found:
        for name, value in found.environment().items():
            monkeypatch.setenv(name, value)
        yield found


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """States of 18 MB, so that they are put and read in parts; 200 steps, committed every 10."""
    directory = tmp_path_factory.mktemp("job") / "mlp"
    return new_job("mlp", directory, PAIRS, steps=200, checkpoint_interval=10)


def _train(job: Job, url: str, work: Path) -> list[str]:
    words = ["train", str(job.directory), "--out", url, "--work", str(work), "--quiet"]
    return [sys.executable, "-m", "tallystick", *words, "--keep-checkpoints", "4", "--json"]


def _upload(server: Server, directory: Path, prefix: str) -> None:
    client = server.client()
    for path in directory.rglob("*"):
        if path.is_file() and path.name not in ("signer.pem", "lock"):
            name = path.relative_to(directory).as_posix()
            client.upload_file(str(path), BUCKET, f"{prefix}/{name}")


def _said(capsys: pytest.CaptureFixture[str]) -> str:
    found = capsys.readouterr()
    return found.out + found.err


def test_killed_taken_up_elsewhere_audited_and_disputed(
    server: Server, job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"s3://{BUCKET}/team/a"
    kills, last = 0, -1
    for number in range(3):  # killed twice, each time on another machine
        process = subprocess.Popen(
            _train(job, url, tmp_path / f"work-{number}"), stdout=subprocess.PIPE
        )
        if number < 2:
            while process.poll() is None:
                there = [n for n in server.objects("team/a") if n.startswith("checkpoints/")]
                newest = max((int(n[-20:-12]) for n in there), default=-1)
                if newest > last:
                    last, kills = newest, kills + 1
                    process.send_signal(signal.SIGKILL)
                    break
                time.sleep(0.05)
            process.wait()
            if process.returncode == 0:
                break
            assert command(["fsck", url]) in (0, 1)
    out, _ = process.communicate()
    assert process.returncode == 0 and kills == 2
    made = json.loads(out)
    assert command(["inspect", url, "--json"]) == 0
    capsys.readouterr()
    assert command(["train", str(job.directory), "--out", str(tmp_path / "own"), "--quiet"]) == 0
    assert made["run_root"] in _said(capsys)  # that of a run that never stopped
    assert command(["fsck", url]) == 0
    assert command(["audit", url, "--quiet"]) == 0
    assert command(["audit", url, "--steps", "150:200", "--quiet"]) == 0
    key = str(tmp_path / "work-2" / "signer.pem")
    words = ["dispute", url, str(tmp_path / "own"), "--job", str(job.directory)]
    assert command([*words, "--key-a", key, "--out", str(tmp_path / "same")]) == 0
    bad = tmp_path / "bad"
    assert command(["attack", "wrong-learning-rate", str(job.directory), "--out", str(bad)]) == 0
    _upload(server, bad, "team/bad")
    assert command(["audit", f"s3://{BUCKET}/team/bad", "--quiet"]) == 1
    words = ["dispute", url, f"s3://{BUCKET}/team/bad", "--job", str(job.directory)]
    keys = ["--key-a", key, "--key-b", str(bad / "signer.pem"), "--as-attack", "B"]
    evidence = str(tmp_path / "evidence")
    capsys.readouterr()
    assert command([*words, *keys, "--out", evidence, "--json"]) == 1
    assert [c["party"] for c in json.loads(capsys.readouterr().out)["convicted"]] == ["B"]
    job_url = f"{url}/job"
    assert command(["judge", evidence, "--job", job_url]) == 1
    print("\nkilled at states", last, "requests", dict(server.requests))
    objects = server.objects("team/a")
    print("objects", len(objects), "bytes", sum(objects.values()))


def test_two_jobs_at_one_empty_url(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both trainers have found nothing there before one of them puts anything."""
    small = {"features": "4", "classes": "3", "records": "40", "hidden": "6", "layers": "1"}
    jobs = [
        new_job("mlp", tmp_path / f"job-{lr}", {**small, "lr": lr}, steps=6, checkpoint_interval=3)
        for lr in ("0.003", "0.004")
    ]
    url, both, join = f"s3://{BUCKET}/c", threading.Barrier(2), publishing.join
    ends: dict[int, str] = {}

    def joined(*words: Any) -> Any:
        found = join(*words)
        both.wait(60)
        return found

    def train(number: int) -> None:
        job, work = jobs[number], tmp_path / f"work-{number}"
        try:
            with publishing.published(url, job, Silent(), work) as (directory, listener, _):
                train_job(job, directory, Options(), listener)
            ends[number] = ""
        except StoreConflictError as error:
            ends[number] = error.message

    monkeypatch.setattr(publishing, "join", joined)
    threads = [threading.Thread(target=train, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ends.values()) == ["", f"{url} contains the files of another job."], ends
    assert command(["fsck", url]) == 0
    assert command(["audit", url, "--quiet"]) == 0
    with opened(url) as directory:
        (first,) = [number for number, end in ends.items() if not end]
        assert RunStore(directory).job().digest == jobs[first].digest


def test_faults_of_the_server_are_repeated(server: Server, job: Job, tmp_path: Path) -> None:
    """Every seventh request is throttled or fails, every eleventh answer ends too early."""

    def fault(number: int, environ: dict[str, object]) -> str:
        if number % 7 == 3:
            return "503" if number % 2 else "500"
        return "cut" if number % 11 == 5 and environ["REQUEST_METHOD"] == "GET" else ""

    server.fault = fault
    url = f"s3://{BUCKET}/b"
    done = subprocess.run(_train(job, url, tmp_path / "work"), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert command(["fsck", url]) == 0
    assert command(["audit", url, "--steps", "190:200", "--quiet"]) == 0
    assert server.faults["503"] and server.faults["500"] and server.faults["cut"]
    print("\nfaults", dict(server.faults), "requests", dict(server.requests))


def test_no_credentials_is_no_finding(
    server: Server, job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.fault = lambda number, environ: "403"
    for words in (["fsck"], ["audit", "--quiet"], ["inspect"]):
        assert command([words[0], f"s3://{BUCKET}/b", *words[1:]]) == 2
        assert f"s3://{BUCKET}/b" in _said(capsys)


def test_planted_faults_are_named(
    server: Server, job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    words = ["train", str(job.directory), "--out", str(run), "--quiet", "--keep-checkpoints", "3"]
    assert command(words) == 0
    client = server.client()
    states = sorted(os.listdir(run / "checkpoints"))
    a, b = (f"checkpoints/{name}" for name in states[-2:])
    whole = {name: (run / name).read_bytes() for name in (a, b, "journal", "job/program.txt")}
    altered = {name: data[:-9] + bytes([data[-9] ^ 1]) + data[-8:] for name, data in whole.items()}
    cases: list[tuple[str, dict[str, bytes | None]]] = [
        ("altered state", {b: altered[b]}),
        ("truncated state", {b: whole[b][: 9 << 20]}),
        ("missing state", {b: None}),
        ("swapped states", {a: whole[b], b: whole[a]}),
        ("altered journal", {"journal": altered["journal"]}),
        ("truncated journal", {"journal": whole["journal"][:-40]}),
        ("altered program", {"job/program.txt": altered["job/program.txt"]}),
        ("missing program", {"job/program.txt": None}),
        ("extra object", {"checkpoints/notes": b"?"}),
    ]
    for number, (what, changes) in enumerate(cases):
        prefix = f"planted-{number}"
        _upload(server, run, prefix)
        for name, data in changes.items():
            if data is None:
                client.delete_object(Bucket=BUCKET, Key=f"{prefix}/{name}")
            else:
                client.put_object(Bucket=BUCKET, Key=f"{prefix}/{name}", Body=data)
        capsys.readouterr()
        code = command(["fsck", f"s3://{BUCKET}/{prefix}"])
        said = _said(capsys)
        assert code == 1, what
        for name in changes:
            assert f"s3://{BUCKET}/{prefix}/{name}" in said, (what, said)
        print(f"\n{what}: {said.splitlines()[0]}")
