"""Logs of random sessions, honest and altered, read by the package and by the text's own reader.

    PYTHONPATH=tests python tests/adversary/two_sessions.py [--sessions 500] [--altered 40]

Both have to say the same of each log: state, members, removed keys, games, result, and where it is
damaged or convicts its referee (PROTOCOL 10 to 12). The alterations are made with the referee's own
key: entries are signed and chained again, so nothing but what they say can give them away.
"""

from __future__ import annotations

import argparse
import functools
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from adversary.alterations import altered
from adversary.session_logs import random_log
from reference.session import log as by_the_text
from unit.protocol import log_scenarios, validated
from unit.protocol.conftest import PAIRS
from unit.protocol.log_simulator import LogParty, make_log_job
from unit.protocol.scenarios import SCENARIOS, liar
from unit.protocol.simulator import Party

from tallystick.commit.signing import PublicKey
from tallystick.delegation.entries import DeviationError
from tallystick.delegation.session import Session
from tallystick.delegation.watch import opened
from tallystick.errors import TallystickError
from tallystick.job.job import Job
from tallystick.job.recipes import new_job

NAMES = ("another genesis", "another batch", "another learning rate", "another loss in the chain",
         "a wrong product", "another state goes in")  # fmt: skip
End = dict[str, Any]
REASONS = {"two seals": "excluded", "false opening": "excluded", "two openings": "excluded",
           "unopened": "never opened"}  # fmt: skip


def package(job: Job, entries: Sequence[bytes]) -> End:
    """What the package says of a log."""
    session, wrong, index = Session(job.terms), "", -1
    for index, message in enumerate(entries):
        referee = None if session.rules is None else session.rules.referee
        try:
            session.apply(opened(message, referee, session.length))
        except DeviationError:
            wrong = "convicted"
        except TallystickError:
            wrong = "damaged" if index else "refused"
        if wrong:
            break
    games = [
        (*(m.key.raw.hex() for m in match.members), match.ending.outcome, match.ending.convicted)
        for match in session.matches
        if match.ended and match.ending is not None
    ]
    result = session.result
    return {
        "wrong": wrong,
        "index": index if wrong else -1,
        "state": session.state.replace("not begun", "none"),
        "members": sorted(k.raw.hex() for k in session.members),
        "removed": {k.raw.hex(): why for k, why in session.removed.items()},
        "games": games,
        "rounds": session.rounds,
        "result": None if result is None else (result.outcome, result.accepted.hex()),
    }


def text(job: Job, entries: Sequence[bytes]) -> End:
    """What the text says of it."""
    numbers = range(len(job.commitment.timetable.programs))
    texts = tuple((job.directory / job.program_file(n)).read_bytes() for n in numbers)
    found = by_the_text.read((job.directory / "job.json").read_bytes(), texts, entries)
    return {
        "wrong": found.wrong,
        "index": found.index,
        "state": found.state,
        "members": found.members,
        "removed": {k: REASONS.get(why, "lost") for k, why in found.removed.items()},
        "games": found.games,
        "rounds": found.rounds,
        "result": found.result,
    }


def make_job(path: Path) -> Job:
    """13 steps committed every 4."""
    pairs = {**PAIRS, "lr": "0.0001"}
    return new_job("logreg", path, pairs, steps=13, checkpoint_interval=4, evaluate_every=0)


def runs(job: Job) -> list[Party]:
    """An honest run and false ones."""
    return [Party(job), *(liar(job, SCENARIOS[name]) for name in NAMES)]


def runs_two(job: Job) -> list[Party]:
    """The same of a job of `make_validated_job`."""
    told = validated.lies()
    names = ("a false sum", "goes on", "ends early", "other held-out records", "another rate")
    return [Party(job), *(liar(job, told[name]) for name in names)]


def log_runs(job: Job, lies: int = 2) -> list[Party]:
    """Runs under a contract with logs, of one log, of another, and a false one."""
    one = LogParty(job, choose=lambda *_: 0)
    told = [log_scenarios.lie(s) for s in [*log_scenarios.BOUNDED.values()][:lies]]
    return [one, LogParty(job), *(LogParty(job, lie, choose=lambda *_: 0) for lie in told)]


def disagreements(
    job: Job, parties: Sequence[Party], sessions: int, each: int, seed: int, ends: Counter[str]
) -> Iterator[tuple[int, str, End, End]]:
    """(seed, alteration, the package's end, the text's) of logs about which they differ."""
    rng = random.Random(seed)
    others: list[list[bytes]] = []
    for number in range(sessions):
        log = random_log(job, parties, rng)
        others = [*others[-3:], log]
        for name, entries in [("none", log), *altered(log, others, each, rng)]:
            one, two = package(job, entries), text(job, entries)
            ends[f"{name}: {one['wrong'] or one['state']}"] += 1
            if name == "none":
                assert not one["wrong"], f"an honest referee is convicted: {one}"
                ends[f"result {one['result'] and one['result'][0]}"] += 1
            if one != two:
                yield number, name, one, two


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=500)
    parser.add_argument("--altered", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(argv)
    # The same signatures are met again and again.
    PublicKey.verifies = functools.lru_cache(1 << 13)(PublicKey.verifies)  # type: ignore[method-assign]
    ends, failed = Counter[str](), 0
    with tempfile.TemporaryDirectory() as scratch:
        plain, logged = make_job(Path(scratch) / "job"), make_log_job(Path(scratch) / "logged")
        few = given.sessions // 4
        for job, parties, sessions in ((plain, runs(plain), given.sessions - few),
                                       (logged, log_runs(logged), few)):  # fmt: skip
            for found in disagreements(job, parties, sessions, given.altered, given.seed, ends):
                failed += 1
                print(*found, sep="\n  ")
    for name, count in sorted(ends.items()):
        print(f"{count:8} {name}")
    print(f"{failed} disagreements")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
