"""Calls that the core makes without Python between them: equal results, errors by position."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tallystick import _core
from tallystick.devices.sequence import (
    Call,
    CallFailedError,
    RecordedCalls,
    one_call,
    one_call_if_contiguous,
)

Array = np.ndarray[Any, Any]


def array(*shape: int) -> Array:
    return np.random.default_rng(1).standard_normal(shape, np.float32)


def add(_attrs: Any, inputs: Any, outputs: Any) -> None:
    _core.ew2("add", inputs[0], inputs[1], outputs[0])


def exponential(_attrs: Any, inputs: Any, outputs: Any) -> None:
    _core.elementary("exp", np.ascontiguousarray(inputs[0]), outputs[0])


def beside(_attrs: Any, inputs: Any, outputs: Any) -> None:
    _core.concatenate_rows(inputs, outputs[0])


def double(_attrs: Any, inputs: Any, outputs: Any) -> None:
    outputs[0][...] = inputs[0] * np.float32(2)


one_call(add), one_call(beside), one_call_if_contiguous(exponential)


def chain() -> tuple[list[Call], Array, Array]:
    """Sums, an exponential of a view that lies apart, halves that change places, a double."""
    x = array(3, 8)
    a, b, c, d, e = (np.full((3, 8), np.nan, np.float32) for _ in range(5))
    calls: list[Call] = [
        (add, {}, [x, x], [a]),
        (add, {}, [a, x[:, :1]], [b]),
        (double, {}, [b], [c]),
        (beside, {}, [c[:, 4:], x[:, :4]], [d]),
        (exponential, {}, [d], [e]),
        (exponential, {}, [d.T], [f := np.empty((8, 3), np.float32)]),
    ]
    return calls, x, f


def test_recorded_calls_give_what_the_calls_give_and_see_new_values() -> None:
    calls, x, f = chain()
    recorded = RecordedCalls(calls)
    assert np.isnan(calls[0][3][0]).all(), "nothing is computed before the run"
    for seed in range(3):
        x[...] = np.random.default_rng(seed).standard_normal(x.shape, np.float32)
        recorded.run()
        found = [call[3][0].tobytes() for call in calls]
        f[...] = np.nan
        for run, attrs, inputs, outputs in calls:
            run(attrs, inputs, outputs)
        assert [call[3][0].tobytes() for call in calls] == found


def test_an_error_names_the_call() -> None:
    calls, _, _ = chain()

    def fails(_attrs: Any, _inputs: Any, _outputs: Any) -> None:
        raise ValueError("no")

    calls.insert(3, (fails, {}, [], []))
    with pytest.raises(CallFailedError) as caught:
        RecordedCalls(calls).run()
    assert caught.value.position == 3


def test_recording_ends_where_a_call_is_refused() -> None:
    bad: list[Call] = [(add, {}, [array(2, 3), array(4, 3)], [array(2, 3)])]
    with pytest.raises(ValueError, match="broadcast"):
        RecordedCalls(bad)
    out = np.empty((2, 3), np.float32)
    add({}, [array(2, 3), array(2, 3)], [out])
    assert np.array_equal(out, array(2, 3) * 2)


def test_parts_that_do_not_fit_are_refused() -> None:
    out = np.empty((2, 6), np.float32)
    for parts in ([array(2, 3)], [array(2, 3), array(3, 3)], [array(2, 3), array(2, 6)[:, ::2]]):
        with pytest.raises(ValueError, match="fit"):
            _core.concatenate_rows(parts, out)
