"""What is trained, in words, as a part of each page."""

from __future__ import annotations

from tallystick.job.words import JobInWords, beside, job_in_words, rows
from tallystick.program.terms import Terms
from tallystick.report.html import Safe, el
from tallystick.report.page import fold, paragraph, section
from tallystick.report.words import count, items

# What a reader wants to know first; what only the field understands stands behind a fold.
_FIRST = ("model", "batches", "steps", "checkpoints")
_MOST = 10
_MOST_BESIDE = 60


def job_section(terms: Terms) -> Safe:
    """The job of a page, in words that follow from the job digest alone."""
    return words_section(job_in_words(terms))


def words_section(words: JobInWords) -> Safe:
    """A job's words: the first ones, and the rest behind a fold. What no digest covers stands apart
    from them."""
    shown = rows(words)
    first = [said for label, said in shown if label.partition(" ")[0] in _FIRST][:_MOST]
    rest = [said for _, said in shown if said not in first]
    note = (
        "The job's fingerprint covers all of this: a job with another sentence has another one. A "
        "parameter is a number that training changes, a tensor is a table of numbers, a record is "
        "one example of the data, and an epoch is one pass over the data."
    )
    return section(
        "What the job trains",
        items(*first),
        paragraph(note, class_="soft small"),
        fold("The whole job in words", el("div", items(*rest))),
        _beside(words),
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
