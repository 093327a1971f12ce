"""What the engine says and does beside computing: ends, listeners, cancellation, refusals."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from tiny_network import Tiny

from tallystick.answers.layout import Settings
from tallystick.errors import UsageError
from tallystick.generation.cut import attentions, cut
from tallystick.generation.engine import AnswerEngine
from tallystick.generation.sequences import GenerationRequest
from tallystick.numerics.types import TensorType
from tallystick.program.build import Builder
from tallystick.program.executor import Executor
from tallystick.program.runner import StepInputs

NET = Tiny()
PAGE = 4 * 16 * NET.layers * NET.groups * (NET.size + NET.value)


def engine(**given: int) -> AnswerEngine:
    return AnswerEngine(NET, **{"memory": 1 << 20, "threads": 1, **given})


class Heard:
    """A listener that keeps what it hears, and fails at one of them."""

    def __init__(self, fails_at: int = -1) -> None:
        self.tokens: list[int] = []
        self.logprobs: list[np.float32] = []
        self.fails_at = fails_at

    def token(self, token: int, logprob: np.float32) -> None:
        self.tokens.append(token)
        self.logprobs.append(logprob)
        if len(self.tokens) == self.fails_at:
            raise ConnectionError("the client is gone")


def test_a_token_of_the_stop_set_ends_an_answer_and_belongs_to_it() -> None:
    (free,) = engine().generate([GenerationRequest((5, 6, 7), Settings(max_tokens=12))])
    assert free.finish == "length" and len(free.tokens) == 12
    stop = free.tokens[4]
    first = free.tokens.index(stop)
    (ended,) = engine().generate(
        [GenerationRequest((5, 6, 7), Settings(max_tokens=12, stop=(stop,)))]
    )
    assert ended.finish == "stop" and ended.tokens == free.tokens[: first + 1]
    last = Settings(max_tokens=first + 1, stop=(stop,))
    assert engine().generate([GenerationRequest((5, 6, 7), last)])[0].finish == "stop"


def test_a_listener_hears_each_token_when_it_is_drawn() -> None:
    one, heard = engine(), Heard()
    handle = one.submit([3, 1], Settings(max_tokens=4), listener=heard)
    for count in range(1, 5):
        assert one.step() == (count < 4)
        assert len(heard.tokens) == count
    assert handle.answer is not None and tuple(heard.tokens) == handle.answer.tokens
    assert np.array(heard.logprobs).tobytes() == handle.answer.logprobs.tobytes()


def test_a_listener_that_fails_disturbs_no_answer() -> None:
    one, bad, good = engine(), Heard(fails_at=2), Heard()
    first = one.submit([3, 1], Settings(max_tokens=4), listener=bad)
    second = one.submit([4, 1, 5], Settings(max_tokens=4), listener=good)
    one.step()
    with pytest.raises(ConnectionError):
        one.step()
    first.cancel()
    one.run()
    wanted = engine().generate([GenerationRequest((4, 1, 5), Settings(max_tokens=4))])[0]
    assert second.answer is not None and second.answer.tokens == wanted.tokens
    assert tuple(good.tokens) == wanted.tokens
    assert first.answer is not None and first.answer.finish == "cancelled"
    assert first.answer.tokens == tuple(bad.tokens)


@pytest.mark.parametrize("sampler", [{}, {"temperature": 2.0, "top_k": 5}])
def test_an_engine_is_freed_with_its_last_user(sampler: dict[str, float]) -> None:
    """A listener that holds the engine and its request, as a face does, keeps neither alive."""

    class Holds(Heard):
        held: tuple[Any, ...] = ()

    gc.collect()
    gc.disable()
    try:
        one, heard = engine(rows=1), Holds()
        handle = one.submit([3, 1], Settings(max_tokens=4, **sampler), listener=heard)
        heard.held = one, handle
        waits = Holds()
        waits.held = one, one.submit([4], Settings(max_tokens=4, **sampler), listener=waits)
        waits.held[1].cancel()  # before it has begun
        one.run()
        assert len(heard.tokens) == 4
        gone = weakref.ref(one)
        del one, heard, handle, waits
        assert gone() is None
    finally:
        gc.enable()


def test_cancelled_requests_keep_what_they_have() -> None:
    one = engine(rows=1)
    running = one.submit([3, 1], Settings(max_tokens=9))
    waiting = one.submit([4], Settings(max_tokens=9))
    for _ in range(4):
        one.step()
    running.cancel()
    waiting.cancel()
    assert not one.step()
    assert running.answer is not None and waiting.answer is not None
    assert len(running.answer.tokens) == 3 and running.answer.finish == "cancelled"
    assert waiting.answer.tokens == () and waiting.answer.logprobs.dtype == np.float32
    done = one.submit([3, 1], Settings(max_tokens=1))
    one.run()
    done.cancel()
    one.run()
    assert done.answer is not None and done.answer.finish == "length"


def test_a_prefix_is_shared_within_a_namespace_only() -> None:
    """The bits are the same; only the places that are computed tell."""
    prompt, settings = tuple(range(1, 41)), Settings(max_tokens=1)
    one, places = engine(chunk=64), list[int]()
    compute = one._forward.logits

    def counted(tokens: Sequence[int], *given: Any) -> np.ndarray:
        places.append(len(tokens))
        return compute(tokens, *given)

    one._forward.logits = counted  # type: ignore[method-assign]
    names = (b"a" * 32, b"b" * 32, b"a" * 32, b"", b"b" * 32, b"")
    found = [one.generate([GenerationRequest(prompt, settings, 0, name)])[0] for name in names]
    assert len({answer.tokens for answer in found}) == 1
    assert places == [40, 40, 8, 40, 8, 8]


def test_choices_of_one_request_differ() -> None:
    settings = Settings(max_tokens=20, temperature=1.5, seed=4)
    found = engine().generate(
        [GenerationRequest((1, 2, 3), settings, choice) for choice in range(4)]
    )
    assert len({answer.tokens for answer in found}) == 4
    assert (
        engine().generate([GenerationRequest((1, 2, 3), settings, 2)])[0].tokens == found[2].tokens
    )


@pytest.mark.parametrize(
    ("prompt", "settings", "why"),
    [
        ([], Settings(), "at least one token"),
        ([61], Settings(), "the token 61"),
        ([-1], Settings(), "the token -1"),
        ([1] * 500, Settings(max_tokens=13), "up to 513 places"),
        ([1] * 40, Settings(max_tokens=26), "take 5 pages"),
        ([1], Settings(bias=((61, 1.0),)), "bias"),
        ([1], Settings(stop=(61,)), "stop"),
    ],
)
def test_what_can_never_be_answered_is_refused(
    prompt: list[int], settings: Settings, why: str
) -> None:
    with pytest.raises(UsageError, match=why) as refused:
        engine(memory=4 * PAGE + PAGE - 1).submit(prompt, settings)
    assert refused.value.next_action


def test_the_last_page_is_used() -> None:
    one = engine(memory=4 * PAGE)
    (answer,) = one.generate([GenerationRequest((1,) * 40, Settings(max_tokens=25))])
    assert len(answer.tokens) == 25


def test_engines_that_cannot_be_are_refused() -> None:
    for given, why in (({"memory": PAGE - 1}, "no room"), ({"rows": 0}, "A pass"),
                       ({"rows": 513}, "A pass"), ({"chunk": 0}, "A pass")):  # fmt: skip
        with pytest.raises(UsageError, match=why):
            engine(**given)


def test_the_parts_of_a_program_are_the_whole() -> None:
    """Logits of rows that are texts of one token each, by the parts and by the program itself."""
    program = NET.program(4)
    parts = cut(program)
    assert len(parts.crossing) == 2 and len(attentions(parts.body)) == NET.layers
    assert not attentions(parts.head)
    # 1 + weight of each norm, once for all passes.
    assert [n.op for n in parts.fixed.nodes] == ["aten.add.Scalar"] * (2 * NET.layers + 1)
    state = dict(NET.weights())
    batch = {"token": np.array([[3], [1], [4], [1]]), "place": np.array([[0], [5], [9], [2]])}
    wanted = Executor(program).execute(state, StepInputs(batch)).outputs["logits"]
    read = {name: state[name] for name in parts.fixed.state_types}
    state |= Executor(parts.fixed).execute(read, StepInputs({})).outputs
    crossing = Executor(parts.body).execute(state, StepInputs(batch)).outputs
    found = Executor(parts.head).execute(state, StepInputs(crossing)).outputs["logits"]
    assert found.tobytes() == wanted.tobytes()


def test_a_program_that_reads_scores_is_refused() -> None:
    builder = Builder()
    x = builder.state("param.x", TensorType("f32", (2, 1, 1, 4)))
    which = {"causal": True, "first": 0, "window": 0}
    s = builder.one("tallystick.attention_scores", [x, x], **which, scale=1.0, softcap=0.0)
    p = builder.one("tallystick.attention_weights", [s], **which)
    y = builder.one("tallystick.attention_values", [p, x], **which)
    with pytest.raises(UsageError, match="inside of an attention"):
        attentions(builder.finish({"logits": y, "scores": s}))
    assert len(attentions(builder.finish({"logits": y}))) == 1
