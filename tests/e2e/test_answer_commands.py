"""From a model directory to a checked answer, and to a convicted swap: the commands of answers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from answer_models import save_model
from answer_words import TEMPLATE, save_words
from commands import Run, as_json

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")

import tallystick
from tallystick.answers.beside_receipt import Spoken
from tallystick.answers.check import bound, check_answer
from tallystick.answers.files import AnswerFiles, read_program, read_statement
from tallystick.answers.job import LOGPROBS, TOKENS, AnswerJob
from tallystick.answers.layout import Settings
from tallystick.answers.model import open_model, weights
from tallystick.answers.receipt import LENGTH, AnswerReceipt, read_receipt, sign_receipt
from tallystick.answers.request import ModelRequest
from tallystick.answers.statement import ModelStatement, ProgramName
from tallystick.api.answering import Answering, GivenAnswer
from tallystick.commit.checkpoint import run_root
from tallystick.commit.signing import PrivateKey
from tallystick.commit.tensor import Array
from tallystick.errors import CannotCheckError, DigestMismatchError, UsageError
from tallystick.limits import LIMITS
from tallystick.program.build import Builder
from tallystick.program.canonical import canonicalize
from tallystick.program.ir import Program, split_batch
from tallystick.program.state import State
from tallystick.program.text import parse_text
from tallystick.run.execute.engine import Engine

Edit = Callable[[dict[str, object]], None]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model with its statement beside it."""
    from tallystick.cli.main import run

    made = tmp_path_factory.mktemp("answers") / "model"
    made.mkdir()
    save_model("smollm", made)
    save_words(made)
    assert run(["model", "statement", str(made), "--bucket", "12:4", "--buckets", "24:8"]) == 0
    return made


@pytest.fixture(scope="module")
def key(model: Path) -> Path:
    from tallystick.cli.main import run

    path = model.parent / "key.pem"
    assert run(["keys", "new", str(path)]) == 0
    return path


def answer_of(model: Path, key: Path, out: Path, *more: object) -> tuple[str, ...]:
    return ("generate", str(model), "--key", str(key), "-o", str(out), *map(str, more))


@pytest.fixture(scope="module")
def answered(model: Path, key: Path) -> Path:
    """The directory of an answer that is drawn."""
    from tallystick.cli.main import run

    out = model.parent / "answer"
    words = ("--prompt", "abc", "--max-tokens", 6, "--temperature", 2.0, "--seed", 5)
    assert run([*answer_of(model, key, out, *words)]) == 0
    return out


def edited(answer: Path, to: Path, name: str, edit: Edit) -> Path:
    """A copy of an answer with another file `name`."""
    from tallystick.commit.encoding import canonical_json

    shutil.copytree(answer, to)
    body = json.loads((to / name).read_bytes())
    edit(body)
    (to / name).write_bytes(canonical_json(body))
    return to


def test_a_statement_is_derived_again(model: Path, tmp_path: Path, ts: Run) -> None:
    place = model.with_name("model.statement")
    said = as_json(ts("model", "verify", place, "--model", model, "--json"))
    assert said["accepted"] is True and said["differing"] == []
    code, out, _ = ts("model", "statement", model, "--bucket", "12:4")
    assert code == 3 and out == ""  # it is there already
    other = tmp_path / "other"
    shutil.copytree(model, other)
    save_model("smollm", other, initializer_range=0.03)
    (other / "chat_template.jinja").write_text("{{ messages }}")
    found = as_json(ts("model", "verify", place, "--model", other, "--json"), 1)
    *files, held = found["differing"]
    assert {"files", "template"} <= set(files) and held.startswith("weights: ")


@pytest.mark.parametrize("bucket", ["12", "12:12", "0:1", "a:b", "100:4"])
def test_buckets_that_are_none(bucket: str, model: Path, tmp_path: Path, ts: Run) -> None:
    code, _, errors = ts("model", "statement", model, "-o", tmp_path / "s", "--bucket", bucket)
    assert code == 3 and errors and not (tmp_path / "s").exists()


def test_an_answer_is_checked(model: Path, key: Path, answered: Path, ts: Run) -> None:
    said = as_json(ts("check", answered, "--model", model, "--json"))
    assert said["accepted"] and said["executed"] and said["difference"] is None
    assert said["prompt_tokens"] == 4 and said["trusted"] is None  # with <s> before them
    assert (answered / "receipt.json").stat().st_size <= LIMITS.receipt_bytes
    by_file = ts("check", answered / "receipt.json", "--model", model, "--trust", f"{key}.pub")
    assert by_file[0] == 0 and "trusted" in by_file[1] and "bit for bit" in by_file[1]
    words = as_json(ts("check", answered, "--model", model, "--text", "--json"))
    assert words["accepted"] and not words["executed"]
    own = model.with_name("model.statement")
    assert ts("check", answered, "--model", model, "--statement", own)[0] == 0


def test_an_answer_as_a_claim(
    model: Path, key: Path, answered: Path, tmp_path: Path, ts: Run
) -> None:
    """CLAIMS 5."""
    claim, receipt = tmp_path / "claim.json", answered / "receipt.json"
    for words in (
        ("claim", "answer", answered, "-o", claim, "--key", key),
        ("check", answered, "--model", model, "--claim", claim, "--key", key),
    ):
        assert ts(*words)[0] == 0
        found = as_json(
            ts("claim", "check", claim, "--trust", f"{key}.pub", "--file", receipt, "--json")
        )
        assert found["files"] == [{"file": str(receipt), "subject": "receipt.json"}]
        assert found["type"] == "https://tallystick.dev/claims/answer/v1"
        checked = words[0] == "check"
        assert (found["predicate"]["checked"] is not None) is checked
    assert found["predicate"]["checked"]["executed"] is True


def test_another_key_is_not_trusted(model: Path, answered: Path, tmp_path: Path, ts: Run) -> None:
    ts("keys", "new", tmp_path / "k")
    code, _, errors = ts("check", answered, "--model", model, "--trust", tmp_path / "k.pub")
    assert code == 1 and "trust list" in errors


def test_messages_dates_stop_strings_and_choices(
    model: Path, key: Path, tmp_path: Path, ts: Run
) -> None:
    talk = tmp_path / "messages.json"
    talk.write_text(json.dumps([{"role": "user", "content": "abc"}]))
    words = ("--messages", talk, "--max-tokens", 8, "--temperature", 9.0, "--choices", 3)
    made = as_json(ts(*answer_of(model, key, tmp_path / "a", *words), "--json"))
    assert len({tuple(one["tokens"]) for one in made["answers"]}) == 3
    texts = [one["text"] for one in made["answers"]]
    for number in range(3):
        place = tmp_path / "a" / str(number)
        assert ts("check", place, "--model", model)[0] == 0
        assert ts("check", place, "--model", model, "--text")[0] == 0
    # A stop string that the first answer has: the same seed says the same up to it.
    stop = texts[0][2:4]
    seeded = ("--prompt", "abc", "--max-tokens", 8, "--temperature", 9.0, "--seed", 4)
    whole = as_json(ts(*answer_of(model, key, tmp_path / "w", *seeded), "--json"))["answers"][0]
    stop = whole["text"][2:4]
    cut = answer_of(model, key, tmp_path / "s", *seeded, "--stop", stop)
    short = as_json(ts(*cut, "--json"))["answers"][0]
    assert short["finish"] == "stop" and short["text"].endswith(stop)
    assert whole["tokens"][: len(short["tokens"])] == short["tokens"]
    assert ts("check", tmp_path / "s", "--model", model)[0] == 0
    assert ts("check", tmp_path / "s", "--model", model, "--text")[0] == 0


def test_a_template_that_reads_a_date(key: Path, model: Path, tmp_path: Path, ts: Run) -> None:
    dated = tmp_path / "dated"
    shutil.copytree(model, dated)
    (dated / "chat_template.jinja").write_text("{{ strftime_now('%b')|lower }}" + TEMPLATE)
    assert ts("model", "statement", dated, "--bucket", "24:4")[0] == 0
    talk = tmp_path / "messages.json"
    talk.write_text(json.dumps([{"role": "user", "content": "abc"}]))
    code, _, errors = ts(*answer_of(dated, key, tmp_path / "a", "--messages", talk))
    assert code == 3 and "reads a date" in errors and not (tmp_path / "a").exists()
    told = ("--messages", talk, "--date", "2026-11-28", "--max-tokens", 2)
    assert ts(*answer_of(dated, key, tmp_path / "a", *told))[0] == 0
    assert ts("check", tmp_path / "a", "--model", dated, "--text")[0] == 0


# -- what a check finds ----------------------------------------------------------------------------
def test_another_text_is_a_finding(model: Path, answered: Path, tmp_path: Path, ts: Run) -> None:
    def text(body: dict[str, object]) -> None:
        body["text"] = "another"

    place = edited(answered, tmp_path / "a", "answer.json", text)
    for only in ((), ("--text",)):  # nothing signed is about it
        said = as_json(ts("check", place, "--model", model, "--json", *only), 1)
        assert [one["clause"] for one in said["findings"]] == ["8.6"]
        assert said["texts"] and not (said["contradictions"] or said["state_differs"])


def test_texts_that_cannot_be_compared(
    model: Path, answered: Path, ts: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> None:
        raise CannotCheckError("tokenizers is missing.", "Install it.")

    monkeypatch.setattr("tallystick.answers.text.model_tokenizer", none)
    said = as_json(ts("check", answered, "--model", model, "--json"))
    assert said["accepted"] and not said["texts"]
    assert [one["clause"] for one in said["notes"]] == ["8.6"]
    assert "by the model's files" not in ts("check", answered, "--model", model)[1]
    assert ts("check", answered, "--model", model, "--text")[0] == 2


def test_no_texts_after_a_contradiction(
    model: Path, answered: Path, tmp_path: Path, ts: Run
) -> None:
    """6.3: a token that no tokenizer decodes convicts, and is not decoded."""
    files = AnswerFiles.read(answered)
    spoken = replace(files.spoken, tokens=(1 << 40, *files.spoken.tokens[1:]))
    job, key = AnswerJob(files.statement, files.request, spoken), PrivateKey.generate()
    final, root = job.roots()
    receipt = replace(
        read_receipt(files.receipt).receipt, job=job.digest, state=final, root=root,
        signer=key.public,
    )  # fmt: skip
    AnswerFiles.of(sign_receipt(key, receipt), job, parse_text(files.program)).write(tmp_path / "a")
    for only in ((), ("--text",)):
        said = as_json(ts("check", tmp_path / "a", "--model", model, "--json", *only), 1)
        assert [one["clause"] for one in said["contradictions"]] == ["6.3"]
        assert not (said["findings"] or said["texts"])


def test_another_template_or_tokenizer(model: Path, key: Path, tmp_path: Path, ts: Run) -> None:
    """The server's own words before the client's: found by the files that the statement names."""
    from answer_words import tokenizer

    from tallystick.answers.files import AnswerFiles
    from tallystick.answers.text import ModelWords

    talk = [{"role": "user", "content": "abc"}]
    honest = tallystick.generate(model, messages=talk, max_tokens=2, out=tmp_path / "a", key=key)
    other = tmp_path / "other"
    shutil.copytree(model, other)
    (other / "chat_template.jinja").write_text("<user>z" + TEMPLATE)
    code, _, errors = ts("check", tmp_path / "a", "--model", other, "--text")
    assert code == 1 and "'chat_template.jinja'" in errors
    (other / "chat_template.jinja").write_text(TEMPLATE)
    (other / "tokenizer.json").write_bytes(tokenizer(begin=False))
    code, _, errors = ts("check", tmp_path / "a", "--model", other, "--text")
    assert code == 1 and "'tokenizer.json'" in errors
    # The server renders otherwise than the statement's template, and answers that honestly.
    swapped = tallystick.generate(model, tokens=(2, 7, *honest[0].job.spoken.prompt), max_tokens=2)
    files = AnswerFiles.read(tmp_path / "a")
    words = ModelWords.of(files.statement, _files(model), TEMPLATE)
    assert words.prompt(files.request) == files.spoken.prompt != swapped[0].job.spoken.prompt


def _files(model: Path) -> dict[str, bytes]:
    from tallystick.answers.model import open_model

    return dict(open_model(model).files)


def test_prompt_tokens_that_the_template_does_not_give(
    model: Path, key: Path, tmp_path: Path
) -> None:
    """A receipt for other prompt tokens than the messages give: a finding, and no conviction."""
    from dataclasses import replace

    from tallystick.answers.receipt import read_receipt, sign_receipt
    from tallystick.disk.keys import load_private_key

    talk = [{"role": "user", "content": "abc"}]
    honest = tallystick.generate(model, messages=talk, max_tokens=2)[0]
    longer = (2, 7, *honest.job.spoken.prompt)
    false = tallystick.generate(model, tokens=longer, max_tokens=2)[0]
    job = replace(honest.job, spoken=false.job.spoken)
    assert job.request.settings.set == "greedy"  # so that no seed tells the two requests apart
    private = load_private_key(key)
    final, root = job.roots()
    receipt = replace(
        read_receipt(honest.receipt).receipt, job=job.digest, root=root, state=final,
        prompt=len(longer), signer=private.public, finish=false.finish,
        answer=len(job.spoken.tokens),
    )  # fmt: skip
    place = tmp_path / "a"
    AnswerFiles.of(sign_receipt(private, receipt), job, false.program).write(place)
    for text in (False, True):
        report = tallystick.check(place, model, text=text)
        assert not report.accepted and report.contradictions == ()
        assert not report.state_differs
        assert "other prompt tokens" in report.findings[0].sentence


def test_false_files_are_refused(model: Path, answered: Path, tmp_path: Path, ts: Run) -> None:
    def token(body: dict[str, object]) -> None:
        tokens = body["tokens"]
        assert isinstance(tokens, list)
        tokens[0] ^= 1

    def seed(body: dict[str, object]) -> None:
        parts = body["parts"]
        assert isinstance(parts, dict)
        parts["seed"]["seed"] = "6"

    for name, edit, why in (
        ("answer.json", token, "nobody has signed this answer"),
        ("request.json", seed, "a different request"),
    ):
        place = edited(answered, tmp_path / name, name, edit)
        code, _, errors = ts("check", place, "--model", model)
        assert code == 1 and why in errors
    place = tmp_path / "missing"
    shutil.copytree(answered, place)
    (place / "request.json").unlink()
    assert ts("check", place, "--model", model)[0] == 2
    assert ts("check", tmp_path, "--model", model)[0] == 2


def test_other_weights_here_are_no_verdict_about_the_signer(
    model: Path, answered: Path, tmp_path: Path, ts: Run
) -> None:
    other = tmp_path / "other"
    shutil.copytree(model, other)
    save_model("smollm", other, initializer_range=0.03)
    save_words(other)
    code, _, errors = ts("check", answered, "--model", other)
    assert code == 1 and "weights here are not those of the model statement" in errors


# -- disputes --------------------------------------------------------------------------------------
def test_a_convicted_swap(model: Path, key: Path, answered: Path, tmp_path: Path, ts: Run) -> None:
    """`answer-run` makes the honest run; the cheat's is convicted, and the evidence judged."""
    mine = as_json(ts("answer-run", answered, "--model", model, "-o", tmp_path / "mine", "--json"))
    assert mine["same"] and not mine["defends"]
    theirs = ("answer-run", answered, "--model", model, "-o", tmp_path / "theirs", "--key", key)
    assert as_json(ts(*theirs, "--json"))["defends"]
    job = tmp_path / "mine" / "job"
    game = ("dispute", tmp_path / "mine", tmp_path / "theirs", "--job", job, "--key-b", key)
    assert ts(*game, "--out", tmp_path / "e")[0] == 0  # the runs are the same
    for name in ("other-weight", "chosen-seed", "forged-cache-entry"):
        cheat, evidence = tmp_path / name, tmp_path / f"{name}.evidence"
        assert ts("attack", name, job, "--out", cheat, "--quiet")[0] == 0
        play = ("dispute", tmp_path / "mine", cheat, "--job", job, "--as-attack", "B")
        found = as_json(ts(*play, "--out", evidence, "--json"), 1)
        judged = as_json(ts("judge", evidence, "--job", job, "--json"), 1)
        for said in (found, judged):
            assert [one["party"] for one in said["convicted"]] == ["B"]
        words = ts("judge", evidence, "--job", job)[1]
        assert "in words    Party B signed" in words and "training" not in words
    # 9.7: what the last one shows of the text.
    shown = as_json(ts("inspect", evidence, "--job", job, "--json"))["reveals"]
    assert shown["activations"] and not shown["tokens"]
    code, out, _ = ts("inspect", evidence, "--job", job)
    assert code == 0 and "numbers that the model computed from the text" in out
    assert ts("inspect", job, "--job", job)[0] == 3
    assert ts("inspect", answered, "--job", job)[0] == 3
    assert "reveals" not in as_json(ts("inspect", evidence, "--json"))
    page = ts("report", evidence, "--job", job, "-o", tmp_path / "page.html")
    assert "What the evidence shows of the text" in (tmp_path / "page.html").read_text()
    assert page[0] == 0 and "training" not in page[1]


def test_a_false_receipt_cannot_be_defended(
    model: Path, key: Path, answered: Path, tmp_path: Path, ts: Run
) -> None:
    from dataclasses import replace

    from tallystick.answers.receipt import read_receipt, sign_receipt
    from tallystick.disk.keys import load_private_key

    false = tmp_path / "false"
    shutil.copytree(answered, false)
    receipt = read_receipt((answered / "receipt.json").read_bytes()).receipt
    first = AnswerFiles.read(answered).bound()[1].commitment.genesis_root
    root = run_root(receipt.job, [(0, first), (1, bytes(32))])
    lied = replace(receipt, state=bytes(32), root=root)
    (false / "receipt.json").write_bytes(sign_receipt(load_private_key(key), lied))
    code, out, _ = ts("check", false, "--model", model)
    assert code == 1 and "MISMATCH" in out
    run = ("answer-run", false, "--model", model, "-o", tmp_path / "run", "--key", key)
    assert ts(*run)[0] == 1
    assert not list(tmp_path.glob(".run*")), "nothing is left beside the run"


# -- Python ----------------------------------------------------------------------------------------
def test_the_python_interface(model: Path, key: Path, tmp_path: Path) -> None:
    heard: list[str] = []
    (answer,) = tallystick.generate(
        model, prompt="abc", key=key, max_tokens=4, temperature=3.0, repetition=1.2,
        bias={9: -1.0}, heard=lambda _, text: heard.append(text),
    )  # fmt: skip
    assert len(answer.tokens) <= 4 and answer.logprobs.dtype == "float32"
    assert heard and heard[-1] == answer.text
    assert tallystick.check(answer, model).accepted
    with pytest.raises(UsageError, match="one of tokens"):
        tallystick.generate(model, key=key)
    with pytest.raises(UsageError, match="no bucket for a prompt"):
        tallystick.generate(model, tokens=[4] * 30)
    with pytest.raises(DigestMismatchError, match="another model than your statement's"):
        (tmp_path / "s.json").write_bytes(_renamed(answer.job.statement))
        tallystick.check(answer, model, statement=tmp_path / "s.json")


def _renamed(statement: ModelStatement) -> bytes:
    return replace(statement, stop=()).to_bytes()


# -- a statement of the signer's own ---------------------------------------------------------------
def echoing(honest: Program) -> Program:
    """`honest` (greedy, 12:4) with the claimed tokens of its text for what the model draws."""
    b = Builder(honest.contract)
    given = [
        b.state(i.name, i.type) if i.kind == "state" else b.batch(split_batch(i.name)[0], i.type)
        for i in honest.inputs
    ]
    fields = {i.name: value for i, value in zip(honest.inputs, given, strict=True)}
    copied = b.copy(honest, given)
    outputs = {name: copied(value) for name, value in honest.output_values.items()}
    text = b.one("aten.view", [fields["batch.text"]], size=(12,))
    place = b.one("aten.view", [fields["batch.place"]], size=(4,))
    live = b.one("aten.view", [fields["batch.live"]], size=(4,))
    one = b.one("aten.full", [], size=(), value=1.0, dtype="i64")
    after = b.one("aten.add.Tensor", [place, one], alpha=1.0)
    told = b.one("aten.index_select", [text, after], dim=0)
    outputs[TOKENS] = b.one("aten.mul.Tensor", [told, live])
    b.commit({name: value for name, value in outputs.items() if name != "loss"})
    return canonicalize(b.finish(outputs))


@pytest.fixture(scope="module")
def swapped(model: Path) -> tuple[ModelStatement, Program]:
    """A statement of true weights and files with an echo for a program."""
    stated = read_statement(model.with_name("model.statement"))
    name = ProgramName(12, 4, "greedy")
    program = echoing(read_program(model.with_name("model.statement"), stated, name))
    return replace(stated, programs={**stated.programs, name: program.digest()}), program


def echoed(
    stated: ModelStatement, program: Program, held: Mapping[str, Array], key: PrivateKey
) -> GivenAnswer:
    """An answer of any tokens over true weights, which the echo repeats."""
    request = ModelRequest(stated.digest, Settings(max_tokens=3), tokens=(5, 6), secret=bytes(32))
    spoken = Spoken((5, 6), (7, 8, 9), np.zeros(3, np.float32), "def")
    job = AnswerJob(stated, request, spoken)
    engine = Engine(job.in_memory(program), State(job.state(program, held)))
    engine.run()
    logprobs = np.asarray(engine.state.slots[LOGPROBS])[:3].copy()
    job = replace(job, spoken=replace(spoken, logprobs=logprobs))
    final, root = job.roots()
    assert final == engine.state.root()
    receipt = AnswerReceipt(
        stated.digest, request.digest, 0, job.digest, root, final, 2, 3, LENGTH, 0, 1, key.public
    )
    data = sign_receipt(key, receipt)
    return GivenAnswer("def", spoken.tokens, logprobs, LENGTH, data, job, program)


def test_a_program_that_repeats_the_claimed_tokens(
    model: Path, swapped: tuple[ModelStatement, Program], tmp_path: Path
) -> None:
    """8.5: everything but the program is the model's, and its slots are those of an answer."""
    held, key = weights(open_model(model)), PrivateKey.generate()
    false = echoed(*swapped, held, key)
    signed, answer = bound(false.receipt, false.job.statement, false.job.request, false.job.spoken)
    assert check_answer(signed, answer, false.program, held).accepted  # so the echo is a threat
    with pytest.raises(DigestMismatchError, match="program of 12:4, greedy is not the model's"):
        tallystick.check(false, model)
    # Whoever names that statement as their own believes it.
    (tmp_path / "s.json").write_bytes(swapped[0].to_bytes())
    report = tallystick.check(false, model, statement=tmp_path / "s.json")
    assert report.accepted and [note.clause for note in report.notes] == ["8.5"]


@pytest.mark.parametrize("text", (False, True))
@pytest.mark.parametrize("odd", ({"stop": (1, 9)}, {"vocabulary": 47}), ids=str)
def test_stop_tokens_and_vocabulary_of_the_signers_own(
    odd: dict[str, Any], text: bool, model: Path, answered: Path, tmp_path: Path
) -> None:
    honest = AnswerFiles.read(answered)
    stated = replace(honest.statement, **odd)
    key, request = PrivateKey.generate(), replace(honest.request, model=stated.digest)
    job = AnswerJob(stated, request, honest.spoken)
    final, root = job.roots()
    receipt = replace(
        read_receipt(honest.receipt).receipt, model=stated.digest, request=request.digest,
        job=job.digest, state=final, root=root, signer=key.public,
    )  # fmt: skip
    AnswerFiles.of(sign_receipt(key, receipt), job, parse_text(honest.program)).write(
        tmp_path / "a"
    )
    with pytest.raises(DigestMismatchError, match="is not the model's"):
        tallystick.check(tmp_path / "a", model, text=text)


def test_nothing_is_signed_with_another_program(
    model: Path, swapped: tuple[ModelStatement, Program], tmp_path: Path
) -> None:
    """An honest server with a false statement would be convicted of its own receipt."""
    place = tmp_path / "s"
    shutil.copytree(model.with_name("model.statement"), place)
    (place / "statement.json").write_bytes(swapped[0].to_bytes())
    (place / "programs" / "12-4-greedy.txt").write_text(swapped[1].text())
    opened = Answering(model, place)
    with pytest.raises(DigestMismatchError, match="program of 12:4, greedy is not the model's"):
        tallystick.generate(opened, tokens=[5, 6], max_tokens=2)
    assert tallystick.generate(opened, tokens=[5] * 10, max_tokens=6)  # of another bucket
    (place / "statement.json").write_bytes(replace(swapped[0], stop=()).to_bytes())
    with pytest.raises(DigestMismatchError, match="stop tokens is not the model's"):
        Answering(model, place)


# -- generate --------------------------------------------------------------------------------------
def test_a_token_that_ends_an_answer_is_not_heard(model: Path) -> None:
    """5.7: `heard` gets the text of the answer, which a stop token is no part of."""
    asked: dict[str, Any] = {"prompt": "abc", "max_tokens": 6, "temperature": 9.0, "seed": 4}
    (whole,) = tallystick.generate(model, **asked)
    last = next(n for n, token in enumerate(whole.tokens) if n and token not in whole.tokens[:n])
    heard: list[str] = []
    (cut,) = tallystick.generate(
        model, **asked, stop=[whole.tokens[last]], heard=lambda _, text: heard.append(text)
    )
    assert cut.tokens == whole.tokens[: last + 1] and cut.finish == "stop"
    assert heard[-1] == cut.text and len(heard) == last


def test_a_request_to_another_model_is_not_answered(model: Path) -> None:
    opened = Answering(model)
    request = ModelRequest(bytes(32), Settings(max_tokens=2), tokens=(5, 6), secret=bytes(32))
    with pytest.raises(UsageError, match="for another model"):
        opened.answer(request, PrivateKey.generate())


@pytest.mark.parametrize("choices", (1, 2))
def test_a_taken_output_is_refused_before_the_work(
    choices: int, model: Path, key: Path, tmp_path: Path, ts: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    out = tmp_path / "a" if choices == 1 else tmp_path / "a" / "1"
    out.mkdir(parents=True)
    (out / "receipt.json").write_text("{}")
    monkeypatch.setattr(Answering, "answer", lambda *_: pytest.fail("computed for nothing"))
    words = ("--prompt", "abc", "--choices", choices)
    code, _, errors = ts(*answer_of(model, key, tmp_path / "a", *words))
    assert code == 3 and "already contains an answer" in errors and "overwrite" not in errors
