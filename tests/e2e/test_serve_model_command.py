"""A model server as its operator starts it: keys, chats that are checked, a kill and a restart."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from commands import Run, as_json

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("tokenizers", reason="tokenizers is not installed")
pytest.importorskip("jinja2", reason="jinja2 is not installed")
pytest.importorskip("starlette", reason="starlette is not installed")
pytest.importorskip("uvicorn", reason="uvicorn is not installed")
pytest.importorskip("httpx2", reason="httpx2 is not installed")

import httpx2
import numpy as np
from service.processes import Served
from stated_models import save_stated
from unit.serving.servers import running

import tallystick
from tallystick.answers.model import weights
from tallystick.api.answering import Answering
from tallystick.commit.signing import PrivateKey
from tallystick.generation.engine import AnswerEngine
from tallystick.generation.network import ModelNetwork

CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with its statement, a signing key, and the API keys of two clients."""
    from tallystick.cli.main import run

    place = tmp_path_factory.mktemp("served")
    save_stated(place / "model", "24:8", "64:40")
    assert run(["keys", "new", str(place / "key.pem")]) == 0
    return place


def add(stage: Path, name: str, ts: Run) -> str:
    words = ("add", name, "--file", stage / "api.json")
    found: str = as_json(ts("serve-model", "keys", *words, "--json"))["key"]
    (stage / f"{name}.key").write_text(found + "\n")
    return found


@contextmanager
def server(stage: Path, *more: object, forked: bool = True) -> Iterator[Served]:
    found = Served(
        stage / "model", "--listen", "127.0.0.1:0", "--key", stage / "key.pem",
        "--api-keys", stage / "api.json", "--keep", stage / "kept", *more, verb="serve-model",
        forked=forked,
    )  # fmt: skip
    found.url = found.url.removesuffix("/v1")
    try:
        yield found
    finally:
        found.stop()


def client(url: str, key: str) -> httpx2.Client:
    headers = {"authorization": f"Bearer {key}"}
    return httpx2.Client(base_url=url, headers=headers, timeout=60, trust_env=False)


def chat(**more: Any) -> dict[str, Any]:
    return {"model": "model", "messages": [{"role": "user", "content": "abc"}], **more}


def test_from_a_key_to_a_checked_chat(stage: Path, ts: Run, tmp_path: Path) -> None:
    """In an interpreter of its own, as its operator starts it."""
    add(stage, "alice", ts)
    with server(stage, forked=False) as served:
        words = ("--key", stage / "alice.key", "--max-tokens", 20, "--temperature", 0)
        said = as_json(
            ts("chat", "--json", served.url, "--message", "abc", *words, "-o", tmp_path / "answer",
               "--model", stage / "model", "--trust", stage / "key.pem.pub")
        )  # fmt: skip
        assert said["accepted"] and said["wrong"] == said["unchecked"] == []
        kinds = [sentence.partition(":")[0] for sentence in said["checked"]]
        assert kinds == ["signature", "request", "text", "computation"]
        report = tallystick.check(tmp_path / "answer", stage / "model")
        assert report.accepted and report.receipt.model.hex() == said["model_digest"]
        # Without the model a chat says what was not checked.
        code, out, errors = ts("chat", f"{served.url}/v1", "--message", "abc", *words)
        assert code == 0 and out.strip() and "not checked  computation" in errors
        code, _, errors = ts("chat", served.url, "--message", "abc")
        assert code == 3 and "API key" in errors
        code, _, errors = ts("chat", served.url, "--message", "a", *words, "--digest", "0")
        assert code == 1 and said["model_digest"] in errors
        stranger = tmp_path / "other.pem"
        assert ts("keys", "new", stranger)[0] == 0
        code, _, errors = ts("chat", served.url, "--message", "abc", *words, "--trust",
                             f"{stranger}.pub")  # fmt: skip
        assert code == 1
        code, errors = served.stop()
        assert code == 0
        lines = [json.loads(line) for line in errors.splitlines() if line.startswith("{")]
        assert any(line["route"] == CHAT and line["key"] == "alice" for line in lines)
        assert "abc" not in errors.replace("model", "")


def test_a_server_that_lies_is_found_by_the_chat(stage: Path, ts: Run) -> None:
    """It serves the statement of the model, and another model's answers."""
    lying = Answering(stage / "model")
    held = {name: np.array(array) for name, array in weights(lying.model).items()}
    held["param.model.norm.weight"] *= 3
    lying._engine = AnswerEngine(ModelNetwork(lying.model, lying.statement.contract, held))
    with running(lying) as served:
        words = ("--message", "abc", "--max-tokens", 6)
        unseen = as_json(ts("chat", "--json", served.url, *words))
        assert unseen["accepted"]  # signature and text are in order
        code, out, _ = ts("chat", served.url, *words, "--model", stage / "model")
        assert code == 1 and "WRONG" in out


def test_a_kill_breaks_a_stream_and_loses_no_receipt(stage: Path, ts: Run) -> None:
    key, other = add(stage, "bob", ts), add(stage, "carol", ts)
    with server(stage) as served, client(served.url, key) as asks:
        first = asks.post(CHAT, json=chat(max_tokens=5)).json()["choices"][0]
        ended: list[bytes] = []
        finished = False
        with asks.stream("POST", CHAT, json=chat(max_tokens=40, n=16, stream=True)) as stream:
            try:
                for line in stream.iter_lines():
                    if not ended and '"content":"' in line:
                        os.kill(served.process.pid, signal.SIGKILL)
                        ended.append(b"")
                    finished |= line == "data: [DONE]"
            except httpx2.HTTPError:
                pass
        assert ended and not finished
        assert served.stop()[0] == -signal.SIGKILL
    with server(stage) as served, client(served.url, key) as asks:
        id_ = first["tallystick"]["id"]
        found = asks.get(f"/v1/receipts/{id_}").json()
        assert found["receipt"] == first["tallystick"]["receipt"]
        assert found["answer"] == first["tallystick"]["answer"]
        with client(served.url, other) as stranger:
            assert stranger.get(f"/v1/receipts/{id_}").status_code == 404
        assert asks.post(CHAT, json=chat(max_tokens=5)).status_code == 200


def test_wrong_usage(stage: Path, ts: Run) -> None:
    model = stage / "model"
    for words, why in (
        ((model, "--listen", "0.0.0.0:0"), "only served on a loopback address"),
        ((model, model, "--listen", "127.0.0.1:0"), "the same name"),
        ((model, "--listen", "127.0.0.1:0", "--tls-cert", "x"), "its private key"),
        ((model, "--listen", "127.0.0.1:0", "--keep", stage / "k"), "the key that signed them"),
        ((model, "--listen", "127.0.0.1:0", "--statement", "a", "--statement", "b"), "once"),
    ):
        code, _, errors = ts("serve-model", *words)
        assert code == 3 and why in errors
    assert ts("serve-model", "keys", "list", "--file", stage / "none")[0] == 2
    assert ts("chat", "ftp://x", "--message", "a")[0] == 3


def test_keys_are_listed_and_removed(ts: Run, tmp_path: Path) -> None:
    stage = tmp_path
    add(stage, "dora", ts)
    listed = ("list", "--file", stage / "api.json")
    (found,) = as_json(ts("serve-model", "keys", *listed, "--json"))["keys"]
    assert found["name"] == "dora" and not found["operator"]
    assert ts("serve-model", "keys", "remove", "dora", "--file", stage / "api.json")[0] == 0
    assert as_json(ts("serve-model", "keys", *listed, "--json"))["keys"] == []


def test_answers_do_not_depend_on_the_server(stage: Path, ts: Run) -> None:
    """The same request alone, and in a batch with 15 others, on other threads."""
    key = add(stage, "erin", ts)
    with server(stage, "--threads", 2) as served, client(served.url, key) as asks:
        many = asks.post("/v1/completions", json={
            "model": "model", "prompt": ["abc", "defg", "h", "ijkl"], "n": 4, "seed": 9,
            "max_tokens": 30,
        }).json()["choices"]  # fmt: skip
    alone = Answering(stage / "model", threads=1)
    found = tallystick.generate(
        alone, prompt="defg", choices=4, seed=9, max_tokens=30, temperature=1.0,
        key=PrivateKey.generate(),
    )  # fmt: skip
    assert [one.text for one in found] == [choice["text"] for choice in many[4:8]]
