"""Whatever a drafter proposes, answers are those of one token a pass, to the last bit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from drafting import Oracle, changes
from tiny_network import Tiny

from tallystick.answers.layout import Settings
from tallystick.errors import UsageError
from tallystick.generation.drafters import DraftAsked, Drafter, DraftModel, PromptLookup
from tallystick.generation.engine import AnswerEngine
from tallystick.generation.pages import PLACES, page_key
from tallystick.generation.scheduler import Pace
from tallystick.generation.sequences import (
    GeneratedAnswer,
    GenerationRequest,
    SubmittedRequest,
)

NETWORKS = {
    "plain": Tiny(),
    "window": Tiny(windows=(12,)),
    "sinks and mixed windows": Tiny(sinks=True, windows=(0, 9)),
    "slopes": Tiny(slopes=True, rotary=False, softcap=3.0),
    "rounded": Tiny(contract="rounded/1-draft.1", windows=(0, 12), sinks=True),
}
VOCABULARY = 61
SETTINGS = [
    Settings(max_tokens=30),
    Settings(max_tokens=19, stop=tuple(range(0, 61, 7))),
    Settings(max_tokens=25, temperature=0.9, seed=5),
    Settings(max_tokens=22, temperature=1.3, top_k=9, top_p=0.8, min_p=0.05, seed=7),
    Settings(
        max_tokens=28, repetition=1.4, presence=0.5, frequency=0.3, bias=((3, 2.5), (9, -4.0))
    ),
    Settings(max_tokens=1),
    Settings(max_tokens=2, temperature=0.5),
]


def requests(count: int = 14) -> list[GenerationRequest]:
    """Prompts around the end of a page, some with a beginning in common, each of its own."""
    random = np.random.default_rng(8)
    shared, found = random.integers(0, VOCABULARY, 40), []
    for i in range(count):
        own = random.integers(0, VOCABULARY, (1, 16, 33, 48, 15, 40, 17, 35)[i % 8])
        if i % 2:
            own[:40] = shared[: len(own)]
        own[-1] = i
        prompt = tuple(int(t) for t in own)
        found.append(GenerationRequest(prompt, SETTINGS[i % len(SETTINGS)], choice=i % 2))
    return found


def engine(net: Tiny, **given: Any) -> AnswerEngine:
    return AnswerEngine(net, **{"memory": 1 << 20, "threads": 1, **given})


def alone(net: Tiny, wanted: Sequence[GenerationRequest]) -> dict[GenerationRequest, Any]:
    """The answers without a drafter."""
    return dict(zip(wanted, engine(net).generate(wanted), strict=True))


def joined(one: AnswerEngine, wanted: Sequence[GenerationRequest]) -> list[SubmittedRequest]:
    """Each joins while those before it are computed."""
    handles = []
    for request in wanted:
        handles.append(one.submit(request.prompt, request.settings, request.choice))
        one.step()
    one.run()
    return handles


def same(found: GeneratedAnswer | None, wanted: GeneratedAnswer) -> None:
    assert found is not None and found.tokens == wanted.tokens
    assert found.logprobs.tobytes() == wanted.logprobs.tobytes()
    assert found.finish == wanted.finish


def whole(one: AnswerEngine, texts: Sequence[Sequence[int]]) -> None:
    """No page is held or promised, and those that others may find are of texts as they are."""
    pages = one._pages
    assert pages.held == 0 and pages.unpromised == pages.count
    known, keys = set(pages._keys.values()), set()
    for text in texts:
        key = b""
        for at in range(0, len(text) // PLACES * PLACES, PLACES):
            key = page_key(key, text[at : at + PLACES])
            keys.add(key)
    assert known <= keys


def drafter_of(name: str, net: Tiny, answers: dict[GenerationRequest, Any]) -> Drafter:
    if name == "lookup":
        return PromptLookup()
    if name == "lookup of one":
        return PromptLookup(longest=1, most=20)
    if name == "same model":
        return DraftModel(engine(net), most=5)
    if name == "other model":
        return DraftModel(engine(replace(net, layers=1)), most=5)
    return Oracle(answers, changes(VOCABULARY)[name])


DRAFTERS = [
    *changes(VOCABULARY), "lookup", "lookup of one", "same model", "other model",
]  # fmt: skip


# Each drafter with two networks, and each network with several drafters.
PAIRS = [
    (drafter, list(NETWORKS)[(number + step) % len(NETWORKS)])
    for number, drafter in enumerate(DRAFTERS)
    for step in (0, 2)
]


@pytest.mark.sample(3)
@pytest.mark.parametrize(("drafter", "name"), PAIRS)
def test_no_bit_differs(drafter: str, name: str) -> None:
    net, wanted = NETWORKS[name], requests()
    answers = alone(net, wanted)
    one = engine(net, drafter=drafter_of(drafter, net, answers), chunk=7)
    for request, handle in zip(wanted, joined(one, wanted), strict=True):
        same(handle.answer, answers[request])
    whole(one, [[*r.prompt, *a.tokens] for r, a in answers.items()])
    assert one.speculation is not None
    proposed, right = one.speculation.proposed, one.speculation.right
    assert (proposed > 0) == (drafter != "nothing")
    if drafter == "right":
        assert right == proposed
    if drafter == "same model":  # whose penalties know another beginning of the answer
        assert right > 0.8 * proposed
    if drafter in ("wrong", "nothing"):
        assert right == 0
    # The next turn of each conversation reads what is in the pages.
    later = [
        GenerationRequest((*r.prompt, *a.tokens, 3), replace(r.settings, max_tokens=3))
        for r, a in answers.items()
    ]
    one.speculation = None
    for found, true in zip(one.generate(later), alone(net, later).values(), strict=True):
        same(found, true)


@pytest.mark.sample(3)
@pytest.mark.parametrize("rows", [1, 2, 3, 9, 64])
@pytest.mark.parametrize("drafter", ["anything", "right"])
def test_no_bit_differs_with_few_rows_and_little_memory(rows: int, drafter: str) -> None:
    net, wanted = NETWORKS["window"], requests()
    answers = alone(net, wanted)
    page = 4 * PLACES * net.layers * net.groups * (net.size + net.value)
    one = engine(
        net, drafter=drafter_of(drafter, net, answers), rows=rows, memory=6 * page, chunk=5
    )
    for request, handle in zip(wanted, joined(one, wanted), strict=True):
        same(handle.answer, answers[request])
    whole(one, [[*r.prompt, *a.tokens] for r, a in answers.items()])


def test_a_right_drafter_saves_passes() -> None:
    net, wanted = NETWORKS["plain"], requests(1)
    answers = alone(net, wanted)
    passes = {}
    for drafter in ("right", "nothing"):
        one = engine(net, drafter=drafter_of(drafter, net, answers))
        handle = one.submit(wanted[0].prompt, wanted[0].settings)
        passes[drafter] = 1
        while one.step():
            passes[drafter] += 1
        same(handle.answer, answers[wanted[0]])
    # 30 tokens: with 3 drafts in the first pass, then 7, 7 and 7, and the one that is left.
    assert passes == {"right": 5, "nothing": 30}


class _Cancels:
    """Cancels after so many tokens, as a stop string does."""

    handle: SubmittedRequest

    def __init__(self, after: int, raises: bool = False) -> None:
        self.after, self.raises, self.heard = after, raises, list[int]()

    def token(self, token: int, logprob: np.float32) -> None:
        self.heard.append(token)
        if len(self.heard) == self.after:
            if self.raises:
                raise ConnectionError("the client is gone")
            self.handle.cancel()


@pytest.mark.sample(3)
@pytest.mark.parametrize("after", range(1, 12))
def test_a_listener_ends_an_answer_amid_right_drafts(after: int) -> None:
    net, wanted = NETWORKS["plain"], requests(8)
    answers = alone(net, wanted)
    one = engine(net, drafter=drafter_of("right", net, answers))
    others = [one.submit(r.prompt, r.settings, r.choice) for r in wanted[1:]]
    listener = _Cancels(after)
    handle = one.submit(wanted[0].prompt, wanted[0].settings, listener=listener)
    listener.handle = handle
    one.run()
    true = answers[wanted[0]]
    assert handle.answer is not None and handle.answer.finish == "cancelled"
    assert handle.answer.tokens == tuple(listener.heard) == true.tokens[:after]
    assert handle.answer.logprobs.tobytes() == true.logprobs[:after].tobytes()
    for request, other in zip(wanted[1:], others, strict=True):
        same(other.answer, answers[request])
    whole(one, [[*r.prompt, *a.tokens] for r, a in answers.items()])


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_listener_that_fails_amid_right_drafts(cancelled: bool) -> None:
    """What it has not heard it hears in the next step; and nothing where it is cancelled."""
    net, wanted = NETWORKS["plain"], requests(5)
    answers = alone(net, wanted)
    one = engine(net, drafter=drafter_of("right", net, answers))
    listener = _Cancels(3, raises=True)
    handle = one.submit(wanted[0].prompt, wanted[0].settings, listener=listener)
    others = [one.submit(r.prompt, r.settings, r.choice) for r in wanted[1:]]
    with pytest.raises(ConnectionError):
        one.run()
    if cancelled:
        handle.cancel()
    one.run()
    assert handle.answer is not None
    if cancelled:
        assert handle.answer.tokens == answers[wanted[0]].tokens[:3]
    else:
        same(handle.answer, answers[wanted[0]])
    assert tuple(listener.heard) == handle.answer.tokens
    for request, other in zip(wanted[1:], others, strict=True):
        same(other.answer, answers[request])
    whole(one, [[*r.prompt, *a.tokens] for r, a in answers.items()])


class _Fails:
    """Proposes rightly, and fails at some of its calls."""

    most, vocabulary = 7, None

    def __init__(self, inner: Drafter) -> None:
        self.inner, self.calls = inner, 0

    def propose(self, asked: Sequence[DraftAsked]) -> Sequence[Sequence[int]]:
        self.calls += 1
        if self.calls % 3 == 2:
            raise RuntimeError("the drafter is broken")
        return self.inner.propose(asked)


def test_a_drafter_that_fails_leaves_the_engine_whole() -> None:
    net, wanted = NETWORKS["window"], requests()
    answers = alone(net, wanted)
    one = engine(net, drafter=_Fails(drafter_of("anything", net, answers)), chunk=7)
    handles = [one.submit(r.prompt, r.settings, r.choice) for r in wanted]
    failed = 0
    while True:
        try:
            if not one.step():
                break
        except RuntimeError:
            failed += 1
    assert failed > 3
    for request, handle in zip(wanted, handles, strict=True):
        same(handle.answer, answers[request])
    whole(one, [[*r.prompt, *a.tokens] for r, a in answers.items()])


def test_random_batches() -> None:
    """Drafters of any kind and mixed requests, with some that are cancelled at any time."""
    names = list(changes(VOCABULARY))
    answers = {name: alone(net, requests()) for name, net in NETWORKS.items()}
    for seed in range(25):
        random = Random(seed)
        name = random.choice(list(NETWORKS))
        net, true = NETWORKS[name], answers[name]
        one = engine(
            net,
            drafter=drafter_of(random.choice(names), net, true),
            rows=random.choice([2, 5, 17, 64]),
            chunk=random.choice([1, 7, 64]),
        )
        waiting, handles = requests(), []
        random.shuffle(waiting)
        while one.step() or waiting:
            if waiting and random.random() < 0.5:
                request = waiting.pop()
                handles.append(
                    (request, one.submit(request.prompt, request.settings, request.choice))
                )
            if handles and random.random() < 0.05:
                random.choice(handles)[1].cancel()
        for request, handle in handles:
            assert handle.answer is not None
            if handle.answer.finish != "cancelled":
                same(handle.answer, true[request])
            else:
                count = len(handle.answer.tokens)
                assert handle.answer.tokens == true[request].tokens[:count]
                assert handle.answer.logprobs.tobytes() == true[request].logprobs[:count].tobytes()
        whole(one, [[*r.prompt, *a.tokens] for r, a in true.items()])


def test_drafts_take_no_row_of_another_request() -> None:
    """Each text that decodes gives a token in every pass, and a prompt is as fast as without."""
    net = NETWORKS["plain"]
    busy = [GenerationRequest((i,), Settings(max_tokens=40)) for i in range(3)]
    late = GenerationRequest(tuple(range(50)), Settings(max_tokens=2))
    answers = alone(net, [*busy, late])
    steps = {}
    for drafter in (None, drafter_of("right", net, answers)):
        one = engine(net, rows=8, drafter=drafter)
        handles = [one.submit(r.prompt, r.settings) for r in busy]
        for _ in range(2):
            one.step()
        before = [len(text.logprobs) for text in one._scheduler.running]
        other = one.submit(late.prompt, late.settings)
        count = 0
        while other.answer is None:
            one.step()
            count += 1
            now = [len(text.logprobs) for text in one._scheduler.running[:3]]
            assert all(b > a for a, b in zip(before, now, strict=True))
            before = now
        one.run()
        steps[drafter is None] = count
        for request, handle in zip([*busy, late], [*handles, other], strict=True):
            same(handle.answer, answers[request])
    assert steps[False] <= steps[True]


# -- drafters --------------------------------------------------------------------------------------
def looked_up(text: Sequence[int], longest: int = 3, most: int = 4) -> list[int]:
    asked = DraftAsked(text, GenerationRequest(tuple(text), Settings()), most)
    (found,) = PromptLookup(longest, most).propose([asked])
    return list(found)


def test_a_lookup_takes_the_longest_stretch_and_of_its_places_the_latest() -> None:
    assert looked_up([1, 2, 3, 4, 5, 6, 9, 3, 7, 1, 2, 3]) == [4, 5, 6, 9]
    assert looked_up([1, 2, 3, 4, 5, 6, 9, 3, 7, 1, 2, 3], longest=1) == [7, 1, 2, 3]
    assert looked_up([8, 3, 4, 7, 3, 5, 6, 3]) == [5, 6, 3, 5]
    assert looked_up([4, 4]) == [4, 4, 4, 4]  # what repeats goes on repeating
    assert looked_up([1, 2, 3]) == looked_up([1]) == []


def test_a_pace_follows_what_was_right() -> None:
    pace = Pace()
    asked = []
    for right in (3, 7, 2, 0):
        asked.append(pace.next())
        pace.learn(right)
    assert asked == [3, 7, 15, 5]
    # One pass without drafts, then 3, 7, and at most 15.
    pauses = []
    for _ in range(5):
        waited = 0
        while not pace.next():
            waited += 1
        pauses.append(waited)
        pace.learn(0)
    assert pauses == [1, 3, 7, 15, 15]
    while not pace.next():
        pass
    pace.learn(1)
    assert pace.next() == 3


def test_the_same_model_draws_the_same_tokens() -> None:
    """By the request's own settings and noise, whatever the place."""
    net = NETWORKS["window"]
    wanted = [r for r in requests() if not r.settings.presence]
    answers = alone(net, wanted)
    one = engine(net, drafter=DraftModel(engine(net), most=5))
    for request, found in zip(wanted, one.generate(wanted), strict=True):
        same(found, answers[request])
    assert one.speculation is not None
    assert one.speculation.right == one.speculation.proposed > 50


def test_a_text_that_is_too_long_for_the_smaller_model_gets_no_drafts() -> None:
    net, wanted = NETWORKS["plain"], requests(6)
    answers = alone(net, wanted)
    drafter = DraftModel(engine(replace(net, length=20)), most=5)
    one = engine(net, drafter=drafter)
    for request, found in zip(wanted, one.generate(wanted), strict=True):
        same(found, answers[request])
    assert one.speculation is not None and one.speculation.proposed > 0


def test_what_cannot_draft_is_refused() -> None:
    for make in (
        lambda: PromptLookup(0),
        lambda: PromptLookup(most=0),
        lambda: DraftModel(engine(NETWORKS["plain"]), most=0),
        lambda: engine(
            NETWORKS["plain"], drafter=DraftModel(engine(replace(NETWORKS["plain"], vocabulary=60)))
        ),
    ):
        with pytest.raises(UsageError) as refused:
            make()
        assert refused.value.next_action
