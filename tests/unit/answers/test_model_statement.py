"""ANSWERS 4: what names a model, and what is none."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest
from unit.answers.toy import Toy, programs, statement, weights

from tallystick.answers.statement import Adapter, ModelStatement, ProgramName, SpecialToken
from tallystick.commit.encoding import canonical_json, sha256
from tallystick.errors import CorruptFileError, TallystickError, UsageError

WHOLE = replace(
    Toy.make(stop=(2, 7)).statement,
    files={"tokenizer.json": b"t" * 32, "vocab.json": b"v" * 32},
    template=b"c" * 32,
    special={"eos_token": SpecialToken("</s>", 2), "pad_token": SpecialToken("<pad>", None)},
    adapter=Adapter(b"a" * 32, True),
    run=b"r" * 32,
    about={"name": "toy"},
)


def test_it_reads_what_it_writes() -> None:
    for made in (WHOLE, Toy.make().statement):
        assert ModelStatement.from_bytes(made.to_bytes()) == made


def test_the_digest_is_by_the_clause() -> None:
    """4.4, from the bytes alone."""
    body = json.loads(WHOLE.to_bytes())
    del body["about"]
    m = canonical_json(body)
    assert WHOLE.digest == sha256(b"tallystick/model/1\0" + len(m).to_bytes(8, "little") + m)


def test_words_for_people_change_no_digest_and_everything_else_does() -> None:
    assert replace(WHOLE, about={}).digest == WHOLE.digest
    held = weights()
    held["param.head"][0, 0] += 1
    others = [
        replace(WHOLE, stop=(2,)),
        replace(WHOLE, template=None),
        replace(WHOLE, run=None),
        replace(WHOLE, adapter=Adapter(b"a" * 32, False)),
        replace(WHOLE, vocabulary=17),
        replace(WHOLE, files={}),
        replace(WHOLE, special={}),
        replace(WHOLE, weights=statement(held, programs()).weights),
        replace(WHOLE, programs=dict(list(WHOLE.programs.items())[:-1])),
        replace(WHOLE, contract="rounded/1-draft.1"),
    ]
    assert len({one.digest for one in (WHOLE, *others)}) == len(others) + 1


def test_the_bucket_is_the_first_with_room() -> None:
    toy = Toy.make().statement
    assert (toy.bucket(8, 4, "greedy").length, toy.bucket(9, 4, "greedy").length) == (12, 24)
    assert toy.bucket(2, 5, "full").answer == 8
    assert [toy.most(p, "draw") for p in (1, 9, 16, 20, 23, 24)] == [8, 8, 8, 4, 1, 0]
    with pytest.raises(
        UsageError,
        match="no program of the sampler set draw for a prompt of 20 tokens and an answer of 5",
    ):
        toy.bucket(20, 5, "draw")


def test_a_bucket_whose_record_is_over_the_limit_has_no_answers() -> None:
    """10.2: with 2^18 tokens the bias of `full` is as long as the whole record may be."""
    few, many = (replace(Toy.make().statement, vocabulary=v) for v in ((1 << 18) - 99, 1 << 18))
    assert few.bucket(3, 2, "full").length == 12 and few.most(3, "full") == 8
    assert many.bucket(3, 2, "draw").length == 12 and many.most(3, "full") == 0
    with pytest.raises(UsageError, match="no program of the sampler set full"):
        many.bucket(3, 2, "full")
    long = replace(few, programs={ProgramName(1 << 17, 4, "greedy"): bytes(32)})
    assert long.most(3, "greedy") == 0


@pytest.mark.parametrize(
    ("member", "value", "why"),
    [
        ("kind", "tallystick/model/2", "kind"),
        ("contract", "ordered/1", "identifier is written"),
        ("contract", "replay/1-draft.1;b=32;form=bounded", "logs"),
        ("contract", "nobody/1", "not known"),
        ("vocabulary", 0, "out of range"),
        ("vocabulary", True, "not an integer"),
        ("vocabulary", 3, "outside of its vocabulary"),
        ("stop", [7, 2], "not ascending"),
        ("stop", [2, 99], "outside of its vocabulary"),
        ("stop", ["2"], "list of integers"),
        ("slots", [], "no weights"),
        ("programs", [], "programs"),
        ("template", "00", "hexadecimal"),
        ("adapter", {"digest": "00" * 32}, "missing or unknown"),
        ("special_tokens", {"x_token": {"id": 99, "text": ""}}, "outside of its vocabulary"),
        ("special_tokens", {"messages": {"id": 1, "text": ""}}, "not the name of a special token"),
        ("special_tokens", {"raise_exception": {"id": 1, "text": ""}}, "not the name of a"),
        ("about", {"x": 1}, "not a string"),
        ("tokenizer", {"x": None}, "hexadecimal"),
    ],
)
def test_malformed_members(member: str, value: object, why: str) -> None:
    body = json.loads(WHOLE.to_bytes())
    body[member] = value
    with pytest.raises(CorruptFileError, match=why):
        ModelStatement.from_bytes(canonical_json(body))


def test_lists_have_one_order() -> None:
    body = json.loads(WHOLE.to_bytes())
    for name in ("slots", "programs"):
        turned = {**body, name: body[name][::-1]}
        with pytest.raises(CorruptFileError, match="not in order"):
            ModelStatement.from_bytes(canonical_json(turned))
        twice = {**body, name: [*body[name], body[name][0]]}
        with pytest.raises(CorruptFileError, match="twice"):
            ModelStatement.from_bytes(canonical_json(twice))


def test_the_slots_of_an_answer_are_no_weights() -> None:
    (first, *_) = WHOLE.weights.values()
    with pytest.raises(UsageError, match="only an answer's slots have"):
        replace(WHOLE, weights={"buffer.answer.tokens": first})
    for name in (ProgramName(4, 4, "greedy"), ProgramName(4, 0, "full"), ProgramName(4, 1, "x")):
        with pytest.raises(UsageError, match="impossible bucket or an unknown set"):
            replace(WHOLE, programs={name: bytes(32)})


def test_any_bytes_are_a_statement_or_a_typed_error() -> None:
    rng, data = random.Random(1), WHOLE.to_bytes()
    for _ in range(300):
        broken = bytearray(data)
        for _ in range(rng.randint(1, 3)):
            broken[rng.randrange(len(broken))] = rng.choice(b'0a"{}[],:\x00\xff')
        try:
            ModelStatement.from_bytes(bytes(broken[: rng.choice([len(data), rng.randrange(9999)])]))
        except TallystickError as error:
            assert error.exit_code == 2 and error.next_action
