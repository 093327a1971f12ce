"""The form of a case of the grid: a training loop as its script has it, signed and in plain torch.

A module `cases_*.py` has functions decorated with `grid_case`. Each returns a `Loop`. `cases()`
imports all of these modules and gives what they have registered.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

FACES = ("Trainer", "fit", "Lightning", "capture", "reproducible")


@dataclass
class Order:
    """What the original script says about the order of its records and the ends of its epochs."""

    shuffled: bool
    records: int
    batch: int  # records that one next(batches) yields (the last of an epoch may be fewer)
    epochs: int
    drop_last: bool


@dataclass
class Loop:
    """One training loop: moved to Tallystick (`signed`), and in plain torch (`plain`)."""

    model: nn.Module
    signed: Callable[[Path], Any]
    plain: Callable[[nn.Module, Iterator[Any]], Iterator[Any]]
    epochs_say: Order
    updates: int
    # One epoch of what the script's own loader yields: an example of the batches' form. For the
    # face "reproducible" the very batches of `signed`, of all epochs, in their order.
    loader: Callable[[], Iterable[Any]] | None = None


@dataclass(frozen=True)
class Case:
    """A registered case; `make()` gives a fresh `Loop`."""

    name: str
    face: str
    features: tuple[str, ...]
    make: Callable[[], Loop]


LIBRARIES = ("accelerate", "lightning", "transformers")
CASES: dict[str, Case] = {}


def grid_case(
    name: str, face: str, features: tuple[str, ...]
) -> Callable[[Callable[[], Loop]], Callable[[], Loop]]:
    """Register the decorated function, which returns a `Loop`, under a name of its own."""
    assert face in FACES, face

    def register(make: Callable[[], Loop]) -> Callable[[], Loop]:
        known = CASES.get(name)
        assert known is None or known.make.__module__ == make.__module__, f"two cases named {name}"
        CASES[name] = Case(name, face, tuple(features), make)
        return make

    return register


def cases() -> dict[str, Case]:
    """All cases of the folder, by name; those of a library that is not installed are missing."""
    for file in sorted(Path(__file__).parent.glob("cases_*.py")):
        try:
            importlib.import_module(f"grid.{file.stem}")
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in LIBRARIES:
                raise
    return CASES
