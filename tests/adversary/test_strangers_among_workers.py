# ruff: noqa: E402
"""A stranger that comes first to the table of keys at which workers meet (THREATS 4.11.1).

Nobody authenticates workers: who takes a worker's place can end the run, or make it false, which an
audit finds. It cannot convict another one, lose what is journaled, or change the true root.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("xxhash", reason="the package xxhash is not installed")

from service.processes import command

from tallystick.errors import UnsupportedVersionError
from tallystick.job.job import Job
from tallystick.job.recipes import new_job
from tallystick.run.distributed.hello import introduction, welcome
from tallystick.run.distributed.transport import WorkerError
from tallystick.run.execute.trainer import Options, train_job

TIMEOUT = 5


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    pairs = {"records": "24", "batch_size": "4", "hidden": "8", "micro_batches": "2"}
    path = tmp_path_factory.mktemp("strangers") / "job"
    return new_job("mlp", path, pairs, steps=4, checkpoint_interval=2, evaluate_every=0)


@pytest.fixture(scope="module")
def root(job: Job) -> bytes:
    return train_job(job, job.directory.parent / "true", Options()).run_root


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as made:
        port: int = made.getsockname()[1]
        return port


def _store(port: int) -> Any:
    """The stranger's way to the table: an ordinary client, as soon as worker 0 has made it."""
    return torch.distributed.TCPStore(
        "127.0.0.1", port, 2, False, timedelta(seconds=60), wait_for_workers=True
    )


def _right(job: Job) -> bytes:
    return json.dumps(introduction(job)).encode()


def _nobody(store: Any, job: Job) -> None:
    """It was a traceback, and called a bug of ours."""


def _other_job(store: Any, job: Job) -> None:
    words = introduction(job) | {"job digest": "\x1b[2J\u202e" * 50}
    store.set("tallystick/hello/1", json.dumps(words).encode())


def _silent(store: Any, job: Job) -> None:
    store.set("tallystick/hello/1", _right(job))


def _false_last_words(store: Any, job: Job) -> None:
    words = "\x1b]0;owned\x07\u202e" + "x" * 100_000
    for key in ("cpu//0/1", "0/1", "default_pg/0//cpu//1"):  # where gloo looks for its address
        store.set(key, b"\xff" * 100)
    store.set("tallystick/lost/1", b"7")
    store.set("tallystick/fault/1", json.dumps([words, "\x1b[2J"]).encode())
    store.set("tallystick/hello/1", _right(job))


class Table:
    """The table of keys, in memory."""

    rank, size, timeout = 0, 2, 0.2

    def __init__(self, hello: bytes | None) -> None:
        self.values = {} if hello is None else {"hello/1": hello}
        self.connected = False

    def put(self, key: str, value: bytes) -> None:
        self.values[key] = value

    def has(self, key: str) -> bool:
        return key in self.values

    def get(self, key: str) -> bytes:
        return self.values[key]

    def connect(self) -> None:
        self.connected = True


@pytest.mark.parametrize(
    "hello",
    [b"", b"\xff{" * 1000, b"[" * 1_000_000, b"7", b"null", b"{}", b'{"contract": null}',
     b'{"contract": "' + b"x" * (1 << 20) + b'"}', "right, in a list", "right, with checks",
     "right, and much more"],
    ids=lambda value: repr(value[:24]),
)  # fmt: skip
def test_words_of_a_stranger(hello: Any, job: Job) -> None:
    """None of them gets a connection, and the others are told why."""
    right = introduction(job)
    if hello == "right, in a list":
        hello = json.dumps([right]).encode()
    elif hello == "right, with checks":
        hello = json.dumps(introduction(job, checks=True)).encode()
    elif hello == "right, and much more":
        hello = json.dumps({"more": "x" * (1 << 17), **right}).encode()
    table = Table(hello)
    with pytest.raises(UnsupportedVersionError, match="does not execute the same"):
        welcome(table, job, lambda: None)  # type: ignore[arg-type]
    assert not table.connected and b"does not execute the same" in table.values["go"]
    assert len(table.values["go"]) < 500


def test_a_worker_that_never_comes(job: Job) -> None:
    with pytest.raises(WorkerError, match=r"did not come within 0\.2 seconds"):
        welcome(Table(None), job, lambda: None)  # type: ignore[arg-type]


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("stranger", "words"),
    [
        (_nobody, "did not meet within 5 seconds"),
        (_other_job, "its job digest is"),
        (_silent, ""),
        (_false_last_words, ""),
    ],
)
def test_a_stranger_that_comes_first(
    stranger: Callable[[Any, Job], None], words: str, job: Job, root: bytes, tmp_path: Path
) -> None:
    """The run ends with exit code 2 within the timeout, says so in plain characters, and goes on
    without the stranger, to the root that it always had."""
    port, out = _free_port(), tmp_path / "run"
    environment = {
        **os.environ, "RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo",
    }  # fmt: skip
    trainer = subprocess.Popen(
        command("train", job.directory, "--out", out, "--timeout", TIMEOUT, "--quiet"),
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        store = None if stranger is _nobody else _store(port)
        stranger(store, job)
        printed, said = trainer.communicate(timeout=120)
    finally:
        trainer.kill()
        trainer.wait()
    text = (printed + said).decode()
    assert trainer.returncode == 2, text
    assert words in text and "Traceback" not in text
    assert "\x1b" not in text and "\x07" not in text and "\u202e" not in text
    assert len(text) < 12_000
    assert "CONVICTED" not in text
    assert train_job(job, out, Options()).run_root == root
