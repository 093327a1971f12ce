"""The inputs of a step beside the state, in memory of their own on the device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tallystick.devices.device import Device, Tensor
from tallystick.errors import UsageError
from tallystick.numerics.types import DTYPES
from tallystick.program.ir import BATCH_PREFIX, SCALAR_PREFIX, Input, Program
from tallystick.program.layout import contiguous_strides, new_tensor
from tallystick.program.runner import StepInputs

_WORD = 8  # bytes: a scalar is one f64, a key two i64 (PROGRAM 1.2)


class Staged:
    """The tensors that a step's batch, scalars and random key are copied into.

    The scalars and the key lie side by side, so that they cross to a device in one copy.
    `tensors` has them all by the name of the program's input.
    """

    def __init__(self, device: Device, program: Program) -> None:
        self._device = device
        self._batch = [spec for spec in program.inputs if spec.kind == "batch"]
        self._numbers = [spec for spec in program.inputs if spec.kind in ("scalar", "rng")]
        self.tensors: dict[str, Tensor] = {s.name: new_tensor(device, s.type) for s in self._batch}
        words = sum(spec.type.nbytes for spec in self._numbers) // _WORD
        self._host: np.ndarray = np.zeros(words, np.int64)
        if not words:
            return
        buffer = device.allocate(words * _WORD)
        self._whole = device.view(buffer, 0, "i64", (words,), (_WORD,))
        at = 0
        for spec in self._numbers:
            dtype, shape = spec.type.dtype, spec.type.shape
            strides = contiguous_strides(shape, _WORD)
            self.tensors[spec.name] = device.view(buffer, at, dtype, shape, strides)
            at += spec.type.nbytes

    def give(self, inputs: StepInputs) -> None:
        """Copy a step's inputs into `tensors`; a tensor that is there already stays. Raises
        UsageError where one is missing, is of another type, or lies on another device."""
        for spec in self._batch:
            self._give(spec, item(inputs.batch, spec.name[len(BATCH_PREFIX) :], "batch"))
        at = 0
        for spec in self._numbers:
            if spec.kind == "scalar":
                name = spec.name[len(SCALAR_PREFIX) :]
                given = np.asarray(np.float64(item(inputs.scalars, name, "scalars")))
            elif inputs.rng is None:
                raise UsageError("This program draws random numbers.", "Pass rng=(seed, step).")
            else:
                given = np.asarray(inputs.rng, dtype=np.int64)
            _check(spec, given)
            end = at + given.size
            self._host[at:end] = given.reshape(-1).view(np.int64)
            at = end
        if self._numbers:
            self._device.write(self._host, self._whole)

    def _give(self, spec: Input, given: Any) -> None:
        dtype, shape = spec.type.dtype, spec.type.shape
        staged = self.tensors[spec.name]
        if given is staged:
            return
        if not isinstance(given, np.ndarray) and not self._device.problem(given, dtype, shape):
            self._device.copy(given, staged)
            return
        try:
            array = np.asarray(given)
        except TypeError as error:  # a tensor of some device
            problem = self._device.problem(given, dtype, shape)
            raise UsageError(
                f"Program input {spec.name} is not on {self._device.name}: {problem}.",
                "Give a host array, or a tensor of the context's device.",
            ) from error
        _check(spec, array)
        self._device.write(array, staged)


def _check(spec: Input, array: np.ndarray) -> None:
    if array.dtype != DTYPES[spec.type.dtype] or array.shape != spec.type.shape:
        raise UsageError(
            f"Program input {spec.name} must be {spec.type}, got {array.dtype} "
            f"{list(array.shape)}.",
            "Check the batch against the shapes the program was captured with.",
        )


def item(mapping: Mapping[str, Any], name: str, what: str) -> Any:
    """The member `name` of the caller's `what`. Raises UsageError."""
    if name not in mapping:
        raise UsageError(f"{what} has no {name!r}, which the program reads.", "Add it.")
    return mapping[name]
