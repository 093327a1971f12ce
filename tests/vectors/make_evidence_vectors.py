"""Writes vectors/protocol: evidence of every operator, clause, attack and refusal, and its verdict.

    PYTHONPATH=tests:tests/vectors python tests/vectors/make_evidence_vectors.py [BUNDLE ...]

What is stored was made by tallystick 0.1.0 before its modules were moved, and is additions only
from then on: a bundle that is there is not written again without --again. --check makes each
bundle anew and compares: the same liars, referee and provers leave the same bytes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import kernel_format as fmt
from adversary.games import make_job
from evidence_format import ROOT, Bundle, Case, encode, load
from evidence_format_two import format_two
from evidence_later import clauses_later
from evidence_operators import (
    CONTRACTS,
    SINCE,
    SINCE_GROUPS,
    another,
    exact,
    exact_parts,
    later,
    operators,
    parts,
    since,
    since_group,
)
from evidence_stored import stored
from judged import judged
from operator_job import golden, operator_job
from unit.protocol import log_scenarios, scenarios
from unit.protocol.log_simulator import LogParty, make_log_job
from unit.protocol.scenarios import ENDINGS, SCENARIOS, Lie, liar, put, tampering
from unit.protocol.simulator import Party

from tallystick.commit.encoding import sha256
from tallystick.commit.signing import PrivateKey
from tallystick.commit.tensor import Array
from tallystick.job.job import Job
from tallystick.job.recipes import new_job
from tallystick.numerics.contracts import find_contract
from tallystick.program.ir import Node
from tallystick.protocol import queries as q
from tallystick.protocol.evidence import Evidence, evidence_of
from tallystick.protocol.forfeit import Forfeit, sign_forfeit
from tallystick.protocol.messages import ANSWERED, Answer, sign_answer
from tallystick.protocol.referee import Referee
from tallystick.prover.cheating import party_of
from tallystick.prover.local import SilenceError, play
from tallystick.run.cheats.attacks import attack_names
from tallystick.run.cheats.training import declared_cheat
from tallystick.run.execute.trainer import Options, train_job
from tallystick.run.store.unsigned import Declaration

REFEREE, CHEAT, OPPONENT = (PrivateKey(bytes([number]) * 32) for number in (5, 8, 9))
PEM = REFEREE.public.pem().decode()
STEPS = 13


class Maker:
    """One bundle under way, and a directory for its jobs."""

    def __init__(self, scratch: Path) -> None:
        self.bundle, self.scratch = Bundle(), scratch
        self._numbers: dict[Path, int] = {}

    def add(self, job: Job, name: str, evidence: bytes, referees: Sequence[str] = ()) -> None:
        """The evidence as a case, with what the judge says of it."""
        if job.directory not in self._numbers:
            self._numbers[job.directory] = self.bundle.add_job(job.directory)
        code, found = judged(evidence, job.directory, self.scratch / "judge", referees)
        number = self._numbers[job.directory]
        self.bundle.cases.append(Case(name, number, evidence, code, found, tuple(referees)))

    def game(
        self,
        job: Job,
        name: str,
        parties: Sequence[Any],
        arity: int = 20,
        kept: Callable[[], bool] = lambda: True,
    ) -> bool:
        """A game played to its end, and stored if it is `kept`; whether it is."""
        played = play(job.terms, parties, arity, key=REFEREE)
        if not kept():
            return False
        self.add(job, name, played.evidence.to_bytes(), [PEM] if played.verdict.forfeit else [])
        return True

    def both_seats(self, job: Job, name: str, honest: Any, cheat: Any, arity: int = 20) -> None:
        """The cheat as party 0 and as party 1."""
        self.game(job, f"{name}, party 0", (cheat, honest), arity)
        self.game(job, f"{name}, party 1", (honest, cheat), arity)


# -- every clause ----------------------------------------------------------------------------------
PAIRS = {"features": "700", "classes": "2", "records": "16", "batch_size": "2"}


def _logreg(path: Path, lr: str, steps: int, interval: int) -> Job:
    return new_job(
        "logreg", path, {**PAIRS, "lr": lr}, steps=steps, checkpoint_interval=interval,
        evaluate_every=0,
    )  # fmt: skip


def clauses(maker: Maker) -> None:
    """Every lie of tests/unit/protocol, and the ends of a game that no lie makes."""
    job = _logreg(maker.scratch / "game", "0.0001", STEPS, 4)
    honest = Party(job)
    for name, scenario in SCENARIOS.items():
        maker.both_seats(job, name, honest, liar(job, scenario))
    for arity in (2, 3, 256):
        cheat = liar(job, SCENARIOS["a wrong product"])
        maker.game(job, f"a wrong product, arity {arity}", (honest, cheat), arity)
    maker.game(job, "agreement", (honest, Party(job)))
    for interval in (1, 2, 4):
        ending = _logreg(maker.scratch / f"ending{interval}", "1e37", 9, interval)
        for name, scenario in ENDINGS.items():
            cheat = liar(ending, scenario)
            maker.both_seats(ending, f"{name}, interval {interval}", Party(ending), cheat, 2)
    odd, worse = tampering(0, operator="aten.t"), tampering(scenarios.ADDMM, inputs=put(2))
    both = (
        Party(job, Lie(), odd),
        Party(job, Lie(**scenarios.WRONG_NODE), lambda s, i, b: worse(s, i, odd(s, i, b))),
    )
    maker.game(job, "both have another structure", both)

    def other(step: int, index: int, _: Node, outputs: Sequence[Array]) -> None:
        if (step, index) == (scenarios.STEP, scenarios.MM):
            outputs[0][1, 650] += 2

    cheat = liar(job, SCENARIOS["a wrong product"])
    maker.game(job, "neither is right", (cheat, Party(job, Lie(node=other))))
    maker.add(job, "two answers to one query", equivocation(job, honest, cheat).to_bytes())
    maker.game(job, "silence", (honest, Silent(cheat, 3)))


def elements(case: fmt.Case) -> int:
    """Elements of all operands."""
    return sum(x.size for x in case.inputs if x is not None)


def long_sums(maker: Maker) -> None:
    """Outputs that hundreds of terms make, and statements of parts that do not fit (6.6 to 6.9)."""
    only = ("aten.sum", "aten.mean", "aten.mm", "aten.embedding_dense_backward", "aten.amax")
    large = [c for c in golden(99, 40_000, only) if elements(c) > 1500]
    for number, case in enumerate(large[:24]):
        job = operator_job(maker.scratch / f"sum{number}", find_contract("ordered/1").text, [case])
        honest, wrong = Party(job), another(0, 0)
        told: dict[str, dict[str, Any]] = {
            "a false value": {},
            "and false parts": {"answer": scenarios.answering(q.Values, scenarios.flipped)},
        }
        for name, more in told.items():
            cheat = Party(job, Lie(node=wrong, **more))
            maker.game(job, f"{case.op}, call {number}: {name}", (honest, cheat))


class Silent:
    """A party that says nothing more after some answers."""

    def __init__(self, party: Any, answers: int) -> None:
        self.party, self.left, self.commitment = party, answers, party.commitment

    def answer(self, query: bytes) -> bytes:
        if not self.left:
            raise SilenceError("")
        self.left -= 1
        return bytes(self.party.answer(query))


def equivocation(job: Job, honest: Party, cheat: Party) -> Evidence:
    """The second party signs another answer to its first query (PROTOCOL 2.9)."""
    commitments = (honest.commitment, cheat.commitment)
    referee = Referee(job.terms, commitments)
    query = referee.pending[1]
    referee.receive(1, cheat.answer(query))
    answer = Answer(job.digest, cheat.run.run_root, query, ANSWERED, b"other")
    referee.receive(1, sign_answer(cheat.key, answer))
    return evidence_of(referee, job.digest, 20, commitments)


# Lies that were written after the bundle `logs`.
LATER_LOGS = {name for name in log_scenarios.BOUNDED if "entry's value" in name}
LATER_LOGS |= {"a false leaf of a value in a tensor of one leaf"}


def logs(maker: Maker, are_later: bool = False) -> None:
    """Every lie about rounding logs, and games that cannot be decided."""
    for form, wide, every in (
        ("bounded", 6000, log_scenarios.BOUNDED),
        ("published", 12000, log_scenarios.PUBLISHED),
    ):
        told = {name: s for name, s in every.items() if (name in LATER_LOGS) == are_later}
        job = make_log_job(maker.scratch / form, form=form, wide=wide)

        def choose(*_: int) -> int:
            return 0

        picks = choose if form == "bounded" else None
        for name, scenario in told.items():
            cheat = LogParty(job, log_scenarios.lie(scenario), choose=picks)
            follows = cheat if picks and scenario.clause is not None else None
            honest = LogParty(job, choose=picks, follows=follows)
            maker.both_seats(job, f"{form}: {name}", honest, cheat)
        if form == "bounded" and not are_later:
            withheld(maker, job)


def withheld(maker: Maker, job: Job) -> None:
    """Lies behind a step whose log the honest party could not read (PROTOCOL 6.13, 6.14)."""
    from unit.protocol.test_protocol_logs import EARLY, STEP, WITHHELD, down

    for name, (_, hooks) in WITHHELD.items():
        cheat = LogParty(job, Lie(**hooks), choose=down)
        unread = STEP if "entries" in hooks else EARLY
        honest = LogParty(job, follows=cheat, withheld={unread})
        maker.both_seats(job, f"withheld: {name}", honest, cheat)
    up, low = LogParty(job, choose=lambda *_: 1), LogParty(job, choose=down)
    maker.game(job, "two honest trainers, other choices", (up, low))


# -- every attack ----------------------------------------------------------------------------------
SMALL = {"records": "40", "batch_size": "4", "hidden": "16", "dropout": "0.1"}
OF_LOGS = ("extra-entry", "forged-entry", "impossible-unlogged-value", "log-not-committed")


# They need a job of format 2, whose cases are those of the bundle `format-two`.
OF_FORMAT_2 = {"false-fold", "false-stop", "false-validation", "ignored-stop", "other-held-out"}


def attacks(
    maker: Maker, contracts: Sequence[str] = ("ordered/1", "rounded/1", "replay/1;b=24")
) -> None:
    """Every attack of `tallystick attack --list`, by the prover that answers from a directory."""
    for contract in contracts:
        directory = maker.scratch / contract.split("/")[0]
        job = new_job(
            "mlp", directory / "job", SMALL, steps=9, checkpoint_interval=2, evaluate_every=0,
            contract=contract,
        )  # fmt: skip
        names = (
            OF_LOGS if "replay" in contract else set(attack_names()) - set(OF_LOGS) - OF_FORMAT_2
        )
        for name in sorted(names):
            cheat, honest = directory / name, directory / "honest"
            train_job(job, cheat, Options(maker=declared_cheat(job, Declaration(name)), key=CHEAT))
            if "replay" in contract:
                honest = directory / f"{name}-followed"
                train_job(job, honest, Options(replay=cheat, key=OPPONENT))
            elif not honest.exists():
                train_job(job, honest, Options(key=OPPONENT))
            for seat in (0, 1):
                sides = [(honest, OPPONENT), (honest, OPPONENT)]
                sides[seat] = cheat, CHEAT
                provers = [party_of(*side, as_attack=k == seat) for k, side in enumerate(sides)]
                try:
                    maker.game(job, f"{contract}: {name}, party {seat}", provers)
                finally:
                    for prover in provers:
                        prover.close()


# -- what a judge refuses --------------------------------------------------------------------------
def refusals(maker: Maker) -> None:
    """Evidence that convicts nobody, whatever it says: altered, incomplete, of another game."""
    job = make_job(maker.scratch / "job")
    other = _logreg(maker.scratch / "other", "0.1", 4, 2)
    honest = Party(job)
    cheat = Party(job, Lie(loss=lambda step, bits: bits + (step == 5)))
    whole = play(job.terms, (honest, cheat), key=REFEREE).evidence
    silence = play(job.terms, (honest, Silent(cheat, 2)), key=REFEREE).evidence
    maker.add(job, "whole", whole.to_bytes())
    maker.add(job, "a forfeit of a referee who is not named", silence.to_bytes())
    maker.add(job, "a forfeit of a referee who is named", silence.to_bytes(), [PEM])
    for name, evidence in changes(whole, silence, honest, cheat):
        maker.add(
            job, name, evidence if isinstance(evidence, bytes) else evidence.to_bytes(), [PEM]
        )
    maker.add(other, "another job", whole.to_bytes())


def sealed(body: bytes) -> bytes:
    """Evidence with a digest that fits."""
    return body + sha256(body)


def changes(
    whole: Evidence, silence: Evidence, honest: Party, cheat: Party
) -> Iterator[tuple[str, Evidence | bytes]]:
    """What was done to good evidence."""
    data, body = whole.to_bytes(), whole.to_bytes()[:-32]
    messages = whole.messages
    yield "nothing", b""
    yield "a bit of its digest", data[:-1] + bytes([data[-1] ^ 1])
    yield "a bit of a message", data[:3000] + bytes([data[3000] ^ 1]) + data[3001:]
    yield "cut off", data[:-100]
    yield "cut off, digest anew", sealed(body[:-100])
    yield "a byte more, digest anew", sealed(body + b"\0")
    yield "another tag", sealed(body[:20] + b"2" + body[21:])
    for size in (64, 1000, 5000, len(body) - 10):
        changed = bytearray(body)
        changed[size] ^= 1
        yield f"a bit at {size}, digest anew", sealed(bytes(changed))
    yield "an arity of 1", replace(whole, arity=1)
    yield "an arity of 257", replace(whole, arity=257)
    yield "another arity", replace(whole, arity=2)
    yield "the last message missing", replace(whole, messages=messages[:-1])
    yield "no message", replace(whole, messages=())
    yield "a message twice", replace(whole, messages=(messages[0], *messages))
    yield "a message after the end", replace(whole, messages=(*messages, messages[-1]))
    yield "messages in another order", replace(whole, messages=(*messages[2:4], *messages))
    yield (
        "a message of the other party",
        replace(whole, messages=((1 - messages[0][0], messages[0][1]), *messages[1:])),
    )
    yield "commitments exchanged", replace(whole, commitments=whole.commitments[::-1])
    yield "no commitment", replace(whole, commitments=(b"", whole.commitments[1]))
    forged = whole.commitments[1].replace(b'"sig":"', b'"sig":"A', 1)
    yield (
        "a commitment that is no envelope",
        replace(whole, commitments=(whole.commitments[0], forged)),
    )
    yield "a forfeit after a conviction", replace(whole, forfeits=silence.forfeits)
    yield "a forfeit missing", replace(silence, forfeits=())
    yield "a forfeit in an earlier round", replace(silence, messages=silence.messages[:2])
    roots = (honest.run.run_root, cheat.run.run_root)
    for name, key in (("a forfeit of the opponent", honest.key), ("of the silent one", cheat.key)):
        query = play_query(honest, cheat)
        word = Forfeit(honest.job.digest, roots, 1, query, key.public)
        yield name, replace(silence, messages=(), forfeits=(sign_forfeit(key, word),))


def play_query(honest: Party, cheat: Party) -> bytes:
    """The first query to party 1."""
    return Referee(honest.job.terms, (honest.commitment, cheat.commitment)).pending[1]


MAKERS: dict[str, Callable[[Maker], None]] = {
    **{f"operators-{k}": lambda m, c=c: operators(m, c) for k, c in CONTRACTS.items()},  # type: ignore[misc]
    "operators-later": later,
    **{k: lambda m, names=names: since(m, names) for k, names in SINCE.items()},  # type: ignore[misc]
    **{k: lambda m, g=g: since_group(m, g) for k, g in SINCE_GROUPS.items()},  # type: ignore[misc]
    "operators-stored": stored,
    "operators-exact": exact,
    "parts-exact": exact_parts,
    "attacks-exact": lambda m: attacks(m, ("exact/1;b=15",)),
    "parts-published": parts,
    "clauses-later": clauses_later,
    "clauses": clauses,
    "sums": long_sums,
    "logs": logs,
    "logs-later": lambda m: logs(m, are_later=True),
    "attacks": attacks,
    "refusals": refusals,
    "format-two": format_two,
}


def differing(stored: Bundle, made: Bundle) -> list[str]:
    """Names of the cases that are not the stored ones, or that one of the two lacks."""
    old, new = ({c.name: (b.jobs[c.job], c) for c in b.cases} for b in (stored, made))
    return [name for name in {**old, **new} if old.get(name) != new.get(name)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("bundles", nargs="*", choices=[*MAKERS, []])
    parser.add_argument("--again", action="store_true", help="write bundles that are there")
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    given = parser.parse_args()
    ROOT.mkdir(exist_ok=True)
    wrong = False
    for name in given.bundles or MAKERS:
        if (ROOT / f"{name}.json").exists() and not (given.again or given.check):
            print(f"{name}: is there", file=sys.stderr)
            continue
        with tempfile.TemporaryDirectory() as scratch:
            maker = Maker(Path(scratch))
            MAKERS[name](maker)
        text, data = encode(maker.bundle, name)
        if given.check:
            same = (ROOT / f"{name}.json").read_text() == text
            same = same and (ROOT / f"{name}.bin").read_bytes() == data
            print(f"{name}: {'the same bytes' if same else 'OTHER BYTES'}", file=sys.stderr)
            for case in () if same else differing(load(name), maker.bundle):
                print(f"    {case}", file=sys.stderr)
            wrong |= not same
            continue
        (ROOT / f"{name}.json").write_text(text)
        (ROOT / f"{name}.bin").write_bytes(data)
        print(f"{name}: {len(maker.bundle.cases)} cases, {len(data):,} bytes", file=sys.stderr)
    sys.exit(wrong)


if __name__ == "__main__":
    main()
