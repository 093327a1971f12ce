"""The state of a run in memory: the program's slots on a device, two chains (COMMITMENTS 5)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NoReturn

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
from tallystick.errors import CorruptFileError
from tallystick.numerics.types import TensorType, type_of
from tallystick.program.layout import new_tensor


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
