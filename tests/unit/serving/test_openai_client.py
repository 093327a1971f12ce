"""The unchanged `openai` package against the model server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="starlette is not installed")
pytest.importorskip("uvicorn", reason="uvicorn is not installed")
pytest.importorskip("openai", reason="the package openai is not installed")

import openai
from servers import Running, running

from tallystick.serving.api_keys import add_key

SAY: list[Any] = [{"role": "user", "content": "abc"}]


@pytest.fixture(scope="module")
def keyed(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, str]]:
    path = tmp_path_factory.mktemp("keys") / "keys.json"
    key = add_key(path, "alice")
    with running(model, keys=path) as found:
        yield found, key
    assert found.faults == []


@pytest.fixture
def client(keyed: tuple[Running, str]) -> Iterator[Any]:
    with openai.OpenAI(base_url=f"{keyed[0].url}/v1", api_key=keyed[1], max_retries=0) as found:
        yield found


def text_of(client: Any, **more: Any) -> str:
    found = client.chat.completions.create(model="tiny", messages=SAY, **more)
    content = found.choices[0].message.content
    assert isinstance(content, str)
    return content


def test_chat(client: Any) -> None:
    found = client.chat.completions.create(model="tiny", messages=SAY, max_tokens=7, seed=3)
    (choice,) = found.choices
    assert choice.message.role == "assistant" and choice.finish_reason == "length"
    assert found.usage.completion_tokens == 7 and found.usage.prompt_tokens == 6
    assert found.system_fingerprint == client.models.retrieve("tiny").digest
    assert choice.tallystick["answer"]["text"] == choice.message.content
    assert [model.id for model in client.models.list()] == ["tiny"]


def test_streaming_says_the_same(client: Any) -> None:
    whole = text_of(client, seed=3, max_tokens=30)
    pieces, finishes, usage = [], [], None
    with client.chat.completions.create(
        model="tiny", messages=SAY, seed=3, max_tokens=30, stream=True,
        stream_options={"include_usage": True},
    ) as stream:  # fmt: skip
        for chunk in stream:
            pieces += [c.delta.content or "" for c in chunk.choices]
            finishes += [c.finish_reason for c in chunk.choices if c.finish_reason]
            usage = chunk.usage or usage
    assert "".join(pieces) == whole and finishes == ["length"]
    assert usage is not None and usage.completion_tokens == 30


def test_a_seed_that_is_repeated_gives_the_same_text(client: Any, model: Path) -> None:
    first = text_of(client, seed=11, max_tokens=30)
    assert text_of(client, seed=11, max_tokens=30) == first
    assert text_of(client, seed=12, max_tokens=30) != first
    with (
        running(model, threads=2) as other,
        openai.OpenAI(base_url=f"{other.url}/v1", api_key="none") as second,
    ):
        assert text_of(second, seed=11, max_tokens=30) == first


def test_log_probabilities(client: Any) -> None:
    asked: dict[str, Any] = {"model": "tiny", "messages": SAY, "seed": 4, "max_tokens": 9,
                             "logprobs": True}  # fmt: skip
    whole = client.chat.completions.create(**asked).choices[0]
    found = whole.logprobs.content
    assert "".join(one.token for one in found) == whole.message.content
    assert all(one.logprob < 0 and one.top_logprobs == [] for one in found)
    assert b"".join(bytes(one.bytes) for one in found).decode() == whole.message.content
    streamed: list[Any] = []
    for chunk in client.chat.completions.create(**asked, stream=True):
        streamed += (chunk.choices[0].logprobs or {}) and chunk.choices[0].logprobs.content
    assert [(t.token, t.logprob) for t in streamed] == [(t.token, t.logprob) for t in found]
    legacy = client.completions.create(model="tiny", prompt="abc", logprobs=0, max_tokens=5, seed=3)
    assert len(legacy.choices[0].logprobs.token_logprobs) == 5


def test_choices_stop_bias_and_the_rest(client: Any) -> None:
    found = client.chat.completions.create(
        model="tiny", messages=SAY, n=3, temperature=0.7, top_p=0.9, presence_penalty=0.5,
        frequency_penalty=0.5, logit_bias={"9": -100}, max_completion_tokens=12, seed=1,
        extra_body={"top_k": 20, "min_p": 0.01, "repetition_penalty": 1.1},
    )  # fmt: skip
    assert len({choice.message.content for choice in found.choices}) == 3
    assert all(9 not in choice.tallystick["answer"]["tokens"] for choice in found.choices)
    nonce = client.chat.completions.create(
        model="tiny", messages=SAY, extra_body={"nonce": "0f" * 16, "secret": "0e" * 32}
    )
    assert nonce.choices[0].tallystick["request"]["parts"]["seed"]["nonce"] == "0f" * 16
    # What the client has received goes back as it is.
    said = [*SAY, nonce.choices[0].message.model_dump(), *SAY]
    assert client.chat.completions.create(model="tiny", messages=said, max_tokens=2).choices


def test_errors(client: Any, keyed: tuple[Running, str]) -> None:
    with pytest.raises(openai.NotFoundError, match="no model"):
        client.chat.completions.create(model="other", messages=SAY)
    with pytest.raises(openai.BadRequestError, match="tools") as caught:
        client.chat.completions.create(model="tiny", messages=SAY, tools=[
            {"type": "function", "function": {"name": "f", "parameters": {}}}
        ])  # fmt: skip
    assert caught.value.param == "tools" and caught.value.code == "unsupported_parameter"
    with pytest.raises(openai.BadRequestError, match="image_url"):
        image = {"type": "image_url", "image_url": {"url": "data:x"}}
        client.chat.completions.create(
            model="tiny", messages=[{"role": "user", "content": [image]}]
        )
    with pytest.raises(openai.BadRequestError, match="encoder"):
        client.embeddings.create(model="tiny", input="abc")
    with (
        openai.OpenAI(base_url=f"{keyed[0].url}/v1", api_key="tsk-no") as stranger,
        pytest.raises(openai.AuthenticationError),
    ):
        stranger.models.list()
