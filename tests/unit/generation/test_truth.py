"""The engine's answers are those of one pass over the whole text, bit by bit."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from answer_truth import Truth
from tiny_network import Tiny

from tallystick import _core
from tallystick.answers.layout import Settings
from tallystick.generation.engine import AnswerEngine
from tallystick.generation.sequences import GenerationRequest, SubmittedRequest

# Each option of a family's attention alone, and each two together.
OPTIONS: dict[str, dict[str, Any]] = {
    "window": {"windows": (12,)},
    "cap": {"softcap": 3.0},
    "sinks": {"sinks": True},
    "slopes": {"slopes": True, "rotary": False},
    "one group": {"groups": 1},
    "values": {"value": 5},
    "mixed windows": {"windows": (0, 9)},
}
CLASHES = {("window", "mixed windows")}
NETWORKS: dict[str, Tiny] = {
    "plain": Tiny(),
    **{name: Tiny(**given) for name, given in OPTIONS.items()},
    **{
        f"{a} and {b}": Tiny(**{**OPTIONS[a], **OPTIONS[b]})
        for a, b in combinations(OPTIONS, 2)
        if (a, b) not in CLASHES
    },
    "rounded": Tiny(contract="rounded/1-draft.1", windows=(0, 12), sinks=True),
}
SETTINGS = [
    Settings(max_tokens=14),
    Settings(max_tokens=9, stop=tuple(range(0, 61, 5))),
    Settings(max_tokens=12, temperature=0.9, seed=5),
    Settings(max_tokens=12, temperature=1.3, top_k=9, top_p=0.8, min_p=0.05, seed=7),
    Settings(
        max_tokens=20, repetition=1.4, presence=0.5, frequency=0.3, bias=((3, 2.5), (9, -4.0))
    ),
]


@cache
def truth_of(name: str) -> Truth:
    return Truth(NETWORKS[name])


@cache
def texts(seed: int = 3) -> tuple[tuple[int, ...], ...]:
    """Prompts of all lengths around a page, some with a common beginning of two pages."""
    random = np.random.default_rng(seed)
    shared = random.integers(0, 61, 40)
    found = []
    for i, length in enumerate((1, 2, 15, 16, 17, 31, 32, 33, 40, 48, 70, 5, 9, 36, 37, 39)):
        own = random.integers(0, 61, length)
        if i % 2 == 0:
            own[:40] = shared[:length]
        found.append(tuple(int(t) for t in own))
    return tuple(found)


@cache
def requests(count: int) -> tuple[GenerationRequest, ...]:
    return tuple(
        GenerationRequest(text, SETTINGS[i % len(SETTINGS)], choice=i % 3)
        for i, text in enumerate(texts()[:count])
    )


def together(engine: AnswerEngine, wanted: Sequence[GenerationRequest]) -> list[SubmittedRequest]:
    handles = [engine.submit(r.prompt, r.settings, r.choice) for r in wanted]
    engine.run()
    return handles


def one_by_one(engine: AnswerEngine, wanted: Sequence[GenerationRequest]) -> list[SubmittedRequest]:
    """Each joins while those before it are computed."""
    handles = []
    for request in wanted:
        handles.append(engine.submit(request.prompt, request.settings, request.choice))
        engine.step()
    engine.run()
    return handles


def with_cancelled(
    engine: AnswerEngine, wanted: Sequence[GenerationRequest]
) -> list[SubmittedRequest]:
    """Between them are others, which are cancelled in the queue, in their prompts and later."""
    handles, others = [], []
    for i, request in enumerate(wanted):
        handles.append(engine.submit(request.prompt, request.settings, request.choice))
        others.append(engine.submit([*request.prompt, i], Settings(max_tokens=50)))
    for number, other in enumerate(others):
        for _ in range(number % 3):
            engine.step()
        other.cancel()
    engine.run()
    assert all(o.answer is not None and o.answer.finish == "cancelled" for o in others)
    return handles


WAYS = {f.__name__: f for f in (together, one_by_one, with_cancelled)}


def hold(name: str, engine: AnswerEngine, way: str, wanted: Sequence[GenerationRequest]) -> None:
    truth = truth_of(name)
    handles = WAYS[way](engine, wanted)
    for request, handle in zip(wanted, handles, strict=True):
        assert handle.answer is not None and handle.answer.finish in ("stop", "length")
        truth.check(request, handle.answer)
    assert truth.checked > len(wanted)


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", NETWORKS)
def test_every_network(name: str) -> None:
    """All at once in chunks of 7, then once more in the same pages."""
    engine = AnswerEngine(NETWORKS[name], threads=2, chunk=7, memory=1 << 20)
    hold(name, engine, "together", requests(16))
    hold(name, engine, "one_by_one", requests(16))


@pytest.mark.sample(3)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("chunk", [1, 7, 64])
@pytest.mark.parametrize("count", [1, 5, 16])
def test_every_batch(way: str, chunk: int, count: int) -> None:
    name = ["sinks and mixed windows", "plain", "cap and slopes"][(count + chunk) % 3]
    engine = AnswerEngine(NETWORKS[name], threads=1, chunk=chunk, memory=1 << 20)
    hold(name, engine, way, requests(count))


@pytest.mark.sample(3)
@pytest.mark.parametrize("isa", _core.supported_isas())
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("name", ["sinks and mixed windows", "rounded"])
def test_every_instruction_set(isa: str, threads: int, name: str) -> None:
    engine = AnswerEngine(NETWORKS[name], threads=threads, isa=isa, chunk=64, memory=1 << 20)
    hold(name, engine, "one_by_one", requests(11))


@pytest.mark.parametrize("rows", [1, 2, 3, 17, 64])
def test_every_number_of_rows(rows: int) -> None:
    engine = AnswerEngine(NETWORKS["plain"], rows=rows, memory=1 << 20)
    hold("plain", engine, "together", requests(16))


@pytest.mark.parametrize("name", ["plain", "window"])
@pytest.mark.parametrize("way", WAYS)
def test_under_pressure_of_memory(name: str, way: str) -> None:
    """Room for hardly more than the longest: requests wait, and idle pages are lost."""
    net = NETWORKS[name]
    page = 4 * 16 * net.layers * net.groups * (net.size + net.value)
    engine = AnswerEngine(net, chunk=7, memory=page * 8)
    hold(name, engine, way, requests(16))
    hold(name, engine, "together", requests(16)[::-1])


def test_a_prefix_in_the_pages_changes_nothing() -> None:
    """The same request again and again, with what others have left."""
    engine = AnswerEngine(NETWORKS["plain"], chunk=64, memory=1 << 20)
    for request in requests(16):
        hold("plain", engine, "together", [request])
    for request in requests(16):
        hold("plain", engine, "together", [request])


def test_the_truth_sees_one_wrong_bit() -> None:
    request = requests(1)[0]
    (handle,) = together(AnswerEngine(NETWORKS["plain"], memory=1 << 20), [request])
    assert handle.answer is not None
    answer = handle.answer
    truth = Truth(NETWORKS["plain"])
    truth.check(request, answer)
    logprobs = answer.logprobs.copy()
    logprobs.view(np.uint32)[-1] ^= 1
    with pytest.raises(AssertionError):
        truth.check(request, type(answer)(answer.tokens, logprobs, answer.finish))
    tokens = (*answer.tokens[:-1], answer.tokens[-1] ^ 1)
    with pytest.raises(AssertionError):
        truth.check(request, type(answer)(tokens, answer.logprobs, answer.finish))
