"""What a step reads, in memory on a device: the state of a run, and the inputs beside it.

The state is the program's slots and two chains (COMMITMENTS 5). The slots of a module have names
that differ from those of its state_dict.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from tallystick.commit.state import (
    CHAIN_START,
    LOG_CHAIN_SLOT,
    LOSS_CHAIN_SLOT,
    chain_digest,
    state_root,
)
from tallystick.commit.tensor import Array, check_canonical, dtype_name
from tallystick.devices.cpu import CPU
from tallystick.devices.device import Device, Tensor
from tallystick.errors import CorruptFileError, UsageError
from tallystick.numerics.types import DTYPES, TensorType, type_of
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


@dataclass
class State:
    """The state of a run. `slots` are the program's state by name, as tensors of `device`. Each
    chain has 32 bytes."""

    slots: dict[str, Tensor]
    loss_chain: bytes = CHAIN_START
    log_chain: bytes = CHAIN_START
    device: Device = CPU
    _types: dict[str, tuple[str, tuple[int, ...]]] | None = field(
        default=None, init=False, repr=False, compare=False
    )

    def move_to(self, device: Device) -> None:
        """Move the slots to new tensors on `device`; do nothing if they are there already."""
        if device is self.device:
            return
        slots = {}
        for name, tensor in self.slots.items():
            host = self.device.host(tensor)
            slots[name] = new_tensor(device, type_of(host))
            device.write(host, slots[name])
        self.slots, self.device = slots, device

    def digests(self) -> dict[str, bytes]:
        """The tensor digest of every slot of the committed state, chains included."""
        digests = self.device.digests(list(self.slots.values()))
        return {**dict(zip(self.slots, digests, strict=True)), **self.chain_digests()}

    def chain_digests(self) -> dict[str, bytes]:
        """The tensor digests of the two chains."""
        return {
            LOSS_CHAIN_SLOT: chain_digest(self.loss_chain),
            LOG_CHAIN_SLOT: chain_digest(self.log_chain),
        }

    def root(self) -> bytes:
        """The state root (COMMITMENTS 5.3)."""
        return state_root(self.digests())

    @staticmethod
    def root_of(digests: Mapping[str, bytes]) -> bytes:
        """The state root over digests that the caller has computed already."""
        return state_root(digests)

    def tensors(self) -> dict[str, Array]:
        """Every slot of the committed state as a host array: the contents of a checkpoint file."""
        return {name: self.tensor(name) for name in (*self.slots, LOSS_CHAIN_SLOT, LOG_CHAIN_SLOT)}

    def tensor(self, name: str) -> Array:
        """One of `tensors`."""
        if name in (LOSS_CHAIN_SLOT, LOG_CHAIN_SLOT):
            chain = self.loss_chain if name == LOSS_CHAIN_SLOT else self.log_chain
            return np.frombuffer(chain, dtype=np.uint8)
        return self.device.host(self.slots[name])

    def pieces(self, name: str) -> Iterator[Array]:
        """The elements of one of `tensors`, row-major, in one piece or more."""
        yield self.tensor(name)

    def file_types(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """(dtype, shape) of each of `tensors`; found once, since a step changes none."""
        if self._types is None:
            self._types = {
                name: (dtype_name(a.dtype), tuple(map(int, a.shape)))
                for name, a in self.tensors().items()
            }
        return self._types

    @staticmethod
    def from_tensors(
        tensors: Mapping[str, Array], types: Mapping[str, TensorType], what: str
    ) -> State:
        """The state in a checkpoint file, whose slots are checked against the program's.

        Raises CorruptFileError for a missing or foreign slot or a wrong dtype or shape,
        CounterpartyError for a value that no honest party writes (COMMITMENTS 3.3).
        """
        slots = dict(tensors)
        found = {n: (dtype_name(a.dtype), tuple(map(int, a.shape))) for n, a in slots.items()}
        check_file_types(found, types, what)
        losses, logs = (slots.pop(name).tobytes() for name in (LOSS_CHAIN_SLOT, LOG_CHAIN_SLOT))
        check_slots(slots, types, what)
        return State({name: slots[name] for name in types}, losses, logs)


def check_file_types(
    found: Mapping[str, tuple[str, tuple[int, ...]]], types: Mapping[str, TensorType], what: str
) -> None:
    """Raise CorruptFileError unless each (dtype, shape) is that of a checkpoint file for a state of
    `types`: its slots, and the two chains."""
    slots = dict(found)
    for name in (LOSS_CHAIN_SLOT, LOG_CHAIN_SLOT):
        if slots.pop(name, None) != ("u8", (32,)):
            _corrupt(what, f"slot {name} is not a chain of 32 bytes")
    check_slot_types(slots, types, what)


def check_slot_types(
    found: Mapping[str, tuple[str, tuple[int, ...]]], types: Mapping[str, TensorType], what: str
) -> None:
    """Raise CorruptFileError unless `found`, (dtype, shape) by slot, agrees with `types`."""
    if set(found) != set(types):
        odd = min(set(found) ^ set(types))
        _corrupt(what, f"its slots are not the program's ({odd})")
    for name, wanted in types.items():
        dtype, shape = found[name]
        if (dtype, shape) != (wanted.dtype, wanted.shape):
            _corrupt(what, f"slot {name} is {dtype}{list(shape)}, not {wanted}")


def check_slots(slots: Mapping[str, Array], types: Mapping[str, TensorType], what: str) -> None:
    """Raise unless `slots` are exactly those of `types`, with canonical values."""
    found = {n: (dtype_name(a.dtype), tuple(map(int, a.shape))) for n, a in slots.items()}
    check_slot_types(found, types, what)
    for name in types:
        check_canonical(slots[name], f"slot {name} of the {what}")


def _corrupt(what: str, why: str) -> NoReturn:
    raise CorruptFileError(f"The {what} is corrupt: {why}.", "Restore it from an intact copy.")


TIED, TRANSIENT = "tied names", "buffers outside of state_dict"


@dataclass(frozen=True)
class ModuleNames:
    """`tied` has further names of parameters and buffers, each with the first one, under which the
    state has it. `transient` are buffers that the module does not save (persistent=False), or that
    the code keeps outside of it (PROGRAM 5.20)."""

    tied: Mapping[str, str] = field(default_factory=dict)
    transient: tuple[str, ...] = ()

    def notes(self) -> dict[str, str]:
        """The entries of a job's `about`; no name holds a space or an equals sign (PROGRAM 2.3)."""
        notes = {}
        if self.tied:
            notes[TIED] = " ".join(f"{a}={b}" for a, b in sorted(self.tied.items()))
        if self.transient:
            notes[TRANSIENT] = " ".join(sorted(self.transient))
        return notes


def names_of(about: Mapping[str, str], slots: set[str]) -> ModuleNames:
    """The names in a job's `about`. `slots` are the module's own names in the state.

    Raises CorruptFileError where they do not fit the state.
    """
    tied = dict(pair.partition("=")[::2] for pair in about.get(TIED, "").split())
    transient = tuple(about.get(TRANSIENT, "").split())
    strange = [*(set(tied.values()) | set(transient)) - slots, *set(tied) & slots]
    if strange or "" in tied:
        raise CorruptFileError(
            f"The job's notes about the module's names do not fit its state: {strange[0][:80]!r}."
            if strange
            else "The job's notes about the module's names hold an empty name.",
            "Restore the job from its author.",
        )
    return ModuleNames(tied, transient)
