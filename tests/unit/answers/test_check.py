"""ANSWERS 2, 6 and 8: what a check compares, and what it says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from unit.answers.toy import KEY, Toy, receipt_of

from tallystick.answers.beside_receipt import Spoken
from tallystick.answers.check import AnswerReport, bound, check_answer, check_words
from tallystick.answers.job import LOGPROBS, SALT, TOKENS, AnswerJob, check_weights, checked_program
from tallystick.answers.receipt import CANCELLED, LENGTH, STOP, read_receipt
from tallystick.answers.request import ModelRequest
from tallystick.commit.checkpoint import run_root
from tallystick.devices.context import ExecutionContext
from tallystick.errors import CorruptFileError, DigestMismatchError, UsageError
from tallystick.program.build import Builder
from tallystick.program.ir import Program
from tallystick.run.execute.trainer import train_job
from tallystick.run.store.directory import RunStore

CONTRACTS = ("ordered/1-draft.1", "rounded/1-draft.1")
SAMPLED = {"temperature": 20.0, "top_k": 9, "top_p": 0.95, "repetition": 1.2, "presence": 0.5}


@pytest.fixture(scope="module")
def toy() -> Toy:
    return Toy.make(stop=(5,))


@pytest.fixture(scope="module")
def said(toy: Toy) -> AnswerJob:
    return toy.answered(toy.request())


def checked(toy: Toy, said: AnswerJob, finish: str = LENGTH, **odd: object) -> AnswerReport:
    data = receipt_of(said, finish, **odd)  # type: ignore[arg-type]
    signed, found = bound(data, said.statement, said.request, said.spoken)
    return check_answer(signed, found, toy.text_of(said), toy.held)


def clauses(report: AnswerReport) -> list[str]:
    return [one.clause for one in report.contradictions]


def with_tokens(answer: AnswerJob, *tokens: int) -> AnswerJob:
    spoken = Spoken(answer.spoken.prompt, tokens, np.full(len(tokens), -1, np.float32))
    return replace(answer, spoken=spoken)


# -- the job (ANSWERS 2) ---------------------------------------------------------------------------
@pytest.mark.parametrize("contract", CONTRACTS)
@pytest.mark.parametrize("settings", [{}, {"temperature": 30.0}, SAMPLED], ids=("g", "d", "f"))
def test_an_honest_answer_is_accepted(contract: str, settings: dict[str, float]) -> None:
    toy = Toy.make(contract=contract)
    report = checked(toy, toy.answered(toy.request(**settings)))
    assert report.accepted and report.executed and report.difference is None
    assert report.notes == () and report.contradictions == ()


@pytest.mark.parametrize("contract", CONTRACTS)
def test_the_claimed_run_is_the_one_that_is_trained(contract: str, tmp_path) -> None:  # type: ignore[no-untyped-def]
    """2.8: roots from tokens and log-probabilities alone, against the trainer's."""
    toy = Toy.make(contract=contract)
    answer = toy.answered(toy.request(**SAMPLED))
    job = answer.write(tmp_path / "job", toy.text_of(answer), toy.held, overwrite=False)
    assert job.digest == answer.digest and job.verify().root() == answer.commitment.genesis_root
    done = train_job(job, tmp_path / "run")
    final, root = answer.roots()
    assert done.run_root == root
    assert RunStore(tmp_path / "run").journal(job).checkpoints == [
        (0, answer.commitment.genesis_root),
        (1, final),
    ]
    assert root == run_root(answer.digest, [(0, answer.commitment.genesis_root), (1, final)])


def test_the_job_follows_from_request_choice_and_tokens(toy: Toy, said: AnswerJob) -> None:
    c = said.commitment
    assert (c.record_count, c.batch_size, c.order_seed, c.steps) == (1, 1, 0, 1)
    assert (c.checkpoint_interval, c.stop_on_non_finite) == (1, False)
    other = toy.request(seed=12)
    salted = replace(said.request, secret=bytes(32))
    ones = [
        said, replace(said, choice=1), replace(said, request=other), replace(said, request=salted),
        with_tokens(said, *said.spoken.tokens[:-1]), with_tokens(said, 1, 2, 3),
        replace(said, spoken=replace(said.spoken, prompt=(3, 1, 5))),
    ]  # fmt: skip
    assert len({one.digest for one in ones}) == len(ones)
    # Log-probabilities and text are of the run, and of nothing.
    nothing = replace(said, spoken=replace(said.spoken, logprobs=np.zeros(3, np.float32), text="x"))
    assert nothing.digest == said.digest and nothing.roots() != said.roots()


def test_the_salt_reaches_the_final_state(toy: Toy, said: AnswerJob) -> None:
    after = toy.executed(said)
    assert (np.asarray(after.slots[SALT]) == said.request.record_salt).all()
    assert np.asarray(after.slots[TOKENS]).tolist() == [*said.spoken.tokens, 0]
    assert np.asarray(after.slots[LOGPROBS])[3:].tolist() == [0]


# -- files that are not the receipt's (8.3) --------------------------------------------------------
def test_files_of_another_answer_are_refused(toy: Toy, said: AnswerJob) -> None:
    data, other = receipt_of(said), toy.request((3, 1, 5))
    model = replace(said.statement, stop=())
    tokens = replace(said.spoken, tokens=(0, 0, 0))
    for args, why in (
        ((model, said.request, said.spoken), "a different model"),
        ((said.statement, other, said.spoken), "a different request"),
        ((said.statement, said.request, tokens), "nobody has signed this answer"),
        ((said.statement, said.request, toy.said(other)), "nobody has signed this answer"),
    ):
        with pytest.raises(DigestMismatchError, match=why):
            bound(data, *args)


def test_an_answer_of_another_request_under_this_ones_name(toy: Toy, said: AnswerJob) -> None:
    """The receipt names this request, and the job of another one."""
    other = toy.answered(toy.request((3, 1, 5)))
    final, root = other.roots()
    data = receipt_of(said, job=other.digest, root=root, state=final)
    with pytest.raises(DigestMismatchError, match="nobody has signed this answer"):
        bound(data, said.statement, said.request, said.spoken)
    report = check_words(*bound(data, said.statement, said.request, other.spoken))
    assert clauses(report) == ["6.2"]


# -- words that contradict themselves (6) ----------------------------------------------------------
def test_a_chosen_seed_has_no_job(toy: Toy) -> None:
    request = toy.request(temperature=30.0)
    answer = toy.answered(request)
    chosen = replace(answer, request=replace(request, settings=replace(request.settings, seed=1)))
    with pytest.raises(DigestMismatchError, match="nobody has signed"):
        bound(receipt_of(answer, job=chosen.digest), answer.statement, request, answer.spoken)


def test_counts_model_choice_and_prompt(toy: Toy, said: AnswerJob) -> None:
    assert clauses(checked(toy, said, prompt=4)) == ["6.2"]
    assert clauses(checked(toy, said, answer=2)) == ["6.2"]
    assert clauses(checked(toy, replace(said, choice=1))) == ["6.2"]
    elsewhere = replace(said, request=replace(said.request, model=bytes(32)))
    assert clauses(checked(toy, elsewhere)) == ["6.2"]
    prompt = replace(said, spoken=replace(said.spoken, prompt=(3, 1, 5)))
    assert clauses(checked(toy, prompt)) == ["6.2"]


@pytest.mark.parametrize("token", (16, -1, 1 << 40))
def test_a_token_outside_of_the_vocabulary(toy: Toy, said: AnswerJob, token: int) -> None:
    assert clauses(checked(toy, with_tokens(said, 1, token, 2))) == ["6.3"]


@pytest.mark.parametrize(
    ("tokens", "finish", "found"),
    [
        ((5,), STOP, []),
        ((1, 2), STOP, ["6.4"]),  # no token ends it
        ((1, 5, 2), LENGTH, ["6.4"]),  # goes on after one that does
        ((5, 5), STOP, ["6.4"]),
        ((1, 2, 5), LENGTH, ["6.4"]),
        ((1, 5), CANCELLED, ["6.4"]),
        ((1, 2), CANCELLED, []),
        ((1, 2), LENGTH, ["6.5"]),  # one more was there to say
        ((1, 2, 3), LENGTH, []),
        ((1, 2, 3), CANCELLED, ["6.5"]),  # it has ended by itself
        ((1, 2, 5), STOP, []),  # as many as there can be, and a stop token: it is `stop`
        ((1, 2, 3, 4), LENGTH, ["6.5"]),
        ((1, 2, 3, 5), STOP, ["6.5"]),
    ],
)
def test_finish_reasons(
    toy: Toy, said: AnswerJob, tokens: tuple[int, ...], finish: str, found: list[str]
) -> None:
    data = receipt_of(with_tokens(said, *tokens), finish)
    spoken = with_tokens(said, *tokens).spoken
    report = check_words(*bound(data, said.statement, said.request, spoken))
    assert clauses(report) == found
    assert [n.clause for n in report.notes] == ["6.6"] * (finish == CANCELLED)


def test_the_requests_own_stop_tokens_end_an_answer(toy: Toy) -> None:
    request = toy.request(stop=(2,), max_tokens=4)
    said = AnswerJob(toy.statement, request, Spoken((3, 1, 4), (1, 2), np.zeros(2, np.float32)))
    signed, found = bound(receipt_of(said, STOP), toy.statement, request, said.spoken)
    assert clauses(check_words(signed, found)) == []


def test_a_stop_string_may_end_an_answer(toy: Toy, said: AnswerJob) -> None:
    request = replace(said.request, stop_strings=("x",))
    answer = AnswerJob(toy.statement, request, with_tokens(said, 1, 2).spoken)
    report = check_words(*bound(receipt_of(answer, STOP), toy.statement, request, answer.spoken))
    assert clauses(report) == []


def test_length_where_the_bucket_ends(toy: Toy) -> None:
    request = toy.request(tuple(range(8)) * 2 + (1, 2, 3, 4), max_tokens=100)
    answer = toy.said(replace(request, settings=replace(request.settings, max_tokens=4)))
    found = AnswerJob(toy.statement, request, answer)
    finish = STOP if answer.tokens[-1] == 5 else LENGTH
    assert checked(toy, found, finish).accepted


def test_a_seed_of_the_servers_is_shown(toy: Toy, said: AnswerJob) -> None:
    answer = replace(said, request=replace(said.request, server_seed=True))
    report = checked(toy, answer)
    assert report.accepted and [note.clause for note in report.notes] == ["5.5"]


# -- execution (8.5) -------------------------------------------------------------------------------
def test_the_true_run_of_a_text_that_the_model_would_not_say(toy: Toy, said: AnswerJob) -> None:
    """6.7: tokens of the server's own, and an honest run over them. No game convicts that run."""
    first = (said.spoken.tokens[0] + 1) % 4
    false = with_tokens(said, first, *said.spoken.tokens[1:])
    after = toy.executed(false)
    root = run_root(false.digest, [(0, false.commitment.genesis_root), (1, after.root())])
    report = checked(toy, false, state=after.root(), root=root)
    assert clauses(report) == ["6.7"] and not report.state_differs
    assert report.difference is not None and report.difference.row == 0
    assert report.difference.drawn == said.spoken.tokens[0]


def test_log_probabilities_beside_the_receipt_that_are_not_its_own(
    toy: Toy, said: AnswerJob
) -> None:
    data = receipt_of(said)
    spoken = replace(said.spoken, logprobs=said.spoken.logprobs * np.float32(0.5))
    signed, answer = bound(data, said.statement, said.request, spoken)
    report = check_answer(signed, answer, toy.text_of(said), toy.held)
    assert [one.clause for one in report.findings] == ["8.4"] and not report.accepted
    assert not report.state_differs and report.contradictions == ()


def rooted(answer: AnswerJob, state: bytes) -> dict[str, Any]:
    """`state` in a receipt with the root that follows from it."""
    first = answer.commitment.genesis_root
    return {"state": state, "root": run_root(answer.digest, [(0, first), (1, state)])}


def test_a_false_state_behind_true_tokens(toy: Toy, said: AnswerJob) -> None:
    report = checked(toy, said, **rooted(said, bytes(32)))
    assert report.state_differs and report.difference is None and not report.accepted
    assert [one.clause for one in report.findings] == ["8.4"]


def test_a_root_that_is_not_that_of_job_and_state(toy: Toy, said: AnswerJob) -> None:
    """6.2: the root follows from what is signed, so no weight is needed to convict."""
    report = checked(toy, said, root=bytes(32))
    assert clauses(report) == ["6.2"] and report.findings == () and not report.executed
    assert "run root" in report.contradictions[0].sentence


def test_words_alone_find_unsigned_log_probabilities(toy: Toy, said: AnswerJob) -> None:
    data = receipt_of(said)
    for logprobs in ([0, 0, 0], [np.inf, -np.inf, np.nan], [-3e38, -3e38, -3e38]):
        spoken = replace(said.spoken, logprobs=np.array(logprobs, np.float32))
        report = check_words(*bound(data, said.statement, said.request, spoken))
        assert [one.clause for one in report.findings] == ["8.4"] and not report.accepted


def test_an_unsigned_log_probability_is_not_laid_to_the_receipt(toy: Toy, said: AnswerJob) -> None:
    spoken = replace(said.spoken, logprobs=np.zeros(3, np.float32))
    signed, answer = bound(receipt_of(said), said.statement, said.request, spoken)
    report = check_answer(signed, answer, toy.text_of(said), toy.held)
    assert report.difference is not None
    assert "log-probability 0.0 beside the receipt" in report.difference.sentence


def test_sizes_that_have_no_job_are_their_senders_fault(toy: Toy, said: AnswerJob) -> None:
    long = replace(said.spoken, prompt=tuple([1] * 30))
    with pytest.raises(CorruptFileError, match=r"no program of the sampler set"):
        bound(receipt_of(said), said.statement, said.request, long)


def test_other_weights_or_programs_than_the_statements_are_refused(
    toy: Toy, said: AnswerJob
) -> None:
    signed, answer = bound(receipt_of(said), said.statement, said.request, said.spoken)
    other = {**toy.held, "param.head": toy.held["param.head"] * 2}
    with pytest.raises(DigestMismatchError, match=r"'param\.head' differs"):
        check_answer(signed, answer, toy.text_of(said), other)
    with pytest.raises(DigestMismatchError, match="only one of the two has"):
        check_weights(said.statement, {**toy.held, "param.more": toy.held["param.head"]})
    text = toy.text_of(said).text().encode()
    with pytest.raises(DigestMismatchError, match="not the one that the model statement names"):
        checked_program(text, bytes(32))
    assert checked_program(text, answer.program_digest) == toy.text_of(said)


def test_a_statement_whose_program_is_none_of_an_answer(toy: Toy, said: AnswerJob) -> None:
    """A hostile statement names any text: what it changes or reads is compared (2.5)."""
    honest = toy.text_of(said)
    said.check_program(honest)
    outputs = dict(honest.outputs)
    swapped = {**outputs, "param.key": outputs["param.query"]}
    changes = replace(honest, outputs=tuple(sorted(swapped.items())))
    with pytest.raises(CorruptFileError, match=r"changes the weight 'param\.key'"):
        said.check_program(changes)
    for text, why in ((_little(), "slots are not"), (toy.texts_of("draw"), "not a batch of")):
        with pytest.raises(CorruptFileError, match=why):
            said.check_program(text)


def _little() -> Program:
    b = Builder()
    x = b.state("param.key", Toy.make().texts_of("greedy").state_types["param.key"])
    b.commit({"param.key": x})
    return b.finish({"param.key": x, "loss": b.one("aten.sum", [x])})


def test_no_bucket_no_answer(toy: Toy) -> None:
    request = toy.request(tuple([1] * 30))
    spoken = Spoken(request.tokens or (), (1,), np.zeros(1, np.float32))
    with pytest.raises(UsageError, match="no program of the sampler set greedy"):
        AnswerJob(toy.statement, request, spoken).digest  # noqa: B018


@pytest.mark.parametrize("threads", (1, 3))
def test_threads_and_read_only_weights(toy: Toy, said: AnswerJob, threads: int) -> None:
    held = {name: array.copy() for name, array in toy.held.items()}
    for array in held.values():
        array.setflags(write=False)
    signed, answer = bound(receipt_of(said), said.statement, said.request, said.spoken)
    context = ExecutionContext(threads)
    assert check_answer(signed, answer, toy.text_of(said), held, context).accepted


def test_a_receipt_is_read_before_anything_else(said: AnswerJob) -> None:
    assert read_receipt(receipt_of(said)).receipt.signer == KEY.public
    request: ModelRequest = said.request
    with pytest.raises(CorruptFileError):
        bound(b"{}", said.statement, request, said.spoken)
