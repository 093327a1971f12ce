"""Models, requests and answers of vectors/answers: honest ones, and lies of ANSWERS 6 and 8."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from reference.data import Gen
from unit.answers import toy, toy_encoder
from unit.answers.toy import Toy, receipt_of
from unit.answers.toy_encoder import ToyEncoder, receipt_of_encoding

from tallystick.answers.beside_receipt import Encoded, Spoken
from tallystick.answers.cancellation import sign_cancellation
from tallystick.answers.encoding_job import AnyRequest, EncodingJob, EncodingRequest
from tallystick.answers.job import TOKENS, AnswerJob
from tallystick.answers.layout import CLASSES, EMBEDDING, Settings
from tallystick.answers.receipt import CANCELLED, LENGTH, STOP
from tallystick.answers.request import ModelRequest
from tallystick.answers.statement import Adapter, ModelStatement, ProgramName, SpecialToken, Weight
from tallystick.answers.words import AnyJob
from tallystick.commit.checkpoint import run_root
from tallystick.commit.encoding import sha256
from tallystick.commit.signing import PrivateKey
from tallystick.commit.tensor import header_of, tensor_digest
from tallystick.numerics.contracts import ORDERED_1, find_contract

ROUNDED_1 = find_contract("rounded/1").text
CLIENT, STRANGER = PrivateKey(b"client" + bytes(26)), PrivateKey(b"nobody" + bytes(26))
SAMPLED: dict[str, Any] = {
    "temperature": 20.0, "top_k": 9, "top_p": 0.95, "min_p": 0.01, "repetition": 1.2,
    "presence": 0.5, "frequency": 0.25, "bias": ((2, 1.5), (7, -0.1)),
}  # fmt: skip
AnyToy = Toy | ToyEncoder


@cache
def models() -> dict[str, AnyToy]:
    """Models with weights of our own generator: numpy's may change."""
    return {
        "ordered": _toy(ORDERED_1, (5,)),
        "rounded": _toy(ROUNDED_1, ()),
        "embedding": _encoder(ORDERED_1, EMBEDDING),
        "classes": _encoder(ROUNDED_1, CLASSES),
    }


def _toy(contract: str, stop: tuple[int, ...]) -> Toy:
    gen = Gen(f"answers {contract}")
    held = {name: gen.floats(*shape, scale=1.5) for name, shape in toy.SHAPES.items()}
    texts = toy.programs(contract)
    stated = toy.statement(held, texts, stop)
    if stop:
        stated = replace(
            stated,
            files={"tokenizer.json": sha256(b"{}"), "tokenizer_config.json": sha256(b"[]")},
            template=sha256(b"{{ messages }}"),
            special={"bos_token": SpecialToken("<s>", 0), "eos_token": SpecialToken("fin é", 5),
                     "pad_token": SpecialToken("<pad>", None)},
            adapter=Adapter(sha256(b"adapter"), False),
            run=sha256(b"run"),
            about={"name": "a model of vectors"},
        )  # fmt: skip
    return Toy(held, texts, stated)


def _encoder(contract: str, output: str) -> ToyEncoder:
    gen = Gen(f"encodings {contract}")
    held = {name: gen.floats(*shape, scale=1.5) for name, shape in toy_encoder.SHAPES.items()}
    width = toy.WIDTH
    texts = {ProgramName(n, width, output): toy_encoder.program(n, contract) for n in (8, 20)}
    slots = {n: Weight(header_of(a), tensor_digest(a)) for n, a in held.items()}
    digests = {name: text.digest() for name, text in texts.items()}
    full = next(iter(texts.values())).contract
    return ToyEncoder(held, texts, ModelStatement(full, toy.VOCABULARY, slots, digests))


@dataclass(frozen=True)
class Asked:
    """A request to one of the models."""

    name: str
    model: str
    request: AnyRequest


@cache
def requests() -> dict[str, Asked]:
    return {asked.name: asked for asked in _requests()}


def _secret(name: str) -> bytes:
    return sha256(name.encode())


def _of(name: str, model: str, settings: dict[str, Any] | None = None, **parts: Any) -> Asked:
    asked = Settings(**{"max_tokens": 3, "seed": 11, **(settings or {})})
    if not {"text", "messages"} & parts.keys():
        parts = {"tokens": (3, 1, 4), **parts}
    digest = models()[model].statement.digest
    return Asked(name, model, ModelRequest(digest, asked, secret=_secret(name), **parts))


def _requests() -> Iterator[Asked]:
    nonce = bytes(range(16))
    hot = {"temperature": 9.0}
    for model in ("ordered", "rounded"):
        yield _of(f"greedy {model}", model, {"max_tokens": 4})
        yield _of(f"draw {model}", model, hot, choices=2)
        yield _of(f"full {model}", model, SAMPLED, choices=3, client=CLIENT.public)
    yield _of("a nonce", "ordered", hot, nonce=nonce, choices=2)
    yield _of("the largest seed", "ordered", {**hot, "seed": 2**64 - 1})
    yield _of("a seed of the server's", "ordered", server_seed=True)
    yield _of(
        "neutral once rounded", "ordered", {"top_p": 1 - 2.0**-40, "repetition": 1 + 2.0**-40}
    )
    yield _of("cold but full", "ordered", {"repetition": 1.3, "top_k": 4})
    yield _of("a longer prompt", "ordered", {"max_tokens": 6}, tokens=tuple(range(13)))
    yield _of("as long as there is room", "ordered", {"max_tokens": 100}, tokens=(6, 7) * 10)
    yield _of("its own stop tokens", "ordered", {"max_tokens": 4, "stop": tuple(range(1, 16))})
    yield _of("stop strings", "ordered", stop_strings=("fin", "é\n"), client=CLIENT.public)
    yield _of("a text", "ordered", text="Größe, \u00e9\u2028 \U0001f600 \x01")
    yield _of(
        "messages", "ordered", hot, nonce=nonce, date="2026-02-28T23:59:59", choices=2,
        messages=({"role": "system", "content": "Be brief.", "extra": [1, None, True, {}]},
                  {"role": "user", "content": "Why?"}),
    )  # fmt: skip
    for model in ("embedding", "classes"):
        digest, output = models()[model].statement.digest, model
        for name, given in (
            (model, {"tokens": (3, 1, 4, 1, 5)}),
            (f"{model} of a longer text", {"tokens": tuple(range(16))}),
            (f"{model} of a text", {"text": "ééé"}),
        ):
            yield Asked(name, model, EncodingRequest(digest, output, secret=_secret(name), **given))


@dataclass(frozen=True)
class Signed:
    """A job with the files that stand beside its receipt."""

    name: str
    asked: str
    said: AnyJob
    receipt: bytes
    cancellation: bytes | None = None


def honest_spoken(asked: Asked, choice: int, most: int | None = None) -> tuple[AnswerJob, str]:
    """The honest answer and its finish; with `most` it ends after so many tokens."""
    model, request = models()[asked.model], asked.request
    assert isinstance(model, Toy) and isinstance(request, ModelRequest)
    prompt = request.tokens or (0, 3, 9)
    tokens: list[int] = []
    stops = {*model.statement.stop, *request.settings.stop}
    room = min(request.settings.max_tokens, model.statement.most(len(prompt), request.settings.set))
    for _ in range(min(room, most or room)):
        spoken = Spoken(prompt, (*tokens, 0), np.zeros(len(tokens) + 1, np.float32))
        after = model.executed(AnswerJob(model.statement, request, spoken, choice))
        tokens.append(int(np.asarray(after.slots[TOKENS])[len(tokens)]))
        if tokens[-1] in stops:
            break
    finish = STOP if tokens[-1] in stops else LENGTH if len(tokens) == room else CANCELLED
    return with_tokens(asked, choice, prompt, tuple(tokens)), finish


def with_tokens(
    asked: Asked, choice: int, prompt: tuple[int, ...], tokens: tuple[int, ...], text: str = "é"
) -> AnswerJob:
    """These tokens with the log-probabilities that the step gives for its own ones."""
    model = models()[asked.model]
    assert isinstance(model, Toy) and isinstance(asked.request, ModelRequest)
    spoken = Spoken(prompt, tokens, np.full(len(tokens), -1.5, np.float32), text)
    job = AnswerJob(model.statement, asked.request, spoken, choice)
    if all(0 <= token < toy.VOCABULARY for token in (*prompt, *tokens)):
        logs = np.array(model.executed(job).slots["buffer.answer.logprobs"])[: len(tokens)]
        job = replace(job, spoken=replace(spoken, logprobs=logs))
    return job


def honest_encoding(asked: Asked) -> EncodingJob:
    model, request = models()[asked.model], asked.request
    assert isinstance(model, ToyEncoder) and isinstance(request, EncodingRequest)
    prompt = request.tokens or (0, 2, 2, 2, 1)
    job = EncodingJob(model.statement, request, Encoded(prompt, np.zeros(toy.WIDTH, np.float32)))
    values = np.array(model.executed(job).slots["buffer.answer.values"], np.float32)
    named = request.output == CLASSES
    labels = tuple(f"class {n}" for n in range(toy.WIDTH)) if named else ()
    return replace(job, encoded=Encoded(prompt, values, labels))


def rooted(said: AnyJob, state: bytes) -> dict[str, bytes]:
    """`state` in a receipt, with the root that follows from it."""
    first = said.commitment.genesis_root
    return {"state": state, "root": run_root(said.digest, [(0, first), (1, state)])}


def true_run(said: AnyJob) -> dict[str, bytes]:
    """The run of the job as it is executed, whatever was claimed."""
    model = next(m for m in models().values() if m.statement.digest == said.statement.digest)
    return rooted(said, model.executed(said).root())  # type: ignore[arg-type]


def answers() -> Iterator[Signed]:
    yield from _honest()
    yield from _contradictions()
    yield from _runs()
    yield from _cancellations()
    yield from _encodings()


def _honest() -> Iterator[Signed]:
    for asked in requests().values():
        if isinstance(asked.request, EncodingRequest):
            job = honest_encoding(asked)
            yield Signed(f"honest: {asked.name}", asked.name, job, receipt_of_encoding(job))
            continue
        for choice in range(asked.request.choices):
            said, finish = honest_spoken(asked, choice)
            name = f"honest: {asked.name}, choice {choice}"
            yield Signed(name, asked.name, said, receipt_of(said, finish))


def _contradictions() -> Iterator[Signed]:
    greedy = requests()["greedy ordered"]
    said, finish = honest_spoken(greedy, 0)

    def lie(name: str, job: AnswerJob, finish: str = finish, **odd: Any) -> Signed:
        return Signed(name, "greedy ordered", job, receipt_of(job, finish, **odd))

    def other(*tokens: int, prompt: tuple[int, ...] = (3, 1, 4)) -> AnswerJob:
        return with_tokens(greedy, 0, prompt, tokens)

    yield lie("another root", said, root=bytes(32))
    yield lie("the root of another state", said, state=bytes(32))
    yield lie("one token of prompt more", said, prompt=4)
    yield lie("one token of answer less", said, answer=len(said.spoken.tokens) - 1)
    yield lie("a choice that nobody asked for", replace(said, choice=1))
    yield lie("another prompt", other(1, 2, 3, 4, prompt=(3, 1, 5)), LENGTH)
    for token in (16, -1, 1 << 40):
        yield lie(f"the token {token}", other(1, token, 2, 3), LENGTH)
    yield lie("a prompt outside of the vocabulary", other(1, 2, 3, 4, prompt=(3, 99, 4)), LENGTH)
    yield lie("the finish of an encoding", said, EMBEDDING)
    for tokens, end in (
        ((1, 2), STOP), ((1, 5, 2, 3), LENGTH), ((5, 5), STOP), ((1, 2, 3, 5), LENGTH),
        ((1, 5), CANCELLED), ((1, 2), LENGTH), ((1, 2, 3, 4), CANCELLED), ((1, 2, 3, 4, 6), LENGTH),
        ((1, 2, 3, 4, 5), STOP),
    ):  # fmt: skip
        name = f"`{end}` after {' '.join(map(str, tokens))}"
        yield lie(name, other(*tokens), end)
    elsewhere = replace(said, request=replace(said.request, model=bytes(32)))
    yield Signed("a request of another model", "greedy of another model", elsewhere,
                 receipt_of(elsewhere, finish))  # fmt: skip
    room = requests()["as long as there is room"]
    short, _ = honest_spoken(room, 0, most=2)
    yield Signed("`length` before the bucket ends", room.name, short, receipt_of(short, LENGTH))


def _runs() -> Iterator[Signed]:
    """What only an execution tells, and findings about what stands beside a receipt."""
    for name in ("greedy ordered", "draw ordered", "full ordered", "full rounded"):
        asked = requests()[name]
        said, finish = honest_spoken(asked, 0)
        first = next(t for t in range(16) if t != said.spoken.tokens[0] and t != 5)
        rest = tuple(6 if t == 5 else t for t in said.spoken.tokens[1:])
        count = asked.request.settings.max_tokens  # type: ignore[union-attr]
        tokens = ((first, *rest) + (1,) * count)[:count]
        false = with_tokens(asked, 0, said.spoken.prompt, tokens)
        yield Signed(f"a false token, {name}", name, false, receipt_of(false))
        yield Signed(
            f"the true run of a false token, {name}", name, false,
            receipt_of(false, LENGTH, **true_run(false)),
        )  # fmt: skip
        logs = said.spoken.logprobs.copy()
        logs[-1] = np.nextafter(logs[-1], np.float32(0))
        near = replace(said, spoken=replace(said.spoken, logprobs=logs))
        yield Signed(f"a false log-probability, {name}", name, near, receipt_of(near, finish))
        yield Signed(
            f"a log-probability that is not the signed one, {name}", name, near,
            receipt_of(said, finish),
        )  # fmt: skip
        yield Signed(
            f"a false state, {name}",
            name,
            said,
            receipt_of(said, finish, **rooted(said, bytes(32))),
        )
    asked = requests()["greedy ordered"]
    said, finish = honest_spoken(asked, 0)
    count = len(said.spoken.tokens)
    for what in (np.nan, np.inf, -np.inf, 0.0, -0.0, 3e38):
        logs = np.full(count, what, np.float32)
        odd = replace(said, spoken=replace(said.spoken, logprobs=logs))
        yield Signed(f"log-probabilities {what}", asked.name, odd, receipt_of(odd, finish))


def _cancellations() -> Iterator[Signed]:
    asked = requests()["full ordered"]
    assert isinstance(asked.request, ModelRequest)
    own = sign_cancellation(CLIENT, asked.request, 1, 0)
    for choice in range(2):
        said, finish = honest_spoken(asked, choice, most=1)
        assert finish == CANCELLED
        receipt = receipt_of(said, finish)
        name = f"cancelled, choice {choice}"
        beside = sign_cancellation(CLIENT, asked.request, 1, choice)
        yield Signed(name, asked.name, said, receipt, beside)
        yield Signed(f"{name}, nothing beside it", asked.name, said, receipt)
    yield Signed("the cancellation of another choice", asked.name, said, receipt, own)
    said, finish = honest_spoken(asked, 0, most=1)
    receipt, two = receipt_of(said, finish), sign_cancellation(CLIENT, asked.request, 2, 0)
    yield Signed("a cancellation after two tokens", asked.name, said, receipt, two)
    foreign = replace(asked.request, client=STRANGER.public)
    dated = replace(asked.request, date="2026-01-01")
    for name, data in (
        ("a cancellation of another request", sign_cancellation(CLIENT, dated, 1)),
        ("a cancellation by somebody else", sign_cancellation(STRANGER, foreign, 1)),
        ("a cancellation that is none", b"{}"),
        ("an altered cancellation", own.replace(b'"sig":"', b'"sig":"A')),
    ):  # fmt: skip
        yield Signed(name, asked.name, said, receipt, data)
    whole, finish = honest_spoken(asked, 0)
    three = sign_cancellation(CLIENT, asked.request, 3)
    receipt = receipt_of(whole, finish)
    yield Signed("a cancellation beside another finish", asked.name, whole, receipt, three)
    bare = requests()["greedy ordered"]
    said, finish = honest_spoken(bare, 0, most=1)
    yield Signed("a cancellation of nobody's", bare.name, said, receipt_of(said, finish), own)
    stops = requests()["stop strings"]
    said, _ = honest_spoken(stops, 0, most=2)
    yield Signed("`stop` by a stop string", stops.name, said, receipt_of(said, STOP))


def _encodings() -> Iterator[Signed]:
    for name in ("embedding", "classes"):
        asked = requests()[name]
        said = honest_encoding(asked)
        values = said.encoded.values.copy()
        values[5] = np.nextafter(values[5], np.float32(np.inf))
        near = replace(said, encoded=replace(said.encoded, values=values))
        yield Signed(f"a false value, {name}", name, near, receipt_of_encoding(near))
        yield Signed(f"a value that is not the signed one, {name}", name, near,
                     receipt_of_encoding(said))  # fmt: skip
        yield Signed(f"another finish, {name}", name, said,
                     receipt_of_encoding(said, finish=STOP))  # fmt: skip
        yield Signed(f"a false state, {name}", name, said,
                     receipt_of_encoding(said, **rooted(said, bytes(32))))  # fmt: skip
        yield Signed(f"another root, {name}", name, said, receipt_of_encoding(said, root=bytes(32)))
        yield Signed(f"counts, {name}", name, said, receipt_of_encoding(said, prompt=4))
        other = replace(said, encoded=replace(said.encoded, prompt=(3, 1, 4, 1, 99)))
        yield Signed(f"the token 99, {name}", name, other, receipt_of_encoding(other))
        yield Signed(
            f"a cancellation beside it, {name}", name, said, receipt_of_encoding(said), b"{}"
        )
