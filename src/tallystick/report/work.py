"""What a job is the work of: training, one answer of a model, or one encoding of a text.

The game is the same for all (ANSWERS 1.4, 1.6). Only what the words call the work differs.
"""

from __future__ import annotations

from enum import Enum

from tallystick.answers.statement import ANSWER_PREFIX
from tallystick.program.terms import Terms


class Work(Enum):
    """Where it is not training, there is one step, and no words are about training."""

    TRAINING = "training"
    ANSWER = "answer"
    ENCODING = "encoding"


# By the slots that the one step fills (ANSWERS 2.5, 11.4).
_SLOTS = {
    Work.ANSWER: frozenset(ANSWER_PREFIX + name for name in ("tokens", "logprobs", "salt")),
    Work.ENCODING: frozenset(ANSWER_PREFIX + name for name in ("values", "salt")),
}


def work_of(terms: Terms) -> Work:
    """By the number of steps and the slots of the program, which the job digest covers."""
    if terms.commitment.steps == 1:
        slots = {n for n in terms.program_at(0).state_types if n.startswith(ANSWER_PREFIX)}
        for work, own in _SLOTS.items():
            if slots == own:
                return work
    return Work.TRAINING
