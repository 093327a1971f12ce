"""The games of a party, played along by the referee's own rules (PROTOCOL 13.3).

A mirror is a referee of §1 to §6, fed with the game's messages. It tells the party which query is
open for it. Mirrors are kept within a bound: one that was dropped is built again from message 0.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field

from tallystick.errors import CannotCheckError, TallystickError
from tallystick.program.terms import Terms
from tallystick.protocol.referee import Referee

# Games that are kept, and the bytes of their messages.
_GAMES, _BYTES = 256, 96 << 20


@dataclass
class Mirror:
    """One game, as far as its messages are known. Hold `lock` to use it."""

    seat: int
    commitments: tuple[bytes, bytes]
    referee: Referee
    lock: threading.Lock = field(default_factory=threading.Lock)
    dead: str = ""  # why the game goes no further

    @property
    def known(self) -> int:
        """The number of messages."""
        return len(self.referee.transcript)

    def receive(self, party: int, message: bytes) -> bool:
        """Take in the next message of the game; False if it is none.

        A fault of this machine in the middle of a judgement is raised: drop the mirror then.
        """
        before = self.known
        try:
            self.referee.receive(party, message)
        except TallystickError as error:
            if isinstance(error, CannotCheckError) and type(error) is not CannotCheckError:
                raise
            if self.known > before:
                self.dead = error.message
        return self.known > before


class Mirrors:
    """The mirrors of all games of a party, by session and number."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[bytes, int], Mirror] = OrderedDict()

    def get(
        self, session: bytes, game: int, seat: int, commitments: tuple[bytes, bytes], arity: int
    ) -> Mirror | None:
        """The mirror of this game, a new one if there is none; None if the game is another one.

        Raises UsageError for a commitment that is no party to the game, CannotCheckError where it
        cannot be played.
        """
        name = (session, game)
        with self._lock:
            found = self._kept.get(name)
            if found is None:
                found = Mirror(seat, commitments, Referee(self._terms, commitments, arity))
                self._kept[name] = found
            self._kept.move_to_end(name)
            self._drop()
        return found if (found.seat, found.commitments) == (seat, commitments) else None

    def drop(self, mirror: Mirror) -> None:
        """Forget one game. It is played along again from message 0, if the referee asks."""
        with self._lock:
            for name in [name for name, kept in self._kept.items() if kept is mirror]:
                del self._kept[name]

    def end(self, session: bytes) -> None:
        """Forget the games of a session."""
        with self._lock:
            for name in [name for name in self._kept if name[0] == session]:
                del self._kept[name]

    def _drop(self) -> None:
        held = sum(mirror.referee.received for mirror in self._kept.values())
        while len(self._kept) > 1 and (len(self._kept) > _GAMES or held > _BYTES):
            _, dropped = self._kept.popitem(last=False)
            held -= dropped.referee.received
