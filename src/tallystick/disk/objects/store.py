"""One prefix of an object store: list, read a range, put, delete, with our errors.

Everything of `obstore` is in this file, and it is imported when the first store is opened. A
directory (`file:///`) is no store of the library: it goes through the door (`directory.py`). The
library repeats what failed for a passing reason (`_RETRIES`), and we repeat where an answer ended
too early, which it does not always do. What then still fails is a StoreError: it says nothing about
the run. No text of an error has the query of a URL, where Azure has its token.
"""

from __future__ import annotations

import os
import re
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from tallystick.disk.mounts import PLAIN
from tallystick.disk.objects.address import Address
from tallystick.errors import CannotCheckError, StoreChangedError, StoreConflictError, StoreError
from tallystick.limits import LIMITS

PART_BYTES = 8 << 20  # of a transfer in parts
PARTS = 8  # parts of one object in flight
_RETRIES = {"max_retries": 8, "retry_timeout": timedelta(seconds=60)}
_TIMEOUTS = {"timeout": timedelta(seconds=120), "connect_timeout": timedelta(seconds=10)}
_AGAIN = 2
LISTING_SECONDS = 300.0  # for a thousand objects of a listing
_FAULTY = "Run the command again; a store that goes on so is faulty."
_INSTALL = "pip install 'tallystick[objects]'."
_Answer = TypeVar("_Answer")
# The condition of a put on an object that must not be there yet.
NEW = "new"


@dataclass(frozen=True)
class Found:
    """The size of an object in bytes, and the tag of its present version ("" without one). `mode`
    is that of a plain file, but where a directory has something else under an object's name."""

    size: int
    tag: str
    mode: int = PLAIN

    @property
    def is_object(self) -> bool:
        return stat.S_ISREG(self.mode)


@dataclass
class Counts:
    """What went over the wire: requests by kind, bytes of objects in and out. A put in parts and a
    repeated request count once."""

    requests: dict[str, int] = field(default_factory=dict)
    bytes_read: int = 0
    bytes_written: int = 0


class Objects:
    """The objects under an address. Safe for threads. Every method raises StoreError."""

    def __init__(self, address: Address, store: Any = None) -> None:
        """`store` is an obstore store rooted at the prefix; by default the one of the address."""
        self._obs = library()
        self._store = _opened(address) if store is None else store
        self._begin(address)

    def _begin(self, address: Address) -> None:
        self.address = address
        self.counts = Counts()
        self._lock = threading.Lock()

    def listing(self) -> dict[str, Found]:
        """Every object below the prefix, by name."""
        with self._errors("list", ""):
            try:
                return self._list()
            except FileNotFoundError:
                raise StoreError(
                    f"The bucket or directory {self.address.url} does not exist.",
                    "Check its name and the store's endpoint.",
                ) from None

    def _list(self) -> dict[str, Found]:
        return self._repeated(self._list_once)

    def _list_once(self) -> dict[str, Found]:
        found: dict[str, Found] = {}
        chunks = iter(self._obs.list(self._store, chunk_size=1000))
        # A store that answers with empty pages for ever keeps the library within one call.
        while chunk := within(LISTING_SECONDS, lambda: next(chunks, None), self._silent):
            self._count("list")
            for item in chunk:
                if item["path"] in found:
                    raise StoreError(
                        f"The store lists {self.address.key(item['path'])} twice.", _FAULTY
                    )
                found[item["path"]] = _found(item)
            self._require_few(found)
        return found

    def _silent(self) -> StoreError:
        return StoreError(
            f"The store has sent nothing more of the listing of {self.address.url} for "
            f"{LISTING_SECONDS} seconds.",
            _FAULTY,
        )

    def _require_few(self, found: dict[str, Found]) -> None:
        if len(found) > LIMITS.directory_entries:
            raise StoreError(
                f"{self.address.url} has more than {LIMITS.directory_entries} objects.",
                "Name the prefix of a single run or job.",
            )

    def _repeated(self, ask: Callable[[], _Answer]) -> _Answer:
        for _ in range(_AGAIN):
            try:
                return ask()
            except self._obs.exceptions.GenericError as error:
                if "body" not in str(error).split("\n\nDebug source", 1)[0]:
                    raise
        return ask()

    def head(self, name: str) -> Found | None:
        """An object's size and tag; None where there is no such object."""
        with self._errors("look at", name):
            self._count("head")
            return self._head(name)

    def _head(self, name: str) -> Found | None:
        try:
            return _found(self._obs.head(self._store, name))
        except FileNotFoundError:
            return None

    def read(self, name: str, start: int, stop: int, expected: Found) -> memoryview:
        """Bytes [start, stop) of an object that has `expected`'s size and tag.

        Raises StoreError also where the object went, changed, or came short."""
        with self._errors("read", name):
            self._count("get", read=stop - start)
            try:
                data = self._get(name, start, stop, expected)
            except FileNotFoundError:
                raise StoreError(
                    f"The store lists {self.address.key(name)}, but does not give it.",
                    _FAULTY,
                ) from None
        if data.nbytes != stop - start:
            raise StoreError(
                f"{self.address.key(name)}: the store gave {data.nbytes} bytes instead of "
                f"{stop - start}.",
                _FAULTY,
            )
        return data

    def _get(self, name: str, start: int, stop: int, expected: Found) -> memoryview:
        options: dict[str, Any] = {"range": (start, stop)} if stop > start else {}
        if expected.tag:
            options["if_match"] = expected.tag
        try:
            return self._repeated(lambda: self._get_once(name, options, expected))
        except self._obs.exceptions.PreconditionError:
            raise self.changed(name) from None

    def changed(self, name: str) -> StoreChangedError:
        """The error of a reader whose object has another version now."""
        return StoreChangedError(
            f"{self.address.key(name)} changed while it was read.",
            "Run the command again when nobody writes there.",
        )

    def _get_once(self, name: str, options: dict[str, Any], expected: Found) -> memoryview:
        answer = self._obs.get(self._store, name, options=options)
        self._require_size(name, int(answer.meta["size"]), expected)
        wanted, pieces = options.get("range", (0, expected.size)), []
        left = wanted[1] - wanted[0]
        for piece in answer.stream(min_chunk_size=PART_BYTES):
            pieces.append(piece)
            left -= len(piece)
            if left < 0:  # however long its body is, no more of it is taken
                raise StoreError(
                    f"{self.address.key(name)}: the store gave more bytes than it was asked for.",
                    _FAULTY,
                )
        return memoryview(pieces[0] if len(pieces) == 1 else b"".join(pieces))

    def _require_size(self, name: str, size: int, expected: Found) -> None:
        if size != expected.size:
            raise StoreError(
                f"{self.address.key(name)} has {size} bytes, but the store lists {expected.size}.",
                "Run the command again when nobody writes there. If this happens again, the store "
                "is faulty.",
            )

    def put(self, name: str, data: bytes | Path, condition: str = "") -> str:
        """Put an object whole, in parts where it is large; its new tag.

        `condition` is NEW, or the tag of the version to replace. Raises StoreConflictError where
        it does not hold, FileNotFoundError where the file `data` went."""
        size = data.stat().st_size if isinstance(data, Path) else len(data)
        with self._errors("write", name):
            self._count("put", written=size)
            return self._put(name, data, condition)

    def _put(self, name: str, data: bytes | Path, condition: str) -> str:
        options: dict[str, Any] = {"chunk_size": PART_BYTES, "max_concurrency": PARTS}
        if condition:
            options["mode"] = "create" if condition == NEW else {"e_tag": condition}
        known = self._obs.exceptions
        try:
            return str(self._obs.put(self._store, name, data, **options)["e_tag"] or "")
        except (known.PreconditionError, known.AlreadyExistsError):
            raise self.conflict(name) from None

    def conflict(self, name: str) -> StoreConflictError:
        """The error of a trainer that meets what another process has written."""
        return StoreConflictError(
            f"Another process wrote {self.address.key(name)}.",
            "Only one trainer may write a run. Stop the other one, then run the same command "
            "again.",
        )

    def delete(self, names: Sequence[str]) -> None:
        """Remove objects; one that is not there is removed already."""
        for name in names:
            with self._errors("remove", name):
                self._count("delete")
                self._remove(name)

    def _remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._obs.delete(self._store, name)

    def _count(self, kind: str, read: int = 0, written: int = 0) -> None:
        with self._lock:
            self.counts.requests[kind] = self.counts.requests.get(kind, 0) + 1
            self.counts.bytes_read += read
            self.counts.bytes_written += written

    @contextmanager
    def _errors(self, verb: str, name: str) -> Iterator[None]:
        known = self._obs.exceptions
        place = self.address.key(name) if name else self.address.url
        try:
            yield
        except (known.PermissionDeniedError, known.UnauthenticatedError) as error:
            raise StoreError(
                f"The store refused to {verb} {place}: {_first_line(error)}",
                "Check the credentials in the environment, and their permissions.",
            ) from None
        except (known.BaseError, ValueError) as error:
            raise StoreError(
                f"The store failed to {verb} {place}: {_first_line(error)}",
                "Check the network, the endpoint and the credentials. Then run the same command "
                "again.",
            ) from None


def _found(item: Any) -> Found:
    return Found(int(item["size"]), str(item.get("e_tag") or ""))


def _first_line(error: BaseException) -> str:
    text = str(error).split("\n\nDebug source", 1)[0]
    return re.sub(r"\?\S*", "", " ".join(text.split()))[:500]


def library() -> Any:
    """The module obstore. Raises CannotCheckError where it is not installed."""
    try:
        obs: Any = import_module("obstore")
        import_module("obstore.store")
        import_module("obstore.exceptions")
    except ImportError:
        raise CannotCheckError("An object store needs the package obstore.", _INSTALL) from None
    return obs


def _opened(address: Address) -> Any:
    kinds = library().store
    try:
        options: dict[str, Any] = dict(_TIMEOUTS)
        if os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("1", "true"):
            options["allow_http"] = True
        kind = {"s3": kinds.S3Store, "gs": kinds.GCSStore, "az": kinds.AzureStore}[address.scheme]
        return kind(
            address.bucket,
            prefix=address.prefix or None,
            client_options=options,
            retry_config=_RETRIES,
        )
    except Exception as error:  # obstore's own classes, and ValueError
        raise StoreError(
            f"{address.url} cannot be opened: {_first_line(error)}",
            "Check the address, and the credentials in the environment.",
        ) from None


def within(
    seconds: float, ask: Callable[[], _Answer], late: Callable[[], BaseException]
) -> _Answer:
    """What `ask` returns or raises, in a thread of its own.

    Raises `late()` where it has not come within `seconds`. The thread is then left behind, and
    keeps no process from ending: a library's call cannot be broken off.
    """
    found: list[_Answer] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            found.append(ask())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True, name="tallystick-listing")
    thread.start()
    thread.join(seconds)
    if raised:
        raise raised[0]
    if not found:
        raise late()
    return found[0]
