"""ANSWERS 11: the job, the words and the check of an encoding, and that padding decides no bit."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from unit.answers.toy import Toy, f32, i64, receipt_of
from unit.answers.toy_encoder import (
    LENGTHS,
    SHAPES,
    TEXT,
    VOCABULARY,
    WIDTH,
    ToyEncoder,
    attended,
    program,
    receipt_of_encoding,
)

from tallystick.answers.beside_receipt import Encoded, read_said
from tallystick.answers.check import AnswerReport, bound, check_answer, check_words
from tallystick.answers.encoding_job import EncodingJob, EncodingRequest, read_request
from tallystick.answers.encoding_programs import SALT, VALUES
from tallystick.answers.job import AnswerJob
from tallystick.answers.layout import CLASSES, EMBEDDING, Bucket, EncodingBucket
from tallystick.answers.receipt import CANCELLED, STOP, read_receipt
from tallystick.answers.request import ModelRequest, part_digest, request_digest, salt_of
from tallystick.answers.statement import ModelStatement, ProgramName
from tallystick.commit.checkpoint import run_root
from tallystick.commit.encoding import canonical_json
from tallystick.commit.tensor import Array
from tallystick.devices.context import ExecutionContext
from tallystick.errors import (
    CorruptFileError,
    DigestMismatchError,
    TallystickError,
    UsageError,
)
from tallystick.limits import LIMITS
from tallystick.program.build import Builder
from tallystick.program.executor import Executor
from tallystick.program.runner import StepInputs
from tallystick.run.execute.trainer import train_job
from tallystick.run.store.directory import RunStore

CONTRACTS = ("ordered/1-draft.1", "rounded/1-draft.1")


@pytest.fixture(scope="module")
def toy() -> ToyEncoder:
    return ToyEncoder.make()


@pytest.fixture(scope="module")
def said(toy: ToyEncoder) -> EncodingJob:
    return toy.encoded(toy.request())


def checked(toy: ToyEncoder, said: EncodingJob, **odd: object) -> AnswerReport:
    data = receipt_of_encoding(said, **odd)  # type: ignore[arg-type]
    signed, found = bound(data, said.statement, said.request, said.encoded)
    return check_answer(signed, found, toy.text_of(said), toy.held)


def clauses(report: AnswerReport) -> list[str]:
    return [one.clause for one in report.contradictions]


# -- the job (11.2 to 11.4) ------------------------------------------------------------------------
@pytest.mark.parametrize("contract", CONTRACTS)
@pytest.mark.parametrize("output", (EMBEDDING, CLASSES))
def test_an_honest_encoding_is_accepted(contract: str, output: str) -> None:
    toy = ToyEncoder.make(contract=contract, output=output)
    report = checked(toy, toy.encoded(toy.request()))
    assert report.accepted and report.executed and report.difference is None
    assert report.notes == () and report.contradictions == ()


@pytest.mark.parametrize("contract", CONTRACTS)
def test_the_claimed_run_is_the_one_that_is_trained(contract: str, tmp_path) -> None:  # type: ignore[no-untyped-def]
    toy = ToyEncoder.make(contract=contract)
    said = toy.encoded(toy.request())
    job = said.write(tmp_path / "job", toy.text_of(said), toy.held, overwrite=False)
    assert job.digest == said.digest and job.verify().root() == said.commitment.genesis_root
    done = train_job(job, tmp_path / "run")
    final, root = said.roots()
    assert done.run_root == root
    first = said.commitment.genesis_root
    assert RunStore(tmp_path / "run").journal(job).checkpoints == [(0, first), (1, final)]


def test_the_job_follows_from_request_and_tokens(toy: ToyEncoder, said: EncodingJob) -> None:
    assert (said.commitment.rng_seed, said.bucket) == (0, EncodingBucket(8, WIDTH))
    assert said.columns["text"].tolist() == [[*TEXT, 0, 0, 0]]
    assert said.columns["length"].tolist() == [[5]]
    salted = replace(said.request, secret=bytes(32))
    other = Encoded((3, 1, 4, 1), said.encoded.values)
    ones = [said, replace(said, request=salted), replace(said, encoded=other)]
    assert len({one.digest for one in ones}) == len(ones)
    nothing = replace(said, encoded=Encoded(TEXT, np.zeros(WIDTH, np.float32)))
    assert nothing.digest == said.digest and nothing.roots() != said.roots()


def test_the_salt_reaches_the_final_state(toy: ToyEncoder, said: EncodingJob) -> None:
    after = toy.executed(said)
    assert (np.asarray(after.slots[SALT]) == said.request.record_salt).all()


# -- buckets and padding (11.2, 11.5) --------------------------------------------------------------
def values_of(
    length: int,
    tokens: list[int],
    held: dict[str, Array],
    rest: int = 0,
    contract: str = CONTRACTS[0],
) -> bytes:
    """The values' bits, with `rest` in every absent place."""
    text = program(length, contract)
    batch = {
        "text": np.full((1, length), rest, np.int64),
        "length": np.array([[len(tokens)]], np.int64),
        "salt": np.zeros((1, 4), np.int64),
    }
    batch["text"][0, : len(tokens)] = tokens
    slots = {**held, VALUES: np.zeros(WIDTH, np.float32), SALT: np.zeros(4, np.int64)}
    state = {name: slots[name].copy() for name in text.state_types}
    Executor(text).execute(state, StepInputs(batch))
    return np.asarray(state[VALUES]).tobytes()


@pytest.mark.parametrize("contract", CONTRACTS)
@pytest.mark.parametrize("count", (1, 5, 8))
def test_no_bucket_decides_a_bit(count: int, contract: str, toy: ToyEncoder) -> None:
    """300 places make three chunks of a DOT and two blocks of a SUM."""
    tokens = [(7 * n + 3) % VOCABULARY for n in range(count)]
    made = {
        values_of(length, tokens, toy.held, rest, contract) for length in LENGTHS for rest in (0, 9)
    }
    assert len(made) == 1


def test_absent_infinities_and_nans_are_never_read(toy: ToyEncoder) -> None:
    held = dict(toy.held)
    held["param.embed"] = held["param.embed"].copy()
    held["param.embed"][13] = np.nan
    held["param.embed"][14] = np.inf
    told = [1, 2, 3]
    honest = values_of(8, told, held)
    assert {values_of(n, told, held, rest) for n in LENGTHS for rest in (13, 14)} == {honest}
    assert np.isfinite(np.frombuffer(honest, np.float32)).all()
    # One that is present reaches every bucket alike.
    for bad in (13, 14):
        found = {values_of(n, [1, bad], held) for n in LENGTHS}
        assert len(found) == 1 and np.isnan(np.frombuffer(found.pop(), np.float32)).any()


def attention_bits(length: int, positive: bool) -> bytes:
    """The rows of two tokens, whose products with the values vanish below zero."""
    b = Builder(CONTRACTS[0])
    held = {name: b.state(name, f32(*shape)) for name, shape in SHAPES.items()}
    x, count = b.batch("x", f32(length, WIDTH)), b.batch("length", i64(1))
    numbers = b.one("aten.arange", [], start=0.0, end=float(length), step=1.0, dtype="i64")
    present = b.one("aten.lt.Tensor", [numbers, count])
    text = b.finish({"out": attended(b, x, held, length, present, positive)})
    slots = {name: np.zeros(shape, np.float32) for name, shape in SHAPES.items()}
    slots["param.value"][0] = 1e-45
    state = {name: slots[name] for name in text.state_types}
    batch = {"x": np.full((length, WIDTH), -1, np.float32), "length": np.array([2], np.int64)}
    made = Executor(text).execute(state, StepInputs(batch)).outputs["out"]
    return np.asarray(made[:2]).tobytes()


def test_a_zero_has_one_sign_in_every_bucket() -> None:
    """A DOT whose products vanish below zero is −0, and a term +0·+0 makes it +0 (11.5)."""
    lengths = (2, *LENGTHS)
    assert len({attention_bits(length, positive=True) for length in lengths}) == 1
    assert len({attention_bits(length, positive=False) for length in lengths}) == 2


def test_the_smallest_bucket_is_taken(toy: ToyEncoder) -> None:
    stated = toy.statement
    found = [stated.encoding_bucket(count).length for count in (1, 8, 9, 40, 41, 300)]
    assert found == [8, 8, 40, 40, 300, 300]
    with pytest.raises(UsageError, match=r"301 tokens\. A text is never shortened"):
        stated.encoding_bucket(301)
    with pytest.raises(UsageError, match="not for an encoder"):
        Toy.make().statement.encoding_bucket(3)
    with pytest.raises(UsageError, match="no program of the sampler set greedy"):
        stated.bucket(1, 1, "greedy")


def test_statements_that_no_encoder_has(toy: ToyEncoder) -> None:
    stated, digest = toy.statement, bytes(32)
    for programs, why in (
        ({ProgramName(8, 4, EMBEDDING): digest, ProgramName(9, 5, EMBEDDING): digest}, "one size"),
        ({ProgramName(8, 4, EMBEDDING): digest, ProgramName(9, 4, CLASSES): digest}, "one set"),
        ({ProgramName(8, 4, EMBEDDING): digest, ProgramName(9, 4, "draw"): digest}, "one set"),
        ({ProgramName(8, 0, EMBEDDING): digest}, "impossible bucket"),
        ({ProgramName(0, 4, EMBEDDING): digest}, "impossible bucket"),
        ({ProgramName(8, LIMITS.text_places + 1, EMBEDDING): digest}, "impossible bucket"),
        ({ProgramName(LIMITS.text_places + 1, 4, EMBEDDING): digest}, "impossible bucket"),
        ({ProgramName(8, 4, "embeddings"): digest}, "unknown set"),
    ):
        with pytest.raises(UsageError, match=why):
            replace(stated, programs=programs)
    with pytest.raises(UsageError, match="no stop tokens"):
        replace(stated, stop=(1,))
    assert ModelStatement.from_bytes(stated.to_bytes()) == stated
    # The values may be more than the places, which an answer's tokens may not.
    assert ProgramName(8, 384, EMBEDDING).bucket == EncodingBucket(8, 384)
    with pytest.raises(UsageError):
        Bucket(8, 384)


# -- words (11.8) ----------------------------------------------------------------------------------
def test_words_that_contradict_themselves(toy: ToyEncoder, said: EncodingJob) -> None:
    assert clauses(checked(toy, said, prompt=4)) == ["6.2"]
    assert clauses(checked(toy, said, answer=WIDTH + 1)) == ["6.2"]
    assert clauses(checked(toy, said, root=bytes(32))) == ["6.2"]
    assert clauses(checked(toy, replace(said, choice=1))) == ["6.2"]
    for finish in (STOP, CANCELLED, CLASSES):
        assert clauses(checked(toy, said, finish=finish)) == ["11.8"]
    elsewhere = replace(said, request=replace(said.request, model=bytes(32)))
    assert clauses(checked(toy, elsewhere)) == ["6.2"]
    other = replace(said, request=replace(said.request, output=CLASSES))
    assert clauses(checked(toy, other)) == ["11.8"]
    text = replace(said, encoded=Encoded((3, 1, 4, 1, 6), said.encoded.values))
    assert clauses(checked(toy, text)) == ["6.2"]


@pytest.mark.parametrize("token", (VOCABULARY, -1, 1 << 40))
def test_a_token_outside_of_the_vocabulary(toy: ToyEncoder, token: int) -> None:
    tokens = (1, token)
    job = EncodingJob(
        toy.statement, toy.request(tokens), Encoded(tokens, np.zeros(WIDTH, np.float32))
    )
    assert clauses(checked(toy, job)) == ["6.3"]


def test_an_answer_that_says_that_it_is_an_encoding() -> None:
    toy = Toy.make()
    said = toy.answered(toy.request())
    data = receipt_of(said, EMBEDDING)
    report = check_words(*bound(data, said.statement, said.request, said.spoken))
    assert "6.1" in clauses(report)


# -- files that are not the receipt's (8.3) --------------------------------------------------------
def test_files_of_another_encoding_are_refused(toy: ToyEncoder, said: EncodingJob) -> None:
    data = receipt_of_encoding(said)
    other = toy.request((1, 2))
    for args, why in (
        ((said.statement, other, said.encoded), "a different request"),
        ((said.statement, said.request, toy.encoded(other).encoded), "nobody has signed"),
        ((ToyEncoder.make(1).statement, said.request, said.encoded), "a different model"),
    ):
        with pytest.raises(DigestMismatchError, match=why):
            bound(data, *args)
    short = Encoded(TEXT, said.encoded.values[:-1])
    with pytest.raises(CorruptFileError, match="gives 8 values, but the encoding has 7"):
        bound(data, said.statement, said.request, short)
    long = Encoded((1,) * 301, said.encoded.values)
    with pytest.raises(CorruptFileError, match="never shortened"):
        bound(data, said.statement, said.request, long)


def test_files_of_two_kinds_are_refused(toy: ToyEncoder, said: EncodingJob) -> None:
    spoken = Toy.make().said(Toy.make().request())
    with pytest.raises(CorruptFileError, match="is for an encoder, but not both"):
        bound(receipt_of_encoding(said), said.statement, said.request, spoken)
    answer = Toy.make().request()
    request = replace(answer, model=said.statement.digest)
    data = receipt_of_encoding(said, request=request.digest)
    with pytest.raises(CorruptFileError, match="is for an encoder, but not both"):
        bound(data, said.statement, request, said.encoded)
    # Nor has an encoding of a statement without an encoder.
    other = Toy.make().statement
    lost = replace(said.request, model=other.digest)
    data = receipt_of_encoding(said, model=other.digest, request=lost.digest)
    with pytest.raises(CorruptFileError, match="not for an encoder"):
        bound(data, other, lost, said.encoded)
    # An answer of tokens to an encoder's statement has no program.
    with pytest.raises(UsageError, match="no program of the sampler set greedy"):
        AnswerJob(said.statement, request, spoken).digest  # noqa: B018


# -- execution (8.5) -------------------------------------------------------------------------------
def altered(said: EncodingJob, at: int, value: float) -> EncodingJob:
    values = said.encoded.values.copy()
    values[at] = value
    return replace(said, encoded=replace(said.encoded, values=values))


@pytest.mark.parametrize("value", (0.0, np.nan, np.inf, -np.inf, 1.5))
def test_a_false_value_is_named(toy: ToyEncoder, said: EncodingJob, value: float) -> None:
    report = checked(toy, altered(said, 3, value))
    assert not report.accepted and report.state_differs and report.contradictions == ()
    assert report.difference is not None and report.difference.row == 3
    assert "Value number 3 of the encoding" in report.difference.sentence
    assert set(report.difference.facts) == {"row", "claimed", "computed", "sentence"}


def test_values_beside_the_receipt_that_are_not_its_own(toy: ToyEncoder, said: EncodingJob) -> None:
    lie = altered(said, 0, 2.0)
    signed, found = bound(receipt_of_encoding(said), said.statement, said.request, lie.encoded)
    assert [one.clause for one in check_words(signed, found).findings] == ["8.4"]
    report = check_answer(signed, found, toy.text_of(said), toy.held)
    assert not report.accepted and not report.state_differs
    assert report.difference is not None and report.difference.row == 0


def test_the_true_run_behind_false_values(toy: ToyEncoder, said: EncodingJob) -> None:
    """A signed state of the model's, and other values beside it: a finding, and no conviction."""
    lie, true = altered(said, 0, 2.0), said.roots()[0]
    first = said.commitment.genesis_root
    root = run_root(said.digest, [(0, first), (1, true)])
    report = checked(toy, lie, state=true, root=root)
    assert report.contradictions == () and [x.clause for x in report.findings] == ["8.4"]


def test_a_program_that_is_none_of_an_encoding(toy: ToyEncoder, said: EncodingJob) -> None:
    honest = toy.text_of(said)
    said.check_program(honest)
    outputs = dict(honest.outputs)
    swapped = {**outputs, "param.key": outputs["param.query"]}
    changes = replace(honest, outputs=tuple(sorted(swapped.items())))
    with pytest.raises(CorruptFileError, match=r"changes the weight 'param\.key'"):
        said.check_program(changes)
    with pytest.raises(CorruptFileError, match="slots are not"):
        said.check_program(Toy.make().texts_of("greedy"))
    with pytest.raises(CorruptFileError, match="not a batch of"):
        said.check_program(program(40))


@pytest.mark.parametrize("threads", (1, 2, 3))
def test_threads_and_read_only_weights(toy: ToyEncoder, said: EncodingJob, threads: int) -> None:
    held = {name: array.copy() for name, array in toy.held.items()}
    for array in held.values():
        array.setflags(write=False)
    signed, found = bound(receipt_of_encoding(said), said.statement, said.request, said.encoded)
    assert check_answer(signed, found, toy.text_of(said), held, ExecutionContext(threads)).accepted


# -- files (11.7, 11.9) ----------------------------------------------------------------------------
def test_a_request_reads_back(toy: ToyEncoder) -> None:
    text = EncodingRequest(toy.statement.digest, EMBEDDING, text="a \u00e9", secret=bytes(32))
    for request in (text, toy.request()):
        found = read_request(request.to_bytes())
        assert found == request and found.digest == request.digest
    answer = Toy.make().request()
    assert read_request(answer.to_bytes()) == answer
    assert isinstance(read_request(answer.to_bytes()), ModelRequest)
    parts = {
        "input": {"text": "a \u00e9"}, "model": toy.statement.digest.hex(), "output": EMBEDDING
    }  # fmt: skip
    digests = {n: part_digest(n, salt_of(bytes(32), n), v) for n, v in parts.items()}  # type: ignore[arg-type]
    assert text.digest == request_digest(digests)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"output": "tokens"}, "its output is none of"),
        ({"output": 1}, "output"),
        ({"input": {"messages": []}}, "exactly one of tokens and text"),
        ({"input": {"text": "a", "tokens": [1]}}, "exactly one of tokens and text"),
        ({"input": {"text": ""}}, "its input is empty"),
        ({"input": {"tokens": []}}, "its input is empty"),
        ({"seed": None}, "seed"),
        ({"model": "00"}, "model"),
    ],
)
def test_requests_that_are_none(toy: ToyEncoder, change: dict[str, object], why: str) -> None:
    parts = {**toy.request().parts, **change}
    body = {"kind": "tallystick/request/1", "parts": parts, "secret": bytes(32).hex()}
    with pytest.raises(CorruptFileError, match=why):
        read_request(canonical_json(body))  # type: ignore[arg-type]


def test_an_encoding_reads_back(said: EncodingJob) -> None:
    labelled = replace(said.encoded, labels=tuple("abcdefgh"))
    for encoded in (said.encoded, labelled):
        found = read_said(encoded.to_bytes())
        assert isinstance(found, Encoded) and found.to_bytes() == encoded.to_bytes()
        assert (found.prompt, found.labels) == (encoded.prompt, encoded.labels)
    spoken = Toy.make().said(Toy.make().request())
    assert read_said(spoken.to_bytes()).to_bytes() == spoken.to_bytes()


@pytest.mark.parametrize(
    "change",
    [
        {"values": ""},
        {"values": "00"},
        {"values": "0000c0ff"},  # another NaN than the canonical one
        {"values": "zz" * 4},
        {"prompt": []},
        {"prompt": ["1"]},
        {"labels": ["a"]},
        {"labels": [1] * 8},
        {"labels": None},
        {"more": 1},
        {"kind": "tallystick/encoded/2"},
    ],
)
def test_encodings_that_are_none(said: EncodingJob, change: dict[str, object]) -> None:
    body = {
        "kind": "tallystick/encoded/1", "labels": [], "prompt": [1],
        "values": said.encoded.values.tobytes().hex(), **change,
    }  # fmt: skip
    with pytest.raises(CorruptFileError):
        read_said(canonical_json(body))  # type: ignore[arg-type]


def test_a_receipt_is_within_its_limit(said: EncodingJob) -> None:
    most = {"time": 1 << 52, "until": 1 << 52, "prompt": LIMITS.text_places,
            "answer": LIMITS.text_places, "choice": LIMITS.choices - 1}  # fmt: skip
    data = receipt_of_encoding(said, **most)
    assert len(data) <= LIMITS.receipt_bytes
    assert read_receipt(data).receipt.is_of_encoding


def test_any_bytes_are_an_encoding_a_request_or_a_typed_error(said: EncodingJob) -> None:
    rng = random.Random(3)
    labelled = replace(said.encoded, labels=tuple("abcdefgh"))
    readers = ((said.request, read_request), (said.encoded, read_said), (labelled, read_said))
    for _ in range(300):
        value, read = rng.choice(readers)
        data = bytearray(value.to_bytes())
        for _ in range(rng.randint(1, 3)):
            data[rng.randrange(len(data))] = rng.choice(b'0a"{}[],:\x00\xff')
        try:
            read(bytes(data))
        except TallystickError as error:
            assert error.exit_code == 2 and error.next_action
