"""`tallystick chat`: its own requests, a file's, and answers that it cancels with a signature."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from commands import Run, as_json
from stated_models import save_stated

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("tokenizers", reason="tokenizers is not installed")
pytest.importorskip("jinja2", reason="jinja2 is not installed")
pytest.importorskip("starlette", reason="starlette is not installed")
pytest.importorskip("uvicorn", reason="uvicorn is not installed")
pytest.importorskip("httpx2", reason="httpx2 is not installed")

from unit.serving.servers import Running, running, until

import tallystick
from tallystick.answers.files import AnswerFiles
from tallystick.answers.request import ModelRequest
from tallystick.disk.keys import load_public_key
from tallystick.serving import question
from tallystick.serving.cancelling import Cancelling
from tallystick.serving.chat_client import ChatClient
from tallystick.serving.fields import ApiError


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with its statement, and a client's key."""
    from tallystick.cli.main import run

    place = tmp_path_factory.mktemp("chat")
    save_stated(place / "tiny", "24:8", "64:40")
    assert run(["keys", "new", str(place / "client.pem")]) == 0
    assert run(["keys", "new", str(place / "other.pem")]) == 0
    return place


@pytest.fixture(scope="module")
def served(stage: Path) -> Iterator[Running]:
    with running(stage / "tiny") as found:
        yield found
    assert found.faults == []


def kinds(sentences: list[str]) -> list[str]:
    return [sentence.partition(":")[0] for sentence in sentences]


def make(stage: Path, ts: Run, out: Path, *words: object) -> ModelRequest:
    place = stage / "tiny.statement"
    assert ts("request", place, *words, "-o", out)[0] == 0
    return ModelRequest.from_bytes(out.read_bytes())


# Seed 5 says no stop token before the end of these.
SAYS = ("--temperature", 1.0, "--max-tokens", 30, "--seed", 5)
# Greedy decoding says none either. With a random seed one answer in 30 begins with a stop token.
LONG = ("--temperature", 0, "--max-tokens", 40)


_FROM_A_TERMINAL = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from tallystick.cli.main import main
main()
"""


def press_ctrl_c() -> None:
    """As from a terminal, where any thread of a process may get a signal to all of it."""
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, signal.SIGINT)


@contextmanager
def interrupted(
    served: Running, passes: int, times: int = 1, press: Callable[[], None] = press_ctrl_c
) -> Iterator[None]:
    """After so many passes somebody presses Ctrl-C, and the engine waits for what follows."""
    answering, done = served.thread.answering, 0
    step = answering.step

    def slow() -> bool:
        nonlocal done
        done += 1
        if done == passes:
            for time in range(times):
                press()
                under = list(served.thread._underway)
                until(lambda: all(one.cancelled or (one.end and not time) for one in under))  # noqa: B023
        return step()

    answering.step = slow  # type: ignore[method-assign]
    try:
        yield
    finally:
        del answering.step


# -- whose request it is ---------------------------------------------------------------------------
def test_what_it_asks_is_its_own(served: Running, stage: Path, ts: Run, tmp_path: Path) -> None:
    words = ("--message", "abc", "--max-tokens", 12, "--client", stage / "client.pem")
    said = as_json(
        ts("chat", "--json", served.url, *words, "--model", stage / "tiny", "-o", tmp_path / "a")
    )
    assert said["accepted"] and said["wrong"] == said["unchecked"] == []
    assert kinds(said["checked"]) == ["signature", "request", "text", "computation"]
    asked = AnswerFiles.read(tmp_path / "a").request
    assert isinstance(asked, ModelRequest) and asked.digest.hex() == said["request_digest"]
    assert asked.nonce is not None and not asked.server_seed
    assert asked.client == load_public_key(stage / "client.pem.pub")
    assert said["finish"] in ("stop", "length")


def test_a_file_is_asked_as_it_stands(
    served: Running, stage: Path, ts: Run, tmp_path: Path
) -> None:
    """Messages, a text and tokens; what a stop string cuts from the text is in the receipt's."""
    (tmp_path / "tokens").write_text("[4, 5, 6]")
    text = tallystick.generate(stage / "tiny", prompt="abc", temperature=1.0, max_tokens=30, seed=5)
    for n, words in enumerate((
        ("--message", "abc", *SAYS), ("--prompt", "abc", *SAYS, "--stop", text[0].text[10:12]),
        ("--tokens", tmp_path / "tokens", "--temperature", 0.7),
    )):  # fmt: skip
        request = make(stage, ts, tmp_path / f"r{n}", *words)
        file = ("--request", tmp_path / f"r{n}", "-o", tmp_path / f"a{n}")
        said = as_json(ts("chat", "--json", served.url, *file, "--model", stage / "tiny"))
        assert said["accepted"] and said["wrong"] == said["unchecked"] == []
        assert said["request_digest"] == request.digest.hex()
        assert AnswerFiles.read(tmp_path / f"a{n}").request == request
        assert tallystick.check(tmp_path / f"a{n}", stage / "tiny", request=request).accepted


def test_what_a_request_cannot_be_asked_with(
    served: Running, stage: Path, ts: Run, tmp_path: Path
) -> None:
    make(stage, ts, tmp_path / "r", "--message", "abc", *SAYS)
    make(stage, ts, tmp_path / "many", "--message", "abc", *SAYS, "--choices", 2)
    body = (tmp_path / "r").read_text()
    model = ModelRequest.from_bytes(body.encode()).model.hex()
    (tmp_path / "other").write_text(body.replace(model, "00" * 32))
    client = ("--client", stage / "client.pem")
    for words, why in (
        (("--request", tmp_path / "r", "--message", "x"), "--message cannot be given beside"),
        (("--request", tmp_path / "r", "--top-p", 1.0), "--top-p cannot be given beside"),
        (("--request", tmp_path / "r", *client), "does not name the key of --client"),
        (("--request", tmp_path / "many"), "asks for 2 answers"),
        (("--request", tmp_path / "other"), "The request is to the model"),
    ):
        code, _, errors = ts("chat", served.url, *words)
        assert code == 3 and why in errors
    (tmp_path / "bad").write_text(body[:-1])
    assert ts("chat", served.url, "--request", tmp_path / "bad")[0] == 2


def test_an_answer_to_another_request_is_refused(
    served: Running, stage: Path, ts: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server draws by a nonce that it likes better."""
    from dataclasses import replace

    from tallystick.serving import app

    def liked(*given: Any) -> Any:
        asked = real(*given)
        return replace(asked, requests=(replace(asked.requests[0], nonce=bytes(16)),))

    real = app.read_own
    monkeypatch.setattr(app, "read_own", liked)
    code, _, errors = ts("chat", served.url, "--message", "abc", "--max-tokens", 5)
    assert code == 1 and "request" in errors


# -- Ctrl-C ----------------------------------------------------------------------------------------
def test_ctrl_c_ends_the_answer_with_a_signature(
    served: Running, stage: Path, ts: Run, tmp_path: Path
) -> None:
    client = ("--client", stage / "client.pem")
    make(stage, ts, tmp_path / "r", "--message", "abc", *SAYS, "--client", stage / "client.pem.pub")
    words = ("--request", tmp_path / "r", *client, "--model", stage / "tiny")
    with interrupted(served, 6):
        said = as_json(ts("chat", "--json", served.url, *words, "-o", tmp_path / "a"))
    assert said["finish"] == "cancelled" and said["accepted"] and said["unchecked"] == []
    assert kinds(said["checked"]) == ["signature", "request", "cancellation", "text", "computation"]
    files = AnswerFiles.read(tmp_path / "a")
    assert files.cancellation is not None and files.spoken.text == said["text"]  # type: ignore[union-attr]
    report = tallystick.check(tmp_path / "a", stage / "tiny")
    assert report.accepted and report.notes == () and 1 <= report.receipt.answer <= 5
    # A chat goes on after that.
    with interrupted(served, 4):
        code, _, errors = asks(ts, "abc\nde\n", "chat", served.url, *client, *LONG)
    assert code == 0 and errors.count("checked      signature") == 2


def asks(ts: Run, lines: str, *words: object) -> tuple[int, str, str]:
    before, sys.stdin = sys.stdin, io.StringIO(lines)
    try:
        return ts(*words)
    finally:
        sys.stdin = before


def test_ctrl_c_leaves_without_a_key_and_a_second_one_with_it(served: Running, stage: Path) -> None:
    """In a process of its own, since an interrupt in this one would be everybody's. What a shell
    starts in the background ignores SIGINT, and so do its children: `main` is begun as from a
    terminal."""
    before = len(served.logged)
    for times, key in ((1, ()), (2, ("--client", str(stage / "client.pem")))):
        words = ["chat", served.url, "--message", "abc", *map(str, LONG), *key]
        chat = subprocess.Popen(
            [sys.executable, "-c", _FROM_A_TERMINAL, *words],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        with interrupted(served, 4, times, lambda: chat.send_signal(signal.SIGINT)):  # noqa: B023
            _, errors = chat.communicate(timeout=120)
        assert chat.returncode == 2 and "checked" not in errors
    until(lambda: sum(one.get("why") == "gone" for one in served.logged[before:]) == 2)


def test_what_becomes_of_a_word_that_is_not_taken(
    served: Running, stage: Path, ts: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("--message", "abc", *LONG, "--client", stage / "client.pem")

    def late(self: Cancelling, owner: str, body: dict[str, Any]) -> dict[str, Any]:
        for one in list(served.thread._underway):
            one.cancelled = one.cancelled or None  # type: ignore[assignment]
            one.end = one.end or (10**6, b"")
        raise ApiError(409, "The answer has ended.", code="answer_ended")

    monkeypatch.setattr(Cancelling, "cancel", late)
    with interrupted(served, 4):
        said = as_json(ts("chat", "--json", served.url, *words))
    assert said["accepted"] and said["finish"] != "cancelled"
    assert kinds(said["unchecked"]) == ["cancellation", "computation"]

    def ignored(self: Cancelling, owner: str, body: dict[str, Any]) -> dict[str, Any]:
        for one in list(served.thread._underway):
            one.end = (10**6, b"")
        return {}

    monkeypatch.setattr(Cancelling, "cancel", ignored)
    with interrupted(served, 2):
        code, out, _ = ts("chat", served.url, *words)
    assert code == 1 and "has taken your cancellation" in out

    # A server that has not answered yet is called no liar.
    answered = threading.Event()

    def silent(self: ChatClient, signed: bytes) -> None:
        for one in list(served.thread._underway):
            one.end = (10**6, b"")
        answered.wait(20)

    monkeypatch.setattr(ChatClient, "cancel", silent)
    monkeypatch.setattr(question, "CANCEL_SECONDS", 0.1)
    with interrupted(served, 2):
        said = as_json(ts("chat", "--json", served.url, *words))
    answered.set()
    assert said["accepted"] and said["wrong"] == []
    assert "cancellation: the server has not answered it" in said["unchecked"]


def test_a_server_cannot_cancel(
    served: Running, stage: Path, ts: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tallystick.api.answering import AnswerUnderway

    monkeypatch.setattr(AnswerUnderway, "finish", property(lambda self: "cancelled"))
    words = ("--message", "abc", "--max-tokens", 5, "--client", stage / "client.pem")
    code, out, _ = ts("chat", served.url, *words)
    assert code == 1 and "shows no word of yours" in out
