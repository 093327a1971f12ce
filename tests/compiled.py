"""The product's bytecode, made before the tests that start interpreters of their own.

Where PYTHONDONTWRITEBYTECODE is set, as in many images of containers, each of these would compile
every module that it imports: half of the processor time of a short command.
"""

from __future__ import annotations

import importlib.util
import py_compile
from contextlib import suppress
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
_HEADER = 16
# The header says: as long as the source has this hash (PEP 552). A time of one second's precision
# would keep the bytecode of a mutant.
_CHECKED_HASH = b"\x03\0\0\0"


def compile_sources() -> None:
    """Compile each module whose bytecode is not there, or is of another text."""
    for name in ("src", "benchmarks"):
        for source in (_ROOT / name).rglob("*.py"):
            with suppress(OSError, py_compile.PyCompileError):  # its import will say what is wrong
                if not _is_compiled(source):
                    py_compile.compile(
                        str(source), doraise=True,
                        invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH,
                    )  # fmt: skip


def _is_compiled(source: Path) -> bool:
    wanted = importlib.util.MAGIC_NUMBER + _CHECKED_HASH
    try:
        with open(importlib.util.cache_from_source(str(source)), "rb") as file:
            found = file.read(_HEADER)
    except FileNotFoundError:
        return False
    return found == wanted + importlib.util.source_hash(source.read_bytes())
