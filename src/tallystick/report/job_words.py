"""What is trained, in words, as a part of each page."""

from __future__ import annotations

from collections.abc import Iterator

from tallystick.job.numbers import decimal, listed
from tallystick.job.words import JobInWords, beside, job_in_words, rows
from tallystick.job.words.parts import ProgramWords
from tallystick.job.words.sentences import table_words
from tallystick.program.terms import Terms
from tallystick.report.answer_meanings import Work, work_of
from tallystick.report.html import FINGERPRINT, Safe, count, el, items
from tallystick.report.page import fold, paragraph, section

_MOST = 10
_MOST_NAMED = 6
_MOST_BESIDE = 60
_RATE = "lr"
_TERMS = (
    "A parameter is a number of the model, a tensor is a table of numbers, and the one record is "
    "the text with its settings."
)
_OF_TRAINING = (
    "A parameter is a number of the model, and frozen where training does not change it. A tensor "
    "is a table of numbers, a record is one example of the data, and an epoch is one pass over the "
    "data."
)
_ENCODING = (
    "What a model makes of one text, in one go: numbers that stand for the whole text, or a number "
    "for each class that it may be of. No number of the model changes."
)
_ANSWER = (
    "One answer of a language model, over its whole text in one go: from each piece of the text "
    "(token) the model computes how likely each possible next one is, and the next one is drawn "
    "from that. No number of the model changes."
)


def job_section(terms: Terms) -> Safe:
    """The job of a page, in words that follow from the job digest alone."""
    return words_section(job_in_words(terms), work_of(terms))


def words_section(words: JobInWords, work: Work = Work.TRAINING) -> Safe:
    """A job's words: what anyone wants to know first, and all of it behind a fold for those who
    know the field's terms. What no digest covers stands apart from them."""
    note = (
        f"{FINGERPRINT} The job has one too: if any sentence of the job is changed, the job's "
        "fingerprint changes."
    )
    terms = _OF_TRAINING if work is Work.TRAINING else _TERMS
    told = {Work.ANSWER: _ANSWER, Work.ENCODING: _ENCODING}.get(work)
    return section(
        "What the job trains" if work is Work.TRAINING else "What the job computes",
        items(*(_told(words) if told is None else [told])),
        paragraph(note, class_="soft small"),
        fold(
            "For experts: the whole job in words",
            paragraph(terms, class_="soft small"),
            el("div", items(*(said for _, said in rows(words)))),
        ),
        _beside(words),
    )


# -- for everyone ----------------------------------------------------------------------------------
def _told(words: JobInWords) -> Iterator[str]:
    yield model_words(words)
    training = [p for p in words.programs if not p.by_pass]
    for program in training[:_MOST]:
        yield _reads(words, program)
    for table in words.tables:
        if table.name == _RATE:
            yield (
                f"The learning rate ({_RATE}), which is how far each step changes the model, is "
                f"{table_words(table)}."
            )
    every = count(words.checkpoint_interval, "step")
    yield (
        "A state is all numbers of the model, and what the training remembers. It is signed at the "
        f"start, every {every}, and at the end."
    )


def model_words(words: JobInWords) -> str:
    """What training changes, in a sentence."""
    trained = [layer.module for layer in words.layers if any(p.trained for p in layer.parameters)]
    named = ""
    if 1 < len(trained) <= _MOST_NAMED:
        kind = "numbered" if all(name.isdecimal() for name in trained) else "called"
        named = f", {kind} {listed(trained)}"
    said = (
        f"Training changes {count(words.trained, 'number')} of the model, in "
        f"{count(len(trained), 'layer')}{named}."
    )
    if words.frozen:
        said += f" {count(words.frozen, 'further number')} of the model stay as they are."
    return said


def _reads(words: JobInWords, program: ProgramWords) -> str:
    of = "" if len(words.programs) == 1 else f" of the kind “{program.name}”"
    steps = f"A whole run has {count(program.steps, 'step')}{of}"
    data = next((d for d in words.data if d.name == program.data), None)
    if data is None:
        return f"{steps}, which read no data."
    whole = program.epoch_records or data.records
    times = decimal(float(f"{program.reads / whole:.4g}")) if whole else "0"
    often = "once" if times == "1" else f"{times} times"
    return (
        f"{steps}. Each reads {count(program.batch_size, 'example')} (records) of the data "
        f"“{data.name}”. In all steps together that is the whole data {often}."
    )


def _beside(words: JobInWords) -> Safe | None:
    said = beside(words)
    if not said:
        return None
    shown, more = said[:_MOST_BESIDE], len(said) - _MOST_BESIDE
    return fold(
        "What its author says besides (not committed)",
        paragraph("This is the author's word. No fingerprint covers it.", class_="soft small"),
        items(*shown),
        paragraph(f"And {count(more, 'line')} more.") if more > 0 else None,
    )
