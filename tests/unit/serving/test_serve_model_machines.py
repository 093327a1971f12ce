"""One request, asked of servers on other numbers of threads and other instruction sets, by the
unchanged `openai` package: equal texts, log-probabilities, embeddings and run roots."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="starlette is not installed")
pytest.importorskip("uvicorn", reason="uvicorn is not installed")
pytest.importorskip("openai", reason="the package openai is not installed")

import openai
from encoder_models import save_encoder
from servers import Running, running
from service.processes import Served

from tallystick import _core

SAY: list[Any] = [{"role": "user", "content": "abc"}]
THREADS = (1, 2, 3)
SETTINGS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "draw": {"temperature": 1.3, "logprobs": True},
    "full": {"temperature": 0.9, "top_p": 0.9, "presence_penalty": 0.4, "n": 2, "logprobs": True,
             "extra_body": {"top_k": 20}},
}  # fmt: skip


@pytest.fixture(params=_core.supported_isas())
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    """The instruction set of contexts that are made here."""
    before = _core.isa()
    _core.set_isa(request.param)
    yield request.param
    _core.set_isa(before)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from answer_words import save_words

    from tallystick.cli.main import run

    made = tmp_path_factory.mktemp("machines") / "encoder"
    made.mkdir()
    save_encoder("bert", made, most=32)
    save_words(made)
    assert run(["model", "statement", str(made), "--bucket", "32"]) == 0
    return made


def run_of(told: dict[str, Any]) -> tuple[str, str, str]:
    """What an answer's receipt signs of its computation."""
    data = told["receipt"]["payload"]
    receipt = json.loads(base64.b64decode(data + "=" * (-len(data) % 4), altchars=b"-_"))
    return receipt["job"], receipt["root"], receipt["state"]


def answers(url: str) -> dict[str, Any]:
    """By settings: text, log-probabilities and runs of each choice, whole and streamed."""
    found: dict[str, Any] = {}
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        for name, more in SETTINGS.items():
            more = {**more, "extra_body": {"secret": "1e" * 32, **more.get("extra_body", {})}}
            said = client.chat.completions.create(
                model="tiny", messages=SAY, seed=17, max_tokens=24, **more
            )
            found[name] = [
                (
                    choice.message.content,
                    [one.logprob for one in (choice.logprobs and choice.logprobs.content) or []],
                    choice.tallystick["answer"]["logprobs"],  # type: ignore[attr-defined]
                    run_of(choice.tallystick),  # type: ignore[attr-defined]
                )
                for choice in said.choices
            ]
        stream = client.chat.completions.create(
            model="tiny", messages=SAY, seed=17, max_tokens=24, stream=True, **SETTINGS["draw"]
        )
        found["streamed"] = "".join(
            chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices
        )
    return found


@pytest.fixture(scope="module")
def wanted(model: Path) -> dict[str, Any]:
    """What a server says that leaves threads and instruction set to the machine."""
    with running(model) as served:
        found = answers(served.url)
        assert served.faults == []
    assert found["streamed"] == found["draw"][0][0]
    assert len({run for name in SETTINGS for *_, run in found[name]}) == 4
    return found


def context_of(served: Running) -> Any:
    return served.thread.answering._engine._forward._context


@pytest.mark.sample(3)
@pytest.mark.parametrize("threads", THREADS)
def test_answers(threads: int, isa: str, model: Path, wanted: dict[str, Any]) -> None:
    with running(model, threads=threads) as served:
        assert (context_of(served).threads, context_of(served).isa) == (threads, isa)
        assert answers(served.url) == wanted
        assert served.faults == []


def embeddings(url: str) -> list[tuple[str, object]]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        texts = ["abc", "a", "abcdefgh", "de", "f" * 20]
        found = client.embeddings.create(
            model="encoder", input=texts, encoding_format="base64",
            extra_body={"secret": "1e" * 32},
        )  # fmt: skip
    return [(str(one.embedding), run_of(one.tallystick)) for one in found.data]  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def wanted_embeddings(encoder: Path) -> list[tuple[str, object]]:
    with running(encoder) as served:
        return embeddings(served.url)


@pytest.mark.sample(3)
@pytest.mark.parametrize("threads", THREADS)
def test_embeddings(
    threads: int, isa: str, encoder: Path, wanted_embeddings: list[tuple[str, object]]
) -> None:
    with running(encoder, threads=threads) as served:
        assert embeddings(served.url) == wanted_embeddings
        assert served.faults == []


def test_a_process_of_its_own(
    model: Path, wanted: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an operator starts it: threads by the option, the instruction set by the environment."""
    monkeypatch.setenv("TALLYSTICK_ISA", "scalar")
    served = Served(model, "--listen", "127.0.0.1:0", "--threads", 3, verb="serve-model")
    try:
        assert answers(served.url.removesuffix("/v1")) == wanted
    finally:
        assert served.stop()[0] == 0
