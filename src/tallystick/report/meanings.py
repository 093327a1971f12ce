"""What each clause that can convict means, for people who know neither the clauses nor the field.

The one table of it: pages and the command line take their first sentences from here. A test holds
it against the specification and against every verdict of `vectors/protocol`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """What a conviction is about, which decides how a sentence names the place."""

    STEP = "step"  # what the party signed for one step
    ANSWER = "answer"  # a signed answer in the game is false
    END = "end"  # where the run ended: the place is the last step that both runs have
    WHOLE = "whole"  # the run as a whole, at no step
    SILENCE = "silence"  # no answer, by a referee's word


@dataclass(frozen=True)
class Meaning:
    """`did` goes on after "Party B", and says what was signed: why, a signature does not show.
    `means` is a whole sentence, and so is `open_`, which says what a conviction by this clause
    leaves open. The box that a page's own judge fills in says `did` in the same words."""

    did: str
    means: str
    kind: Kind = Kind.STEP
    open_: str = ""


_ANSWER_ONLY = (
    "Where its run went wrong, if it did: a false answer ended the dispute before that was reached."
)
_ORDER = "The job lists every operation of a step, in order. "
_PROOF = (
    "Every run has one fingerprint, which its owner signs: a short code that changes if anything "
    "in the run changes. A proof ties a part of the run to that fingerprint. This proof does not, "
    "so what it should support is not what was signed."
)
_LOG_RULE = (
    "Some numbers lie so near the middle between two others that the job lets the trainer choose, "
    "and has it write the choice into a log. "
)
_ARITHMETIC = (
    "From the same inputs the job's arithmetic gives exactly one result, on every machine. The "
    "party signed another one."
)


def _answer(did: str, means: str) -> Meaning:
    return Meaning(did, means, Kind.ANSWER, _ANSWER_ONLY)


# (clause, case) -> meaning; the case is "" where a clause means the same in each of its cases.
MEANINGS: dict[tuple[str, str], Meaning] = {
    ("2.7", ""): _answer(
        "signed an answer that does not fit the question",
        "The answer has other parts than the question asks for, so it supports nothing. The rules "
        "allow no such answer.",
    ),
    ("2.8", ""): _answer(
        "signed that it cannot answer a question about its own run",
        "Whoever has run the job can answer every question about that run. A run that its own "
        "signer cannot show is not accepted.",
    ),
    ("2.9", ""): _answer(
        "signed two different answers to one question",
        "At most one of them can be true. Both carry its signature, so it contradicts itself.",
    ),
    ("2.10", ""): Meaning(
        "did not answer",
        "This is silence, and not a lie: nothing that the party said is shown false. The referee "
        "says that it waited, and that no answer came.",
        Kind.SILENCE,
        "Why no answer came, and whether the question reached the party.",
    ),
    ("3.2", ""): Meaning(
        "signed a run of a length that the job does not allow",
        "The job says how many steps a run has, and how often its state is signed. The signed "
        "numbers are others.",
        Kind.WHOLE,
    ),
    ("3.3", ""): Meaning(
        "gave a false proof of the states that it signed",
        _PROOF,
        Kind.WHOLE,
    ),
    ("3.4", ""): Meaning(
        "signed another starting model than the job's",
        "The job fixes every number of the model before the first step. The signed run begins "
        "with other numbers.",
        Kind.WHOLE,
    ),
    ("3.5", ""): Meaning(
        "signed a final model that is not the last one of its own run",
        "The result that it signed and the last signed state of its run are two different ones.",
        Kind.WHOLE,
    ),
    ("4.8", ""): Meaning(
        "signed a run that goes on after the job's end",
        "The job ends a run as soon as its error measure (the loss) is no longer a finite number. "
        "That had happened, and the signed run goes on.",
        Kind.END,
    ),
    ("4.9", ""): Meaning(
        "signed a run that stops before the job's end",
        "The job lets a run stop early only for a reason that it names. There was none, so steps "
        "that were ordered are missing.",
        Kind.END,
    ),
    ("4.10", ""): Meaning(
        "gave a false proof of its loss",
        "The loss is the error measure of a step. " + _PROOF,
        Kind.ANSWER,
        _ANSWER_ONLY,
    ),
    ("4.11", ""): Meaning(
        "signed a run that ends at another step than the job's own stopping rule says",
        "The job computes in each step whether to stop. The signed run stops although that said "
        "no, or goes on although it said yes, or its proof of what it said is false.",
        Kind.END,
    ),
    ("5.2", ""): Meaning(
        "signed other operations than the job's",
        _ORDER + "The signed step has another number of them.",
    ),
    ("5.3", ""): Meaning(
        "signed statements that contradict each other",
        "The result of a step is a state: all numbers of the model, and what the training "
        "remembers. The result that the party signed is not the result of the work that it signed.",
        Kind.STEP,
        open_="How the signed state came about: a step may have been skipped, made up or damaged.",
    ),
    ("5.3", "1"): Meaning(
        "signed other operations than the job's",
        _ORDER + "The last one, which closes the step, is another one in the signed step.",
    ),
    ("5.4", ""): _answer("gave fingerprints that contradict each other", _PROOF),
    ("5.5", ""): _answer("showed an operation that is not the one it signed for", _PROOF),
    ("5.5", "1"): Meaning(
        "signed other operations than the job's",
        _ORDER + "The signed step has another one at this place, or another setting of it.",
    ),
    ("5.6.1", ""): Meaning(
        "signed a step that does not start where the one before ended",
        "Each step must go on with the numbers that the step before has left: the model's weights "
        "and what the training remembers. The signed step goes on with other ones.",
        Kind.STEP,
    ),
    ("5.6.2", ""): Meaning(
        "signed two versions of one result",
        "An operation must take what an earlier operation has computed. In the signed step it "
        "takes something else.",
        Kind.STEP,
    ),
    ("5.6.2", "1"): Meaning(
        "signed other operations than the job's",
        _ORDER + "The signed step has another one at this place.",
    ),
    ("5.6.3", ""): Meaning(
        "signed other data than the job's",
        "The job fixes every record of the data, and their order. The party signed a value for "
        "this step that is not the one in the job's data. A run on other data is not the run that "
        "the job describes.",
    ),
    ("5.6.4", ""): Meaning(
        "signed another setting than the job's",
        "The job fixes the numbers that steer a step, such as the learning rate, and the source "
        "of its random numbers. The party signed another value for one of these. A run with "
        "another setting is not the run that the job describes.",
    ),
    ("5.6.6", ""): _answer("gave a false proof of what went into a step", _PROOF),
    ("5.8", ""): Meaning(
        "signed another end of a step than its own numbers give",
        "At its end a step records the loss and the new state of the model. What the party "
        "signed there is not what its own numbers of that step give.",
        Kind.STEP,
    ),
    ("6.1", ""): _answer("showed numbers that are not the ones it signed for", _PROOF),
    ("6.1", "3"): Meaning(
        "signed a number in a form that the job's arithmetic never gives",
        "The job's arithmetic gives each number one form. This one has another.",
        Kind.STEP,
    ),
    ("6.5", ""): Meaning("signed a false result of a calculation", _ARITHMETIC, Kind.STEP),
    ("6.6", ""): Meaning(
        "signed a false sum",
        "The parts of a sum, as the party itself states them, do not add up to the sum that it "
        "signed.",
        Kind.STEP,
    ),
    ("6.8", ""): Meaning(
        "signed a false greatest or least number",
        "The party named a number as the greatest (or least) of many. It is not among them, or "
        "another one goes beyond it.",
        Kind.STEP,
    ),
    ("6.9", ""): Meaning(
        "signed a false sum",
        "The terms of a sum, as the party itself states them, do not add up to the sum that it "
        "signed.",
        Kind.STEP,
    ),
    ("6.10", ""): Meaning(
        "showed a log of roundings that is not the one it signed for",
        _LOG_RULE + "The log that the party showed is not the one in its signed run, or is none.",
        Kind.STEP,
        open_=_ANSWER_ONLY,
    ),
    ("6.11", ""): Meaning(
        "signed a number that its own log of roundings does not give",
        _LOG_RULE + "This number is not one of those that could be chosen, or not the one that "
        "its log says.",
        Kind.STEP,
    ),
    ("6.13", ""): Meaning(
        "signed a false entry in its log of roundings",
        _LOG_RULE + "The entry in question stands for no allowed choice, or is missing where one "
        "was made.",
        Kind.STEP,
    ),
    ("6.13", "1"): Meaning(
        "signed other operations than the job's",
        _ORDER + "The signed step has another one at this place.",
    ),
    ("6.14", ""): _answer("gave a false proof about its log of roundings", _PROOF),
}  # fmt: skip

# Clauses that remove a key from a session, or convict its referee, outside of a game.
OUTSIDE: dict[str, str] = {
    "10.2.3": "It signed two different messages where only one may be, and so contradicts itself.",
    "10.3.1": "What it opened is not what it had sealed, or is no signed run of this job.",
    "12.1": "The referee signed bytes that are no entry of its log, or a time that runs backwards.",
    "12.2": "The referee signed an entry where the session had not begun, or had ended.",
    "12.4": "The referee signed an entry where another one, or none, was due.",
    "12.5": "The referee signed an entry that the rules of its own log do not allow there.",
    "12.5.1": "The referee signed two different entries for one place of its log.",
    "12.5.3": "The referee signed bytes that are no entry of a log.",
}


def meaning_of(clause: str, case: str = "") -> Meaning:
    """The meaning of a conviction; of a clause that is not in the table, what holds for all."""
    found = MEANINGS.get((clause, case)) or MEANINGS.get((clause, ""))
    return found or Meaning("signed a false statement", "What it signed breaks a rule of the job.")
