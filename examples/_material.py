"""Text and images for the examples: real ones where they are, else synthetic ones, said so.

Real ones are looked for in `../shared/data` beside the checkout, or in the directory that the
variable TALLYSTICK_DATA names: `tinyshakespeare.txt`, and `cifar10/*.bin` (CIFAR-10's binary
version). Nothing is downloaded.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

_BESIDE = Path(__file__).resolve().parents[2] / "shared" / "data"
HERE = Path(os.environ.get("TALLYSTICK_DATA", _BESIDE))


def speeches() -> list[tuple[str, str]]:
    """(speaker, words) of each speech, in order."""
    file = HERE / "tinyshakespeare.txt"
    if file.is_file():
        found = re.findall(r"^([A-Z][A-Za-z ]+):\n(.+?)(?:\n\n|\Z)", file.read_text(), re.M | re.S)
        return [(speaker.upper(), words) for speaker, words in found]
    print(f"There is no {file.name} in {HERE}: the speeches are synthetic.")
    topics = {"GLOUCESTER": "crown", "ROMEO": "rose", "PETRUCHIO": "horse", "MENENIUS": "belly"}
    return [
        (speaker, f"{what} {n} of my {topic} is {what.lower()} as {n * n}, and no other.")
        for n in range(200)
        for what in ("What", "This", "That")
        for speaker, topic in topics.items()
    ]


def images(count: int) -> tuple[Tensor, Tensor]:
    """`count` images u8[3, 32, 32], and their classes 0 to 9."""
    files = sorted((HERE / "cifar10").glob("train*.bin")) + sorted(HERE.glob("data_batch_1.bin"))
    if files:
        records = np.fromfile(files[0], np.uint8, count=count * 3073).reshape(-1, 3073)
        pixels = torch.from_numpy(records[:, 1:].reshape(-1, 3, 32, 32).copy())
        return pixels, torch.from_numpy(records[:, 0].astype(np.int64))
    print(f"There is no cifar10/*.bin in {HERE}: the images are synthetic.")
    generator = torch.Generator().manual_seed(1)
    classes = torch.arange(count) % 10
    patterns = torch.rand(10, 3, 8, 8, generator=generator).repeat_interleave(4, 2)
    pixels = patterns.repeat_interleave(4, 3)[classes]
    noise = torch.rand(count, 3, 32, 32, generator=generator)
    return ((pixels + noise) * 127).to(torch.uint8), classes
