"""The models that a server has: each with its thread, under a name."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from tallystick.answers.model import open_model
from tallystick.answers.statement import ModelStatement
from tallystick.answers.template import reads_date
from tallystick.api.answering import Answering
from tallystick.api.encoding import Encoder
from tallystick.api.speculating import Speculation
from tallystick.commit.signing import PrivateKey
from tallystick.serving.api_keys import ServingLimits
from tallystick.serving.asked import Named
from tallystick.serving.encoder_thread import EncoderThread
from tallystick.serving.engine_thread import ModelThread
from tallystick.serving.fields import ApiError
from tallystick.serving.keeping import AnswerKeeper


@dataclass(frozen=True, eq=False)
class Served:
    """A model that is served. Clients name it by `name`, or by its statement's digest."""

    name: str
    thread: ModelThread | EncoderThread
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def opened(self) -> Answering | Encoder:
        """The model, its statement and its programs."""
        thread = self.thread
        return thread.answering if isinstance(thread, ModelThread) else thread.encoder

    @property
    def statement(self) -> ModelStatement:
        return self.opened.statement

    @property
    def digest(self) -> str:
        return self.statement.digest.hex()

    def members(self) -> dict[str, object]:
        """The model's object in `/v1/models`."""
        adapter = self.statement.adapter
        return {
            "id": self.name,
            "object": "model",
            "created": self.created,
            "owned_by": "tallystick",
            "digest": self.digest,
            "contract": self.statement.contract,
            "adapter": None if adapter is None else adapter.digest.hex(),
            "gives": "answers" if isinstance(self.thread, ModelThread) else "embeddings",
        }


@dataclass(frozen=True, eq=False)
class ServedModel(Served):
    """A model that gives answers."""

    thread: ModelThread
    token_text: Callable[[int], str] = field(init=False)

    def __post_init__(self) -> None:
        decode = self.thread.answering.decode
        cached = lru_cache(1 << 16)(lambda token: decode([token]))
        object.__setattr__(self, "token_text", cached)

    @property
    def named(self) -> Named:
        return Named(self.statement, reads_date(self.thread.answering.model.chat_template))


@dataclass(frozen=True, eq=False)
class ServedEncoder(Served):
    """A model that gives embeddings."""

    thread: EncoderThread


def find_model(models: Sequence[Served], asked: object) -> Served:
    """The model that a request names. Raises ApiError."""
    if not isinstance(asked, str):
        raise ApiError(400, "model: name one of /v1/models", param="model")
    for model in models:
        if asked in (model.name, model.digest):
            return model
    raise ApiError(
        404,
        f"There is no model {asked[:80]!r} here; see /v1/models.",
        param="model",
        code="model_not_found",
    )


def served_name(directory: Path, adapter: Path | None) -> str:
    """The name of a model without an adapter, or with one."""
    return (adapter or directory).name


def open_served(
    directory: Path,
    statement: Path | None,
    key: PrivateKey,
    keeper: AnswerKeeper,
    limits: ServingLimits,
    tell: Callable[[BaseException], None],
    threads: int | None,
    memory: int,
    share_prefixes: bool,
    speculation: Speculation | None = None,
    adapter: Path | None = None,
) -> Served:
    """The model in a directory, under the directory's name, or under that of its adapter's. Its
    thread is not started yet. `speculation` is for models that say tokens. Raises as `Answering`
    and `Encoder`."""
    name = served_name(directory, adapter)
    if open_model(directory, adapter).encoding is not None:
        encoder = Encoder(directory, statement, threads)
        return ServedEncoder(name, EncoderThread(encoder, key, keeper, limits, tell))
    answering = Answering(directory, statement, threads, adapter, memory, speculation)
    return ServedModel(name, ModelThread(answering, key, keeper, limits, tell, share_prefixes))
