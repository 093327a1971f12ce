"""A data set, collated once into records of one shape.

A job's data are records of fixed shapes (COMMITMENTS 8.1). A collator pads each batch to its
longest record. So every chunk is collated beside the longest records of the whole set, whose rows
are left out again: the collator's own padding makes all of them equally long.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tallystick.commit.tensor import Array
from tallystick.errors import UsageError

CHUNK = 128
Collate = Callable[[list[Any]], Any]


# -- batches as they come, and as a job has them ---------------------------------------------------
def flatten(batch: Any, name: str = "") -> dict[str, Tensor]:
    """The tensors of a batch by name: a dict's keys, `field0`, `field1` … of a tuple, joined by a
    point. Raises UsageError for what is neither a tensor nor a dict, tuple or list of them."""
    if isinstance(batch, Tensor):
        return {name or "field0": batch}
    if isinstance(batch, np.ndarray):
        return {name or "field0": torch.from_numpy(batch)}
    if isinstance(batch, Mapping):
        items = [(str(key), value) for key, value in batch.items()]
    elif isinstance(batch, (tuple, list)):
        items = [(f"field{i}", value) for i, value in enumerate(batch)]
    else:
        raise UsageError(
            f"The batch's {name or 'value'} is a {type(batch).__name__}, not a tensor.",
            "Let the collator remove it, or turn it into a tensor with the batch first.",
        )
    found: dict[str, Tensor] = {}
    for key, value in items:
        found |= flatten(value, f"{name}.{key}" if name else key)
    return found


def rebuilt(like: Any, tensors: Mapping[str, Tensor], name: str = "") -> Any:
    """The batch of the form of `like` whose tensors are `tensors`, named as by `flatten`."""
    if isinstance(like, (Tensor, np.ndarray)):
        return tensors[name or "field0"]
    if isinstance(like, Mapping):
        return {k: rebuilt(v, tensors, f"{name}.{k}" if name else str(k)) for k, v in like.items()}
    parts = [
        rebuilt(value, tensors, f"{name}.field{i}" if name else f"field{i}")
        for i, value in enumerate(like)
    ]
    return type(like)(*parts) if hasattr(like, "_fields") else type(like)(parts)


# -- collation -------------------------------------------------------------------------------------
@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Python's, numpy's and torch's generators at `seed` within the block, as before after it."""
    before = random.getstate(), np.random.get_state(), torch.random.get_rng_state()
    random.seed(seed)
    np.random.seed(seed % (1 << 32))
    torch.manual_seed(seed)
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])
        torch.random.set_rng_state(before[2])


class _CollatedSet:
    """A data set and its collator."""

    def __init__(self, dataset: Any, collate: Collate, what: str) -> None:
        self.what, self.dataset, self.collate = what, dataset, collate
        try:
            self.count = len(dataset)
        except TypeError:
            raise UsageError(
                f"The {what} ({type(dataset).__name__}) has no length.",
                "Pass a data set with __len__, such as a list: a job has a fixed number of "
                "records.",
            ) from None
        if not self.count:
            raise UsageError(f"The {what} has no records.", "Pass at least one record.")

    def batch(self, numbers: Sequence[int]) -> dict[str, Tensor]:
        """The records `numbers`, collated. Raises UsageError for a field without a row of each."""
        found = flatten(self.collate([self.dataset[i] for i in numbers]))
        for name, tensor in found.items():
            if not tensor.ndim or len(tensor) != len(numbers):
                raise UsageError(
                    f"The collator makes {name!r} of shape {tuple(tensor.shape)} from "
                    f"{len(numbers)} records of the {self.what}.",
                    "Put the records along the first axis of every tensor.",
                )
        return found

    def chunks(self) -> Iterator[range]:
        for start in range(0, self.count, CHUNK):
            yield range(start, min(start + CHUNK, self.count))

    def shapes(self, numbers: Sequence[int]) -> dict[tuple[str, int], int]:
        found = self.batch(numbers)
        return {(n, axis): t.shape[axis] for n, t in found.items() for axis in range(1, t.ndim)}

    def longest(self) -> list[int]:
        """Records beside which every other one is padded to the longest of the set, per axis."""
        most: dict[tuple[str, int], tuple[int, range]] = {}
        ragged = set()
        for chunk in self.chunks():
            for axis, size in self.shapes(chunk).items():
                if axis in most and most[axis][0] != size:
                    ragged.add(axis)
                if axis not in most or size > most[axis][0]:
                    most[axis] = size, chunk
        alone = self.shapes([0])
        ragged |= {axis for axis, (size, _) in most.items() if alone.get(axis) != size}
        found = []
        for axis in sorted(ragged):
            size, chunk = most[axis]
            reaches = (i for i in chunk if self.shapes([i]).get(axis) == size)
            found += [next(reaches, chunk[0])]
        return sorted(set(found))


def collated(
    dataset: Any, collate: Collate, what: str, *, seed: int = 0, frozen: bool = False
) -> dict[str, Array]:
    """The records of `dataset` as arrays (N, *shape of one record), by name.

    With `frozen` a data set or collator that draws is read once, with its generators at `seed`.
    Without it, it is refused. Raises UsageError also where records of one shape cannot be made, or
    where a record depends on those beside it.
    """
    source = _CollatedSet(dataset, collate, what)
    beside = source.longest()
    if not frozen:
        _refuse_draws(source, beside)
    found: list[dict[str, Tensor]] = []
    with seeded(seed):
        for chunk in source.chunks():
            batch = source.batch([*chunk, *beside])
            found.append({n: t[: len(chunk)].detach().cpu() for n, t in batch.items()})
    first = found[0]
    for part in found:
        for name in sorted(set(first) | set(part)):
            here, there = first.get(name), part.get(name)
            if here is None or there is None or here.shape[1:] != there.shape[1:]:
                raise UsageError(
                    f"The records of the {what} do not all have the same shape ({name!r}).",
                    "Pad or crop them to one length in the collator (padding='max_length').",
                )
    return {name: torch.cat([part[name] for part in found]).numpy() for name in first}


def _equal(one: Mapping[str, Tensor], other: Mapping[str, Tensor], rows: int) -> bool:
    return set(one) == set(other) and all(
        one[n].shape[1:] == other[n].shape[1:]
        and np.array_equal(_bits(one[n][:rows]), _bits(other[n][:rows]))
        for n in one
    )


def _bits(tensor: Tensor) -> Array:
    return np.ascontiguousarray(tensor.detach().cpu().numpy()).reshape(-1).view(np.uint8)


def _refuse_draws(source: _CollatedSet, beside: list[int]) -> None:
    """Refuse records that are other ones at a second reading, or beside other records."""
    numbers = [*range(min(CHUNK, source.count)), *beside]
    with seeded(1):
        one = source.batch(numbers)
    with seeded(2):
        other = source.batch(numbers)
    name = type(source.collate).__name__
    if not _equal(one, other, len(numbers)):
        raise UsageError(
            f"The {source.what} or its collator ({name}) draws random numbers, but a job's "
            "records are fixed.",
            "Pass frozen_collator=True to read the records once and keep them. Or draw in the "
            "model's forward, which uses the job's own generator.",
        )
    if not _equal(one, source.batch([0, *(beside or [0])]), 1):
        raise UsageError(
            f"The collator ({name}) makes a record depend on the other records of the batch.",
            "Collate each record independently, and mix records in the loss.",
        )
