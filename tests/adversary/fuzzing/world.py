"""Real messages and files for the fuzzers: seeds of each decoder, in one directory.

A small job, its honest run, a run under a contract with logs, and a game of an honest party and a
liar give every message and file that a counterparty may send. `make_world` writes them once; each
fuzzing process opens the directory.
"""

from __future__ import annotations

import contextlib
import random
import shutil
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from adversary.games import Answers, Table, liars, make_job
from format_three import make_stream_job
from format_two import make_micro_job
from unit.delegation.offers import OFFER, outcome
from unit.protocol.scenarios import liar
from unit.protocol.simulator import Party
from unit.protocol.validated import lies, make_validated_job

from tallystick.commit.data import record_bytes
from tallystick.commit.encoding import Writer, canonical_json
from tallystick.commit.signing import Envelope, PrivateKey
from tallystick.commit.tensor import open_tensor
from tallystick.delegation import entries as e
from tallystick.delegation.book import open_book
from tallystick.delegation.documents import Acceptance, Alarm, Receipt, Withdrawal, sign_document
from tallystick.delegation.entries import FIRST, Entry, sign_entry
from tallystick.delegation.outcome import Fate
from tallystick.delegation.rules import Rules
from tallystick.delegation.seals import SealOpening, sign_opening, sign_seal
from tallystick.delegation.statement import Settled, outcome_json
from tallystick.delegation.turns import AskOpening, AskSeal, Ended, Play, Turn
from tallystick.errors import CorruptFileError
from tallystick.job.job import Job
from tallystick.job.job_file import load_job
from tallystick.protocol.evidence import EVIDENCE_TAG, Evidence, evidence_of
from tallystick.protocol.forfeit import Forfeit
from tallystick.protocol.messages import Answer, open_answer
from tallystick.protocol.queries import decode_query
from tallystick.prover.prover import Prover
from tallystick.run.execute.trainer import Options, train_job

KEY = PrivateKey(bytes([7]) * 32)  # signs what a target signs anew
LIAR = PrivateKey(bytes([8]) * 32)
KEYS = (KEY, LIAR)
CLIENT = PrivateKey(bytes([9]) * 32)
SIGNERS = {"acceptance": LIAR, "receipt": KEY}  # of an offer's documents; CLIENT signs the others
JOB, RUN, LOGGED = "job", "run", "logged"
TWO, RUN_TWO, MICRO = "two", "run-two", "micro"  # jobs of format 2
THREE = "three"  # a job of format 3
TRACED = 2  # the step that RUN has a trace of


@dataclass(frozen=True)
class World:
    """The directory of `make_world`, and what targets need of it."""

    directory: Path

    @cached_property
    def job(self) -> Job:
        """The job of `RUN` and of the recorded games."""
        return load_job(self.directory / JOB)

    @cached_property
    def logged(self) -> Job:
        """The job of `LOGGED`."""
        return load_job(self.directory / LOGGED / "job")

    @cached_property
    def prover(self) -> Prover:
        """The honest prover over `RUN`."""
        return Prover(self.directory / RUN)

    @cached_property
    def two(self) -> Job:
        """A job of format 2, which validates."""
        return load_job(self.directory / TWO)

    @cached_property
    def prover_two(self) -> Prover:
        """The honest prover over its run."""
        return Prover(self.directory / RUN_TWO)

    def seeds(self, target: str) -> Path:
        """The directory of the seeds of one target."""
        return self.directory / "seeds" / target


def make_world(directory: Path) -> World:
    """Write jobs, runs and seeds below `directory`, which does not exist yet."""
    directory.mkdir(parents=True)
    world = World(directory)
    job = make_job(directory / JOB)
    train_job(job, directory / RUN, Options(trace=(TRACED, TRACED + 1)))
    logged = make_job(directory / "logged-job", "replay/1")
    train_job(logged, directory / LOGGED, Options())
    two = make_validated_job(directory / TWO)
    train_job(two, directory / RUN_TWO, Options())
    make_micro_job(directory / MICRO)
    make_stream_job(directory / THREE, validates=True)
    _games(world, job)
    _games_two(world, two)
    _session(world, job)
    _offers(world)
    _files(world)
    _values(world, job)
    return world


def _put(world: World, target: str, *seeds: bytes) -> None:
    directory = world.seeds(target)
    directory.mkdir(parents=True, exist_ok=True)
    for seed in seeds:
        (directory / f"seed-{len(list(directory.iterdir())):04d}").write_bytes(seed)


def _games(world: World, job: Job) -> None:
    """Queries, answers, bodies and evidence of games against three liars."""
    rng = random.Random(1)
    facts = Answers(Party(job))
    cheats = liars(job, facts.party, rng, 3)
    for cheat in (cheats[0], cheats[len(cheats) // 2], cheats[-1]):
        table = Table(job, facts, cheat, 1, 2)
        table.finish(lambda: "facts", rng)
        commitments = (facts.commitment, cheat.commitment)
        evidence = evidence_of(table.referee, job.digest, 2, commitments).to_bytes()
        _put(world, "evidence", evidence[:-32])
        _put(world, "judge", _unsigned(evidence))
        for _, message in table.referee.transcript:
            said = _answer(message)
            _put(world, "answer", said.to_bytes())
            _put(world, "query", said.query)
            _put(world, "ask", said.query)
            _put(world, "body", Writer().blob(said.query).raw(said.body).finish())
    envelope = Envelope.from_bytes(facts.commitment)
    _put(world, "envelope", facts.commitment)
    _put(world, "commitment", envelope.payload)
    roots = (facts.party.run.run_root, cheats[0].party.run.run_root)
    forfeit = Forfeit(job.digest, roots, 1, said.query, KEY.public)
    _put(world, "forfeit", forfeit.payload())


def _games_two(world: World, job: Job) -> None:
    """The same about a job of format 2: a record by its part (kind 16), a slot that ends a run."""
    facts = Answers(Party(job))
    for name in ("other held-out records", "a false mean", "goes on", "ends early"):
        cheat = Answers(liar(job, lies()[name]))
        table = Table(job, facts, cheat, 1, 2)
        table.finish(lambda: "facts", random.Random(1))
        commitments = (facts.commitment, cheat.commitment)
        evidence = evidence_of(table.referee, job.digest, 2, commitments).to_bytes()
        _put(world, "judge-two", _unsigned(evidence))
        for party, message in table.referee.transcript:
            said = _answer(message)
            if party == 0:  # the honest one
                _put(world, "ask-two", said.query)
            if decode_query(said.query).KIND in (7, 16):
                _put(world, "query", said.query)
                _put(world, "body", Writer().blob(said.query).raw(said.body).finish())


def _session(world: World, job: Job) -> None:
    """Seals, openings, log entries of every kind, turns (PROTOCOL 10 to 13)."""
    run = Envelope.from_bytes(Party(job).commitment).to_bytes()
    rules = Rules(job.digest, b"n" * 32, KEY.public, 2, 3, 9, 9, 5, 2, 13, 4, (LIAR.public,))
    first = sign_entry(KEY, Entry(0, FIRST, 1, e.SessionBegun(rules)))
    opening = SealOpening(b"s" * 32, KEY.public, b"x" * 32, run)
    seal, opened = sign_seal(KEY, job.digest, opening), sign_opening(KEY, opening)
    _put(world, "seal", seal[8:-64])
    _put(world, "sealed", opened[8:-64])
    events: list[e.Event] = [
        e.SessionBegun(rules), e.Sealed(seal), e.SealingClosed(), e.SealOpened(opened),
        e.OpeningClosed(), e.Asked(1, 0, b"query"), e.Answered(2, 1, b"answer"),
        e.Forfeited(3, 0, b"forfeit"), e.Resumed(), e.GameBegun(4, (KEY.public, LIAR.public)),
        e.GameEnded(4, e.CONVICTED, 2), e.Result(e.CONTESTED, b"c" * 32),
    ]  # fmt: skip
    _put(
        world,
        "entry",
        *(Entry(i, b"p" * 32, i, event).to_bytes() for i, event in enumerate(events)),
    )
    play = Play(0, 1, (run, run), 2, ((0, b"m"), (1, b"n")), b"query")
    for request in (AskSeal(first), AskOpening((first, seal)), play, Ended(first)):
        _put(world, "turn", Turn(b"s" * 32, request).to_bytes())


def _offers(world: World) -> None:
    """An offer's documents, the outcome of its session, and its settlement (PROTOCOL 14)."""
    order = replace(OFFER, client=CLIENT.public, referees=(KEY.public,), providers=1)
    digest, key = order.digest, LIAR.public
    taken = Acceptance(digest, key)
    receipt = Receipt(digest, taken.digest, 500, KEY.public)
    documents = [order, taken, receipt]
    alarm = Alarm(digest, b"s" * 32, b"c" * 32, CLIENT.public)
    for document in (*documents, Withdrawal(digest, CLIENT.public), alarm):
        _put(world, "document", document.payload())
    envelopes = [sign_document(SIGNERS.get(d.NAME, CLIENT), d) for d in documents]
    (world.directory / "book").mkdir()
    for number, envelope in enumerate(envelopes):
        (world.directory / "book" / str(number)).write_bytes(envelope)
    fates = {key: (Fate.REMAINING, bytes([0xC1]) * 32)}
    ended = outcome(digest, fates, bytes([0xC1]) * 32, result=3)
    _put(world, "outcome", canonical_json(outcome_json(ended)))
    book = open_book(envelopes)
    settled = Settled(book, KEY.public, ended.ended + 10**6, ended)
    _put(world, "settled", settled.payload())
    for status, body in ((0, b"message"), (1, b'{"working": "x"}'), (5, b'{"needs": 3}')):
        _put(world, "reply", status.to_bytes(2, "little") + body)
    _put(world, "reply", b"\3\0" + b'{"refused": "no", "kind": "malformed"}')


def _answer(message: bytes) -> Answer:
    """The answer in a message of one of KEYS."""
    for key in KEYS:
        with contextlib.suppress(CorruptFileError):
            return open_answer(message, key.public)
    raise AssertionError("the message of a game has another signer")


def _unsigned(evidence: bytes) -> bytes:
    """Evidence without its hash, and each message without its signature: `judge` signs them."""
    found = Evidence.from_bytes(evidence)
    out = Writer(EVIDENCE_TAG).hash(found.job_digest).u64(found.arity)
    out.blob(found.commitments[0]).blob(found.commitments[1]).u64(len(found.messages))
    for party, message in found.messages:
        out.u8(party).blob(message[8:-64])
    return out.u64(0).finish()


def _files(world: World) -> None:
    """Files of a job and of runs, as they lie there."""
    job, run, logged = (world.directory / name for name in (JOB, RUN, LOGGED))
    for source in (job, logged / "job"):
        _put(world, "program", (source / "program.txt").read_bytes())
        _put(world, "job", (source / "job.json").read_bytes())
    for source in (world.directory / name for name in (TWO, MICRO, THREE)):
        for text in source.glob("program-*.txt"):
            _put(world, "program", text.read_bytes())
        _put(world, "job", (source / "job.json").read_bytes())
    _put(world, "json", b'{"a":[1,true,null,"\\u0001"],"b":{}}', (job / "job.json").read_bytes())
    _put(world, "journal", (run / "journal").read_bytes())
    tensors = sorted(run.rglob("*.safetensors"))[:2] + sorted(job.rglob("*.safetensors"))[:2]
    _put(world, "tensors", *(path.read_bytes() for path in tensors))
    _put(world, "trace", *(path.read_bytes()[:-32] for path in (run / "nodes").iterdir()))
    _put(world, "log", *(path.read_bytes() for path in sorted(logged.rglob("*.log"))[:2]))
    _put(world, "key", KEY.pem(), KEY.public.pem())
    _put(world, "declaration", b'{"attack":"lie-output","params":{"step":4}}')


def _values(world: World, job: Job) -> None:
    """Records, openings, blocks of logs, proofs, contracts and numbers."""
    record = {name: np.asarray(column[0]) for name, column in job.columns.items()}
    _put(world, "record", record_bytes(job.schema, record))
    wide, small = np.arange(5000, dtype=np.float32), np.zeros((2, 3), np.int64)
    _put(world, "opening", open_tensor(wide, [(2, 9)]).to_bytes())
    _put(world, "opening", open_tensor(wide, [(0, 5000)]).to_bytes(), _open(small))
    _put(world, "block", b"\0" + np.array([0, 3, 9], "<u2").tobytes())
    _put(world, "block", b"\1" + np.array([1, 0, 5], "<u2").tobytes(), b"\2" + b"\x79" * 20)
    _put(world, "merkle", bytes(range(200)), b"\1\5\2" + bytes(96))
    _put(world, "words", b"0x1.8p+3", b"-inf", b"nan", b"ordered/1-draft.2", b"rounded/1")
    _put(world, "words", *(c.commitment.contract.encode() for c in (job, world.logged)))
    _put(world, "raw-key", KEY.public.raw + KEY.sign(b"") + b"")


def _open(array: np.ndarray) -> bytes:
    return open_tensor(array, [(0, array.size)]).to_bytes()


def fresh_world(directory: Path) -> World:
    """As make_world; whatever was at `directory` goes."""
    shutil.rmtree(directory, ignore_errors=True)
    return make_world(directory)
