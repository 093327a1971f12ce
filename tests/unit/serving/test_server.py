"""The model server over HTTP: what it answers, what it refuses, and who sees what."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="starlette is not installed")
pytest.importorskip("uvicorn", reason="uvicorn is not installed")
pytest.importorskip("httpx2", reason="httpx2 is not installed")

from servers import KEY, LIMITS, Running, chat, running, until

from tallystick.answers.beside_receipt import Spoken
from tallystick.answers.check import bound, check_words
from tallystick.answers.files import AnswerFiles, read_statement
from tallystick.answers.receipt import read_receipt
from tallystick.answers.request import ModelRequest
from tallystick.api.answering import GivenAnswer
from tallystick.api.answers import check
from tallystick.commit.encoding import canonical_json
from tallystick.errors import StorageError
from tallystick.serving.api_keys import add_key
from tallystick.serving.keeping import MemoryKeeper

CHAT = "/v1/chat/completions"


def files(server: Running, id_: str, key: str | None = None) -> AnswerFiles:
    """The answer with this id, as `check` takes it."""
    with server.client(key) as client:
        found = client.get(f"/v1/receipts/{id_}").json()
        stated = client.get("/v1/models/tiny/statement").content
    request = ModelRequest.from_bytes(canonical_json(found["request"]))
    spoken = Spoken.from_bytes(canonical_json(found["answer"]))
    statement = server.server.models[0].statement
    assert statement.to_bytes() == stated and statement.digest.hex() == found["model"]
    receipt = canonical_json(found["receipt"])
    _, job = bound(receipt, statement, request, spoken)
    program = server.thread.answering.program(job.program_name).text().encode()
    return AnswerFiles(receipt, statement, request, spoken, program)


# -- answers ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("stream", (False, True))
def test_an_answer_carries_its_receipt(
    stream: bool, served: Running, model: Path, tmp_path: Path
) -> None:
    body = chat(seed=5, max_tokens=6, stream=stream)
    with served.client() as client:
        response = client.post(CHAT, json=body)
    assert response.status_code == 200
    if stream:
        lines = [line[6:] for line in response.text.split("\n\n") if line]
        assert lines.pop() == "[DONE]"
        chunks = [json.loads(line)["choices"][0] for line in lines]
        text = "".join(chunk["delta"].get("content", "") for chunk in chunks)
        choice = chunks[-1]
        assert [c["finish_reason"] for c in chunks[:-1]] == [None] * (len(chunks) - 1)
        assert not any("tallystick" in c for c in chunks[:-1])
    else:
        choice = response.json()["choices"][0]
        text = choice["message"]["content"]
        assert response.headers["tallystick-receipt"] == choice["tallystick"]["id"]
    told = choice["tallystick"]
    assert told["answer"]["text"] == text and "input" not in told["request"]["parts"]
    receipt = read_receipt(canonical_json(told["receipt"]), [KEY.public]).receipt
    assert (receipt.answer, receipt.finish) == (6, choice["finish_reason"]) == (6, "length")
    found = files(served, told["id"])
    # What the client lacks is in the response: with its messages that is the whole request.
    told["request"]["parts"]["input"] = {"messages": body["messages"]}
    assert canonical_json(told["request"]) == found.request.to_bytes()
    found.write(tmp_path / "answer")
    report = check(tmp_path / "answer", model, trust=[KEY.public])
    assert report.accepted and report.executed and report.texts and report.notes == ()


def test_the_defaults_are_the_interfaces(served: Running) -> None:
    with served.client() as client:
        told = client.post(CHAT, json=chat()).json()["choices"][0]["tallystick"]
        text = client.post("/v1/completions", json={"model": "tiny", "prompt": "abc"}).json()
    parts = told["request"]["parts"]
    assert float.fromhex(parts["settings"]["temperature"]) == 1.0
    assert parts["settings"]["max_tokens"] == 40 and parts["seed"]["by"] == "server"
    assert parts["date"] is None  # the template reads none
    assert text["usage"]["completion_tokens"] <= 16 and text["object"] == "text_completion"


def test_every_setting_is_in_the_signed_request(served: Running) -> None:
    asked: dict[str, Any] = {
        "max_completion_tokens": 5, "temperature": 0.5, "top_p": 0.75, "presence_penalty": 0.25,
        "frequency_penalty": -0.5, "logit_bias": {"7": 1.5, "4": -100}, "top_k": 9, "min_p": 0.125,
        "repetition_penalty": 1.25, "stop": ["zz"], "stop_tokens": [9, 8], "n": 2,
        "nonce": "ab" * 16, "secret": "cd" * 32, "date": "2026-11-28", "seed_by": "client",
        "user": None, "tools": [], "response_format": {"type": "text"}, "store": False,
    }  # fmt: skip
    with served.client() as client:
        choices = client.post(CHAT, json=chat(**asked)).json()["choices"]
    found = [files(served, choice["tallystick"]["id"]) for choice in choices]
    assert [read_receipt(one.receipt).receipt.choice for one in found] == [0, 1]
    assert found[0].request.to_bytes() == found[1].request.to_bytes()
    request = found[0].request
    s = request.settings
    assert (s.max_tokens, s.temperature, s.top_p, s.top_k, s.min_p) == (5, 0.5, 0.75, 9, 0.125)
    assert (s.presence, s.frequency, s.repetition) == (0.25, -0.5, 1.25)
    assert s.bias == ((4, -100.0), (7, 1.5)) and s.stop == (8, 9)
    assert request.nonce == b"\xab" * 16 and request.secret == b"\xcd" * 32
    assert (request.date, request.stop_strings, request.choices) == ("2026-11-28", ("zz",), 2)
    assert not request.server_seed


def test_a_stop_string_ends_an_answer_and_is_not_in_its_content(served: Running) -> None:
    with served.client() as client:
        whole = client.post(CHAT, json=chat(seed=5, max_tokens=20)).json()["choices"][0]
        text: str = whole["message"]["content"]
        stop = text[7:9]
        asked = chat(seed=5, max_tokens=20, stop=stop)
        cut = client.post(CHAT, json=asked).json()["choices"][0]
        lines = client.post(CHAT, json={**asked, "stream": True}).text.split("\n\n")[:-2]
    assert cut["message"]["content"] == text[: text.index(stop)] and cut["finish_reason"] == "stop"
    assert cut["tallystick"]["answer"]["text"].endswith(stop)
    chunks = [json.loads(line[6:])["choices"][0] for line in lines]
    assert "".join(c["delta"].get("content", "") for c in chunks) == cut["message"]["content"]
    found = files(served, cut["tallystick"]["id"])
    signed, answer = bound(found.receipt, found.statement, found.request, found.spoken)
    assert check_words(signed, answer).accepted


def test_completions_of_several_prompts(served: Running) -> None:
    body = {"model": "tiny", "prompt": ["abc", "de"], "n": 2, "seed": 1, "max_tokens": 4,
            "logprobs": 0}  # fmt: skip
    with served.client() as client:
        found = client.post("/v1/completions", json=body).json()
        tokens = client.post("/v1/completions", json={**body, "prompt": [0, 4, 5, 6], "n": 1})
    assert [c["index"] for c in found["choices"]] == [0, 1, 2, 3]
    prompts = [c["tallystick"]["answer"]["prompt"] for c in found["choices"]]
    assert prompts == [[0, 4, 5, 6]] * 2 + [[0, 7, 8]] * 2
    assert found["usage"] == {"prompt_tokens": 7, "completion_tokens": 16, "total_tokens": 23}
    first = found["choices"][0]
    assert tokens.json()["choices"][0]["text"] == first["text"]
    logs = first["logprobs"]
    assert "".join(logs["tokens"]) == first["text"] and len(logs["token_logprobs"]) == 4
    assert logs["text_offset"][0] == 0


# -- refusals --------------------------------------------------------------------------------------
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"tools": [{"type": "function"}]}, "tools"),
    ({"tool_choice": "auto"}, "tool_choice"),
    ({"functions": [{}]}, "functions"),
    ({"response_format": {"type": "json_object"}}, "response_format"),
    ({"modalities": ["text", "audio"]}, "modalities"),
    ({"audio": {"voice": "x"}}, "audio"),
    ({"top_logprobs": 2, "logprobs": True}, "top_logprobs"),
    ({"store": True}, "store"),
    ({"user": "me"}, "user"),
    ({"reasoning_effort": "low"}, "reasoning_effort"),
    ({"no_such": 1}, "no_such"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"n": 0}, "n"), ({"n": 17}, "n"), ({"n": True}, "n"), ({"n": "1"}, "n"),
    ({"temperature": 2.5}, "temperature"), ({"temperature": "1"}, "temperature"),
    ({"max_tokens": 0}, "max_tokens"), ({"max_tokens": 5000}, "max_tokens"),
    ({"max_tokens": 4, "max_completion_tokens": 4}, "max_tokens"),
    ({"seed": -1}, "seed"), ({"seed": 1.5}, "seed"), ({"seed": 1 << 64}, "seed"),
    ({"seed": 1, "nonce": "ab" * 16}, "nonce"), ({"nonce": "ab"}, "nonce"),
    ({"seed_by": "client"}, "seed_by"), ({"seed_by": "server", "seed": 1}, "seed_by"),
    ({"stop": [""]}, "stop"), ({"stop": 5}, "stop"), ({"stop": ["a"] * 5000}, "stop"),
    ({"logit_bias": {"48": 1}}, "logit_bias"), ({"logit_bias": {"04": 1}}, "logit_bias"),
    ({"logit_bias": {"4": 101}}, "logit_bias"),
    ({"messages": []}, "messages"), ({"messages": "abc"}, "messages"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": "a", "name": "x"}]}, "messages[0].name"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"model": 5}, "model"),
]  # fmt: skip


@pytest.mark.parametrize(("more", "param"), REFUSED, ids=lambda v: str(v)[:40])
def test_what_is_not_honoured_is_refused_by_name(
    more: dict[str, Any], param: str, served: Running
) -> None:
    with served.client() as client:
        response = client.post(CHAT, json=chat(**{"seed": 1, **more} if "seed_by" not in more
                                               and "nonce" not in more else more))  # fmt: skip
    assert response.status_code == 400
    error = response.json()["error"]
    assert (error["param"], error["type"]) == (param, "invalid_request_error"), error
    assert error["message"].startswith(param) or param in error["message"]


@pytest.mark.parametrize("value", ("0", "0.0"))
def test_what_the_contract_refuses_is_named(value: str, served: Running) -> None:
    with served.client() as client:
        response = client.post(CHAT, json=chat(top_p=float(value)))
        long = client.post(CHAT, json=chat("a" * 100))
        other = client.post(CHAT, json=chat("ä", messages=[{"role": "user", "content": ""}]))
    assert response.status_code == 400 and "top_p" in response.json()["error"]["message"]
    assert long.status_code == 400 and "no bucket" in long.json()["error"]["message"]
    assert other.status_code == 200  # an empty message is a message


def test_bodies_that_are_no_requests(served: Running) -> None:
    deep = b'{"a":' + b"[" * 40 + b"]" * 40 + b"}"
    wrong: list[tuple[bytes, str, int]] = [
        (b"", "application/json", 400), (b"[]", "application/json", 400),
        (b"{", "application/json", 400), (b'{"seed": NaN}', "application/json", 400),
        (deep, "application/json", 400), (b"\xff", "application/json", 400),
        (b"[" * 100_000, "application/json", 400), (b"{}", "text/plain", 415),
        (b"{}", "application/json", 400),
    ]  # fmt: skip
    with served.client() as client:
        for body, kind, status in wrong:
            response = client.post(CHAT, content=body, headers={"content-type": kind})
            assert response.status_code == status, body[:20]
            assert set(response.json()["error"]) == {"message", "type", "param", "code"}
        assert client.post(CHAT, json=chat(model="other")).status_code == 404
        assert client.get(CHAT).status_code == 405
        assert client.get("/v1/other").status_code == 404
        assert client.get("/v1/receipts/answer-0").status_code == 404
        assert client.get("/v1/models/tiny/files/..%2Fconfig.json").status_code == 404
        embeddings = client.post("/v1/embeddings", json={"model": "tiny", "input": "a"})
        assert embeddings.status_code == 400 and "encoder" in embeddings.json()["error"]["message"]


def test_a_body_over_the_limit_is_refused_before_it_is_read(served: Running) -> None:
    host, _, port = served.url.partition("://")[2].partition(":")
    with socket.create_connection((host, int(port)), timeout=30) as raw:
        raw.sendall(
            f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: {5 << 20}\r\n\r\n".encode()
        )
        head, _, body = raw.makefile("rb").read().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 413")
    assert json.loads(body)["error"]["type"] == "invalid_request_error"


def test_without_keys_a_page_elsewhere_gets_nothing(served: Running) -> None:
    with served.client() as client:
        for host, status in (("evil.example", 403), ("127.0.0.1", 200), ("localhost:1", 200)):
            found = client.get("/v1/models", headers={"host": host})
            assert found.status_code == status, host


# -- models ----------------------------------------------------------------------------------------
def test_a_client_gets_what_it_needs_for_a_check(served: Running, model: Path) -> None:
    stated = read_statement(model.with_name("tiny.statement"))
    with served.client() as client:
        (found,) = client.get("/v1/models").json()["data"]
        assert found == client.get(f"/v1/models/{stated.digest.hex()}").json()
        assert (found["id"], found["digest"]) == ("tiny", stated.digest.hex())
        for name in stated.files:
            data = client.get(f"/v1/models/tiny/files/{name}").content
            assert data == (model / name).read_bytes()
        program = client.get("/v1/models/tiny/programs/24-8-draw").content
        place = model.with_name("tiny.statement") / "programs" / "24-8-draw.txt"
        assert program == place.read_bytes()


# -- keys ------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def keyed(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, Path]]:
    path = tmp_path_factory.mktemp("keys") / "keys.json"
    add_key(path, "nobody")
    with running(model, keys=path) as found:
        yield found, path


def test_one_key_never_sees_anothers(keyed: tuple[Running, Path]) -> None:
    server, path = keyed
    alice, bob = add_key(path, "alice"), add_key(path, "bob")
    boss = add_key(path, "boss", operator=True)
    with server.client(alice) as one, server.client(bob) as two, server.client(boss) as three:
        until(lambda: one.get("/v1/models").status_code == 200)  # the file is read again
        id_ = one.post(CHAT, json=chat(max_tokens=3, seed=5)).json()["choices"][0]["tallystick"][
            "id"
        ]
        assert one.get(f"/v1/receipts/{id_}").status_code == 200
        theirs, none = two.get(f"/v1/receipts/{id_}"), two.get("/v1/receipts/answer-1")
        assert theirs.status_code == 404 and theirs.content == none.content
        assert "alice" not in two.get("/metrics").text and "bob" not in one.get("/metrics").text
        assert (
            'tallystick_answer_tokens_total{key="alice",model="tiny"} 3' in one.get("/metrics").text
        )
        text = three.get("/metrics").text
        assert "alice" in text and "bob" in text and "tallystick_answers_waiting" in text
        assert "tallystick_answers_waiting" not in two.get("/metrics").text


def test_without_a_key_nothing_is_given(keyed: tuple[Running, Path]) -> None:
    server, _ = keyed
    paths = ["/v1/models", "/v1/models/tiny", "/v1/models/tiny/statement", "/metrics",
             "/v1/models/tiny/files/tokenizer.json", "/v1/receipts/x"]  # fmt: skip
    for key in (None, "x y", "tsk-wrong"):
        with server.client(key) as client:
            for path in paths:
                response = client.get(path)
                assert response.status_code == 401
                assert response.json()["error"]["code"] == "invalid_api_key"
            assert client.post(CHAT, json=chat()).status_code == 401
            assert client.get("/health").status_code == client.get("/ready").status_code == 200


# -- logs ------------------------------------------------------------------------------------------
def test_logs_and_metrics_have_no_text(served: Running) -> None:
    before = len(served.logged)
    with served.client() as client:
        client.post(CHAT, json=chat("kkkkkk", max_tokens=3, temperature=0))
        client.post(CHAT, json=chat("kkkkkk", **{"kkkkkk": 1}))
        client.post(CHAT, json=chat(model="kkkkkk"))
        client.get("/v1/models/kkkkkk")
        client.get("/kkkkkk?kkkkkk")
        until(lambda: len(served.logged) >= before + 5)
        said = json.dumps(served.logged[before:]) + client.get("/metrics").text
    assert "kkkkkk" not in said
    assert served.logged[before]["prompt_tokens"] == 9


# -- receipts before answers -----------------------------------------------------------------------
class Forgetful(MemoryKeeper):
    """It cannot keep anything, or says that it is full."""

    says: str | None = None

    def full(self) -> str | None:
        return self.says

    def keep(self, answer: GivenAnswer, owner: str, room: Any = None) -> str:
        raise StorageError("The disk is full.")


def test_no_answer_ends_without_its_receipt(model: Path) -> None:
    keeper = Forgetful()
    with running(model, keeper=keeper) as server, server.client() as client:
        whole = client.post(CHAT, json=chat(max_tokens=3))
        stream = client.post(CHAT, json=chat(max_tokens=3, stream=True))
        keeper.says = "The disk budget is used up."
        full = client.post(CHAT, json=chat(max_tokens=3))
        assert client.get("/ready").status_code == 503
        assert client.get("/health").status_code == 200
        assert server.faults and all(isinstance(e, StorageError) for e in server.faults)
    assert whole.status_code == 500 and "choices" not in whole.json()
    assert 'finish_reason":null' in stream.text and "[DONE]" not in stream.text
    assert "tallystick" not in stream.text and '"error"' in stream.text
    assert full.status_code == 503 and "receipts" in full.json()["error"]["message"]


# -- limits ----------------------------------------------------------------------------------------
def test_a_queue_that_is_full_refuses(model: Path) -> None:
    limits = replace(LIMITS, at_once=1, key_at_once=1, key_waiting=3, key_tokens_minute=600)
    with running(model, limits) as server, server.client() as client:
        response = client.post(CHAT, json=chat(n=4))
        assert response.status_code == 429 and response.headers["retry-after"] == "1"
        assert response.json()["error"]["code"] == "rate_limit_exceeded"
        assert client.post(CHAT, json=chat(n=3, max_tokens=2)).status_code == 200
        while (last := client.post(CHAT, json=chat(n=3))).status_code == 200:
            pass
        assert last.status_code == 429 and last.json()["error"]["code"] == "tokens_exceeded"


def test_a_late_answer_is_no_answer(model: Path) -> None:
    with running(model, replace(LIMITS, seconds=0.02)) as server, server.client() as client:
        late = client.post(CHAT, json=chat(n=8))
        assert late.status_code == 504 and late.json()["error"]["code"] == "timeout"
        until(lambda: server.thread.load == (0, 0))
    assert server.faults == []
