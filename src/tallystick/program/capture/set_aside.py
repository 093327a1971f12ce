"""Functions in memory by their code, without a look at all of memory each time (PROGRAM 5.19)."""

from __future__ import annotations

import gc
import types
from collections.abc import Callable, Collection, Iterable


def functions_of(codes: Iterable[types.CodeType]) -> list[types.FunctionType]:
    """The functions that have one of these codes, but for those that are set aside. Codes are told
    apart by identity: one source that was compiled twice has equal ones."""
    every = list(codes)
    known = {id(code) for code in every}
    referrers = gc.get_referrers(*every)
    return [f for f in referrers if isinstance(f, types.FunctionType) and id(f.__code__) in known]


class _SetAside:
    """What is in memory, set aside while followed code runs (`gc.freeze`).

    A look at every object in memory takes as long as a trace. What is there before followed code
    runs has no such code, so that what that code makes is found among the few objects that are
    new. Within `with`, all of memory is looked through once for each code.

    What the person has set aside is given back to the garbage collector: it costs time, and a
    function that is not found would be traced as it is. Where the step itself sets things aside,
    all of memory is looked through again.

    `at_end` is called when nothing is set aside any more.
    """

    def __init__(self) -> None:
        self.depth = 0
        # By the identity of a code that was looked for: itself, and its functions.
        self.known: dict[int, tuple[types.CodeType, dict[int, types.FunctionType]]] = {}
        self.at_end: list[Callable[[], None]] = []
        self._sign: list[object] = []  # made after the last look, so not set aside

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(self, *_: object) -> None:
        self.depth -= 1
        if self.depth == 0:
            if self.known:
                self.known = {}
                gc.unfreeze()
            for end in self.at_end:
                end()

    def find(self, codes: Collection[types.CodeType]) -> list[types.FunctionType]:
        """The functions in memory that have one of these codes, however old they are."""
        new = [code for code in codes if id(code) not in self.known]
        if new or self.is_more():
            gc.unfreeze()
            self.known |= {id(code): (code, {}) for code in new}
            self.note(functions_of(code for code, _ in self.known.values()))
            gc.freeze()
            self._sign = []
        else:
            self.note(functions_of(codes))
        wanted = {id(code) for code in codes}
        of_codes = [f for code in codes for f in self.known[id(code)][1].values()]
        return [f for f in of_codes if id(f.__code__) in wanted]

    def is_more(self) -> bool:
        """Whether somebody else has set things aside since the last look."""
        return bool(self.known) and all(o is not self._sign for o in gc.get_objects())

    def note(self, functions: Iterable[types.FunctionType]) -> None:
        """Keep those whose code was looked for: a later look may set them aside."""
        for function in functions:
            if id(function.__code__) in self.known:
                self.known[id(function.__code__)][1][id(function)] = function


SET_ASIDE = _SetAside()
