"""`tallystick inspect EVIDENCE --job JOB`: what evidence about an answer or an encoding shows."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from tallystick.cli.judge import terms_of
from tallystick.disk.regular import read_file
from tallystick.limits import LIMITS
from tallystick.protocol.evidence import Evidence
from tallystick.report.revealed import OpenedNumbers, Revealed, ranges, revealed
from tallystick.report.revealed import in_words as in_words


def revealed_in(path: Path, job: str) -> Revealed:
    """What the evidence at `path` shows, by the terms of `job`. Raises UsageError for a job of
    another kind or other evidence, CounterpartyError, StorageError."""
    data = read_file(path, LIMITS.evidence_bytes, "evidence file")
    return revealed(terms_of(job), Evidence.from_bytes(data))


def reveals_json(found: Revealed) -> dict[str, Any]:
    """The member `reveals` of `inspect --json`; documented keys."""
    return {
        "tokens": [{"place": place, "token": token} for place, token in found.tokens.items()],
        "prompt_tokens": found.prompt,
        "drawn": [{"row": row, "token": token} for row, token in found.drawn.items()],
        "logprob_rows": ranges(found.logprobs),
        "encoding_values": ranges(found.made),
        "fields": found.fields,
        "weights": [_numbers(one) for one in found.weights],
        "activations": [_numbers(one) for one in found.activations],
        "values": found.values,
    }


def _numbers(found: OpenedNumbers) -> dict[str, Any]:
    return asdict(found)
