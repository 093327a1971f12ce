"""A client of a model server: what the server has, and one stream of an answer.

It makes its requests itself, so that the request's digest, and with it the seed, are its own. Every
response is read within a bound.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import httpx2

from tallystick.answers.layout import Settings
from tallystick.answers.request import Message, ModelRequest, new_nonce, new_secret
from tallystick.answers.statement import ModelStatement, ProgramName
from tallystick.answers.template import reads_date
from tallystick.answers.text import ModelWords
from tallystick.closing import Closing
from tallystick.commit.signing import PublicKey
from tallystick.errors import CannotCheckError, CorruptFileError, TallystickError, UsageError
from tallystick.limits import LIMITS
from tallystick.service.client import check_url, client_context

_TIMEOUT = httpx2.Timeout(connect=10, read=600, write=60, pool=60)
_JSON_BYTES = 64 << 10
# A stream repeats some members for each token.
_STREAM_BYTES = 256 << 20
_LINE_BYTES = 2 * (LIMITS.spoken_bytes + LIMITS.request_bytes)


class ChatClient(Closing):
    """The model server at `url`, which may end with /v1. `key` is an API key, `model` the name of a
    model there, by default its first. Use it as a context."""

    def __init__(
        self, url: str, key: str | None = None, model: str | None = None, ca: Path | None = None
    ) -> None:
        base = check_url(url).removesuffix("/v1")
        headers = {"accept-encoding": "identity", "user-agent": "tallystick"}
        if key is not None:
            headers["authorization"] = f"Bearer {key}"
        self._client = httpx2.Client(
            base_url=base,
            verify=client_context(base, ca),
            timeout=_TIMEOUT,
            headers=headers,
            trust_env=False,
        )
        self._model = model
        self._statement: ModelStatement | None = None
        self._words: ModelWords | None = None

    def close(self) -> None:
        """End the connections to the server."""
        self._client.close()

    # -- what the server has -----------------------------------------------------------------------

    @property
    def model(self) -> str:
        """The name of the model. Raises CannotCheckError, CorruptFileError."""
        if self._model is None:
            found = _object(self._get("/v1/models", _JSON_BYTES))
            models = found.get("data")
            first = models[0] if isinstance(models, list) and models else None
            name = first.get("id") if isinstance(first, dict) else None
            if not isinstance(name, str):
                malformed("it lists no model")
            self._model = name
        return self._model

    @property
    def statement(self) -> ModelStatement:
        """The model's statement. Its digest is what a receipt names. Raises as `model`."""
        if self._statement is None:
            data = self._of_model("statement", LIMITS.model_statement_bytes)
            self._statement = ModelStatement.from_bytes(data)
        return self._statement

    @property
    def words(self) -> ModelWords:
        """Tokenizer and chat template, whose digests the statement has. Raises as `model`, and as
        `ModelWords.of`."""
        if self._words is None:
            stated = self.statement
            most = LIMITS.model_file_bytes
            files = {name: self._of_model(f"files/{name}", most) for name in stated.files}
            self._words = ModelWords.of(stated, files, self._template)
        return self._words

    @cached_property
    def _template(self) -> str | None:
        """The chat template as the server gives it. Raises as `model`."""
        if self.statement.template is None:
            return None
        try:
            return self._of_model("template", LIMITS.model_file_bytes).decode("utf-8")
        except UnicodeDecodeError:
            malformed("its chat template is not UTF-8")

    def program(self, name: ProgramName) -> bytes:
        """The text of the program of this name. Raises as `model`."""
        file = f"programs/{name.length}-{name.answer}-{name.set}"
        return self._of_model(file, LIMITS.program_bytes)

    # -- a question --------------------------------------------------------------------------------

    def request(
        self, messages: Sequence[Message], settings: Settings, client: PublicKey | None = None
    ) -> ModelRequest:
        """A request of our own: nonce and secret are new, and the settings' seed is not used.
        `client` is the key that may cancel its answer. Raises as `model`."""
        today = time.strftime("%Y-%m-%d", time.gmtime()) if reads_date(self._template) else None
        return ModelRequest(
            self.statement.digest,
            settings,
            messages=tuple(messages),
            nonce=new_nonce(),
            date=today,
            secret=new_secret(),
            client=client,
        )

    def events(self, path: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The objects of a stream, up to its `[DONE]`. Raises CannotCheckError for a refusal and a
        stream that breaks off, UsageError for a request that the server never answers,
        CorruptFileError."""
        with self._asking("POST", path, json=body) as response:
            if response.status_code != 200:
                raise _refusal(response.status_code, _bounded(response, _JSON_BYTES))
            for line in _lines(response):
                data = line.removeprefix(b"data: ")
                if data == line:
                    continue
                if data == b"[DONE]":
                    return
                value = _object(data)
                if "error" in value:
                    raise _refusal(200, data)
                yield value
        raise CannotCheckError("The connection broke before the answer was complete.", "Ask again.")

    def cancel(self, signed: bytes) -> None:
        """Give the server a cancellation (ANSWERS 6.6). Any thread may call it. Raises as
        `events`."""
        headers = {"content-type": "application/json"}
        given = {"content": signed, "headers": headers}
        with self._asking("POST", "/v1/cancellations", **given) as response:
            data = _bounded(response, _JSON_BYTES)
            if response.status_code != 200:
                raise _refusal(response.status_code, data)

    # -- HTTP --------------------------------------------------------------------------------------

    def _of_model(self, path: str, most: int) -> bytes:
        return self._get(f"/v1/models/{self.model}/{path}", most)

    def _get(self, path: str, most: int) -> bytes:
        with self._asking("GET", path) as response:
            data = _bounded(response, most)
            if response.status_code != 200:
                raise _refusal(response.status_code, data)
            return data

    def _asking(self, method: str, path: str, **given: Any) -> _Asking:
        return _Asking(self._client.stream(method, path, **given))


class _Asking:
    """A response as a context, whose errors are ours."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __enter__(self) -> httpx2.Response:
        try:
            response: httpx2.Response = self._stream.__enter__()
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            raise _unreached(error) from None
        return response

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._stream.__exit__(kind, error, trace)
        if isinstance(error, (httpx2.HTTPError, httpx2.StreamError, OSError)):
            raise _unreached(error) from None


def _unreached(error: BaseException) -> CannotCheckError:
    return CannotCheckError(
        f"The server cannot be reached: {type(error).__name__}.", "Check its URL."
    )


def _bounded(response: httpx2.Response, most: int) -> bytes:
    data = bytearray()
    for part in response.iter_raw():
        data += part
        if len(data) > most:
            malformed("it is longer than the limit")
    return bytes(data)


def _lines(response: httpx2.Response) -> Iterator[bytes]:
    data, size = bytearray(), 0
    for part in response.iter_raw():
        size += len(part)
        data += part
        *lines, rest = bytes(data).split(b"\n")
        data = bytearray(rest)
        if size > _STREAM_BYTES or len(data) > _LINE_BYTES:
            malformed("it is longer than the limit")
        yield from lines


def _object(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        malformed("it is not a JSON object")
    return found


def _refusal(status: int, data: bytes) -> TallystickError:
    try:
        error = _object(data).get("error")
    except CorruptFileError:
        error = None
    said = error.get("message") if isinstance(error, dict) else None
    why = said[:400] if isinstance(said, str) else f"status {status}"
    kind = UsageError if status in (400, 401, 403, 404, 413) else CannotCheckError
    return kind(f"The server refuses: {why}", "Change the request, or ask again later.")


def malformed(why: str) -> NoReturn:
    """Raise CorruptFileError for what a server has sent."""
    raise CorruptFileError(f"The server's response is malformed: {why}.", "Use another server.")
