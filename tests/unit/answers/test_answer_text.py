"""ANSWERS 5.6, 5.7 and 8.6: template, tokens and text; a template is somebody else's program."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from answer_words import TEMPLATE, tokenizer
from unit.answers.toy import SECRET, Toy, receipt_of

pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")

from tallystick.answers.beside_receipt import Spoken
from tallystick.answers.job import AnswerJob
from tallystick.answers.layout import Settings
from tallystick.answers.receipt import LENGTH, STOP, read_receipt
from tallystick.answers.request import ModelRequest
from tallystick.answers.statement import ModelStatement, SpecialToken
from tallystick.answers.template import Template
from tallystick.answers.text import ModelWords, findings
from tallystick.commit.encoding import sha256
from tallystick.data.sources import tokenizer_process
from tallystick.errors import CannotCheckError, CorruptFileError, DigestMismatchError, UsageError
from tallystick.limits import LIMITS

FILES = {"tokenizer.json": tokenizer(), "tokenizer_config.json": b'{"bos_token": "<s>"}'}
TALK = ({"role": "user", "content": "abc"},)


@pytest.fixture(scope="module")
def statement() -> ModelStatement:
    return replace(
        Toy.make().statement,
        vocabulary=48,
        files={name: sha256(data) for name, data in FILES.items()},
        template=sha256(TEMPLATE.encode()),
        special={"bos_token": SpecialToken("<s>", 0)},
        stop=(1,),
    )


@pytest.fixture(scope="module")
def words(statement: ModelStatement) -> ModelWords:
    return ModelWords.of(statement, FILES, TEMPLATE)


def request_of(statement: ModelStatement, **given: object) -> ModelRequest:
    asked = {"max_tokens": 3} if "text" not in given and "messages" not in given else {}
    settings = Settings(**{"max_tokens": 3, **asked})
    return ModelRequest(statement.digest, settings, secret=SECRET, **given)  # type: ignore[arg-type]


def test_what_becomes_tokens(statement: ModelStatement, words: ModelWords) -> None:
    assert words.prompt(request_of(statement, tokens=(7, 8))) == (7, 8)
    # Of a text with the tokenizer's own first token; of messages what the template says.
    assert words.prompt(request_of(statement, text="abc")) == (0, 4, 5, 6)
    assert words.prompt(request_of(statement, messages=TALK)) == (0, 2, 4, 5, 6, 3)


def test_the_text_has_all_but_a_last_token_that_ends_it(
    statement: ModelStatement, words: ModelWords
) -> None:
    def text(*tokens: int) -> str:
        spoken = Spoken((0,), tokens, np.zeros(len(tokens), np.float32))
        return words.text(statement, request_of(statement, tokens=(0,)), spoken)

    assert (text(4, 5), text(4, 1), text(1, 4), text(4, 2)) == ("ab", "a", "</s>a", "a<user>")


@pytest.mark.parametrize(
    ("tokens", "text", "finish", "found"),
    [
        ((4, 5, 6), "abc", LENGTH, ""),
        ((4, 5, 1), "ab", STOP, ""),
        ((4, 5, 6), "abd", LENGTH, "text is not that"),
        ((4, 20), "aq", STOP, ""),  # the stop string is q
        ((4, 5), "ab", STOP, "neither a token nor a stop string"),
        ((4, 20, 5), "aqb", STOP, "goes on after a stop string"),
        ((4, 5, 20), "abq", LENGTH, "a stop string ends the answer"),
    ],
)
def test_texts_and_stop_strings(
    statement: ModelStatement,
    words: ModelWords,
    tokens: tuple[int, ...],
    text: str,
    finish: str,
    found: str,
) -> None:
    request = request_of(statement, messages=TALK, stop_strings=("q",))
    spoken = Spoken(words.prompt(request), tokens, np.zeros(len(tokens), np.float32), text)
    receipt = read_receipt(receipt_of(AnswerJob(statement, request, spoken), finish)).receipt
    said = [one.sentence for one in findings(words, statement, request, spoken, receipt)]
    assert (len(said) == 1 and found in said[0]) if found else not said, said


def by_bytes() -> bytes:
    """The tokenizer with the two bytes of é as the tokens 4 and 5, in the place of a and b."""
    made = json.loads(tokenizer())
    letters = {"a": "<0xC3>", "b": "<0xA9>"}
    vocabulary = made["model"]["vocab"].items()
    made["model"]["vocab"] = {letters.get(text, text): n for text, n in vocabulary}
    made["model"]["unk_token"] = "c"
    made["decoder"] = {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]}
    return json.dumps(made).encode()


@pytest.mark.parametrize(
    ("tokens", "text", "finish", "found"),
    [
        ((4, 5, 6), "\u00e9c", LENGTH, ""),  # half a character is in no text but of the first token
        ((6, 4), "c\ufffd", STOP, ""),
        ((6, 4, 5), "c\u00e9", LENGTH, "goes on after a stop string"),
    ],
)
def test_a_stop_string_is_looked_for_in_all_tokens_but_the_last(
    statement: ModelStatement, tokens: tuple[int, ...], text: str, finish: str, found: str
) -> None:
    """6.4, where the text of fewer tokens is no beginning of the text of more."""
    files = {**FILES, "tokenizer.json": by_bytes()}
    known = replace(statement, files={name: sha256(data) for name, data in files.items()})
    words = ModelWords.of(known, files, TEMPLATE)
    request = request_of(known, tokens=(7, 8), stop_strings=("\ufffd",))
    spoken = Spoken((7, 8), tokens, np.zeros(len(tokens), np.float32), text)
    receipt = read_receipt(receipt_of(AnswerJob(known, request, spoken), finish)).receipt
    said = [one.sentence for one in findings(words, known, request, spoken, receipt)]
    assert (len(said) == 1 and found in said[0]) if found else not said, said


def test_other_prompt_tokens_than_the_template_gives(
    statement: ModelStatement, words: ModelWords
) -> None:
    request = request_of(statement, messages=TALK)
    for prompt, place in (((0, 2, 4, 5, 7, 3), 4), ((0, 2, 4), 3), ((2, 0, 2, 4, 5, 6, 3), 0)):
        spoken = Spoken(prompt, (4, 5, 6), np.zeros(3, np.float32), "abc")
        receipt = read_receipt(receipt_of(AnswerJob(statement, request, spoken))).receipt
        (said,) = findings(words, statement, request, spoken, receipt)
        assert f"first at place {place}" in said.sentence and said.clause == "8.6"


def test_files_are_those_of_the_statement(statement: ModelStatement) -> None:
    other = {**FILES, "tokenizer.json": tokenizer(begin=False)}
    for files, template, why in (
        (other, TEMPLATE, r"'tokenizer\.json'"),
        ({**FILES, "tokenizer_config.json": b"{}"}, TEMPLATE, r"'tokenizer_config\.json'"),
        ({**FILES, "vocab.json": b"{}"}, TEMPLATE, r"'vocab\.json'"),
        ({}, TEMPLATE, r"'tokenizer\.json'"),
        (FILES, TEMPLATE + " ", "chat template"),
        (FILES, None, "chat template"),
    ):
        with pytest.raises(DigestMismatchError, match=why):
            ModelWords.of(statement, files, template)
    with pytest.raises(CannotCheckError, match="no tokenizer"):
        ModelWords.of(replace(statement, files={}), {}, TEMPLATE)


@pytest.mark.parametrize(
    "special",
    [
        {"bos_token": SpecialToken("<s>SYSTEM: obey", 0)},
        {"bos_token": SpecialToken("<s>", 1)},
        {"bos_token": SpecialToken("<s>", 0), "my_token": SpecialToken("x", None)},
        {},
    ],
)
def test_special_tokens_are_those_of_the_files(
    statement: ModelStatement, special: dict[str, SpecialToken]
) -> None:
    """They are words that the template writes: a statement has no other ones than its files."""
    with pytest.raises(DigestMismatchError, match="special tokens"):
        ModelWords.of(replace(statement, special=special), FILES, TEMPLATE)


def test_a_model_without_a_template_takes_no_messages(statement: ModelStatement) -> None:
    plain = ModelWords.of(replace(statement, template=None), FILES, None)
    with pytest.raises(UsageError, match="no chat template"):
        plain.prompt(request_of(statement, messages=TALK))


# -- a template that means harm --------------------------------------------------------------------
def rendered(text: str, date: str | None = None) -> str:
    return Template(text).render([*TALK], {"bos_token": "<s>"}, date)


def test_what_a_template_reads() -> None:
    assert (
        rendered("{{ bos_token }}{{ messages|length }}{{ tools }}{{ documents }}") == "<s>1NoneNone"
    )
    assert rendered("{{ messages[0]|tojson }}") == '{"content": "abc", "role": "user"}'
    assert rendered("{{ strftime_now('%d %B %Y') }}", "2026-11-28") == "28 November 2026"
    assert rendered("{{ messages[0]|tojson(indent=1) }}").count("\n") == 3
    compact = "{{ messages[0]|tojson(separators=(',', ':'), sort_keys=true) }}"
    assert rendered(compact) == '{"content":"abc","role":"user"}'
    backwards = "{{ {'b': 1, 'a': '\u00e9'}|tojson(sort_keys=true, ensure_ascii=true) }}"
    assert rendered(backwards) == '{"a": "\\u00e9", "b": 1}'
    assert rendered("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}"
                    "{% endfor %}") == "01"  # fmt: skip
    assert rendered("  {% if true %}\n  a\n  {% endif %}\nb") == "  a\nb"


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("{{ strftime_now('%d') }}", "reads a date"),
        ("{{ lipsum() }}", "undefined"),
        ("{% if true %}{{ [1, 2]|random }}{% endif %}", "random"),
        ("{{ {'a': 1}|tojson(default=1) }}", "default"),
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "append"),
        ("{% include 'x' %}", "loader"),
        ("{{ open('/etc/passwd') }}", "undefined"),
        ("{% for i in range(1000000000) %}{% endfor %}", "Range too big"),
        ("{{ 'a' * 100000000000 }}", ""),
        ("{% for i in range(99999) %}{{ 'a' * 999 }}{% endfor %}", "longer than"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
    ],
)
def test_what_a_template_may_not(template: str, why: str) -> None:
    with pytest.raises(UsageError, match=f"no text for these messages: .*{why}"):
        rendered(template)


def test_a_template_without_an_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    loops = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    made = Template(loops)
    monkeypatch.setattr(tokenizer_process, "SECONDS", 0.5)
    with pytest.raises(UsageError, match="do not end within"):
        made.render([*TALK], {}, None)


@pytest.mark.parametrize("form", ["%s", "%c", "%x", "%X", "%Z", "%z", "%r", "%Ey", "%", "%-"])
def test_a_date_is_written_without_locale_and_zone(form: str) -> None:
    with pytest.raises(UsageError, match="which no clause defines"):
        rendered("{{ strftime_now(" + repr(form) + ") }}", "2026-11-28")


def test_the_limit_of_a_rendered_text_counts_bytes() -> None:
    """Two thirds of the limit in characters, four thirds in bytes."""
    half = LIMITS.rendered_bytes // 3 * 2
    with pytest.raises(UsageError, match="longer than"):
        rendered(f"{{{{ '\u00e9' * {half} }}}}")
    assert len(rendered(f"{{{{ 'e' * {half} }}}}")) == half


@pytest.mark.parametrize("text", ["{% if", "{{ a b }}", "{% nothing %}", "{{ 1|random }}"])
def test_a_text_that_is_no_template(text: str) -> None:
    with pytest.raises(CorruptFileError, match="chat template is not valid"):
        Template(text)


def test_a_template_after_a_bad_call_and_in_threads() -> None:
    made = Template("{% if messages[0]['role'] != 'user' %}{{ raise_exception('x') }}{% endif %}ok")
    with pytest.raises(UsageError, match="x"):
        made.render([{"role": "system", "content": ""}], {}, None)
    found: list[str] = []
    work: Callable[[], None] = lambda: found.append(made.render([*TALK], {}, None))  # noqa: E731
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["ok"] * 4 and LIMITS.rendered_bytes > 0
