"""A store's prefix as a directory: objects become files when they are opened, and leave again.

Theory of operation. One listing says what there is: names, sizes, tags. An object is fetched when a
reader opens it, in ranges of PART_BYTES, PARTS at a time, into a file beside the mirror that gets
its name when it is whole. All ranges must be of one version: the one that was listed, or where that
one is gone, the one that is there when the object is opened. So a reader sees a whole object of one
version, or an error. An object that is fetched again, by whatever process, must have the bytes that
it had first: a caller may have checked those, and use these. The files together have at most
`budget` bytes, or those of the largest object: those that were opened longest ago go first, and an
open or mapped one stays readable. A reader that goes through numbered files (rounding logs) finds
the next ones there.

What came is as little trusted as any file: the callers check it against the digests they know. The
listing is not trusted either: an object that it hides is missing, one that it invents cannot be
fetched, a name that is no path is shown and never written. A directory's links, FIFOs and devices
are shown as what they are, and never fetched; the door refuses them by name. Files that a process
makes below the mirror (a dispute's scratch states) are ordinary ones.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_left
from collections import Counter, OrderedDict
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

from tallystick.disk.mounts import FOLDER, Seen
from tallystick.disk.objects.store import PART_BYTES, PARTS, Found, Objects
from tallystick.errors import (
    CorruptFileError,
    StorageError,
    StoreChangedError,
    StoreError,
    TallystickError,
    storage_error,
)

# The directory beside the mirror that notes the digest of what was first fetched of each object.
FIRST = "first"
_AHEAD = 8
_AHEAD_BYTES = 1 << 20


def _is_plain(name: str) -> bool:
    parts = name.split("/")
    return all(p not in ("", ".", "..") and "\0" not in p and len(p) < 256 for p in parts)


class Mirror:
    """The prefix of `objects` at `directory`, which is empty and ours (disk/mounts.py). The files
    come to `beside` first, on the same disk. Raises StoreError."""

    def __init__(self, objects: Objects, directory: Path, beside: Path, budget: int) -> None:
        self.objects, self._place, self._beside, self._budget = objects, directory, beside, budget
        self._first = directory.with_name(FIRST)
        self._listing: dict[str, Found] = {}
        self._tree: dict[str, dict[str, Seen]] = {"": {}}
        for name, found in sorted(objects.listing().items()):
            self._add(name, found)
        self._sorted: dict[str, list[str]] = {}
        self._last: dict[str, int] = {}
        self._here: OrderedDict[str, int] = OrderedDict()
        self._users: Counter[str] = Counter()
        self._coming: dict[str, Future[None]] = {}
        self._number = 0
        self._lock = threading.Lock()
        self._parts = ThreadPoolExecutor(PARTS, "tallystick-parts")
        self._files = ThreadPoolExecutor(PARTS, "tallystick-objects")

    @property
    def directory(self) -> Path:
        return self._place

    @property
    def url(self) -> str:
        return self.objects.address.url

    def close(self) -> None:
        """Stop the transfers. The files stay."""
        self._files.shutdown(cancel_futures=True)
        self._parts.shutdown(cancel_futures=True)

    def _add(self, name: str, found: Found) -> None:
        if not _is_plain(name) or self._is_below_a_file(
            name
        ):  # shown as a stranger; no path leads to it
            shown = name.replace("/", "%2F").replace("\0", "%00")
            self._tree[""][shown] = Seen(found.mode, found.size)
            return
        if found.is_object:
            self._listing[name] = found
        at, _, last = name.rpartition("/")
        self._tree.setdefault(at, {})[last] = Seen(found.mode, found.size)
        while at:
            above, _, last = at.rpartition("/")
            self._tree.setdefault(above, {}).setdefault(last, Seen(FOLDER, 0))
            at = above

    def _is_below_a_file(self, name: str) -> bool:
        parts = name.split("/")
        return any("/".join(parts[:n]) in self._listing for n in range(1, len(parts)))

    # -- the mount --------------------------------------------------------------------------------
    def seen(self, name: str) -> Seen | None:
        at, _, last = name.rpartition("/")
        found = self._tree.get(at, {}).get(last)
        return None if found is None or found.mode == FOLDER else found

    def children(self, name: str) -> dict[str, Seen]:
        found = self._tree.get(name, {})
        if found and name:
            self._make_directory(name)
        return found

    def beginning(self, name: str, count: int) -> tuple[bytes, int] | None:
        found = self._find(name)
        if found is None:
            return None
        with self._lock:
            if name in self._here or found.size <= PART_BYTES:
                return None  # it comes in one request anyway
        return bytes(self.objects.read(name, 0, min(count, found.size), found)), found.size

    @contextmanager
    def held(self, name: str, what: str, limit: int | None) -> Iterator[None]:
        found = self._find(name)
        if found is None:
            yield
            return
        with self._lock:
            self._users[name] += 1
        try:
            try:
                self._require_few(name, found, what, limit)
                self._come(name, found).result()
            except StoreChangedError:  # written since the listing: the run may be under way
                found = self._look_again(name)
                self._require_few(name, found, what, limit)
                self._come(name, found).result()
            self._come_ahead(name)
            yield
        finally:
            with self._lock:
                self._users[name] -= 1

    def _require_few(self, name: str, found: Found, what: str, limit: int | None) -> None:
        if limit is not None and found.size > limit:
            raise CorruptFileError(
                f"The {what} {self.objects.address.key(name)} has {found.size} bytes, more than "
                f"the limit of {limit}.",
                "Ask its sender for an intact copy.",
            )

    def _look_again(self, name: str) -> Found:
        found = self.objects.head(name)
        if found is None:
            raise StoreChangedError(
                f"{self.objects.address.key(name)} was removed while it was read.",
                "Run the command again when nobody writes there.",
            )
        with self._lock:
            self._add(name, found)
        return found

    def _find(self, name: str) -> Found | None:
        """The object of this name: as listed, or put there since; None for a file of ours, and for
        what is no object."""
        found = self._listing.get(name)
        if (
            found is None
            and self.seen(name) is None
            and _is_plain(name)
            and not os.path.lexists(self._place / name)
        ):
            found = self.objects.head(name)
            if found is not None:
                with self._lock:
                    self._add(name, found)
        return found

    # -- fetching ---------------------------------------------------------------------------------
    def _come(self, name: str, found: Found) -> Future[None]:
        """The fetch of the object, under way or done."""
        with self._lock:
            if self._is_here(name, found):
                if name in self._here:
                    self._here.move_to_end(name)
                done: Future[None] = Future()
                done.set_result(None)
                return done
            if name not in self._coming:
                self._coming[name] = self._files.submit(self._fetch, name, found)
            return self._coming[name]

    def _is_here(self, name: str, found: Found) -> bool:
        """True if the file lies there: fetched by this process, or by one that shares the mirror.
        A file gets its name when it is whole."""
        try:
            size = os.lstat(self._place / name).st_size
        except OSError:
            return False
        return size == found.size

    def _fetch(self, name: str, found: Found) -> None:
        try:
            self._make_room(found.size)
            with self._lock:
                self._number += 1
                part = self._beside / f"{self._number}.part"
            target = self._place / name
            try:
                self._require_first(name, self._fill(part, name, found))
                self._make_directory(name.rpartition("/")[0])
                os.replace(part, target)
            except OSError as error:
                raise storage_error(target, error) from error
            finally:
                with suppress(OSError):
                    os.unlink(part)
            with self._lock:
                self._here[name] = found.size
        finally:
            with self._lock:
                self._coming.pop(name, None)

    def _require_first(self, name: str, digest: str) -> None:
        """Raise StoreError where the object had another digest when it was fetched first."""
        note = self._first / sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
        try:
            os.symlink(digest, note)  # its target is the note: made at once, and only once
        except FileExistsError:
            if os.readlink(note) != digest:
                raise StoreError(
                    f"{self.objects.address.key(name)} was read twice, and the bytes differed.",
                    "Run the command again when nobody writes there.",
                ) from None

    def _fill(self, path: Path, name: str, found: Found) -> str:
        """Fetch the object into a new file; a digest of its bytes."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o644)

        def bring(start: int) -> bytes:
            data = self.objects.read(name, start, min(start + PART_BYTES, found.size), found)
            digest = sha256(data).digest()
            while data.nbytes:
                written = os.pwrite(descriptor, data, start)
                data, start = data[written:], start + written
            return digest

        try:
            if found.size <= PART_BYTES:
                return bring(0).hex()
            started = [self._parts.submit(bring, at) for at in range(0, found.size, PART_BYTES)]
            try:
                return sha256(b"".join(part.result() for part in started)).hexdigest()
            finally:
                for part in started:
                    part.cancel()
                for part in started:
                    with suppress(BaseException):
                        part.result()
        finally:
            os.close(descriptor)

    def _make_directory(self, name: str) -> None:
        try:
            (self._place / name).mkdir(parents=True, exist_ok=True)
        except OSError as error:  # the store has a file and a directory of one name
            raise storage_error(self._place / name, error) from error

    def _make_room(self, size: int) -> None:
        """Let files go until `size` bytes more are within the budget; refuse what the disk cannot
        hold."""
        with self._lock:
            for name in list(self._here):
                if sum(self._here.values()) + size <= self._budget:
                    break
                if not self._users[name]:
                    del self._here[name]
                    with suppress(OSError):
                        os.unlink(self._place / name)
        room = os.statvfs(self._place)
        free = room.f_bavail * room.f_frsize
        if size > free:
            raise StorageError(
                f"An object of {self.url} has {size} bytes, but {self._place.parent} has room for "
                f"only {free}.",
                "Free some space, or set TALLYSTICK_CACHE to a directory on a larger disk.",
            )

    def _come_ahead(self, name: str) -> None:
        """Start to fetch the next small files where they are opened in the order of their names."""
        at, _, last = name.rpartition("/")
        if not at:
            return
        order = self._sorted.get(at)
        if order is None:
            order = self._sorted[at] = sorted(self._tree[at])
        index = bisect_left(order, last)
        before, self._last[at] = self._last.get(at), index
        if before is None or before + 1 != index:
            return
        for following in order[index + 1 : index + 1 + _AHEAD]:
            found = self._listing.get(f"{at}/{following}")
            if found is not None and found.size <= _AHEAD_BYTES:
                with suppress(TallystickError, RuntimeError):
                    self._come(f"{at}/{following}", found)
