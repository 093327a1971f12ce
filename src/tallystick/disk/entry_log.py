"""The durable log of numbered, signed entries, one file an entry (PROTOCOL 12.3, 12.6).

Theory of operation. Entries are opaque here but for their frame, a blob and a signature of 64 bytes
(PROTOCOL 13.1): it says how long an entry is, so an entry that is cut off is seen as such. Entry
1234 is the file `log/0001/0001234.bin`, at most 1000 of them in a directory, and any static server
can publish `log`. An entry becomes durable under a private name beside `log`, `next`, and gets its
public name after that. So a public entry is whole, never changes, and outlives a loss of power: had
a reader seen an entry that the disk loses, the referee would write another one with its number and
contradict itself (PROTOCOL 12.5.1). A process that is killed leaves nothing, a half written
`next.part`, which is dropped, or a durable `next`, which is published by the process after it.

The log is a room of a referee's directory, whose other files belong to other modules.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from tallystick.closing import Closing
from tallystick.disk.files import (
    Replacement,
    locked,
    make_directory,
    move,
    remove_file,
    remove_temporaries,
    sync_path,
)
from tallystick.disk.regular import (
    is_directory,
    names,
    open_file,
    os_errors,
    present,
    read_file,
)
from tallystick.errors import CorruptFileError, StorageError, UsageError
from tallystick.limits import LIMITS

LOG, LOCK, NEXT = "log", "lock", "next"
PER_DIRECTORY = 1000
_LENGTH_BYTES, _SIGNATURE_BYTES = 8, 64
_ROOM = re.compile(r"[0-9]{4}")
_FILE = re.compile(r"([0-9]{7})\.bin")
RESTORE = (
    "Put an intact copy of the entry there; anyone who has followed the log has one. Without it "
    "the session is over (PROTOCOL 12.3.1)."
)


def entry_name(index: int) -> str:
    """The file of entry `index`, below the referee's directory (PROTOCOL 12.6)."""
    return f"{LOG}/{index // PER_DIRECTORY:04d}/{index:07d}.bin"


def _framed(size: int, head: bytes) -> int:
    """How many bytes are missing from an entry of `size` bytes that begins with `head`; negative
    where there are too many. Raises CorruptFileError where no entry begins so."""
    if len(head) < _LENGTH_BYTES:
        return _LENGTH_BYTES - len(head)
    whole = int.from_bytes(head[:_LENGTH_BYTES], "little") + _LENGTH_BYTES + _SIGNATURE_BYTES
    if whole > LIMITS.entry_bytes:
        raise CorruptFileError(
            f"An entry declares {whole} bytes, more than the limit of {LIMITS.entry_bytes}.",
            RESTORE,
        )
    return whole - size


class EntryLog:
    """The entries that lie in a referee's `directory`, read only; another process may write it.

    The entries are counted when the object is made. Raises UsageError where the directory holds no
    log, CorruptFileError where an entry is missing before another one, StorageError.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = Path(directory)
        if not is_directory(self.directory / LOG):
            raise UsageError(
                f"{directory} contains no referee's log.",
                f"Name a directory that `tallystick referee` wrote. It contains `{LOG}`.",
            )
        self._scan()

    def path(self, index: int) -> Path:
        """The file of entry `index`."""
        return self.directory / entry_name(index)

    def __len__(self) -> int:
        """How many whole entries there are. The one that is `torn` is none of them."""
        return self._count

    def __iter__(self) -> Iterator[bytes]:
        """The entries in order. Raises as `read`."""
        for index in range(self._count):
            yield self.read(index)

    def read(self, index: int) -> bytes:
        """Entry `index`, its frame checked. Its size is checked before a byte is read.

        Raises UsageError for an index that is not below `len`, CorruptFileError where the file is
        damaged, StorageError.
        """
        if not 0 <= index < self._count:
            raise UsageError(
                f"The log of {self.directory} has no entry {index}.",
                f"It has {self._count} entries, from 0.",
            )
        path = self.path(index)
        entry = read_file(path, LIMITS.entry_bytes, "log entry", self.directory)
        self._require_whole(path, _framed(len(entry), entry[:_LENGTH_BYTES]))
        return entry

    @property
    def torn(self) -> Path | None:
        """The last entry's file, if it is cut off: such an entry was not written (12.3.1)."""
        return self._torn

    def strangers(self) -> Iterator[Path]:
        """Files in the log's directories that are no entry of it. Raises as the constructor."""
        log = self.directory / LOG
        # The room of the next entry may be there before the entry is.
        rooms = {self.path(index).parent.name for index in range(0, self._files + 1, PER_DIRECTORY)}
        for room in sorted(names(log, self.directory)):
            if room not in rooms:
                yield log / room
                continue
            first = int(room) * PER_DIRECTORY
            last = min(first + PER_DIRECTORY, self._files)
            known = {self.path(index).name for index in range(first, last)}
            for name in sorted(set(names(log / room, self.directory)) - known):
                yield log / room / name

    def _scan(self) -> None:
        found = self._found()
        count = 0
        while count in found or present(self.path(count)):  # a writer may be adding some
            count += 1
        if beyond := [index for index in found if index > count]:
            raise CorruptFileError(
                f"Entry {count} of the log {self.directory / LOG} is missing, but entry "
                f"{min(beyond)} exists.",
                RESTORE,
            )
        self._files = self._count = count
        self._torn: Path | None = None
        if count and self._missing(count - 1) > 0:
            self._torn, self._count = self.path(count - 1), count - 1

    def _found(self) -> set[int]:
        found: set[int] = set()
        log = self.directory / LOG
        for room in sorted(filter(_ROOM.fullmatch, names(log, self.directory))):
            for name in names(log / room, self.directory):
                match = _FILE.fullmatch(name)
                if match and entry_name(int(match[1])) == f"{LOG}/{room}/{name}":
                    found.add(int(match[1]))
            if len(found) > LIMITS.log_entries:
                raise CorruptFileError(
                    f"The log {log} has more than {LIMITS.log_entries} entries.", "Reject the log."
                )
        return found

    def _missing(self, index: int) -> int:
        """How many bytes of entry `index` are missing."""
        file, size = open_file(self.path(index), "log entry", self.directory)
        with os_errors(self.path(index)), file:
            return _framed(size, file.read(min(size, _LENGTH_BYTES)))

    def _require_whole(self, path: Path, missing: int) -> None:
        if missing:
            why = "is cut off" if missing > 0 else f"has {-missing} bytes too many"
            raise CorruptFileError(f"The log entry {path} {why}.", RESTORE)


class EntryLogWriter(EntryLog, Closing):
    """The log of a referee that is writing it: the entries there are, and `append`.

    It holds the directory's lock, so two referees never write one log. `close` it, or use it as a
    context. Making one takes up what a killed process left (the module's docstring) and makes it
    durable, because the referee acts upon every entry that it reads here. Raises UsageError where a
    file is in the way, StorageError where another referee writes the log, CorruptFileError.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = Path(directory)
        self._held = ExitStack()
        self._open = False
        above = self.directory.absolute()
        made = [path for path in (above, *above.parents) if not present(path)] or [above]
        make_directory(self.directory)
        for path in made:
            sync_path(path.parent)
        self._held.enter_context(locked(self.directory / LOCK, "referee"))
        try:
            make_directory(self.directory / LOG, self.directory)
            self._recover()
        except BaseException:
            self._held.close()
            raise
        self._open = True

    def append(self, entry: bytes) -> None:
        """Make `entry` the next one. It is durable when this returns.

        A failure says that the entry may be there or not, so this object takes no other entry
        then: the one who opens the log again finds out. Raises StorageError, and UsageError for
        bytes that are no signed entry.
        """
        if not self._open:
            raise StorageError(
                f"The log of {self.directory} accepts no more entries: it was closed, or a write "
                "failed.",
                "Open it again. The session continues from the stored entries.",
            )
        if _framed(len(entry), entry[:_LENGTH_BYTES]):
            raise UsageError(
                "The bytes are not a signed entry.", "Append an entry in the form of PROTOCOL 13.1."
            )
        if self._count == LIMITS.log_entries:
            raise StorageError(
                f"The log of {self.directory} is full: it has {self._count} entries.",
                "Begin a new session in another directory.",
            )
        self._open = False
        with Replacement(self.directory / NEXT) as file:
            file.write(entry)
            file.finish()
        sync_path(self.directory)  # durable from here on
        self._publish()
        self._open = True

    def close(self) -> None:
        """Release the lock."""
        self._open = False
        self._held.close()

    def _recover(self) -> None:
        remove_temporaries(self.directory, self.directory)
        self._scan()
        if self._torn is not None:
            remove_file(self._torn)
            self._torn, self._files = None, self._count
        # A process that was killed may have renamed without a flush.
        sync_path(self.directory)
        if self._count:
            sync_path(self.path(self._count - 1).parent)
        if present(self.directory / NEXT):
            self._take_up()

    def _take_up(self) -> None:
        """Publish the entry that was written and has no public name yet."""
        path = self.directory / NEXT
        entry = read_file(path, LIMITS.entry_bytes, "log entry", self.directory)
        missing = _framed(len(entry), entry[:_LENGTH_BYTES])
        # A disk that moves a name in two parts may show the last entry under both.
        if missing > 0 or (self._count and self.read(self._count - 1) == entry):
            remove_file(path)
            sync_path(self.directory)
            return
        self._require_whole(path, missing)
        self._publish()

    def _publish(self) -> None:
        path = self.path(self._count)
        if self._count % PER_DIRECTORY == 0:
            make_directory(path.parent, self.directory)
            sync_path(path.parent.parent)
        move(self.directory / NEXT, path)
        sync_path(path.parent)
        self._count += 1
        self._files = self._count
