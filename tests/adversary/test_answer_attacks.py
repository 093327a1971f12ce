"""Every attack on an answer, both seats, convicted from its receipt and judged by three judges.

The cheat answers a request token by token in its own way, and signs a receipt. A check by one
prefill finds it; the game that begins with the receipt convicts it, and the honest party never
(THREATS 3.1, 3.2).
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from adversary.three_judges import JUDGE, OtherJudge, built, of_package, plain
from reference.judge.evidence import judge as by_the_text
from unit.answers.toy import KEY, Toy, receipt_of
from unit.answers.toy_encoder import ToyEncoder, receipt_of_encoding

from tallystick.answers.beside_receipt import Spoken
from tallystick.answers.check import AnswerReport, bound, check_answer
from tallystick.answers.encoding_job import EncodingJob
from tallystick.answers.encoding_programs import VALUES
from tallystick.answers.files import said_of
from tallystick.answers.job import LOGPROBS, TOKENS, AnswerJob
from tallystick.answers.receipt import read_receipt
from tallystick.answers.request import ModelRequest
from tallystick.answers.words import AnyJob
from tallystick.commit.signing import PrivateKey
from tallystick.errors import UsageError
from tallystick.job.job import Job
from tallystick.program.ir import Program
from tallystick.program.state import State
from tallystick.protocol.judge import judge
from tallystick.prover.cheating import party_of
from tallystick.prover.local import play
from tallystick.run.cheats.attacks import answer_attack_names, attacks_directory, load_attack
from tallystick.run.cheats.engine import CheatingEngine
from tallystick.run.cheats.training import declared_cheat
from tallystick.run.execute.trainer import Options, train_job
from tallystick.run.store.directory import RunStore
from tallystick.run.store.unsigned import Declaration

# Attack: settings of the request, case, and the clauses that may convict.
GREEDY: dict[str, float] = {}
DRAWN = {"temperature": 60.0}
EXPECTED: dict[str, tuple[dict[str, float], str, set[str]]] = {
    "chosen-seed": (DRAWN, "2d", {"5.6.4"}),
    "early-stop": (GREEDY, "3", {"6.5"}),
    "false-embedding": (GREEDY, "3", {"6.5"}),
    "false-logprob": (GREEDY, "3", {"6.5"}),
    "forged-cache-entry": (GREEDY, "3", {"6.5"}),
    "no-adapter": (GREEDY, "3", {"6.5"}),
    "other-adapter": (GREEDY, "-", {"5.3"}),
    "other-prompt": (GREEDY, "2c", {"5.6.3"}),
    "other-sampler": (DRAWN, "2c", {"5.6.3"}),
    "other-weight": (GREEDY, "-", {"5.3"}),
    "quantised": (GREEDY, "-", {"5.3"}),
    "shortened-text": (GREEDY, "2c", {"5.6.3"}),
    "swapped-program": (GREEDY, "3", {"6.5"}),
    "truncated-context": (GREEDY, "3", {"6.5"}),
}
# These lie about a text that the honest model could have said.
AT_THE_END = ("early-stop", "false-logprob")
# These lie about a model with an adapter.
ADAPTED = ("no-adapter", "other-adapter")
FALSE_TOKEN = 5
# These are of an encoder, and these of either.
OF_ENCODINGS = ("false-embedding", "shortened-text")
ALSO_OF_ENCODINGS = ("forged-cache-entry", "other-prompt", "other-weight", "quantised",
                     "swapped-program", "truncated-context")  # fmt: skip
PARAMS = {"early-stop": {"token": FALSE_TOKEN}}
HONEST = PrivateKey(bytes([9]) * 32)


ROW = re.compile(r"^\| \[([a-z-]+)\]\(answers/\S* \|[^|]*\| (\S[^|]*?) \| (\S[^|]*?) \|", re.M)


def test_every_attack_has_an_expected_outcome() -> None:
    assert set(EXPECTED) == set(answer_attack_names())


def test_the_readme_says_what_happens() -> None:
    text = (attacks_directory() / "README.md").read_text()
    rows = {name: (case, {clause}) for name, case, clause in ROW.findall(text)}
    assert rows == {name: (case, clauses) for name, (_, case, clauses) in EXPECTED.items()}


@dataclass
class World:
    """A model, one with an adapter, and the judge in TypeScript where there is one."""

    plain: Toy
    adapted: Toy
    encoder: ToyEncoder
    other: OtherJudge | None

    def toy(self, name: str) -> Toy:
        return self.adapted if name in ADAPTED else self.plain

    def request(self, name: str) -> ModelRequest:
        return self.toy(name).request(**EXPECTED[name][0])

    def encoded(self, name: str) -> EncodingJob:
        """What the cheat makes of a text."""
        honest = self.encoder.encoded(self.encoder.request())
        values = self.made(name, honest)[VALUES].copy()
        return replace(honest, encoded=replace(honest.encoded, values=values))

    def said(self, name: str) -> AnswerJob:
        """What the cheat says to the request: its job, with the claim."""
        request = self.request(name)
        if name not in AT_THE_END:
            return self._by_token(name, request)
        honest = self.toy(name).answered(request)
        if name == "early-stop":  # two true tokens, and one that ends the answer
            tokens = (*honest.spoken.tokens[:-1], FALSE_TOKEN)
            honest = replace(honest, spoken=replace(honest.spoken, tokens=tokens))
        _, logs = self.run(name, honest)
        return replace(honest, spoken=replace(honest.spoken, logprobs=logs))

    def _by_token(self, name: str, request: ModelRequest) -> AnswerJob:
        prompt, tokens, logs = request.tokens or (), [], np.zeros(0, np.float32)
        for _ in range(request.settings.max_tokens):
            spoken = Spoken(prompt, (*tokens, 0), np.zeros(len(tokens) + 1, np.float32))
            drawn, logs = self.run(name, AnswerJob(self.toy(name).statement, request, spoken))
            tokens.append(int(drawn[-1]))
        # The log-probabilities of the whole text, whose last token is drawn by now.
        answer = AnswerJob(self.toy(name).statement, request, Spoken(prompt, tuple(tokens), logs))
        _, logs = self.run(name, answer)
        return replace(answer, spoken=replace(answer.spoken, logprobs=logs))

    def run(self, name: str, answer: AnswerJob) -> tuple[np.ndarray, np.ndarray]:
        """Tokens and log-probabilities as the cheat computes them over a text."""
        made, count = self.made(name, answer), len(answer.spoken.tokens)
        return made[TOKENS][:count], made[LOGPROBS][:count].copy()

    def made(self, name: str, answer: AnyJob) -> dict[str, np.ndarray]:
        """The slots of state[1] as the cheat computes them."""
        text, held = self.model(name, answer)
        job = answer.in_memory(text)
        slots = {n: np.array(a, copy=True) for n, a in answer.state(text, held).items()}
        lie = load_attack(name).make(job, PARAMS.get(name, {}))
        engine = CheatingEngine(job, State(slots), override=lie)
        engine.run()
        return {n: np.asarray(engine.state.slots[n]) for n in answer.slot_types()}

    def model(self, name: str, answer: AnyJob) -> tuple[Program, dict[str, np.ndarray]]:
        """The program and the weights of a job."""
        if isinstance(answer, EncodingJob):
            return self.encoder.text_of(answer), self.encoder.held
        toy = self.toy(name)
        return toy.text_of(answer), toy.held

    def check(self, name: str, receipt: bytes, answer: AnyJob) -> AnswerReport:
        signed, found = bound(receipt, answer.statement, answer.request, said_of(answer))
        return check_answer(signed, found, *self.model(name, answer))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    if shutil.which("npx") is None or not (JUDGE / "node_modules").is_dir():
        yield World(Toy.make(), Toy.adapted(), ToyEncoder.make(), None)
        return
    other = OtherJudge(built(tmp_path_factory.mktemp("judge")))
    yield World(Toy.make(), Toy.adapted(), ToyEncoder.make(), other)
    other.close()


def runs_of(world: World, name: str, answer: AnyJob, where: Path) -> tuple[Job, Path, Path]:
    """The job's directory, an honest run of it, and the cheat's."""
    job = answer.write(where / "job", *world.model(name, answer), overwrite=False)
    honest, cheat = where / "honest", where / "cheat"
    train_job(job, honest, Options(key=HONEST))
    maker = declared_cheat(job, Declaration(name, PARAMS.get(name, {})))
    train_job(job, cheat, Options(key=KEY, maker=maker))
    return job, honest, cheat


@pytest.mark.parametrize("name", sorted(EXPECTED.keys() - set(OF_ENCODINGS)))
def test_the_receipt_of_a_cheat_convicts_it(world: World, name: str, tmp_path: Path) -> None:
    answer = world.said(name)
    convicts(world, name, answer, receipt_of(answer), tmp_path)


@pytest.mark.parametrize("name", sorted((*OF_ENCODINGS, *ALSO_OF_ENCODINGS)))
def test_the_receipt_of_a_false_encoding_convicts_it(
    world: World, name: str, tmp_path: Path
) -> None:
    answer = world.encoded(name)
    convicts(world, name, answer, receipt_of_encoding(answer), tmp_path)


def convicts(world: World, name: str, answer: AnyJob, receipt: bytes, tmp_path: Path) -> None:
    signed = read_receipt(receipt)
    report = world.check(name, receipt, answer)
    assert not report.accepted and report.state_differs and report.contradictions == ()
    assert report.difference is not None
    job, honest, cheat = runs_of(world, name, answer, tmp_path)
    assert RunStore(cheat).commitment_bytes() == signed.commitment()
    _, case, clauses = EXPECTED[name]
    for seat in (0, 1):
        runs, keys = [honest, honest], [HONEST, HONEST]
        runs[seat], keys[seat] = cheat, KEY
        parties = [party_of(runs[p], keys[p], as_attack=p == seat) for p in (0, 1)]
        played = play(job.terms, parties)
        for party in parties:
            party.close()
        verdict, data = played.verdict, played.evidence.to_bytes()
        assert [c.party for c in verdict.convicted] == [seat], verdict
        assert verdict.accepted == 1 - seat
        assert verdict.convicted[0].clause in clauses and (verdict.case or "-") == case
        assert judge(job.terms, data).verdict == verdict
        judged_elsewhere(world, job, data, seat)


def judged_elsewhere(world: World, job: Job, data: bytes, seat: int) -> None:
    """The judge from the text alone, and the one in TypeScript, convict the same party."""
    files = {name: (job.directory / name).read_bytes() for name in ("job.json", "program.txt")}
    found = by_the_text(files["job.json"], [files["program.txt"]], data)
    assert [party for party, _ in found["convicted"]] == ["AB"[seat]], found
    if world.other is not None:
        number = world.other.knows(files)
        said = world.other.judge(number, data, [])
        assert plain(said["found"]) == of_package(job.terms, data, [])


def test_the_judge_in_typescript_was_there(world: World) -> None:
    if world.other is None:
        pytest.skip("no Node, or no judge/node_modules: not judged in TypeScript")


def test_an_attack_on_answers_has_nothing_to_do_elsewhere(world: World, tmp_path: Path) -> None:
    from adversary.games import make_job

    job = make_job(tmp_path / "job")
    for name in answer_attack_names():
        with pytest.raises(UsageError, match="nothing to do"):
            load_attack(name).make(job, {})
    assert (attacks_directory() / "answers").is_dir()


@pytest.mark.parametrize("name", ADAPTED)
def test_a_model_without_an_adapter_of_its_own(world: World, name: str) -> None:
    answer = world.plain.answered(world.plain.request())
    with pytest.raises(UsageError, match="no adapter, or a merged one"):
        load_attack(name).make(answer.in_memory(world.plain.text_of(answer)), {})
