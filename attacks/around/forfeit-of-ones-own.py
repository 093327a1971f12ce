"""Makes itself the referee: signs with its own run's key that its opponent was silent.

    python attacks/around/forfeit-of-ones-own.py RUN OPPONENT --job JOB --out EVIDENCE

RUN is the liar's run with its key. Of OPPONENT the script needs only the published commitment. The
evidence has no message at all. If a person passed the liar's key as `--trust` (the key of a known
trainer), `judge` and `report` convicted the opponent by silence.

The attack needs no game and no false answer: the lie is that this key is the referee's. PROTOCOL
2.10.1 refuses it, for any trusted keys.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tallystick.job.job_file import load_terms
from tallystick.protocol.evidence import evidence_of
from tallystick.protocol.forfeit import Forfeit, sign_forfeit
from tallystick.protocol.referee import Referee
from tallystick.run.store.claim import read_own_key
from tallystick.run.store.directory import RunStore

ARITY = 20


def forged(run: Path, opponent: Path, job: Path) -> bytes:
    """Evidence in which the signer of `run`, party 0, makes the signer of `opponent` lose."""
    terms, mine = load_terms(job), RunStore(run)
    key = read_own_key(mine.signer_path)
    commitments = (
        mine.commitment_path.read_bytes(),
        RunStore(opponent).commitment_path.read_bytes(),
    )
    referee = Referee(terms, commitments, ARITY)
    roots = (referee.runs[0].run_root, referee.runs[1].run_root)
    word = Forfeit(terms.digest, roots, 1, referee.pending[1], key.public)
    forfeit = sign_forfeit(key, word)
    return evidence_of(referee, terms.digest, ARITY, commitments, (forfeit,)).to_bytes()


def main(arguments: list[str] | None = None) -> None:
    """Write the forged evidence."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("opponent", type=Path)
    parser.add_argument("--job", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(arguments)
    given.out.write_bytes(forged(given.run, given.opponent, given.job))


if __name__ == "__main__":
    main()
