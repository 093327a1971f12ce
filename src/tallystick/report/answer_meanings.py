"""What a job is the work of, and what each clause that can convict means where that is one
answer of a model, or one encoding (ANSWERS 1.4, 1.6).

The clauses are those of every job. Only what the words call the work differs: nothing is trained,
there is one step, and its data are the text. Clauses that are not here mean what they mean
elsewhere.
"""

from __future__ import annotations

from enum import Enum

from tallystick.answers.statement import ANSWER_PREFIX
from tallystick.program.terms import Terms
from tallystick.report.meanings import Kind, Meaning, meaning_of


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


_ORDER = (
    "The job lists every operation by which the model reads the text and draws each piece (token) "
    "of the answer, in order. "
)
_OTHER = "signed other operations than the model's"


# (clause, case) -> meaning, as in `meanings`.
MEANINGS_OF_ANSWERS: dict[tuple[str, str], Meaning] = {
    ("3.2", ""): Meaning(
        "signed a run of a length that the job does not allow",
        "An answer is computed in one go, and its run has exactly one step. The signed run has "
        "another number of them.",
        Kind.WHOLE,
    ),
    ("3.4", ""): Meaning(
        "signed another model than the job's",
        "The job fixes every number of the model. The signed run begins with other numbers, so it "
        "is the answer of another model.",
        Kind.WHOLE,
    ),
    ("3.5", ""): Meaning(
        "signed a result that is not that of its own run",
        "The result that it signed and the end of its signed run are two different ones.",
        Kind.WHOLE,
    ),
    ("5.2", ""): Meaning(_OTHER, _ORDER + "The signed work has another number of them."),
    ("5.3", ""): Meaning(
        "signed statements about its answer that contradict each other",
        "The result of an answer is the pieces of text (tokens) that were drawn, for each a number "
        "that says how likely it was, and the model's own numbers, which stay as they are. The "
        "result that the party signed is not the result of the work that it signed.",
        open_="How the signed result came about: another model may have given it, or it may have "
        "been made up or damaged.",
    ),
    ("5.3", "1"): Meaning(
        _OTHER, _ORDER + "The last one, which closes the work, is another one in what was signed."
    ),
    ("5.5", "1"): Meaning(
        _OTHER, _ORDER + "The signed work has another one at this place, or another setting of it."
    ),
    ("5.6.1", ""): Meaning(
        "signed an answer that does not come from the job's model",
        "The job fixes every number of the model. The signed work goes on with other ones, so it "
        "is the answer of another model.",
    ),
    ("5.6.2", ""): Meaning(
        "signed two versions of one result",
        "An operation must take what an earlier operation has computed. In the signed work it "
        "takes something else.",
    ),
    ("5.6.2", "1"): Meaning(_OTHER, _ORDER + "The signed work has another one at this place."),
    ("5.6.3", ""): Meaning(
        "signed an answer to another text, or by other settings, than the job's",
        "The job fixes the prompt, the answer before each of its pieces (tokens), and the settings "
        "by which they are drawn. The party signed another value for one of these. So what it "
        "computed is not the answer that the job describes.",
    ),
    ("5.6.4", ""): Meaning(
        "signed an answer by other random numbers than the job's",
        "The job fixes the source of the random numbers by which the pieces (tokens) of the answer "
        "are drawn. The party signed another one, and with it another draw.",
    ),
    ("5.6.6", ""): Meaning(
        "gave a false proof of what went into its answer",
        meaning_of("5.6.6").means,
        Kind.ANSWER,
        meaning_of("5.6.6").open_,
    ),
    ("5.8", ""): Meaning(
        "signed another end of its work than its own numbers give",
        "At the end stands what was drawn, and how likely all of it was. What the party signed "
        "there is not what its own numbers give.",
    ),
    ("6.13", "1"): Meaning(_OTHER, _ORDER + "The signed work has another one at this place."),
}


# What differs of an encoding: it draws nothing, and its result is numbers.
_LIST = "The job lists every operation by which the model reads the text, in order. "
_NUMBERS = "signed numbers that do not come from the job's model"
MEANINGS_OF_ENCODINGS: dict[tuple[str, str], Meaning] = {
    ("3.2", ""): Meaning(
        "signed a run of a length that the job does not allow",
        "What a model makes of a text is computed in one go, and the run has exactly one step. The "
        "signed run has another number of them.",
        Kind.WHOLE,
    ),
    ("3.4", ""): Meaning(
        "signed another model than the job's",
        "The job fixes every number of the model. The signed run begins with other numbers, so its "
        "result is that of another model.",
        Kind.WHOLE,
    ),
    ("5.2", ""): Meaning(_OTHER, _LIST + "The signed work has another number of them."),
    ("5.3", ""): Meaning(
        "signed statements about its result that contradict each other",
        "The result is the numbers that the model makes of the text, and the model's own numbers, "
        "which stay as they are. The result that the party signed is not the result of the work "
        "that it signed.",
        open_="How the signed result came about: another model may have given it, or it may have "
        "been made up or damaged.",
    ),
    ("5.3", "1"): Meaning(
        _OTHER, _LIST + "The last one, which closes the work, is another one in what was signed."
    ),
    ("5.5", "1"): Meaning(
        _OTHER, _LIST + "The signed work has another one at this place, or another setting of it."
    ),
    ("5.6.1", ""): Meaning(
        _NUMBERS,
        "The job fixes every number of the model. The signed work goes on with other ones, so its "
        "result is that of another model.",
    ),
    ("5.6.2", "1"): Meaning(_OTHER, _LIST + "The signed work has another one at this place."),
    ("5.6.3", ""): Meaning(
        "signed the result of another text than the job's",
        "The job fixes the text. The party signed another value for a part of it. So what it "
        "computed is not the result that the job describes.",
    ),
    ("5.6.4", ""): Meaning(
        "signed other random numbers than the job's",
        "The job fixes the source of random numbers, where any are used. The party signed another "
        "one.",
    ),
    ("5.6.6", ""): Meaning(
        "gave a false proof of what went into its result",
        meaning_of("5.6.6").means,
        Kind.ANSWER,
        meaning_of("5.6.6").open_,
    ),
    ("5.8", ""): Meaning(
        "signed another end of its work than its own numbers give",
        "At the end stand the numbers that the model made of the text, and their sum. What the "
        "party signed there is not what its own numbers give.",
    ),
    ("6.13", "1"): Meaning(_OTHER, _LIST + "The signed work has another one at this place."),
}


def meaning_about(work: Work, clause: str, case: str = "") -> Meaning:
    """The meaning of a conviction in a dispute about such work."""
    tables = {
        Work.TRAINING: (),
        Work.ANSWER: (MEANINGS_OF_ANSWERS,),
        Work.ENCODING: (MEANINGS_OF_ENCODINGS, MEANINGS_OF_ANSWERS),
    }
    for key in ((clause, case), (clause, "")):
        for table in tables[work]:
            if key in table:
                return table[key]
    return meaning_of(clause, case)
