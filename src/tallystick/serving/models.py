"""The models that a server has: each with its thread, under a name."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

from tallystick.answers.statement import ModelStatement
from tallystick.serving.asked import Named
from tallystick.serving.engine_thread import ModelThread
from tallystick.serving.refusals import ApiError

_DATE = "strftime_now"  # what a template calls for today's date (ANSWERS 5.6)


@dataclass(frozen=True, eq=False)
class ServedModel:
    """A model that is served. Clients name it by `name`, or by its statement's digest."""

    name: str
    thread: ModelThread
    created: int = field(default_factory=lambda: int(time.time()))
    token_text: Callable[[int], str] = field(init=False)

    def __post_init__(self) -> None:
        decode = self.thread.answering.decode
        cached = lru_cache(1 << 16)(lambda token: decode([token]))
        object.__setattr__(self, "token_text", cached)

    @property
    def statement(self) -> ModelStatement:
        return self.thread.answering.statement

    @property
    def digest(self) -> str:
        return self.statement.digest.hex()

    @property
    def named(self) -> Named:
        template = self.thread.answering.model.chat_template
        return Named(self.statement, template is not None and _DATE in template)

    def members(self) -> dict[str, object]:
        """The model's object in `/v1/models`."""
        return {
            "id": self.name,
            "object": "model",
            "created": self.created,
            "owned_by": "tallystick",
            "digest": self.digest,
            "contract": self.statement.contract,
        }


def find_model(models: list[ServedModel], asked: object) -> ServedModel:
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
