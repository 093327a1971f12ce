"""Rows of a table, each measured in a process of its own: a crash or a long run makes a row too."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Collection
from multiprocessing.connection import Connection
from typing import Any

import torch

Row = dict[str, Any]

# Libraries that import their parts late.
_HEAVY = {
    "transformers": ("transformers.models.llama.modeling_llama", "transformers.models.auto"),
    "peft": ("transformers.models.llama.modeling_llama", "peft"),
    "diffusers": ("diffusers.models.unets.unet_2d_condition",),
}


def load_first(libraries: Collection[str]) -> None:
    """What every row's process needs is imported once, before the first one is made."""
    for library in sorted(libraries):
        for name in _HEAVY.get(library, (library,)):
            importlib.import_module(name)
    from tallystick.program.capture import capture_forward

    importlib.import_module("tallystick.api")
    # Much of torch is imported by the first trace. Without a gradient: autograd's threads do not
    # survive a fork.
    capture_forward(torch.nn.Linear(2, 2), {"input": torch.ones(1, 2)})


def _without_machine(text: str) -> str:
    """`text` with files of libraries as `library/file`: a row says nothing of this machine."""
    # The longest first: one folder of the path may be inside another.
    for folder in sorted(filter(os.path.isabs, sys.path), key=len, reverse=True):
        if folder := folder.rstrip(os.sep):
            text = text.replace(folder + os.sep, "")
    return text


def _child(measure: Callable[[], Row], row: Row, pipe: Connection) -> None:
    try:
        row = measure()
    except BaseException as error:
        row = row | {"why": f"{type(error).__name__}: {error}"[:600]}
    pipe.send({k: _without_machine(v) if isinstance(v, str) else v for k, v in row.items()})
    pipe.close()


def in_a_process(measure: Callable[[], Row], row: Row, limit_s: float) -> Row:
    """What `measure` returns; `row` with `status` crashed and `why` where it returns nothing.

    Texts of the row name files of installed libraries without the folder of the library.
    """
    context = multiprocessing.get_context("fork")
    near, far = context.Pipe(duplex=False)
    started = time.perf_counter()
    row = row | {"status": "crashed"}
    process = context.Process(target=_child, args=(measure, row, far), daemon=True)
    process.start()
    far.close()
    try:
        if near.poll(limit_s):
            row = near.recv()
        else:
            row["why"] = f"not done in {limit_s:.0f} s"
            process.kill()
    except EOFError:
        row["why"] = "the process ended"
    process.join()
    return row | {"total_s": time.perf_counter() - started}
