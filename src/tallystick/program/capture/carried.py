"""The tensors outside of the module that are slots of the state: placed, and read back (PROGRAM
5.20)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tallystick.program.capture.containers import Containers
from tallystick.program.capture.outside import GONE, KeptTensor, Outside, check_slot, storage_of
from tallystick.program.capture.places import Reached
from tallystick.program.capture.stand_ins import StandIns, is_whole, seen_as

CLONE = "Keep a copy: clone() it."


@dataclass(frozen=True, eq=False)
class CarriedSlot:
    """One slot: a tensor, or several that see one memory. `tensor` has its type and content."""

    tensor: Tensor
    members: tuple[KeptTensor, ...]

    @property
    def name(self) -> str:
        """The name of its buffer slot, without `buffer.`."""
        return self.members[0].slot

    def place(self, made: Tensor) -> list[tuple[KeptTensor, Tensor]]:
        """Put `made`, or what sees it, where the code keeps the members."""
        placed = []
        for kept in self.members:
            seen = made if kept.tensor is self.tensor else seen_as(made, kept.tensor)
            kept.put(seen)
            placed.append((kept, seen))
        return placed

    def after(self, placed: Sequence[tuple[KeptTensor, Tensor]], made: Tensor) -> Tensor:
        """What the code has left there. Raises UsageError where that is no next state."""
        for kept, seen in placed:
            values = kept.values(seen)
            if len(self.members) > 1 or kept.tensor is not self.tensor:
                if values != [seen]:
                    raise kept.refusal(
                        "is part of a memory that changes in place, and is replaced", CLONE
                    )
                continue
            if len(values) > 1:
                raise kept.refusal(
                    "stands in several places, of which some get another tensor", CLONE
                )
            value = values[0]
            if not isinstance(value, Tensor):
                raise kept.refusal(
                    "is gone after the call"
                    if value is GONE
                    else f"is a {type(value).__name__} after the call",
                    "Keep a tensor of one shape and type there (torch.zeros for none).",
                )
            if (value.shape, value.dtype.is_floating_point) != (
                made.shape, made.dtype.is_floating_point
            ):  # fmt: skip
                raise kept.refusal(
                    f"changes its type from {_type(made)} to {_type(value)}",
                    "Make it before the training as large, and of the type, as it stays.",
                )
            return value
        return made


def _type(tensor: Tensor) -> str:
    return f"{str(tensor.dtype)[6:]}{list(tensor.shape)}"


def _slots(kept: Sequence[KeptTensor]) -> Iterator[CarriedSlot]:
    """Those that share memory, and change in place, together."""
    together: dict[int, list[KeptTensor]] = {}
    for one in kept:
        together.setdefault(storage_of(one.tensor) if one.in_place else id(one), []).append(one)
    for members in together.values():
        whole = [k.tensor for k in members if is_whole(k.tensor)]
        if whole or (len(members) == 1 and not members[0].in_place):
            yield CarriedSlot(whole[0] if whole else members[0].tensor, tuple(members))
            continue
        if len({k.tensor.dtype for k in members}) > 1:
            raise members[0].refusal("shares memory with one of another type", CLONE)
        flat = torch.empty(0, dtype=members[0].tensor.dtype)
        flat.set_(members[0].tensor.untyped_storage())
        yield CarriedSlot(flat, tuple(members))


@dataclass
class Placing:
    """The slots of one call: what was placed, and what is there afterwards."""

    slots: tuple[CarriedSlot, ...]
    made: dict[str, Tensor]
    outside: Outside
    placed: dict[str, list[tuple[KeptTensor, Tensor]]] = field(default_factory=dict)

    def after(self) -> dict[str, Tensor]:
        """The next state by name. Raises UsageError where a slot has none."""
        return {s.name: s.after(self.placed[s.name], self.made[s.name]) for s in self.slots}


@dataclass(frozen=True, eq=False)
class Carried:
    """The slots, and everything else that is kept outside, which is put back after a call."""

    outside: Outside
    slots: tuple[CarriedSlot, ...] = ()

    def with_(self, kept: Sequence[KeptTensor]) -> Carried:
        """With slots for `kept`. Raises UsageError for one that no state can have."""
        for one in kept:
            check_slot(one)
        return Carried(self.outside, tuple(_slots(kept)))

    @classmethod
    def nothing(cls) -> Carried:
        """For a request that was never settled."""
        return cls(Outside([], {}, Containers(Reached([], [], [], []))))

    @property
    def kept(self) -> list[KeptTensor]:
        return [k for slot in self.slots for k in slot.members]

    def tensors(self) -> dict[str, Tensor]:
        """Their content by the name of the buffer slot."""
        return {slot.name: slot.tensor for slot in self.slots}

    @contextlib.contextmanager
    def placed(self, made: Mapping[str, Tensor]) -> Iterator[Placing]:
        """The code keeps `made` within the block. Then its own tensors are in their places."""
        placing = Placing(self.slots, {s.name: made[s.name] for s in self.slots}, self.outside)
        try:
            for slot in self.slots:
                placing.placed[slot.name] = slot.place(made[slot.name])
            yield placing
        finally:
            for kept in self.kept:
                kept.end_call()

    def stand_in(self, stand_ins: StandIns, made: Mapping[str, Tensor]) -> None:
        """`made` also where the code has a reference that is in no place: to what changes in place,
        or can be no constant."""
        for slot in self.slots:
            for kept in slot.members:
                if kept.by_object:
                    stand_ins.add(slot.tensor, made[slot.name])

    def refuse_changed(self, where: Callable[[KeptTensor], str] = lambda kept: "") -> None:
        """Raises UsageError where a call has changed the content of what is no slot."""
        kept = next((k for k in self.outside.kept if k.changed() or k.elsewhere), None)
        if kept is not None:
            raise kept.refusal(
                "is changed by something that no program sees (a view of numpy, a kernel)",
                "Change it by torch's operators, or take the change out of the loss.",
                where(kept),
            )

    def check_beside(self, name: str, other: Carried, others_name: str) -> None:
        """Raises UsageError where another program of one job takes a slot of this one for a
        constant, or has another name for it."""
        theirs = {storage_of(k.tensor): slot.name for slot in other.slots for k in slot.members}
        for slot in self.slots:
            for kept in slot.members:
                memory = storage_of(kept.tensor)
                if theirs.get(memory, slot.name) != slot.name:
                    raise kept.refusal(
                        f"is {slot.name} in the program {name} and {theirs[memory]} in "
                        f"{others_name}",
                        "Keep it under one name that both losses use.",
                    )
                if memory not in theirs and memory in other.outside.constants:
                    raise kept.refusal(
                        f"changes in the program {name}, and {others_name} reads its first value",
                        "Make it a buffer of the module (register_buffer).",
                    )

    def refuse_replaced(self) -> None:
        """Raises UsageError where a call on real values has put another tensor in the place of one
        that is no slot."""
        for kept in self.outside.kept:
            if kept not in self.kept and any(s.now() is not kept.tensor for s in kept.spots):
                raise kept.refusal(
                    "is replaced in a call on real values, and in no trace",
                    "Replace it at every call, by torch's operators, or at none.",
                )

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """The values of a state where the code keeps them."""
        for slot in self.slots:
            made = tensors[slot.name]
            if len(slot.members) > 1 or slot.members[0].tensor is not slot.tensor:
                with torch.no_grad():
                    slot.tensor.data.copy_(made)
                continue
            slot.members[0].load(made.clone())
