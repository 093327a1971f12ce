"""The judge in TypeScript beside that of the package, on changed evidence; counts go to
docs/proofs/judge.md.

    PYTHONPATH=tests python tests/adversary/three_judges.py [--files N] [--flips N] [--seed S]

`--files` changes evidence of games by its structure, signed anew by the liar
(`fuzz_evidence.py`); `--flips` changes bytes of the evidence in vectors/protocol. Each file goes
to both judges: they must agree in the whole object of `judge --json`, or both refuse it. Needs
Node 20, and `npm install` in judge/.
"""

from __future__ import annotations

import argparse
import base64
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adversary.fuzz_evidence import CHANGES, flipped, make_cases
from evidence_format import bundles, load

from tallystick.cli.verdicts import verdict_json
from tallystick.commit.encoding import HASH_BYTES, sha256
from tallystick.commit.signing import PublicKey, public_key_of
from tallystick.errors import TallystickError
from tallystick.installed import tallystick_version
from tallystick.job.job_file import terms_of_files
from tallystick.program.terms import Terms
from tallystick.protocol.judge import judge

ROOT = Path(__file__).resolve().parents[2]
JUDGE = ROOT / "judge"
# Words for people, and what only a list of known keys changes.
WORDS = ("sentence", "trusted")

Files = Mapping[str, bytes]


def built(directory: Path) -> Path:
    """`judge/tools/judging.ts` as one file for Node."""
    out = directory / "judging.mjs"
    command = [
        "npx", "esbuild", "tools/judging.ts", "--bundle", "--platform=node", "--format=esm",
        "--log-level=error", f"--outfile={out}",
    ]  # fmt: skip
    subprocess.run(command, cwd=JUDGE, check=True)
    return out


class OtherJudge:
    """The judge in TypeScript as a process; jobs are known to it by number."""

    def __init__(self, script: Path) -> None:
        self._process = subprocess.Popen(
            ["node", script, ROOT / "vectors" / "operators.json"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def _ask(self, asked: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the judge in TypeScript has ended"
        return dict(json.loads(line))

    def knows(self, job: Files) -> int:
        """The number by which it knows a job from now on."""
        files = {name: base64.b64encode(data).decode() for name, data in job.items()}
        return int(self._ask({"job": files})["job"])

    def judge(self, job: int, evidence: bytes, referees: list[PublicKey]) -> dict[str, Any]:
        keys = [key.raw.hex() for key in referees]
        return self._ask(
            {"of": job, "evidence": base64.b64encode(evidence).decode(), "referees": keys}
        )

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def plain(found: dict[str, Any]) -> dict[str, Any]:
    """The object without words, as JSON has it."""
    kept = {name: value for name, value in found.items() if name not in WORDS}
    kept["convicted"] = [
        {name: value for name, value in one.items() if name not in WORDS}
        for one in found["convicted"]
    ]
    return dict(json.loads(json.dumps(kept, default=bytes.hex)))


def of_package(terms: Terms, evidence: bytes, referees: list[PublicKey]) -> dict[str, Any] | None:
    """What the package finds; None where it refuses."""
    try:
        return plain(verdict_json(judge(terms, evidence, [], referees)))
    except TallystickError as error:
        assert error.exit_code == 2, error
        return None


@dataclass
class Counts:
    files: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    worst_ms: int = 0
    different: list[str] = field(default_factory=list)

    def take(self, name: str, one: dict[str, Any] | None, other: dict[str, Any]) -> None:
        """Both judges' words about one file."""
        self.files += 1
        self.worst_ms = max(self.worst_ms, other.get("took", 0))
        if one is None:
            self.outcomes["refused"] += 1
            if "refused" not in other:
                self.different.append(f"{name}: the package refuses, TypeScript says {other}")
            return
        clause = one["clause"]
        self.outcomes[clause or ("agreement" if one["agreement"] else "undecided")] += 1
        if "found" not in other:
            self.different.append(f"{name}: {clause}, TypeScript says {other}")
        elif (theirs := plain(other["found"])) != one:
            apart = {k: (v, theirs.get(k)) for k, v in one.items() if theirs.get(k) != v}
            self.different.append(f"{name}: {apart}")


def changed_games(other: OtherJudge, files: int, rng: random.Random, cases: int) -> Counts:
    """Evidence of games, changed by its structure and signed anew by the liar."""
    counts = Counts()
    with tempfile.TemporaryDirectory() as name:
        made = make_cases(Path(name), rng, cases)
        known = {}
        for directory in sorted(Path(name).iterdir()):
            paths = [directory / "job.json", *directory.glob("program*.txt")]
            job = {path.name: path.read_bytes() for path in paths}
            terms = terms_of_files(job, directory)
            known[terms.digest] = (terms, other.knows(job))
        for number in range(files):
            case = rng.choice(made)
            terms, job_number = known[case.job.digest]
            change = rng.choice(CHANGES) if case.evidence.messages else flipped
            data = change(case, rng)
            referees = [case.liar.key.public]
            found = of_package(terms, data, referees)
            told = other.judge(job_number, data, referees)
            counts.take(f"file {number}, {change.__name__}", found, told)
    return counts


def changed_vectors(other: OtherJudge, flips: int, rng: random.Random) -> Counts:
    """Evidence of vectors/protocol with bytes changed, and its digest made anew."""
    counts = Counts()
    stored = [load(name) for name in bundles()]
    known = [
        [(terms_of_files(job, ROOT), other.knows(job)) for job in bundle.jobs] for bundle in stored
    ]
    for number in range(flips):
        at = rng.randrange(len(stored))
        case = rng.choice(stored[at].cases)
        if len(case.evidence) < HASH_BYTES:
            continue
        terms, job_number = known[at][case.job]
        body = bytearray(case.evidence[:-HASH_BYTES])
        for _ in range(rng.choice([0, 1, 1, 2])):
            body[rng.randrange(len(body))] ^= 1 << rng.randrange(8)
        data = bytes(body) + sha256(bytes(body))
        referees = [public_key_of(key.encode(), "a referee's key") for key in case.referees]
        found = of_package(terms, data, referees)
        counts.take(f"flip {number}, {case.name}", found, other.judge(job_number, data, referees))
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--flips", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=60, help="games to make evidence of")
    given = parser.parse_args()
    runs: dict[str, Callable[[OtherJudge], Counts]] = {
        "games": lambda o: changed_games(o, given.files, random.Random(given.seed), given.cases),
        "vectors": lambda o: changed_vectors(o, given.flips, random.Random(given.seed)),
    }
    said: dict[str, Any] = {"seed": given.seed}
    failed = False
    with tempfile.TemporaryDirectory() as name:
        other = OtherJudge(built(Path(name)))
        for what, run in runs.items():
            began = time.monotonic()
            counts = run(other)
            failed = failed or bool(counts.different)
            for line in counts.different[:20]:
                print(line, file=sys.stderr)
            said[what] = {
                "files": counts.files, "different": len(counts.different),
                "worst_ms": counts.worst_ms, "outcomes": dict(sorted(counts.outcomes.items())),
                "seconds": round(time.monotonic() - began, 1),
            }  # fmt: skip
        other.close()
    said["tallystick"], said["date"] = tallystick_version(), time.strftime("%Y-%m-%d")
    print(json.dumps(said, indent=2))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
