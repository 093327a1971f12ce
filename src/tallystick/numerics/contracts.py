"""Contract names and the versions they mean (DESIGN 4, NUMERICS status line)."""

from __future__ import annotations

from tallystick.errors import UnsupportedVersionError

ORDERED_1 = "ordered/1-draft.1"

# The identifiers that jobs and run roots carry; a released version stays here for ever.
CONTRACTS = (ORDERED_1,)
# What a person may write for them; `NAME/1` means the current draft until the freeze.
_NAMES = {"ordered/1": ORDERED_1} | {contract: contract for contract in CONTRACTS}


def resolve_contract(name: str) -> str:
    """The full identifier of contract `name`. Raises UnsupportedVersionError if unknown."""
    found = _NAMES.get(name)
    if found is None:
        raise UnsupportedVersionError(
            f"Contract {name[:80]!r} is not known to this build.",
            f"Use one of: {', '.join(_NAMES)}.",
        )
    return found
