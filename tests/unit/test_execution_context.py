"""Threads, instruction set and device belong to a context, not to the process (NUMERICS 1.8)."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tallystick import _core
from tallystick.devices.context import DEFAULT, ExecutionContext
from tallystick.errors import EnvironmentRefusedError, UsageError

OTHER = [isa for isa in _core.supported_isas() if isa != _core.isa()]


@pytest.fixture(autouse=True)
def _defaults() -> Iterator[None]:
    before = _core.isa(), _core.threads()
    yield
    assert (_core.isa(), _core.threads()) == before, "a context changed the process's defaults"


def seen() -> tuple[str, int]:
    return _core.isa(), _core.threads()


def test_a_thread_computes_in_the_context_it_entered() -> None:
    outside = seen()
    with ExecutionContext(3, "scalar").entered():
        assert seen() == ("scalar", 3)
        with ExecutionContext(1).entered():
            assert seen() == ("scalar", 1), "what is not said is as it is where the context is made"
            with DEFAULT.entered():
                assert seen() == ("scalar", 1)
        assert seen() == ("scalar", 3)
    assert seen() == outside


def test_a_context_is_left_by_an_exception_too() -> None:
    outside = seen()
    with pytest.raises(ZeroDivisionError), ExecutionContext(2, "scalar").entered():
        raise ZeroDivisionError
    assert seen() == outside


def test_no_context_can_be_left_that_was_not_entered() -> None:
    with pytest.raises(RuntimeError):
        _core.leave_context()


@pytest.mark.skipif(not OTHER, reason="this machine has one instruction set only")
def test_two_contexts_compute_at_the_same_time() -> None:
    """Two Python threads, each with its own threads and instruction set, on one product."""
    a = np.random.default_rng(1).standard_normal((300, 200), dtype=np.float32)
    b = np.random.default_rng(2).standard_normal((200, 100), dtype=np.float32)
    expected = np.empty((300, 100), np.float32)
    _core.mm(a, b, expected)
    contexts = [ExecutionContext(1 + i, isa) for i, isa in enumerate((_core.isa(), *OTHER))]
    wrong: list[Any] = []
    start = threading.Barrier(len(contexts))

    def work(context: ExecutionContext) -> None:
        start.wait()
        for _ in range(100):
            out = np.empty_like(expected)
            with context.entered():
                _core.mm(a, b, out)
                if seen() != (context.isa, context.threads) or out.tobytes() != expected.tobytes():
                    wrong.append((context.isa, seen()))

    threads = [threading.Thread(target=work, args=(context,)) for context in contexts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_computes_in_its_parents_context() -> None:
    context = ExecutionContext(2)
    x = np.arange(1 << 20, dtype=np.float32)

    def total() -> bytes:
        out = np.empty(1, np.float32)
        _core.reduce_sum(x, 1, x.size, 1, out)
        return out.tobytes()

    with context.entered():
        expected = total()
        child = os.fork()
        if child == 0:
            os._exit(0 if total() == expected and _core.threads() == 2 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_what_no_machine_has_is_refused() -> None:
    with pytest.raises(UsageError, match="no 0 threads"):
        ExecutionContext(0)
    with pytest.raises(EnvironmentRefusedError, match="no instruction set 'sse9'"):
        ExecutionContext(isa="sse9")
