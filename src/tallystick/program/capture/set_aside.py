"""Functions in memory by their code, without a look at all of memory each time (PROGRAM 5.19)."""

from __future__ import annotations

import gc
import types
from collections.abc import Collection, Iterable


def functions_of(codes: Collection[types.CodeType]) -> list[types.FunctionType]:
    """The functions that have one of these codes, but for those that are set aside."""
    return [
        f
        for f in gc.get_referrers(*codes)
        if isinstance(f, types.FunctionType) and f.__code__ in codes
    ]


class _SetAside:
    """What is in memory, set aside while followed code runs (`gc.freeze`).

    A look at every object in memory takes as long as a trace. What is there before followed code
    runs has no such code, so that what that code makes is found among the few objects that are
    new. Within `with`, all of memory is looked through once for each code.

    What the person has set aside is given back to the garbage collector: it costs time, and a
    function that is not found would be traced as it is.
    """

    def __init__(self) -> None:
        self.depth = 0
        # By the identity of a code that was looked for: itself, and its functions.
        self.known: dict[int, tuple[types.CodeType, dict[int, types.FunctionType]]] = {}

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(self, *_: object) -> None:
        self.depth -= 1
        if self.depth == 0 and self.known:
            self.known = {}
            gc.unfreeze()

    def find(self, codes: Collection[types.CodeType]) -> list[types.FunctionType]:
        """The functions in memory that have one of these codes, however old they are."""
        new = [code for code in codes if id(code) not in self.known]
        if new:
            gc.unfreeze()
            self.known |= {id(code): (code, {}) for code in new}
            self.note(functions_of({code for code, _ in self.known.values()}))
            gc.freeze()
        else:
            self.note(functions_of(codes))
        of_codes = [f for code in codes for f in self.known[id(code)][1].values()]
        return [f for f in of_codes if f.__code__ in codes]

    def note(self, functions: Iterable[types.FunctionType]) -> None:
        """Keep those whose code was looked for: a later look may set them aside."""
        for function in functions:
            if id(function.__code__) in self.known:
                self.known[id(function.__code__)][1][id(function)] = function


SET_ASIDE = _SetAside()
