"""The schemas of claims, spec/claims (CLAIMS 1.2)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

PLACE = Path(__file__).resolve().parents[1] / "spec" / "claims"
NAMES = ("answer", "audit", "conviction", "key", "run", "settlement")


def schema(name: str) -> dict[str, Any]:
    """The schema of the claim `name`, version 1."""
    found: dict[str, Any] = json.loads((PLACE / f"{name}.v1.schema.json").read_text("utf-8"))
    return found


def fits(payload: Any, name: str) -> None:
    """Fail unless the parsed payload is a claim `name` as its schema says."""
    Draft202012Validator(schema(name)).validate(payload)
