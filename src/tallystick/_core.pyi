"""The native core checks the types of what it is given; its functions are not restated here."""

from typing import Any

def __getattr__(name: str) -> Any: ...
