"""Contract names and the versions they mean (DESIGN 4, NUMERICS status line)."""

from __future__ import annotations

from tallystick.errors import UnsupportedVersionError

ORDERED_1 = "ordered/1-draft.1"

# What a person may write, and the full identifier a job and a run root carry. A released version
# stays here for ever; `NAME/1` means the current draft until the freeze.
CONTRACTS: dict[str, str] = {"ordered/1": ORDERED_1, ORDERED_1: ORDERED_1}


def resolve_contract(name: str) -> str:
    """The full identifier of contract `name`. Raises UnsupportedVersionError if unknown."""
    found = CONTRACTS.get(name)
    if found is None:
        known = ", ".join(sorted(set(CONTRACTS)))
        raise UnsupportedVersionError(
            f"Contract {name!r} is not known to this build.", f"Known contracts: {known}."
        )
    return found
