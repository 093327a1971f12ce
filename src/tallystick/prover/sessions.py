"""A party's sessions: what it has sealed and opened for, kept durably, and the games played along.

Each session has two small files in a directory of the party's own. It lies beside the run and never
in it: the run's directory holds nothing that its commitment does not know. The first file is
durable before the party signs its seal, the second before it signs its opening.

The nonce follows from the party's key, the session and the commitment. So a party whose directory
is lost, or that is copied to another machine, still signs the same seal: two different seals would
exclude it (PROTOCOL 10.2.1).

A mirror of a game is a referee of §1 to §6, fed with the game's messages (PROTOCOL 13.3). It tells
the party which query is open for it. Mirrors are in memory, within a bound: one that was dropped is
built again from message 0.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path

from tallystick.commit.encoding import HASH_BYTES, Reader, Writer, sha256, tag
from tallystick.commit.signing import PrivateKey, PublicKey, pae
from tallystick.delegation.entries import SessionBegun, open_entry
from tallystick.delegation.rules import Rules
from tallystick.disk.files import make_directory, write_file
from tallystick.disk.regular import names, present, read_file
from tallystick.errors import CannotCheckError, CorruptFileError, TallystickError
from tallystick.limits import LIMITS
from tallystick.program.terms import Terms
from tallystick.protocol.referee import Referee

_SEALED, _OPENED = tag("party-seal/1"), tag("party-opening/1")
_NONCE_TYPE = "application/vnd.tallystick.seal-nonce.v1"
_NAME = re.compile(r"([0-9a-f]{64})\.seal")
# Sessions of one party. Only a believed referee begins one.
MOST_SESSIONS = 4096


def nonce_of(key: PrivateKey, session: bytes, commitment: bytes) -> bytes:
    """The nonce of the seal: 32 bytes that no one without `key` can tell from random ones."""
    # A signature of Ed25519 is a function of key and message, and this one is never sent.
    return sha256(key.sign(pae(_NONCE_TYPE, session + sha256(commitment))))


@dataclass
class SealedSession:
    """A session that this party has sealed for.

    `entry` is the signed entry 0, `commitment` the digest of the sealed envelope. `closing` is the
    digest of the log's closing entry that the party has opened for; None before.
    """

    entry: bytes
    referee: PublicKey
    rules: Rules
    commitment: bytes
    closing: bytes | None = None


class Sessions:
    """The sessions in `directory`, read once.

    Raises CannotCheckError where a file is damaged: a party must not sign another seal than before.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._found: dict[bytes, SealedSession] = {}
        for name in sorted(names(directory, limit=4 * MOST_SESSIONS)):
            if match := _NAME.fullmatch(name):
                session = bytes.fromhex(match[1])
                self._found[session] = self._read(session)

    def __len__(self) -> int:
        return len(self._found)

    def get(self, session: bytes) -> SealedSession | None:
        """The session of this digest, if the party has sealed for it."""
        return self._found.get(session)

    def of_offer(self, offer: bytes) -> list[bytes]:
        """The digests of the sessions about one offer."""
        return [name for name, found in self._found.items() if found.rules.offer == offer]

    def sealed(self, commitment: bytes) -> bool:
        """Whether some session has the commitment of this digest under seal."""
        return any(found.commitment == commitment for found in self._found.values())

    def add(self, name: bytes, session: SealedSession) -> None:
        """Keep the session durably. Raises StorageError."""
        make_directory(self._directory)
        out = Writer(_SEALED).hash(session.commitment).blob(session.entry)
        self._write(self._path(name, "seal"), out)
        self._found[name] = session

    def opened(self, name: bytes, closing: bytes, entries: tuple[bytes, ...]) -> None:
        """Keep durably the signed log that the party opens for. Raises StorageError."""
        out = Writer(_OPENED).hash(closing).u64(len(entries))
        for entry in entries:
            out.blob(entry)
        self._write(self._path(name, "open"), out)
        self._found[name].closing = closing

    def _path(self, name: bytes, kind: str) -> Path:
        return self._directory / f"{name.hex()}.{kind}"

    def _write(self, path: Path, out: Writer) -> None:
        data = out.finish()
        write_file(path, [data + sha256(data)], mode=0o600)

    def _read(self, name: bytes) -> SealedSession:
        try:
            source = self._reader(self._path(name, "seal"), _SEALED)
            commitment, entry = source.hash(), source.blob(LIMITS.entry_bytes)
            source.end()
            begun = open_entry(entry)
            if begun.digest() != name or not isinstance(begun.event, SessionBegun):
                raise CorruptFileError("It is of another session.")
            rules = begun.event.rules
            found = SealedSession(entry, rules.referee, rules, commitment)
            if present(self._path(name, "open")):
                found.closing = self._reader(self._path(name, "open"), _OPENED).hash()
        except CorruptFileError as error:
            raise CannotCheckError(
                f"The record of a session in {self._directory} is damaged: {error.message}",
                "Restore that directory from a copy, or remove the file of this name and its "
                f"session: {name.hex()}.",
            ) from error
        return found

    def _reader(self, path: Path, tag_: bytes) -> Reader:
        limit = LIMITS.turn_bytes + 1024
        data = read_file(path, limit, "record of a session", self._directory)
        body = data[:-HASH_BYTES]
        if sha256(body) != data[-HASH_BYTES:]:
            raise CorruptFileError("Its digest does not match.")
        source = Reader(body, "record of a session")
        source.expect(tag_)
        return source


# -- games -----------------------------------------------------------------------------------------
# Games that are kept, and the bytes of their messages.
_GAMES, _BYTES = 256, 96 << 20


@dataclass
class GameMirror:
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
        self._kept: OrderedDict[tuple[bytes, int], GameMirror] = OrderedDict()

    def get(
        self, session: bytes, game: int, seat: int, commitments: tuple[bytes, bytes], arity: int
    ) -> GameMirror | None:
        """The mirror of this game, a new one if there is none; None if the game is another one.

        Raises UsageError for a commitment that is no party to the game, CannotCheckError where it
        cannot be played.
        """
        name = (session, game)
        with self._lock:
            found = self._kept.get(name)
            if found is None:
                found = GameMirror(seat, commitments, Referee(self._terms, commitments, arity))
                self._kept[name] = found
            self._kept.move_to_end(name)
            self._drop()
        return found if (found.seat, found.commitments) == (seat, commitments) else None

    def drop(self, mirror: GameMirror) -> None:
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
