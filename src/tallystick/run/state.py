"""The state of a run in memory: the program's slots and the two chains (COMMITMENTS 5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from tallystick.commit.state import (
    CHAIN_START,
    LOG_CHAIN_SLOT,
    LOSS_CHAIN_SLOT,
    chain_digest,
    state_root,
)
from tallystick.commit.tensor import Array, check_canonical, dtype_name, tensor_digest
from tallystick.errors import CorruptFileError
from tallystick.numerics.types import TensorType


@dataclass
class State:
    """`slots` are the program's state arrays by name; the chains are 32 bytes each."""

    slots: dict[str, Array]
    loss_chain: bytes = CHAIN_START
    log_chain: bytes = CHAIN_START

    def digests(self) -> dict[str, bytes]:
        """Tensor digest of every slot of the committed state, chains included."""
        found = {name: tensor_digest(array) for name, array in self.slots.items()}
        found[LOSS_CHAIN_SLOT] = chain_digest(self.loss_chain)
        found[LOG_CHAIN_SLOT] = chain_digest(self.log_chain)
        return found

    def root(self) -> bytes:
        """The state root (COMMITMENTS 5.3)."""
        return state_root(self.digests())

    @staticmethod
    def root_of(digests: Mapping[str, bytes]) -> bytes:
        """The state root over digests already computed."""
        return state_root(digests)

    def tensors(self) -> dict[str, Array]:
        """Every slot of the committed state as an array: what a checkpoint file holds."""
        chains = {
            LOSS_CHAIN_SLOT: np.frombuffer(self.loss_chain, dtype=np.uint8),
            LOG_CHAIN_SLOT: np.frombuffer(self.log_chain, dtype=np.uint8),
        }
        return {**self.slots, **chains}

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.slots.values())

    @staticmethod
    def from_tensors(
        tensors: Mapping[str, Array], types: Mapping[str, TensorType], what: str
    ) -> State:
        """The state in a checkpoint file, its slots checked against the program's.

        Raises CorruptFileError for a missing or foreign slot or a wrong dtype or shape,
        CounterpartyError for a value that no honest party writes (COMMITMENTS 3.3).
        """
        slots = dict(tensors)
        chains = []
        for name in (LOSS_CHAIN_SLOT, LOG_CHAIN_SLOT):
            chain = slots.pop(name, None)
            if chain is None or chain.dtype != np.uint8 or chain.shape != (32,):
                _corrupt(what, f"slot {name} is not a chain of 32 bytes")
            chains.append(chain.tobytes())
        check_slots(slots, types, what)
        return State({name: slots[name] for name in types}, *chains)


def check_slots(slots: Mapping[str, Array], types: Mapping[str, TensorType], what: str) -> None:
    """Raise unless `slots` are exactly those of `types`, with canonical values."""
    if set(slots) != set(types):
        odd = sorted(set(slots) ^ set(types))[0]
        _corrupt(what, f"its slots are not the program's ({odd})")
    for name, wanted in types.items():
        array = slots[name]
        if (dtype_name(array.dtype), tuple(array.shape)) != (wanted.dtype, wanted.shape):
            _corrupt(what, f"slot {name} is {array.dtype}{list(array.shape)}, not {wanted}")
        check_canonical(array, f"slot {name} of the {what}")


def _corrupt(what: str, why: str) -> NoReturn:
    raise CorruptFileError(f"The {what} is corrupt: {why}.", "Restore it from an intact copy.")
