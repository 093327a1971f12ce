"""Does no work: takes another party's seal, or its commitment after it was opened.

Gain: the pay of a run that it never made; k = 2 is then k = 1. How: it sends another's signed seal
as its own; or that seal's digest under its own key; or it opens with a commitment that it read in
the log. Caught: the seal names its key and hides the commitment (PROTOCOL 10.2.2), so the copy
opens nothing: the copier is no party.
"""

from __future__ import annotations

from dataclasses import replace

from tallystick.commit.signed import sign_compact
from tallystick.delegation.entries import Sealed, SealOpened, open_entry
from tallystick.delegation.seals import SEAL_TYPE, SealOpening, open_opening, open_seal

from ._provider import Provider, Sent, SessionAttack


class Copying(Provider):
    late = 5  # the others come first

    def seal(self) -> list[Sent]:
        for message in self.log:
            event = open_entry(message, self.referee).event
            if isinstance(event, Sealed) and self.variant != "commitment":
                if self.variant == "seal":
                    return [Sent(event.message)]
                seal = replace(open_seal(event.message), key=self.run.key.public)
                return [Sent(sign_compact(self.run.key, SEAL_TYPE, seal.to_bytes()))]
        return super().seal()

    def open(self) -> list[Sent]:
        found = self._another()
        if found is None:
            return super().open()
        copied = replace(found, key=self.run.key.public)
        return [Sent(self.signed_opening(copied))]

    def _another(self) -> SealOpening | None:
        """An opening of another party, if the log has one by now."""
        for message in self.log:
            event = open_entry(message, self.referee).event
            if isinstance(event, SealOpened):
                return open_opening(event.message)
        return None


ATTACK = SessionAttack(
    "copying", "copies a seal or an opened commitment", Copying,
    ("absent", "excluded", "convicted"), ("seal", "digest", "commitment"),
)  # fmt: skip
