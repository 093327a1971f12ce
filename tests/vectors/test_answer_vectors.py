"""vectors/answers against the package and against a reading of ANSWERS from its text alone."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from answer_format import DATA, INDEX, LISTS, Object, Stored
from make_answer_vectors import Maker, clauses
from reference.answers import asked as by_text_asked
from reference.answers import files as by_text
from reference.answers.conviction import other_tokens, two_receipts
from reference.answers.job import Job
from reference.answers.run import answer_slots, executed, first_difference
from reference.answers.words import bound as bound_by_text
from reference.answers.words import shown_words, words
from reference.judge.encoding import MalformedError, RefusedError, sha, tag, u64
from reference.judge.programs import read_program
from reference.sampler import Asked, places, row, seed_of_choice
from unit.answers.sampled import sampled

from tallystick.answers.beside_receipt import read_said
from tallystick.answers.cancellation import read_cancellation
from tallystick.answers.check import bound, check_answer, check_words
from tallystick.answers.encoding_job import AnyRequest, read_request
from tallystick.answers.job import checked_program
from tallystick.answers.layout import Bucket, Settings, choice_seed
from tallystick.answers.other_tokens import OtherTokens
from tallystick.answers.receipt import read_receipt
from tallystick.answers.request import ModelRequest, part_digest, salt_of
from tallystick.answers.shown import ShownRequest, check_shown
from tallystick.answers.statement import ModelStatement, ProgramName
from tallystick.answers.two_receipts import NothingFollowsError, TwoReceipts
from tallystick.api.samples import drawn, receipt_digest, set_digest
from tallystick.commit.encoding import parse_float_hex
from tallystick.commit.signing import PublicKey
from tallystick.commit.tensor import DTYPES
from tallystick.errors import CounterpartyError
from tallystick.program.ir import Program

STORED = Stored()
PART = STORED.part
REFUSED = (RefusedError, MalformedError)
MODELS, REQUESTS = STORED.named("models"), STORED.named("requests")


def named(name: str) -> Any:
    """A test's parameter: each entry of a list."""
    return pytest.mark.parametrize("entry", STORED.named(name), ids=lambda e: e.get("name", ""))


def test_every_list_has_entries_and_the_maker_makes_them() -> None:
    assert all(STORED.named(name) for name in LISTS)
    index, data = Maker().make()
    assert (index, data) == (INDEX.read_text(), DATA.read_bytes())
    assert len(index) + len(data) < 600_000


# -- what the files are read with ------------------------------------------------------------------
@cache
def statement(model: int) -> ModelStatement:
    return ModelStatement.from_bytes(PART(MODELS[model]["statement"]))


@cache
def request(number: int) -> AnyRequest:
    return read_request(PART(REQUESTS[number]["file"]))


def held(model: int) -> dict[str, np.ndarray]:
    found = {}
    for name, weight in statement(model).weights.items():
        data = PART(MODELS[model]["weights"][name])
        found[name] = np.frombuffer(data, DTYPES[weight.header.dtype]).reshape(weight.header.shape)
    return found


def text_name(name: ProgramName | tuple[int, int, str]) -> str:
    length, answer, set_ = name if isinstance(name, tuple) else (name.length, name.answer, name.set)
    return f"{length}-{answer}-{set_}"


@cache
def program(model: int, name: ProgramName) -> Program:
    text = PART(MODELS[model]["programs"][text_name(name)])
    return checked_program(text, statement(model).programs[name])


@cache
def statement_by_text(model: int) -> by_text.Statement:
    return by_text.read_statement(PART(MODELS[model]["statement"]))


@cache
def request_by_text(number: int) -> by_text_asked.Request:
    return by_text_asked.read_request(PART(REQUESTS[number]["file"]))


def beside(entry: Object) -> bytes | None:
    return None if entry["cancellation"] is None else PART(entry["cancellation"])


# -- models and requests ---------------------------------------------------------------------------
@named("models")
def test_a_model(entry: Object) -> None:
    data, number = PART(entry["statement"]), MODELS.index(entry)
    assert statement(number).digest.hex() == entry["digest"]
    assert statement(number).to_bytes() == data
    told = statement_by_text(number)
    assert told.digest.hex() == entry["digest"]
    for name, digest in told.programs.items():
        assert read_program(PART(entry["programs"][text_name(name)])).digest == digest
    for name in statement(number).programs:
        program(number, name)


@named("requests")
def test_a_request(entry: Object) -> None:
    number = REQUESTS.index(entry)
    found, told = request(number), request_by_text(number)
    assert found.to_bytes() == PART(entry["file"])
    assert found.digest.hex() == told.digest.hex() == entry["digest"]
    assert salt_of(found.secret, "record").hex() == told.salt("record").hex() == entry["record"]
    assert found.parts.keys() == entry["parts"].keys() == told.parts.keys()
    for name, (salt, digest) in entry["parts"].items():
        assert salt_of(found.secret, name).hex() == told.salt(name).hex() == salt
        assert part_digest(name, bytes.fromhex(salt), found.parts[name]).hex() == digest
        assert told.part_digest(name).hex() == digest
    if isinstance(found, ModelRequest):
        choices = range(found.choices)
        assert [str(choice_seed(found.seed, k)) for k in choices] == entry["seeds"]
        assert [str(seed_of_choice(told.seed, k)) for k in choices] == entry["seeds"]


# -- answers and encodings -------------------------------------------------------------------------
@named("answers")
def test_an_answer_by_the_package(entry: Object) -> None:
    model = entry["model"]
    said = read_said(PART(entry["said"]))
    assert said.to_bytes() == PART(entry["said"])
    signed, job = bound(PART(entry["receipt"]), statement(model), request(entry["request"]), said)
    assert job.digest.hex() == entry["job"]
    assert [root.hex() for root in job.roots()] == [entry["state"], entry["root"]]
    report = check_words(signed, job, beside(entry))
    assert clauses(report) == entry["words"]
    assert (entry["run"] is None) == bool(report.contradictions)
    if entry["run"] is None:
        return
    text = program(model, job.program_name)
    report = check_answer(signed, job, text, held(model), cancellation=beside(entry))
    run = entry["run"]
    assert clauses(report) == {name: run[name] for name in entry["words"]}
    assert report.state_differs == run["state_differs"]
    assert (None if report.difference is None else report.difference.row) == run["row"]


@named("answers")
def test_an_answer_by_the_text(entry: Object) -> None:
    model = entry["model"]
    receipt, job = bound_by_text(
        PART(entry["receipt"]), statement_by_text(model), request_by_text(entry["request"]),
        by_text.read_said(PART(entry["said"])),
    )  # fmt: skip
    claimed = job.state(job.claimed())
    assert (job.digest.hex(), claimed.hex()) == (entry["job"], entry["state"])
    assert job.root(claimed).hex() == entry["root"]
    found = words(receipt, job, beside(entry))
    assert found.sorted() == entry["words"]
    if entry["run"] is not None:
        executed_by_text(entry, receipt, job)


def executed_by_text(entry: Object, receipt: by_text.Receipt, job: Job) -> None:
    """8.5, by the operators as they are defined."""
    run, model = entry["run"], MODELS[entry["model"]]
    weights = {
        name: np.frombuffer(PART(model["weights"][name]), "<f4").reshape(shape)
        for name, (_, shape) in job.statement.types.items()
    }
    made = executed(job, read_program(PART(model["programs"][text_name(job.name)])), weights)
    slots = answer_slots(job, made)
    assert {n: a.tobytes() for n, a in slots.items()} == {
        n: PART(place) for n, place in run["slots"].items()
    }
    assert made["loss"] == job.loss(slots) or np.isnan(made["loss"])
    state = job.state(slots)
    assert state.hex() == run["state"]
    assert (state != receipt.state) == run["state_differs"]
    difference = first_difference(job, slots)
    assert difference == run["row"]
    # 6.7: the signed state is the true one, and has other tokens.
    tokens = slots.get("buffer.answer.tokens")
    other = tokens is not None and tokens[: len(job.answer)].tolist() != job.answer
    assert (["6.7"] if other and state == receipt.state else []) == run["contradictions"]


@named("strangers")
def test_files_that_are_not_the_receipts(entry: Object) -> None:
    """8.3: refused, and nobody is convicted."""
    files = PART(entry["receipt"]), PART(entry["said"])
    with pytest.raises(CounterpartyError):
        bound(files[0], statement(entry["model"]), request(entry["request"]), read_said(files[1]))
    with pytest.raises(REFUSED):
        bound_by_text(
            files[0], statement_by_text(entry["model"]), request_by_text(entry["request"]),
            by_text.read_said(files[1]),
        )  # fmt: skip


# -- shown requests, evidence, refusals ------------------------------------------------------------
@named("shown")
def test_a_shown_request(entry: Object) -> None:
    data, receipt = PART(entry["file"]), PART(entry["receipt"])
    file = ShownRequest.from_bytes(data)
    report = check_shown(file, read_receipt(receipt))
    found = sorted({one.clause for one in report.contradictions})
    assert (file.digest.hex(), report.proved) == (entry["digest"], entry["proved"])
    assert found == entry["contradictions"] and file.to_bytes() == data
    told, by = by_text_asked.read_shown(data), by_text.read_receipt(receipt)
    assert told.digest.hex() == entry["digest"]
    assert (told.digest == by.request) == entry["proved"]
    assert (shown_words(told, by) if entry["proved"] else []) == entry["contradictions"]


@named("convictions")
def test_evidence_of_other_tokens(entry: Object) -> None:
    data = PART(entry["file"])
    found = OtherTokens.from_bytes(data).convicts()
    told = (entry["row"], entry["claimed"], entry["drawn"])
    assert found.receipt.signer.key_id == entry["convicted"]
    assert (found.row, found.claimed, found.drawn) == told
    receipt, *by = other_tokens(data)
    assert sha(receipt.key).hex() == entry["convicted"] and tuple(by) == told


@named("pairs")
def test_two_receipts(entry: Object) -> None:
    """6.10."""
    data = PART(entry["file"])
    file = TwoReceipts.from_bytes(data)
    assert file.to_bytes() == data
    if entry["clause"] is None:
        with pytest.raises(NothingFollowsError):
            file.convicts()
        with pytest.raises(REFUSED):
            two_receipts(data)
        return
    found = file.convicts()
    tokens = None if found.tokens is None else list(found.tokens)
    told = entry["clause"], entry["row"], entry["tokens"]
    assert (found.clause, found.row, tokens) == told
    receipt, *by = two_receipts(data)
    assert receipt.key == found.receipt.signer.raw and tuple(by) == told


def client() -> bytes:
    """Who may cancel (6.6): the client of the requests that have one."""
    keys = {r["file"][0]: request_by_text(n).parts.get("client") for n, r in enumerate(REQUESTS)}
    (found,) = {key for key in keys.values() if key is not None}
    return bytes.fromhex(found)


READERS: dict[str, tuple[Any, Any]] = {
    "statement": (ModelStatement.from_bytes, by_text.read_statement),
    "request": (read_request, by_text_asked.read_request),
    "receipt": (read_receipt, by_text.read_receipt),
    "said": (read_said, by_text.read_said),
    "cancellation": (
        lambda data: read_cancellation(data, PublicKey(client())),
        lambda data: by_text.read_cancellation(data, client()),
    ),
    "shown": (ShownRequest.from_bytes, by_text_asked.read_shown),
    "conviction": (lambda data: OtherTokens.from_bytes(data).convicts(), other_tokens),
    "pair": (lambda data: TwoReceipts.from_bytes(data).convicts(), two_receipts),
}


@pytest.mark.parametrize(
    "entry", STORED.named("refused"), ids=lambda e: f"{e['kind']}: {e['name']}"
)
def test_a_file_that_is_refused(entry: Object) -> None:
    package, text = READERS[entry["kind"]]
    package(PART(entry["honest"]))
    text(PART(entry["honest"]))
    with pytest.raises(CounterpartyError):
        package(STORED.altered(entry))
    with pytest.raises(REFUSED):
        text(STORED.altered(entry))


# -- draws and samples -----------------------------------------------------------------------------
def test_draws_of_small_logits() -> None:
    for entry in STORED.named("draws"):
        settings = {
            name: parse_float_hex(value, name) if isinstance(value, str) else value
            for name, value in entry["settings"].items()
        }
        bias = [(token, float.fromhex(value)) for token, value in settings.pop("bias")]
        logits = np.frombuffer(PART(entry["logits"]), "<f4").reshape(-1, entry["classes"])
        prompt, answer = entry["prompt"], entry["answer"]
        seed = seed_of_choice(int(entry["seed"]), entry["choice"])
        asked = Settings(**settings, bias=tuple(bias), seed=int(entry["seed"]))
        assert choice_seed(asked.seed, entry["choice"]) == seed
        found = sampled(Bucket(8, 3), asked, prompt, answer, logits, seed)
        assert found.tokens.tolist() == entry["tokens"], entry["settings"]
        assert found.logprobs.tobytes().hex() == entry["logprobs"]
        text = [*prompt, *answer]
        rows = [
            row(z, text, len(prompt), place, Asked(**settings, bias=dict(bias)), seed)
            for z, place in zip(logits, places(len(prompt), len(answer), 3), strict=True)
        ]
        assert [token for token, _ in rows] == entry["tokens"], entry["settings"]
        assert np.array([log for _, log in rows], "<f4").tobytes().hex() == entry["logprobs"]


@named("samples")
def test_a_sample(entry: Object) -> None:
    """8.8.1, 8.8.2."""
    seed = bytes.fromhex(entry["seed"])
    digests = [receipt_digest(PART(place)) for place in entry["receipts"]]
    assert set_digest(digests).hex() == entry["set"]
    assert [d.hex() for d in drawn(seed, digests, len(entry["drawn"]))] == entry["drawn"]
    own = sorted({sha(PART(place)) for place in entry["receipts"]})
    whole = sha(tag("answer-set/1") + u64(len(own)) + b"".join(own))
    ranked = sorted(own, key=lambda d: sha(tag("answer-draw/1") + seed + whole + d))
    assert whole.hex() == entry["set"]
    assert [d.hex() for d in ranked[: len(entry["drawn"])]] == entry["drawn"]
