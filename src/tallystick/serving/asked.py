"""What OpenAI's requests ask for, as requests of ours (ANSWERS 5).

Every field is honoured or refused by name. Defaults are the interface's: the temperature is 1. A
request without a seed or a nonce gets a seed of the server's, and its receipt says so.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tallystick.answers.layout import Settings
from tallystick.answers.request import NONCE_BYTES, Message, ModelRequest, new_secret
from tallystick.answers.statement import ModelStatement
from tallystick.limits import LIMITS
from tallystick.serving.api_keys import ServingLimits
from tallystick.serving.fields import Fields, invalid, refused, texts_or_tokens

CHAT, COMPLETIONS = "chat", "completions"
_SEED_MAX = (1 << 64) - 1
_COMPLETION_TOKENS = 16  # OpenAI's default
_NOT_CLAIMED = (
    "an answer claims log-probabilities of its own tokens only (ANSWERS 3.6): other tokens' could "
    "not be checked"
)
_NO_TOOLS = "this server has no tools; put what the model shall know into the messages"
_WHY = {
    "tools": _NO_TOOLS, "functions": _NO_TOOLS, "tool_choice": _NO_TOOLS,
    "function_call": _NO_TOOLS, "parallel_tool_calls": _NO_TOOLS,
    "response_format": "grammars are not part of the sampler's contract; only text is",
    "modalities": "only text is answered", "audio": "only text is answered",
    "store": "receipts are kept, other things are not",
}  # fmt: skip
# Fields of the interface that a request may have where they ask for nothing.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "audio": (), "function_call": ("none",), "functions": ([],), "metadata": ({},),
    "modalities": (["text"],), "moderation": (), "parallel_tool_calls": (False,), "prediction": (),
    "prompt_cache_key": (), "prompt_cache_retention": (), "reasoning_effort": (),
    "response_format": ({"type": "text"},), "safety_identifier": (),
    "service_tier": ("auto", "default"), "store": (False,), "tool_choice": ("none",),
    "tools": ([],), "user": (), "verbosity": (), "web_search_options": (),
}  # fmt: skip
_NEUTRAL_COMPLETIONS: dict[str, tuple[Any, ...]] = {
    "echo": (False,), "suffix": ("",), "best_of": (1,)
}  # fmt: skip
_WHY_COMPLETIONS = {
    "echo": "the prompt is not repeated", "suffix": "no model here fills in a middle",
    "best_of": "every answer that is computed is given: use n",
}  # fmt: skip
_ROLES = ("assistant", "developer", "system", "user")
# What a client's own library puts into a message that it has received, as null or empty.
_EMPTY = ("annotations", "audio", "function_call", "name", "refusal", "tool_call_id", "tool_calls")


@dataclass(frozen=True)
class AskedAnswers:
    """What a request asks for: an answer to each of `requests`, as many choices as each says.

    `stops` are the stop strings. `logprobs` asks for the log-probabilities, `usage` for a last
    chunk of a stream with the numbers of tokens.
    """

    route: str
    requests: tuple[ModelRequest, ...]
    stream: bool
    usage: bool
    logprobs: bool

    @property
    def stops(self) -> tuple[str, ...]:
        return self.requests[0].stop_strings


@dataclass(frozen=True)
class Named:
    """What a request is read against: the model's statement, and whether its template reads a
    date."""

    statement: ModelStatement
    dated: bool


def read_chat(fields: Fields, model: Named, limits: ServingLimits) -> AskedAnswers:
    """A request of `/v1/chat/completions`, without its model. Raises ApiError, UsageError."""
    messages = read_messages(fields.raw("messages"))
    logprobs = read_logprobs(fields, CHAT)
    if "max_completion_tokens" in fields and "max_tokens" in fields:
        raise invalid("max_tokens", "give max_completion_tokens or max_tokens")
    longest = max((name.answer for name in model.statement.programs), default=1)
    made = _common(CHAT, fields, model, limits, min(longest, limits.answer_tokens))
    return made(({"messages": messages},), logprobs)


def read_completions(fields: Fields, model: Named, limits: ServingLimits) -> AskedAnswers:
    """A request of `/v1/completions`, without its model. Raises ApiError, UsageError."""
    prompts = texts_or_tokens(
        "prompt", fields.raw("prompt"), limits.prompts, "prompts are answered"
    )
    logprobs = read_logprobs(fields, COMPLETIONS)
    made = _common(
        COMPLETIONS, fields, model, limits, min(_COMPLETION_TOKENS, limits.answer_tokens)
    )
    return made(tuple(prompts), logprobs)


def _common(
    route: str, fields: Fields, model: Named, limits: ServingLimits, tokens: int
) -> Callable[[tuple[Mapping[str, Any], ...], bool], AskedAnswers]:
    """What both interfaces share. Raises ApiError, UsageError."""
    read_neutral(fields, route)
    tokens_by = "max_completion_tokens" if "max_completion_tokens" in fields else "max_tokens"
    settings: dict[str, Any] = {
        "max_tokens": fields.whole(tokens_by, 1, limits.answer_tokens, tokens),
        "temperature": fields.number("temperature", 0, 2, 1.0),
        "top_p": fields.number("top_p", 0, 1, 1.0),
        "presence": fields.number("presence_penalty", -2, 2, 0.0),
        "frequency": fields.number("frequency_penalty", -2, 2, 0.0),
        "bias": _bias(fields.of("logit_bias", dict, {}), model.statement.vocabulary),
        # What the interface lacks, and a client's library passes on as `extra_body`.
        "top_k": fields.whole("top_k", 0, model.statement.vocabulary, 0),
        "min_p": fields.number("min_p", 0, 1, 0.0),
        "repetition": fields.number("repetition_penalty", 0, 100, 1.0),
        "stop": _stop_tokens(fields.of("stop_tokens", list, [])),
    }
    choices = fields.whole("n", 1, limits.choices, 1)
    stop_strings = _stops(fields.raw("stop"))
    nonce, secret = fields.hex("nonce", NONCE_BYTES), fields.hex("secret", 32)
    seed, by = fields.raw("seed"), fields.raw("seed_by")
    if seed is not None and (type(seed) is not int or not 0 <= seed <= _SEED_MAX):
        raise invalid("seed", f"it must be a whole number from 0 to {_SEED_MAX}")
    if seed is not None and nonce is not None:
        raise invalid("nonce", "the seed follows from a nonce: give one of them")
    servers = seed is None and nonce is None
    if by not in (None, "client", "server") or (by is not None and servers != (by == "server")):
        raise invalid("seed_by", "`client` comes with a seed or a nonce, `server` with neither")
    stream, usage = read_stream(fields)
    date = fields.of("date", str, "") or None
    fields.end()
    settings["seed"] = secrets.randbits(64) if servers else seed or 0

    def made(inputs: tuple[Mapping[str, Any], ...], logprobs: bool) -> AskedAnswers:
        today = time.strftime("%Y-%m-%d", time.gmtime()) if model.dated and route == CHAT else None
        requests = tuple(
            ModelRequest(
                model.statement.digest,
                Settings(**settings),
                nonce=nonce,
                server_seed=servers,
                date=date or today,
                stop_strings=stop_strings,
                choices=choices,
                secret=secret or new_secret(),
                **given,
            )
            for given in inputs
        )
        return AskedAnswers(route, requests, stream, usage, logprobs)

    return made


def read_logprobs(fields: Fields, route: str) -> bool:
    """Whether log-probabilities are asked for. Raises ApiError for those of other tokens."""
    if route == CHAT:
        if fields.whole("top_logprobs", 0, 20, 0):
            raise refused("top_logprobs", _NOT_CLAIMED)
        return fields.of("logprobs", bool, False)
    found = "logprobs" in fields
    if fields.whole("logprobs", 0, 5, 0):
        raise refused("logprobs", f"only 0: {_NOT_CLAIMED}")
    return found


def read_neutral(fields: Fields, route: str) -> None:
    """Drop what asks for nothing. Raises ApiError where it asks for something."""
    if route == COMPLETIONS:
        fields.neutral(_NEUTRAL_COMPLETIONS, _WHY_COMPLETIONS)
    fields.neutral(_NEUTRAL, _WHY)


def read_stream(fields: Fields) -> tuple[bool, bool]:
    """Whether the response is a stream, and whether it ends with the numbers of tokens."""
    stream = fields.of("stream", bool, False)
    options = Fields(fields.of("stream_options", dict, {}))
    if not stream and "include_usage" in options:
        raise invalid("stream_options", "it is for streams")
    usage = options.of("include_usage", bool, False)
    options.neutral({"include_obfuscation": (False,)}, {})
    options.end()
    return stream, usage


def read_messages(given: Any) -> tuple[Message, ...]:
    if not isinstance(given, list) or not given:
        raise invalid("messages", "it must be a list of messages")
    return tuple(_message(one, f"messages[{n}]") for n, one in enumerate(given))


def _message(given: Any, where: str) -> Message:
    if not isinstance(given, dict):
        raise invalid(where, "it must be an object with a role and a content")
    fields = Fields(given)
    role, content = fields.of("role", str, ""), fields.raw("content")
    if role not in _ROLES:
        raise refused(f"{where}.role", f"it must be one of {', '.join(_ROLES)}")
    if isinstance(content, list):
        content = _one_text(content, f"{where}.content")
    if not isinstance(content, str):
        raise invalid(f"{where}.content", "it must be a text")
    for name in _EMPTY:
        if fields.raw(name) not in (None, []):
            raise refused(f"{where}.{name}", "this server answers to texts only")
    fields.end()
    return {"role": role, "content": content}


def _one_text(parts: list[Any], where: str) -> str:
    """The text of a message that has one part, a text: how several are joined is no contract."""
    if len(parts) == 1 and isinstance(parts[0], dict) and parts[0].get("type") == "text":
        fields = Fields(parts[0])
        fields.raw("type")
        text = fields.of("text", str, "")
        fields.end()
        return text
    kinds = sorted({str(p.get("type"))[:40] for p in parts if isinstance(p, dict)} - {"text"})
    if kinds:
        raise refused(where, f"this server reads no {kinds[0]}")
    raise refused(where, "a message has one text; send several messages")


def _stops(given: Any) -> tuple[str, ...]:
    found = [given] if isinstance(given, str) else given or []
    if not isinstance(found, list) or not all(isinstance(s, str) and s for s in found):
        raise invalid("stop", "it must be a text, or a list of texts, none empty")
    if len(found) > LIMITS.stop_tokens:
        raise invalid("stop", f"it has more than {LIMITS.stop_tokens} texts")
    return tuple(found)


def _stop_tokens(given: list[Any]) -> tuple[int, ...]:
    if not all(type(token) is int and token >= 0 for token in given):
        raise invalid("stop_tokens", "it must be a list of tokens")
    return tuple(sorted(set(given)))


def _bias(given: Mapping[str, Any], vocabulary: int) -> tuple[tuple[int, float], ...]:
    found: dict[int, float] = {}
    for text, value in given.items():
        token = int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else -1
        if not 0 <= token < vocabulary or str(token) != text:
            raise invalid(
                "logit_bias", f"{text[:20]!r} is no token of a vocabulary of {vocabulary}"
            )
        if type(value) not in (int, float) or not -100 <= value <= 100:
            raise invalid("logit_bias", "a bias is a number from -100 to 100")
        found[token] = float(value)
    return tuple(sorted(found.items()))
