"""Words about a conviction where the job is one answer or encoding: nothing is trained, no step is
counted."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from unit.answers.toy import Toy
from unit.answers.toy_encoder import ToyEncoder
from unit.report.test_report_words import CLAUSES, INSIDERS

from tallystick.answers.beside_receipt import Spoken
from tallystick.answers.job import AnswerJob
from tallystick.job.job_file import load_terms
from tallystick.protocol.verdict import CASES, Conviction, Place, Verdict
from tallystick.report.answer_meanings import (
    MEANINGS_OF_ANSWERS,
    MEANINGS_OF_ENCODINGS,
    Work,
    meaning_about,
    work_of,
)
from tallystick.report.first import BY_WORD, consequence, first_sentence
from tallystick.report.job_words import job_section
from tallystick.report.meanings import MEANINGS, meaning_of

TRAINING = re.compile(r"train|learn|\bstep|example|\brecord|\bdata\b|loss")
# These an honest job of one answer cannot meet: it has no stop rule, no log, and one step.
OF_TRAINING = ("4.8", "4.9", "4.10", "4.11", "6.10", "6.11", "6.13", "6.14")


@pytest.mark.parametrize("work", [Work.ANSWER, Work.ENCODING], ids=lambda work: work.value)
@pytest.mark.parametrize(
    "pair", sorted({*MEANINGS, *MEANINGS_OF_ANSWERS, *MEANINGS_OF_ENCODINGS}), ids=str
)
def test_no_words_about_training(pair: tuple[str, str], work: Work) -> None:
    clause, case = pair
    assert clause in CLAUSES and case in {"", *CASES}
    found = meaning_about(work, clause, case)
    convicted = (Conviction(1, clause, "its node 0 is not"),)
    place = Place((0, 1), 0)
    verdict = Verdict(False, convicted, 0, 2, case, place, forfeit=clause == "2.10")
    said = first_sentence(verdict, work)
    who = BY_WORD if clause == "2.10" else ""
    assert said.startswith(f"{who}Party B {found.did}") and not INSIDERS.search(said)
    assert found.kind is meaning_of(clause, case).kind and not INSIDERS.search(found.means)
    if clause not in OF_TRAINING and pair not in (("3.2", ""),):
        for text in (said, found.did, found.means):
            assert not TRAINING.search(text), text
            if work is Work.ENCODING:
                assert "token" not in text and not re.search(r"answer to|its answer", text)


def test_other_clauses_mean_what_they_mean() -> None:
    for work in (Work.ANSWER, Work.ENCODING):
        assert meaning_about(work, "6.5") == meaning_of("6.5")
        assert meaning_about(work, "5.6.3") != meaning_of("5.6.3")
        assert meaning_about(work, "99.9") == meaning_of("99.9")
    assert meaning_about(Work.TRAINING, "5.6.3") == meaning_of("5.6.3")
    assert meaning_about(Work.ENCODING, "5.6.2") == meaning_about(Work.ANSWER, "5.6.2")


def test_agreement() -> None:
    verdict = Verdict(True, (), None, 0, "", Place())
    assert "final model" in consequence(verdict)
    for work, last in (
        (Work.ANSWER, "last piece of the answer"), (Work.ENCODING, "last number of the result"),
    ):  # fmt: skip
        told = consequence(verdict, work)
        assert last in told and not TRAINING.search(told)


def test_an_answers_job_is_told_from_others(tmp_path: Path) -> None:
    toy = Toy.make()
    said = AnswerJob(toy.statement, toy.request(), Spoken((3, 1, 4), (1,), np.zeros(1, np.float32)))
    said.write(tmp_path / "job", toy.text_of(said), toy.held, overwrite=False)
    terms = load_terms(tmp_path / "job")
    assert work_of(terms) is Work.ANSWER
    section = str(job_section(terms))
    assert "One answer of a language model" in section and "What the job trains" not in section


def test_an_encodings_job_is_told_from_others(tmp_path: Path) -> None:
    toy = ToyEncoder.make()
    said = toy.encoded(toy.request())
    said.write(tmp_path / "job", toy.text_of(said), toy.held, overwrite=False)
    terms = load_terms(tmp_path / "job")
    assert work_of(terms) is Work.ENCODING
    section = str(job_section(terms))
    assert "What a model makes of one text" in section and "What the job trains" not in section
