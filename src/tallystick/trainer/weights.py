"""The weights of a finished run, back into the module that it was captured from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import nn

from tallystick.program.capture.carried import Carried
from tallystick.program.capture.plain import original, uncompiled
from tallystick.run.store.export import Which, weights_of
from tallystick.terminal.lines import note


def load_weights(
    module: nn.Module, run: Path, *, best: bool = False, outside: Carried | None = None
) -> int:
    """Load the final weights of `run` into `module`, with `best` those after the best pass of
    committed validation; returns their step. What `torch.compile` wrapped has the names that the
    capture gave it: those of the module inside. The tensors of `outside` get their values too.
    Raises the errors of `weights_of`."""
    found = weights_of(run, None, Which(best=best))
    # A file's arrays are read-only views; torch only reads them, and asks for its own.
    tensors = {name: torch.from_numpy(np.array(array)) for name, array in found.tensors.items()}
    written = original(module)
    with uncompiled(written):
        held = written.state_dict()
        own = {name: held[name] for name in _slots_of(written, outside) if name in held}
        written.load_state_dict(own | tensors, strict=True)
    if outside is not None:
        outside.load({
            name: torch.from_numpy(np.array(found.unsaved[name])) for name in outside.tensors()
        })  # fmt: skip
    if best:
        note(f"The model gets the weights after step {found.step}, those of the best pass.")
    return found.step


def _slots_of(module: nn.Module, outside: Carried | None) -> list[str]:
    """The buffers of the module that are slots of `outside`: None at first (PROGRAM 5.20 g)."""
    kept = [] if outside is None else outside.kept
    places = {(id(spot.place.holder), spot.place.key) for one in kept for spot in one.spots}
    return [
        f"{path}.{key}".removeprefix(".")
        for path, child in module.named_modules()
        for key in child._buffers
        if {(id(child), key), (id(child._buffers), key)} & places
    ]
