"""One question to a model server: a request of the client's own, whose answer is streamed.

The client may end the answer while it comes (ANSWERS 6.6). It signs that the answer ends with the
tokens that it has heard. What the server has computed beyond them comes too, and is not shown.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tallystick.answers.beside_receipt import Spoken
from tallystick.answers.cancellation import sign_cancellation
from tallystick.answers.request import ModelRequest
from tallystick.commit.encoding import canonical_json
from tallystick.commit.signing import PrivateKey
from tallystick.errors import CannotCheckError, TallystickError, UsageError
from tallystick.serving.chat_client import ChatClient, malformed
from tallystick.serving.spelling import shown

# How long to wait for the server's reply to a cancellation after the stream has ended.
CANCEL_SECONDS = 30.0


@dataclass(frozen=True)
class Received:
    """What a stream has given: the text that was shown, and the files of the answer.

    `ended_after` is after how many tokens the client has ended it, `taken` whether the server has
    said that it takes that, `refusal` why it does not. It may have said neither.
    """

    shown: str
    request: ModelRequest
    receipt: bytes
    spoken: Spoken
    cancellation: bytes | None = None
    ended_after: int | None = None
    refusal: str | None = None
    taken: bool = False


class Question:
    """A `request` to the server of `client`. `heard` gets each piece of the answer's text.
    `key` is the private half of the request's client key: with it the answer can be cancelled.

    Raises UsageError for a request that asks for several answers.
    """

    def __init__(
        self,
        client: ChatClient,
        request: ModelRequest,
        heard: Callable[[str], None],
        key: PrivateKey | None = None,
    ) -> None:
        if request.choices != 1:
            raise UsageError(
                f"The request asks for {request.choices} answers, but only one can be shown here.",
                "Make a request with one choice.",
            )
        self._client, self._request, self._heard, self._key = client, request, heard, key
        self._tokens, self._begun, self.cancelled = 0, False, False
        self._ended_after: int | None = None
        self._sending: threading.Thread | None = None
        self._refusal: str | None = None
        self._taken = False

    def cancel(self) -> None:
        """End the answer after the tokens that have come, or with the first one. It does not wait
        for the server. A handler of signals may call it, and so may `heard`: both run in the thread
        that streams."""
        self.cancelled = True
        if self._begun and self._ended_after is None and self._key is not None:
            most = self._request.settings.max_tokens
            self._ended_after = min(max(self._tokens, 1), most)
            signed = sign_cancellation(self._key, self._request, self._ended_after)
            self._sending = threading.Thread(target=self._send, args=[signed], daemon=True)
            self._sending.start()

    def _send(self, signed: bytes) -> None:
        try:
            self._client.cancel(signed)
        except TallystickError as error:
            self._refusal = error.message
        else:
            self._taken = True

    def answer(self) -> Received:
        """Stream the answer. Raises as `ChatClient.events`."""
        said, rest = "", ""
        told: dict[str, Any] | None = None
        chat = self._request.messages is not None
        body = {
            "model": self._client.model,
            "stream": True,
            # They say how many tokens a piece of text has.
            **({"logprobs": True} if chat else {"logprobs": 0}),
            "tallystick": {"request": self._request.to_bytes().decode("utf-8")},
        }
        for value in self._client.events(
            "/v1/chat/completions" if chat else "/v1/completions", body
        ):
            choice = _choice(value)
            piece, tokens = _said(choice)
            self._tokens += tokens  # before it is decided whether the piece is shown
            if piece and self._ended_after is None:
                said += piece
                self._heard(piece)
            elif piece:
                rest += piece
            if isinstance(choice.get("tallystick"), dict):
                told = choice["tallystick"]
            # Before its first event a server may not have the request yet.
            self._begun = True
            if self.cancelled:
                self.cancel()
        if told is None:
            raise CannotCheckError("The stream ended without a receipt.", "Ask again.")
        if self._sending is not None:
            self._sending.join(CANCEL_SECONDS)
        return self._received(told, said, rest)

    def _received(self, told: dict[str, Any], said: str, rest: str) -> Received:
        spoken = Spoken.from_bytes(_bytes(told.get("answer")))
        cancelled = told.get("cancellation")
        if cancelled is not None:  # what came after the client's word may be no part of the answer
            whole = shown(spoken.text, self._request.stop_strings)
            rest = whole[len(said) :] if whole.startswith(said) else rest
        if rest:
            self._heard(rest)
        return Received(
            said + rest,
            self._request,
            _bytes(told.get("receipt")),
            spoken,
            None if cancelled is None else _bytes(cancelled),
            self._ended_after,
            self._refusal,
            self._taken,
        )


def _choice(value: dict[str, Any]) -> dict[str, Any]:
    choices = value.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else {}
    if not isinstance(first, dict):
        malformed("a choice in it is not an object")
    return first


def _said(choice: dict[str, Any]) -> tuple[str, int]:
    """The text of a chunk, and how many tokens it tells of."""
    delta, logprobs = choice.get("delta", choice), choice.get("logprobs") or {}
    if not isinstance(delta, dict) or not isinstance(logprobs, dict):
        malformed("a choice in it does not have the form of a chunk")
    piece = delta.get("content") or delta.get("text") or ""
    tokens = logprobs.get("content") or logprobs.get("tokens") or []
    if not isinstance(piece, str) or not isinstance(tokens, list):
        malformed("a choice in it does not have the form of a chunk")
    return piece, len(tokens)


def _bytes(value: object) -> bytes:
    """The file whose JSON this is."""
    if not isinstance(value, dict):
        malformed("a file of the answer is not an object")
    try:
        return canonical_json(value)
    except (TallystickError, TypeError, ValueError, RecursionError):
        malformed("a file of the answer is not canonical JSON")
