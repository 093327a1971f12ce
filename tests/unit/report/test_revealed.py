"""ANSWERS 9.7: what the evidence of a dispute about an answer shows of the text."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from adversary.games import make_job
from adversary.test_answer_attacks import (
    ALSO_OF_ENCODINGS,
    EXPECTED,
    HONEST,
    OF_ENCODINGS,
    World,
    runs_of,
)
from unit.answers.toy import KEY, Toy
from unit.answers.toy_encoder import ToyEncoder

from tallystick.answers.job import AnswerJob
from tallystick.commit.signing import PrivateKey
from tallystick.errors import CorruptFileError, UsageError
from tallystick.job.job import Job
from tallystick.protocol.evidence import Evidence
from tallystick.prover.cheating import party_of
from tallystick.prover.local import play
from tallystick.report.dispute_page import dispute_page
from tallystick.report.facts import read_dispute
from tallystick.report.revealed import Revealed, in_words, ranges, revealed


@dataclass
class Played:
    answer: AnswerJob
    job: Job
    evidence: Evidence

    @property
    def shows(self) -> Revealed:
        return revealed(self.job.terms, self.evidence)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Played]:
    """Every attack on an answer, as party 1, against an honest party."""
    world, found = World(Toy.make(), Toy.adapted(), ToyEncoder.make(), None), {}
    for name in sorted(EXPECTED.keys() - set(OF_ENCODINGS)):
        answer = world.said(name)
        job, honest, cheat = runs_of(world, name, answer, tmp_path_factory.mktemp(name))
        parties = [party_of(honest, HONEST), party_of(cheat, KEY, as_attack=True)]
        game = play(job.terms, parties)
        for party in parties:
            party.close()
        found[name] = Played(answer, job, game.evidence)
    return found


def test_a_disputed_record_shows_the_whole_text(played: dict[str, Played]) -> None:
    """5.6.3: a job of format 1 shows its record whole."""
    one = played["other-prompt"]
    shown, spoken = one.shows, one.answer.spoken
    assert list(shown.tokens.items()) == list(enumerate((*spoken.prompt, *spoken.tokens)))
    assert shown.prompt == len(spoken.prompt) and "salt" in shown.fields
    assert any(
        "The whole text: 3 tokens of prompt, 3 of answer." in line for line in in_words(shown)
    )


def test_nodes_alone_show_no_number(played: dict[str, Played]) -> None:
    """5.3: the game ends before a leaf is opened."""
    shown = played["quantised"].shows
    assert shown.nothing and shown.weights == ()
    assert "No number of the text" in in_words(shown)[0]


@pytest.mark.parametrize("name", ["false-logprob", "forged-cache-entry", "swapped-program"])
def test_a_false_result_shows_what_it_is_computed_from(
    name: str, played: dict[str, Played]
) -> None:
    one = played[name]
    shown = one.shows
    assert not shown.nothing
    bucket = one.answer.bucket
    for numbers in (*shown.activations, *shown.weights):
        assert 0 < numbers.opened <= numbers.of == int(np.prod(numbers.shape))
        assert all(0 <= a <= b < bucket.length for a, b in numbers.places)
    for numbers in shown.activations:
        assert numbers.node is not None and numbers.operator is not None
        assert one.job.program.nodes[numbers.node].op == numbers.operator


def test_every_opened_token_is_the_signed_one(played: dict[str, Played]) -> None:
    for one in played.values():
        text = (*one.answer.spoken.prompt, *one.answer.spoken.tokens)
        shown = one.shows
        for place, token in shown.tokens.items():
            # Places after the text have 0 in the record.
            assert token == (text[place] if place < len(text) else 0)
        assert all(0 <= row < one.answer.bucket.answer for row in shown.drawn)


def test_what_is_not_of_this_answer(played: dict[str, Played], tmp_path: Path) -> None:
    one = played["other-prompt"]
    with pytest.raises(UsageError, match="of another job"):
        revealed(played["early-stop"].job.terms, one.evidence)
    with pytest.raises(UsageError, match="none of an answer or an encoding"):
        revealed(make_job(tmp_path / "job").terms, one.evidence)
    party, message = one.evidence.messages[-1]
    forged = bytearray(message)
    forged[-1] ^= 1
    messages = (*one.evidence.messages[:-1], (party, bytes(forged)))
    with pytest.raises(CorruptFileError):
        revealed(one.job.terms, replace(one.evidence, messages=messages))
    swapped = ((1 - party, message),)
    with pytest.raises(CorruptFileError):
        revealed(one.job.terms, replace(one.evidence, messages=swapped))


def test_hostile_answers_open_nothing(played: dict[str, Played]) -> None:
    """Signed answers that no referee has asked for: places outside of the program and the run."""
    from tallystick.protocol.bodies import BytesBody
    from tallystick.protocol.messages import make_answer
    from tallystick.protocol.queries import Leaf, Opening

    one, most = played["other-prompt"], (1 << 63) - 1
    root = one.evidence.messages[0]
    assert root is not None
    queries = [
        Leaf(0, most, 0, 0, 0), Leaf(0, 0, 0, most, 0), Leaf(0, 0, 0, 0, most),
        Leaf(most, 0, 0, 0, 0), Leaf(0, 0, 7, 0, 0), Opening(0, most, 0, (0,)),
        Opening(0, 0, 0, (0, most)),
    ]  # fmt: skip
    messages = [
        (1, make_answer(KEY, one.job.digest, bytes(32), query, BytesBody(b"\x01" * 9)))
        for query in queries
    ]
    empty = replace(one.evidence, messages=tuple(messages))
    assert revealed(one.job.terms, empty).nothing
    stranger = make_answer(
        PrivateKey.generate(), one.job.digest, bytes(32), queries[0], BytesBody(b"")
    )
    with pytest.raises(CorruptFileError):
        revealed(one.job.terms, replace(one.evidence, messages=((1, stranger),)))


def test_the_page_says_it(played: dict[str, Played], tmp_path: Path) -> None:
    one = played["other-prompt"]
    (tmp_path / "e").write_bytes(one.evidence.to_bytes())
    dispute = read_dispute(tmp_path / "e", one.job.terms)
    page = dispute_page(dispute)
    assert "What the evidence shows of the text" in page and "The whole text" in page
    assert "signed an answer to another text, or by other settings, than the job" in page
    assert "trained" not in page and "Training" not in page


def test_ranges() -> None:
    assert ranges([3, 1, 2, 7, 7, 9]) == ((1, 3), (7, 7), (9, 9)) and ranges([]) == ()


@pytest.mark.parametrize("name", sorted((*OF_ENCODINGS, *ALSO_OF_ENCODINGS)))
def test_evidence_about_an_encoding(name: str, tmp_path: Path) -> None:
    """11: the text has no answer, and what was made of it are numbers."""
    world = World(Toy.make(), Toy.adapted(), ToyEncoder.make(), None)
    said = world.encoded(name)
    job, honest, cheat = runs_of(world, name, said, tmp_path)
    parties = [party_of(honest, HONEST), party_of(cheat, KEY, as_attack=True)]
    game = play(job.terms, parties)
    for party in parties:
        party.close()
    shown = revealed(job.terms, game.evidence)
    prompt, told = said.encoded.prompt, " ".join(in_words(shown))
    assert not shown.drawn and not shown.logprobs
    for place, token in shown.tokens.items():
        assert token == (prompt[place] if place < len(prompt) else 0)
    if name == "other-prompt":
        assert list(shown.tokens.values()) == list(prompt) and shown.prompt == len(prompt)
        assert f"The whole text: {len(prompt)} tokens of prompt." in told
    if name == "false-embedding":
        assert shown.made and "the numbers that the model made of the text" in told
    # The page has words of its own: none about training, and none about an answer's tokens.
    (tmp_path / "evidence").write_bytes(game.evidence.to_bytes())
    facts = read_dispute(tmp_path / "evidence", job.terms)
    page = dispute_page(facts)
    first = page.partition("<h1>")[2].partition("For experts")[0]
    assert "which numbers a model makes of one text" in page
    assert not re.search(r"train|final model|of the answer", first), first
