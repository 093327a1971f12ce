"""What its user closes, or the end of a context."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T", bound="Closing")


class Closing:
    """Something that holds files, memory or a connection until `close`."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self: T) -> T:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
