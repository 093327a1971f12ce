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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adversary.fuzz_evidence import CHANGES, Case, flipped, make_cases
from vectors.evidence_bundles import Bundle, bundles

from tallystick.cli.verdicts import verdict_json
from tallystick.commit.signing import PublicKey
from tallystick.errors import TallystickError
from tallystick.job.save import job_files
from tallystick.program.terms import Terms
from tallystick.protocol.judge import judge

ROOT = Path(__file__).resolve().parents[2]
