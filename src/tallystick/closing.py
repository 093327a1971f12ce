"""What holds something until its user closes it, or until the end of a `with` block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypeVar

T = TypeVar("T", bound="Closing")


class Closing(ABC):
    """Something that holds files, memory or a connection until it is closed. Its class says how."""

    @abstractmethod
    def close(self) -> None:
        """Give back what it holds. The caller must not use it afterwards."""

    def __enter__(self: T) -> T:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
