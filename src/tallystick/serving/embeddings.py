"""Requests for embeddings by OpenAI's interface, each text with a receipt of its own."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tallystick.answers.encoding_job import EncodingRequest
from tallystick.answers.layout import EMBEDDING
from tallystick.answers.request import new_secret
from tallystick.answers.statement import ModelStatement
from tallystick.errors import StorageError, UsageError
from tallystick.serving.api_keys import ServingLimits
from tallystick.serving.encoder_thread import EncoderThread, KeptEncoding, WantedEncoding
from tallystick.serving.fields import SERVER, ApiError, Fields, invalid, no_room, texts_or_tokens
from tallystick.serving.keeping import AnswerKeeper, KeptRoom
from tallystick.serving.kept.space import kept_bytes

FLOAT, BASE64 = "float", "base64"


@dataclass(frozen=True)
class AskedEmbeddings:
    """What a request for embeddings asks for: one of each of `requests`, written as `form`."""

    requests: tuple[EncodingRequest, ...]
    form: str


def read_embeddings(
    fields: Fields, statement: ModelStatement, limits: ServingLimits
) -> AskedEmbeddings:
    """A request of `/v1/embeddings`, without its model. Raises ApiError, UsageError."""
    inputs = texts_or_tokens("input", fields.raw("input"), limits.key_texts, "texts are encoded")
    form = fields.of("encoding_format", str, FLOAT)
    if form not in (FLOAT, BASE64):
        raise invalid("encoding_format", "it must be float or base64")
    why = {"dimensions": "an embedding is not shortened: its receipt is of all of it"}
    fields.neutral({"dimensions": (), "user": ()}, why)
    secret = fields.hex("secret", 32)
    fields.end()
    requests = tuple(
        EncodingRequest(statement.digest, EMBEDDING, secret=secret or new_secret(), **one)
        for one in inputs
    )
    return AskedEmbeddings(requests, form)


async def embed(
    asked: AskedEmbeddings,
    thread: EncoderThread,
    owner: str,
    keeper: AnswerKeeper,
    limits: ServingLimits,
) -> list[KeptEncoding]:
    """The encodings that a request asks for. Raises ApiError, UsageError."""
    work = asyncio.get_running_loop().run_in_executor
    rooms = await work(None, lambda: _reserve(asked.requests, thread, keeper))
    pairs = zip(asked.requests, rooms, strict=True)
    wanted = [WantedEncoding(owner, request, room) for request, room in pairs]
    try:
        thread.submit(wanted)
    except ApiError:
        for room in rooms:
            room.release()
        raise
    try:
        results = asyncio.gather(*(asyncio.wrap_future(one.result) for one in wanted))
        return await asyncio.wait_for(results, limits.seconds)
    except asyncio.TimeoutError:
        why = f"The embeddings are not there after {limits.seconds:g} seconds."
        raise ApiError(504, why, kind=SERVER, code="timeout") from None
    finally:
        thread.cancel(wanted)


def _reserve(
    requests: Sequence[EncodingRequest], thread: EncoderThread, keeper: AnswerKeeper
) -> list[KeptRoom]:
    """Room for each encoding, or for none. Raises ApiError."""
    model = thread.encoder.model
    values, found = thread.encoder.encoding.values, list[KeptRoom]()
    try:
        for request in requests:
            size = kept_bytes(len(request.to_bytes()), model.longest, values)
            found.append(keeper.reserve(size))
    except StorageError:
        for room in found:
            room.release()
        raise no_room() from None
    return found


def embeddings_members(
    asked: AskedEmbeddings, kept: Sequence[KeptEncoding], model: str, digest: str
) -> dict[str, Any]:
    """The response. Each embedding has its receipt as `tallystick`."""
    tokens = sum(len(one.encoding.job.encoded.prompt) for one in kept)
    return {
        "object": "list",
        "data": [_embedding(n, one, asked.form) for n, one in enumerate(kept)],
        "model": model,
        "system_fingerprint": digest,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


def _embedding(index: int, kept: KeptEncoding, form: str) -> dict[str, Any]:
    values = kept.encoding.values
    if form == FLOAT and not np.isfinite(values).all():
        raise UsageError(
            "The embedding contains a number that JSON cannot express.", "Ask for base64."
        )
    data = base64.b64encode(values.astype("<f4").tobytes()).decode()
    job = kept.encoding.job
    request = json.loads(job.request.to_bytes())
    del request["parts"]["input"]
    return {
        "object": "embedding",
        "index": index,
        "embedding": data if form == BASE64 else [float(value) for value in values],
        "tallystick": {
            "id": kept.id,
            "receipt": json.loads(kept.encoding.receipt),
            "request": request,
            "answer": json.loads(job.encoded.to_bytes()),
        },
    }
