"""Another prompt: the model answers a text that nobody sent.

Gain: instructions of the server's own before or in the client's text, or a cheaper text. How: the
first token of the text is another one. Caught: the first node that reads the text says that it read
other tokens than the request's record has (case 2c).
"""

from __future__ import annotations

from typing import Any

from tallystick.commit.tensor import Array
from tallystick.job.job import Job
from tallystick.run.cheats.override import Override

from .._shared import Attack
from ._shared import KIND, require_answer


class OtherPrompt(Override):
    def batch(self, step: int, batch: dict[str, Array]) -> None:
        text = batch["text"][0]
        text[0] = 0 if text[0] else 1  # every vocabulary has these two


def build(job: Job, params: dict[str, Any]) -> Override:
    require_answer(job)
    return OtherPrompt()


ATTACK = Attack("other-prompt", KIND, "the model answers another text", build)
