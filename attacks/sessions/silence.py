"""Stops at one point of a session, and never sends anything again.

Gain: to hold up the result, or to be no loser. How: silence at the sealing, at the opening, or in
one phase of its first game. Caught: a party that does not seal or open is no party (PROTOCOL
10.2.1, 10.3.1); silence in a game forfeits when the budget is used up (11.5).
"""

from __future__ import annotations

from tallystick.protocol import queries as q

from ._provider import Provider, Sent, SessionAttack

_PHASES: dict[str, tuple[type, ...]] = {
    "phase-0": (q.Checkpoints,),
    "phase-1": (q.States,),
    "phase-2": (q.Nodes, q.NodeHashes, q.NodeRecord),
    "phase-3": (q.TensorHashes, q.Leaf, q.Values, q.Opening),
}


class Silence(Provider):
    def seal(self) -> list[Sent]:
        return [] if self.variant == "sealing" else super().seal()

    def open(self) -> list[Sent]:
        return [] if self.variant == "opening" else super().open()

    def answer(self, query: bytes) -> list[Sent]:
        asked = q.decode_query(query)
        return [] if isinstance(asked, _PHASES.get(self.variant, ())) else super().answer(query)


ATTACK = SessionAttack(
    "silence", "stops answering", Silence, ("forfeits", "absent", "convicted"),
    ("sealing", "opening", *_PHASES),
)  # fmt: skip
