"""A client's own request through the model server, and its signed cancellation (ANSWERS 5.8, 6.6),
by the unchanged `openai` package."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="starlette is not installed")
pytest.importorskip("uvicorn", reason="uvicorn is not installed")
pytest.importorskip("openai", reason="the package openai is not installed")

import openai
from servers import LIMITS, Running, running, until

import tallystick
from tallystick.answers.beside_receipt import Spoken
from tallystick.answers.cancellation import CANCELLATION_TYPE, sign_cancellation
from tallystick.answers.check import bound, check_words
from tallystick.answers.request import ModelRequest
from tallystick.commit.encoding import canonical_json
from tallystick.commit.signing import PrivateKey, sign_envelope
from tallystick.serving.api_keys import add_key
from tallystick.serving.fields import ApiError

SAY: list[Any] = [{"role": "user", "content": "abc"}]
CLIENT, OTHER = PrivateKey(bytes([3]) * 32), PrivateKey(bytes([4]) * 32)


@pytest.fixture(scope="module")
def server(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, Path]]:
    path = tmp_path_factory.mktemp("keys") / "keys.json"
    (path.parent / "alice").write_text(add_key(path, "alice"))
    (path.parent / "bob").write_text(add_key(path, "bob"))
    with running(model, replace(LIMITS, answer_tokens=40, choices=4), keys=path) as found:
        yield found, path.parent
    assert found.faults == []


@pytest.fixture
def client(server: tuple[Running, Path]) -> Iterator[Any]:
    with client_of(server, "alice") as found:
        yield found


def client_of(server: tuple[Running, Path], name: str) -> Any:
    key = (server[1] / name).read_text()
    return openai.OpenAI(base_url=f"{server[0].url}/v1", api_key=key, max_retries=0)


def own(model: Path, **more: Any) -> ModelRequest:
    """A request that its client has made from the statement alone."""
    asked = {"max_tokens": 12, "temperature": 1.0, "client": CLIENT.public, "bias": {1: -100.0}}
    asked |= more  # by default no answer ends by the model's stop token
    given = {} if {"prompt", "tokens"} & set(more) else {"messages": SAY}
    return tallystick.request(model.with_name("tiny.statement"), **given, **asked)


def beside(request: ModelRequest) -> dict[str, Any]:
    return {"tallystick": {"request": json.loads(request.to_bytes())}}


def accepted(server: tuple[Running, Path], told: dict[str, Any], request: ModelRequest) -> Any:
    """The receipt in `told`, which is one of this very request."""
    statement = server[0].server.models[0].statement
    spoken = Spoken.from_bytes(canonical_json(told["answer"]))
    signed, job = bound(canonical_json(told["receipt"]), statement, request, spoken)
    cancelled = told.get("cancellation")
    beside = None if cancelled is None else canonical_json(cancelled)
    report = check_words(signed, job, beside)
    assert report.accepted and report.notes == ()
    return signed.receipt


# -- what is answered ------------------------------------------------------------------------------
@pytest.mark.parametrize("as_text", (False, True))
def test_the_request_is_answered_as_it_stands(
    as_text: bool, client: Any, server: tuple[Running, Path], model: Path
) -> None:
    request = own(model, top_k=20, repetition=1.1, bias={1: -100.0, 9: -100.0}, choices=2)
    extra = beside(request)
    if as_text:
        extra["tallystick"]["request"] = request.to_bytes().decode()
    # The client's library wants `messages`: null is as good as none.
    found = client.chat.completions.create(model="tiny", messages=None, extra_body=extra)
    assert [choice.index for choice in found.choices] == [0, 1]
    for choice in found.choices:
        receipt = accepted(server, choice.tallystick, request)
        assert receipt.request == request.digest and receipt.choice == choice.index
        assert choice.tallystick["request"]["secret"] == request.secret.hex()
    alone = tallystick.generate(model, request=request)
    assert [one.text for one in alone] == [one.message.content for one in found.choices]


def test_streamed_it_says_the_same(client: Any, server: tuple[Running, Path], model: Path) -> None:
    request = own(model, max_tokens=30)
    extra = beside(request)
    whole = client.chat.completions.create(model="tiny", messages=SAY, extra_body=extra)
    stream = client.chat.completions.create(
        model="tiny", messages=SAY, extra_body=extra, stream=True, logprobs=True, max_tokens=30,
        stream_options={"include_usage": True},
    )  # fmt: skip
    chunks = list(stream)
    choices = [chunk.choices[0] for chunk in chunks if chunk.choices]
    text = "".join(one.delta.content or "" for one in choices)
    assert text == whole.choices[0].message.content and chunks[-1].usage.completion_tokens == 30
    accepted(server, choices[-1].tallystick, request)


@pytest.mark.parametrize("given", ({"prompt": "abc"}, {"tokens": [3, 4, 5]}))
def test_a_text_and_tokens_are_completed(
    given: dict[str, Any], client: Any, server: tuple[Running, Path], model: Path
) -> None:
    request = own(model, **given)
    (said,) = given.values()
    for prompt in (None, said, [said]):
        found = client.completions.create(
            model="tiny", prompt=prompt, extra_body=beside(request), max_tokens=12, temperature=1
        )
        accepted(server, found.choices[0].tallystick, request)


def test_a_request_that_is_sent_again_has_the_same_answer(
    client: Any, server: tuple[Running, Path], model: Path
) -> None:
    """Whoever has its file, has its secret; what it says is answered, and nothing else can be."""
    request = own(model)
    told = []
    for name in ("alice", "alice", "bob"):
        with client_of(server, name) as one:
            found = one.chat.completions.create(
                model="tiny", messages=None, extra_body=beside(request)
            )
        told.append(found.choices[0].tallystick)
    receipts = [accepted(server, one, request) for one in told]
    assert len({(one.job, one.root, one.state) for one in receipts}) == 1
    assert len({one["id"] for one in told}) == 3
    # An answer to another's request is refused by whoever compares it with their own.
    with pytest.raises(tallystick.errors.DigestMismatchError):
        accepted(server, told[0], own(model))


# -- what is refused -------------------------------------------------------------------------------
def refused(client: Any, request: ModelRequest | None, route: str = "chat", **fields: Any) -> Any:
    extra = {**({} if request is None else beside(request)), **fields.pop("extra", {})}
    asked: Any = client.chat.completions if route == "chat" else client.completions
    need = {"messages": None} if route == "chat" else {"prompt": None}
    with pytest.raises(openai.BadRequestError) as caught:
        asked.create(model="tiny", extra_body=extra, **{**need, **fields})
    return caught.value


def test_fields_that_agree_may_stand_beside_it(client: Any, model: Path) -> None:
    request = own(model, seed=5, stop=[1], stop_strings=["zz"], date="2026-01-02", bias={3: 2.5})
    client.chat.completions.create(
        model="tiny", messages=[{**SAY[0], "name": None}], temperature=1, top_p=1.0, n=1, seed=5,
        stop="zz", max_completion_tokens=12, presence_penalty=0, frequency_penalty=0.0,
        logit_bias={"3": 2.5}, tools=[], user=None,
        extra_body={
            **beside(request), "top_k": 0, "min_p": 0, "repetition_penalty": 1, "stop_tokens": [1],
            "secret": request.secret.hex(), "seed_by": "client", "date": "2026-01-02",
        },
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("messages", [{"role": "user", "content": "abd"}]), ("temperature", 0.5), ("top_p", 0.9),
        ("max_tokens", 13), ("max_completion_tokens", 11), ("n", 2), ("seed", 1), ("stop", ["x"]),
        ("presence_penalty", 1), ("frequency_penalty", 1), ("logit_bias", {"3": 1}), ("n", True),
        ("top_k", 3), ("min_p", 0.5), ("repetition_penalty", 2), ("stop_tokens", [3]),
        ("nonce", "00" * 16), ("secret", "00" * 32), ("seed_by", "server"), ("date", "2026-01-02"),
        ("prompt", "abc"),
    ],
)  # fmt: skip
def test_a_field_that_contradicts_is_refused_by_name(
    name: str, value: Any, client: Any, model: Path
) -> None:
    fields = {"messages": value} if name == "messages" else {"extra": {name: value}}
    error = refused(client, own(model), **fields)
    assert (error.param, error.code) == (name, "contradicts_request")


def test_each_of_several_is_named(client: Any, model: Path) -> None:
    error = refused(client, own(model), temperature=0.5, n=2, extra={"top_k": 0})
    assert "temperature, n: the request in" in error.message


def test_what_is_no_request_of_this_model_is_refused(client: Any, model: Path) -> None:
    body = json.loads(own(model).to_bytes())
    file = "tallystick.request"

    def with_(**parts: Any) -> dict[str, Any]:
        return {**body, "parts": {**body["parts"], **parts}}

    for given, code, why in (
        (None, "invalid_value", "must be the file"),
        (7, "invalid_value", "must be the file"),
        ("", "invalid_request_file", "request"),
        ("x" * 100, "invalid_request_file", "request"),
        ({}, "invalid_request_file", "request"),
        ({**body, "secret": "00"}, "invalid_request_file", "request"),
        ({**body, "secret": 1.5}, "invalid_request_file", "canonical"),
        (with_(choices=0), "invalid_request_file", "choices"),
        (with_(choices=5), "invalid_request_file", "4 at most"),
        (with_(client="00"), "invalid_request_file", "request"),
        (with_(settings={**body["parts"]["settings"], "max_tokens": 41}), "invalid_request_file",
         "40 at most"),
        (with_(settings={**body["parts"]["settings"], "stop": [9999]}), "invalid_request_file",
         "vocabulary"),
        (with_(seed={"by": "server", "nonce": None, "seed": "3"}), "invalid_request_file",
         "The server chose the seed"),
        (with_(model="00" * 32), "wrong_model", "this one is"),
        (with_(output="embedding"), "invalid_request_file", "request"),
    ):  # fmt: skip
        error = refused(client, None, extra={"tallystick": {"request": given}})
        assert (error.param, error.code) == (file, code) and why in error.message, given
    error = refused(client, None, extra={"tallystick": {"request": body, "more": 1}})
    assert error.code == "unknown_parameter"
    assert refused(client, None, extra={"tallystick": 3}).param == "tallystick"
    error = refused(client, own(model), tools=[{"type": "function", "function": {"name": "f"}}])
    assert (error.param, error.code) == ("tools", "unsupported_parameter")
    assert refused(client, own(model), extra={"surprise": 1}).param == "surprise"
    assert refused(client, own(model), "completions").code == "wrong_route"
    assert refused(client, own(model, prompt="abc")).code == "wrong_route"
    # As long as it cannot be: the prompt has no room.
    assert "bucket" in refused(client, own(model, prompt="a" * 80), "completions").message


def test_a_request_that_is_too_long_is_not_read(client: Any, monkeypatch: Any) -> None:
    from tallystick.answers import request as read_request
    from tallystick.limits import LIMITS as MOST

    monkeypatch.setattr(read_request, "LIMITS", replace(MOST, request_bytes=64))
    for long in ("x" * 65, "\u00e9" * 33, {"kind": "x" * 65}):
        error = refused(client, None, extra={"tallystick": {"request": long}})
        assert error.code == "invalid_request_file" and "limit of 64" in error.message


# -- cancellations ---------------------------------------------------------------------------------
def post(client: Any, signed: bytes) -> Any:
    return client.post("/cancellations", body=json.loads(signed), cast_to=object)


def asked(client: Any, request: ModelRequest, stream: bool = False) -> Any:
    return client.chat.completions.create(
        model="tiny", messages=None, extra_body=beside(request), stream=stream, logprobs=True
    )


class Passes:
    """The engine's passes over the weights, which go on as far as a test says."""

    def __init__(self, server: Running) -> None:
        self._answering = server.thread.answering
        self._step, self._may, self._free = self._answering.step, threading.Semaphore(0), False

    def step(self) -> bool:
        if not self._free:
            self._may.acquire()
        return self._step()

    def go(self, passes: int) -> None:
        self._may.release(passes)

    def go_on(self) -> None:
        self._free = True
        self._may.release(1000)

    def __enter__(self) -> Passes:
        self._answering.step = self.step  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        self.go_on()  # so that whoever waits for an answer ends
        del self._answering.step


class Heard:
    """A stream, read as far as a test says."""

    def __init__(self, stream: Any) -> None:
        self._stream, self.tokens, self.text, self.choice = stream, 0, "", None

    def upto(self, tokens: int) -> None:
        while self.tokens < tokens:
            self._take(next(self._stream))

    def whole(self) -> Any:
        for chunk in self._stream:
            self._take(chunk)
        return self.choice

    def _take(self, chunk: Any) -> None:
        self.choice = chunk.choices[0]
        self.text += self.choice.delta.content or ""
        self.tokens += len(self.choice.logprobs.content) if self.choice.logprobs else 0


def uncut(model: Path, request: ModelRequest) -> list[int]:
    return list(tallystick.generate(model, request=request)[0].tokens)


@pytest.mark.parametrize("after", (11, 10, 4, 1))
def test_a_cancellation_in_mid_stream_ends_the_answer(
    after: int, client: Any, server: tuple[Running, Path], model: Path, tmp_path: Path
) -> None:
    request = own(model, max_tokens=36)
    signed = sign_cancellation(CLIENT, request, after)
    with Passes(server[0]) as passes:
        passes.go(10)
        heard = Heard(asked(client, request, stream=True))
        heard.upto(10)
        assert post(client, signed) == {
            "object": "tallystick.cancellation", "request": request.digest.hex(), "choice": 0,
            "answer": after,
        }  # fmt: skip
        passes.go_on()
        choice = heard.whole()
    told = choice.tallystick
    assert choice.finish_reason == "cancelled" and canonical_json(told["cancellation"]) == signed
    receipt = accepted(server, told, request)
    assert (receipt.answer, receipt.finish) == (after, "cancelled")
    assert told["answer"]["tokens"] == uncut(model, request)[:after]
    assert heard.text.startswith(told["answer"]["text"]) and heard.tokens in (10, 11)
    # Whoever asks for it again gets it as it was signed, and so does a check of the whole.
    again = client.get(f"/receipts/{told['id']}", cast_to=object)
    assert again["cancellation"] == told["cancellation"]
    files = server[0].server.keeper.find(told["id"], "alice")
    assert files is not None
    files.write(tmp_path / "answer")
    report = tallystick.check(tmp_path / "answer", model, request=request)
    assert report.accepted and report.executed and report.notes == ()


def test_an_answer_that_is_not_streamed_is_cancelled_too(
    client: Any, server: tuple[Running, Path], model: Path
) -> None:
    request = own(model, max_tokens=36, choices=2)
    with ThreadPoolExecutor(1) as pool, Passes(server[0]) as passes:
        passes.go(10)
        found = pool.submit(asked, client, request)
        until(lambda: sum(server[0].thread.load) == 2)
        post(client, sign_cancellation(CLIENT, request, 20))
        post(client, sign_cancellation(CLIENT, request, 13))  # the fewest tokens count
        post(client, sign_cancellation(CLIENT, request, 25))
        passes.go_on()
        choices = found.result(30).choices
    assert [choice.finish_reason for choice in choices] == ["cancelled", "length"]
    assert [len(choice.tallystick["answer"]["tokens"]) for choice in choices] == [13, 36]
    assert [len(choice.logprobs.content) for choice in choices] == [13, 36]
    for choice in choices:
        accepted(server, choice.tallystick, request)
    assert "cancellation" not in choices[1].tallystick


def test_one_that_comes_first_or_for_nothing(
    client: Any, server: tuple[Running, Path], model: Path
) -> None:
    """Before any token one is answered all the same. After the last one the word says nothing."""
    first = own(model, seed=5)
    tokens = uncut(model, first)
    ends = next(n for n in range(3, 12) if tokens[n] not in tokens[:n])
    stop = own(model, seed=5, stop=[tokens[ends]])
    for request, after, finish in (
        (first, 1, "cancelled"), (first, 12, "length"), (stop, ends + 1, "stop"),
        (stop, ends + 2, "stop"), (stop, ends, "cancelled"),
    ):  # fmt: skip
        with Passes(server[0]) as passes:
            heard = Heard(asked(client, request, stream=True))
            until(lambda: server[0].thread.load == (1, 0))
            post(client, sign_cancellation(CLIENT, request, after))
            passes.go_on()
            choice = heard.whole()
        assert choice.finish_reason == finish
        receipt = accepted(server, choice.tallystick, request)
        assert receipt.answer == (12 if finish == "length" else min(after, ends + 1))
        assert ("cancellation" in choice.tallystick) == (finish == "cancelled")


def test_a_cancelled_request_that_is_sent_again_is_answered_whole(
    client: Any, server: tuple[Running, Path], model: Path
) -> None:
    request = own(model)
    signed = sign_cancellation(CLIENT, request, 2)
    with ThreadPoolExecutor(2) as pool, Passes(server[0]) as passes:
        twice = [pool.submit(asked, client, request) for _ in range(2)]
        until(lambda: sum(server[0].thread.load) == 2)
        post(client, signed)  # the word is of the request
        passes.go_on()
        assert [one.result(30).choices[0].finish_reason for one in twice] == ["cancelled"] * 2
    refuses(client, 409, "answer_ended", signed)
    assert asked(client, request).choices[0].finish_reason == "length"
    refuses(client, 409, "answer_ended", signed)


def test_a_word_that_not_every_answer_has_heard_is_refused(
    client: Any, server: tuple[Running, Path], model: Path
) -> None:
    """A request is sent twice, and one of its answers is being signed: whoever waits for that one
    must not be told that the word was taken."""
    request = own(model)
    signed = sign_cancellation(CLIENT, request, 2)
    with ThreadPoolExecutor(2) as pool, Passes(server[0]) as passes:
        twice = [pool.submit(asked, client, request) for _ in range(2)]
        until(lambda: sum(server[0].thread.load) == 2)
        passes.go(1)
        until(lambda: server[0].thread.load == (2, 0))
        next(iter(server[0].thread._underway)).settled = True
        refuses(client, 409, "answer_ended", signed)
        passes.go_on()
        finishes = [one.result(30).choices[0].finish_reason for one in twice]
    assert sorted(finishes) == ["cancelled", "length"]


def test_nothing_is_remembered_of_a_request_that_was_not_taken(
    client: Any, server: tuple[Running, Path], model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: object) -> None:
        raise ApiError(503, "Too many answers wait.", code="server_overloaded")

    request = own(model)
    signed = sign_cancellation(CLIENT, request, 2)
    monkeypatch.setattr(server[0].thread, "submit", full)
    with pytest.raises(openai.APIStatusError):
        asked(client.with_options(max_retries=0), request)
    refuses(client, 404, "request_not_found", signed)


def refuses(client: Any, status: int, code: str, signed: bytes) -> None:
    with pytest.raises(openai.APIStatusError) as caught:
        post(client, signed)
    assert (caught.value.status_code, caught.value.code) == (status, code), caught.value


def word(
    key: PrivateKey, request: ModelRequest, kind: str = CANCELLATION_TYPE, **odd: Any
) -> bytes:
    told: dict[str, Any] = {
        "kind": "tallystick/cancelled/1", "request": request.digest.hex(), "choice": 0, "answer": 2,
    }  # fmt: skip
    return sign_envelope(key, kind, canonical_json({**told, **odd})).to_bytes()


def test_errors_of_cancellations(client: Any, server: tuple[Running, Path], model: Path) -> None:
    request, nobody = own(model, max_tokens=36), own(model, max_tokens=36, client=None)
    right = word(CLIENT, request)
    refuses(client, 404, "request_not_found", right)
    twice = json.loads(right)
    twice["signatures"] *= 2
    with Passes(server[0]) as passes:
        passes.go(3)
        heard, other = (Heard(asked(client, one, stream=True)) for one in (request, nobody))
        until(lambda: sum(server[0].thread.load) == 2)
        refuses(client, 403, "invalid_signature", word(OTHER, request))
        refuses(client, 403, "invalid_signature", canonical_json(twice))
        refuses(client, 400, "invalid_cancellation", word(CLIENT, request, "text/plain"))
        refuses(client, 400, "invalid_cancellation", word(CLIENT, request, answer=0))
        refuses(client, 400, "invalid_cancellation", word(CLIENT, request, choice=1))
        refuses(client, 400, "invalid_cancellation", word(CLIENT, request, more=1))
        refuses(client, 400, "invalid_cancellation", b'{"payload":1.5}')
        refuses(client, 400, "invalid_cancellation", b"{}")
        refuses(client, 400, "no_client", word(CLIENT, nobody))
        refuses(client, 404, "request_not_found", word(CLIENT, own(model)))
        with client_of(server, "bob") as bob:
            refuses(bob, 404, "request_not_found", right)
        passes.go_on()
        assert [heard.whole().finish_reason, other.whole().finish_reason] == ["length"] * 2
    refuses(client, 409, "answer_ended", right)
    refuses(client, 403, "invalid_signature", word(OTHER, request))
    refuses(client, 400, "no_client", word(CLIENT, nobody))
    with server[0].client((server[1] / "alice").read_text()) as raw:
        long = raw.post("/v1/cancellations", json={"payload": "x" * 5000})
        assert long.status_code == 413 and "4096 bytes" in long.json()["error"]["message"]
        text = raw.post("/v1/cancellations", content=right)
        assert text.status_code == 415
    with server[0].client() as raw:
        assert raw.post("/v1/cancellations", content=right).status_code == 401
    # A client that leaves has nothing signed, and can cancel nothing any more.
    with Passes(server[0]) as passes:
        passes.go(3)
        gone = asked(client, request, stream=True)
        Heard(gone).upto(1)
        gone.close()
        passes.go_on()
        until(lambda: server[0].thread.load == (0, 0))
    refuses(client, 409, "answer_ended", right)
