"""Answers as the objects of OpenAI's interface, with the receipt in each choice."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tallystick.answers.files import AnswerFiles
from tallystick.answers.job import AnswerJob
from tallystick.serving.asked import CHAT, AskedAnswers
from tallystick.serving.engine_thread import KeptAnswer
from tallystick.serving.spelling import Decode

# A log-probability that JSON has no number for; OpenAI writes so what is very unlikely.
_LEAST = -9999.0
DONE = b"data: [DONE]\n\n"


def event(value: Mapping[str, Any]) -> bytes:
    """One event of a stream."""
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


def receipt_members(kept: KeptAnswer) -> dict[str, Any]:
    """What a choice has as `tallystick`: the receipt, the answer's file, the request's without its
    input, which the client has, and the client's cancellation where there is one."""
    job: AnswerJob = kept.answer.job
    request = json.loads(job.request.to_bytes())
    del request["parts"]["input"]
    return {
        "id": kept.id,
        "receipt": json.loads(kept.answer.receipt),
        "request": request,
        "answer": json.loads(job.spoken.to_bytes()),
        **_cancelled(kept.answer.cancellation),
    }


def kept_members(id_: str, files: AnswerFiles) -> dict[str, Any]:
    """What `/v1/receipts/ID` gives: all files of an answer but those of its model."""
    return {
        "object": "tallystick.answer",
        "id": id_,
        "model": files.statement.digest.hex(),
        "receipt": json.loads(files.receipt),
        "request": json.loads(files.request.to_bytes()),
        "answer": json.loads(files.spoken.to_bytes()),
        **_cancelled(files.cancellation),
    }


def _cancelled(signed: bytes | None) -> dict[str, Any]:
    return {} if signed is None else {"cancellation": json.loads(signed)}


@dataclass(frozen=True)
class Replies:
    """The objects of one response. `fingerprint` is the model digest, `decode` makes texts of
    tokens."""

    id: str
    created: int
    model: str
    fingerprint: str
    asked: AskedAnswers
    decode: Decode

    def _whole(self, object_: str, choices: list[Any], **more: Any) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": object_,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
            "choices": choices,
            **more,
        }

    # -- a whole response --------------------------------------------------------------------------

    def response(
        self, kept: Sequence[KeptAnswer], texts: Sequence[str], usage: Mapping[str, int]
    ) -> dict[str, Any]:
        """The response to a request that does not stream. `texts` are without stop strings."""
        chat = self.asked.route == CHAT
        choices = []
        for index, (one, text) in enumerate(zip(kept, texts, strict=True)):
            content: dict[str, Any] = {"text": text}
            if chat:
                content = {"message": {"role": "assistant", "content": text, "refusal": None}}
            pairs = list(zip(one.answer.tokens, map(float, one.answer.logprobs), strict=True))
            choices.append(
                {
                    "index": index,
                    **content,
                    "logprobs": self._logprobs(pairs, 0),
                    "finish_reason": one.answer.finish,
                    "tallystick": receipt_members(one),
                }
            )
        return self._whole("chat.completion" if chat else "text_completion", choices, usage=usage)

    # -- a stream ----------------------------------------------------------------------------------

    def begins(self, index: int) -> bytes | None:
        """The first chunk of a choice of a chat."""
        if self.asked.route != CHAT:
            return None
        delta = {"role": "assistant", "content": "", "refusal": None}
        return self._chunk(index, {"delta": delta}, None, None)

    def goes_on(
        self, index: int, text: str, tokens: Sequence[tuple[int, float]], offset: int
    ) -> bytes:
        """A chunk with more text, and the tokens since the last one; `offset` characters have been
        said before."""
        content = {"delta": {"content": text}} if self.asked.route == CHAT else {"text": text}
        return self._chunk(index, content, self._logprobs(tokens, offset), None)

    def ends(self, index: int, kept: KeptAnswer) -> bytes:
        """The last chunk of a choice, with its receipt."""
        content: dict[str, Any] = {"delta": {}} if self.asked.route == CHAT else {"text": ""}
        content["tallystick"] = receipt_members(kept)
        return self._chunk(index, content, None, kept.answer.finish)

    def usage(self, usage: Mapping[str, int]) -> bytes:
        return event(self._whole(self._stream, [], usage=usage))

    @property
    def _stream(self) -> str:
        return "chat.completion.chunk" if self.asked.route == CHAT else "text_completion"

    def _chunk(
        self, index: int, content: Mapping[str, Any], logprobs: Any, finish: str | None
    ) -> bytes:
        choice = {"index": index, **content, "logprobs": logprobs, "finish_reason": finish}
        more = {"usage": None} if self.asked.usage else {}
        return event(self._whole(self._stream, [choice], **more))

    # -- log-probabilities -------------------------------------------------------------------------

    def _logprobs(self, pairs: Sequence[tuple[int, float]], offset: int) -> Any:
        if not self.asked.logprobs:
            return None
        texts = [self.decode([token]) for token, _ in pairs]
        values = [value if math.isfinite(value) else _LEAST for _, value in pairs]
        if self.asked.route == CHAT:
            content = [
                {"token": text, "logprob": value, "bytes": _bytes(text), "top_logprobs": []}
                for text, value in zip(texts, values, strict=True)
            ]
            return {"content": content, "refusal": None}
        offsets = []
        for text in texts:
            offsets.append(offset)
            offset += len(text)
        return {
            "tokens": texts,
            "token_logprobs": values,
            "top_logprobs": None,
            "text_offset": offsets,
        }


def _bytes(text: str) -> list[int] | None:
    """The bytes of a token; None for a part of a character, whose text does not show them."""
    return None if "\ufffd" in text else list(text.encode("utf-8"))
