"""Embeddings by OpenAI's interface: each equals the encoder's own, and carries its receipt."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("tokenizers", reason="tokenizers is not installed")
pytest.importorskip("starlette", reason="starlette is not installed")
pytest.importorskip("uvicorn", reason="uvicorn is not installed")

import numpy as np
from answer_words import save_words
from encoder_models import save_encoder
from servers import KEY, LIMITS, Running, running, until

import tallystick
from tallystick.answers.beside_receipt import Encoded
from tallystick.answers.files import AnswerFiles, read_statement
from tallystick.answers.request import new_secret
from tallystick.api.encoding import Encoder
from tallystick.commit.encoding import canonical_json
from tallystick.serving.kept.answers import KeptAnswers
from tallystick.serving.kept.space import LEAST_BUDGET

ROUTE = "/v1/embeddings"


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tallystick.cli.main import run

    made = tmp_path_factory.mktemp("embeddings") / "encoder"
    made.mkdir()
    save_encoder("bert", made, most=32)
    save_words(made)
    assert run(["model", "statement", str(made), "--bucket", "8,32"]) == 0
    return made


@pytest.fixture(scope="module")
def served(encoder: Path) -> Iterator[Running]:
    with running(encoder) as found:
        yield found
    assert found.faults == []


def values(given: object) -> np.ndarray:
    if isinstance(given, str):
        return np.frombuffer(base64.b64decode(given), "<f4")
    return np.asarray(given, np.float32)


@pytest.mark.parametrize("form", ("base64", "float", None))
def test_an_embedding_is_the_encoders(form: str | None, served: Running, encoder: Path) -> None:
    texts = ["abc", "de", "abcdefgh"]
    asked = {"model": "encoder", "input": texts, "encoding_format": form}
    with served.client() as client:
        response = client.post(ROUTE, json=asked)
        tokens = client.post(ROUTE, json={"model": "encoder", "input": [[0, 4, 5, 6], [0, 7, 8]]})
    found = response.json()
    own = tallystick.embed(encoder, texts)
    for one, wanted in zip(found["data"], own, strict=True):
        assert values(one["embedding"]).tobytes() == wanted.values.tobytes()
        assert isinstance(one["embedding"], str) == (form == "base64")
    assert found["usage"] == {"prompt_tokens": 16, "total_tokens": 16}
    assert [values(x["embedding"]).tobytes() for x in tokens.json()["data"]] == [
        one.values.tobytes() for one in own[:2]
    ]
    assert response.headers["tallystick-receipt"].split(",") == [
        one["tallystick"]["id"] for one in found["data"]
    ]


def test_many_texts_are_computed_together(encoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that no pass has room for, by the program of their bucket."""
    monkeypatch.setattr("tallystick.api.encoding.MANY_TEXTS", 4)
    opened = Encoder(encoder)
    texts = ["abc", "de", "abcdefghijkl", "a", "f" * 20]
    few = tallystick.embed(opened, texts[:3])
    assert "engine" not in vars(opened)
    opened.engine.longest = 8
    together = tallystick.embed(opened, texts)
    alone = [tallystick.embed(encoder, [text])[0] for text in texts]
    assert [x.values.tobytes() for x in together] == [x.values.tobytes() for x in alone]
    assert [x.values.tobytes() for x in few] == [x.values.tobytes() for x in alone[:3]]
    assert all(tallystick.check(one, encoder).accepted for one in together)


def test_its_receipt_is_checked_and_kept(encoder: Path, tmp_path: Path) -> None:
    secret = new_secret().hex()
    with KeptAnswers(tmp_path / "kept", LEAST_BUDGET) as keeper:
        keeper.uses(read_statement(encoder.with_name("encoder.statement")), encoder)
        with running(encoder, keeper=keeper) as server, server.client() as client:
            asked = {"model": "encoder", "input": "abc", "secret": secret}
            (one,) = client.post(ROUTE, json=asked).json()["data"]
            told = one["tallystick"]
            kept = client.get(f"/v1/receipts/{told['id']}").json()
            assert kept["receipt"] == told["receipt"] and kept["answer"] == told["answer"]
            assert server.faults == []
        files = keeper.find(told["id"], "local")
        assert isinstance(files, AnswerFiles) and isinstance(files.spoken, Encoded)
        assert files.request.secret.hex() == secret
        told["request"]["parts"]["input"] = {"text": "abc"}
        assert files.request.to_bytes() == canonical_json(told["request"])
        files.write(tmp_path / "encoding")
    report = tallystick.check(tmp_path / "encoding", encoder, trust=[KEY.public])
    assert report.accepted and report.executed


def test_what_an_encoder_does_not_give_is_refused(served: Running) -> None:
    refused: list[tuple[dict[str, object], str | None]] = [
        ({"dimensions": 4}, "dimensions"), ({"user": "me"}, "user"), ({"other": 1}, "other"),
        ({"encoding_format": "hex"}, "encoding_format"), ({"input": ""}, "input"),
        ({"input": []}, "input"), ({"input": [1.5]}, "input"), ({"input": ["a", 5]}, "input"),
        ({"input": "a" * 100}, None), ({"secret": "ab"}, "secret"),
        ({"input": ["a"] * 2049}, "input"),
    ]  # fmt: skip
    with served.client() as client:
        for more, param in refused:
            response = client.post(ROUTE, json={"model": "encoder", "input": "a", **more})
            assert response.status_code == 400, more
            assert response.json()["error"]["param"] == param
        chat = {"model": "encoder", "messages": [{"role": "user", "content": "a"}]}
        response = client.post("/v1/chat/completions", json=chat)
        assert response.status_code == 400 and "embeddings" in response.json()["error"]["message"]
        assert client.get("/v1/models").json()["data"][0]["gives"] == "embeddings"
        until(lambda: served.server.models[0].thread.load == (0, 0))


def test_a_queue_of_texts_is_bounded(encoder: Path) -> None:
    limits = replace(LIMITS, key_texts=4)
    with running(encoder, limits) as server, server.client() as client:
        body = {"model": "encoder", "input": ["a"] * 4}
        assert client.post(ROUTE, json=body).status_code == 200
        body["input"] = ["a"] * 5
        assert client.post(ROUTE, json=body).status_code == 400


def test_the_openai_client_and_real_weights(tmp_path: Path) -> None:
    """all-MiniLM-L6-v2, whose directory TALLYSTICK_MINILM names."""
    openai = pytest.importorskip("openai", reason="the package openai is not installed")
    place = os.environ.get("TALLYSTICK_MINILM")
    if place is None:
        pytest.skip("TALLYSTICK_MINILM names no directory of all-MiniLM-L6-v2")
    from tallystick.cli.main import run

    model = tmp_path / "minilm"
    model.symlink_to(place, target_is_directory=True)
    assert run(["model", "statement", str(model), "--bucket", "64"]) == 0
    texts = ["A cat sits on a mat.", "A kitten rests on a rug.", "Stock markets fell sharply."]
    with (
        running(model) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="none") as client,
    ):
        found = client.embeddings.create(model="minilm", input=texts)
    made = np.array([one.embedding for one in found.data], np.float32)
    own = np.stack([one.values for one in tallystick.embed(model, texts)])
    assert made.tobytes() == own.tobytes()
    near = made @ made.T
    assert near[0, 1] > 0.5 > 0.2 > max(near[0, 2], near[1, 2])
