"""The errors of a referee that does not follow its rules (PROTOCOL 12.5)."""

from __future__ import annotations

from tallystick.errors import CounterpartyError


class DeviationError(CounterpartyError):
    """An entry that its referee has signed, and that no referee of these rules writes.

    `index` is the entry's, `clause` the one of spec/PROTOCOL.md that it breaks.
    """

    exit_code = 1

    def __init__(self, index: int, clause: str, why: str) -> None:
        super().__init__(
            f"Entry {index} of the referee's log convicts the referee (PROTOCOL {clause}): {why}.",
            "Do not rely on this session. The log is the evidence.",
        )
        self.index, self.clause, self.why = index, clause, why


class NoEffectError(CounterpartyError):
    """A party's message that has no effect in the session: late, repeated, or of another session.

    The referee does not log it, and it convicts no party.
    """
