"""One program of a validation loss for all passes, whose numbers differ (PROGRAM 5.21)."""

from __future__ import annotations

from typing import Any

from tallystick.errors import UsageError
from tallystick.program.capture.by_step import MOST_PATHS, Exploration
from tallystick.program.capture.known import At, Names, Steps
from tallystick.program.capture.trace import Request, Trace


def at_every_pass(evaluated: Any, passes: Steps) -> tuple[At, tuple[tuple[Request, Trace], ...]]:
    """The numbers of the first pass, where the loss computes the same in each of `passes`; and the
    other ways that the code takes in them.

    `evaluated` has `loss` and `module`, and gives a `request(at)` and what is `traced(request)`.
    Raises UsageError, with the line, for a loss that passes would have apart.
    """
    exploration = Exploration([evaluated], lambda _: 0, passes, MOST_PATHS)
    exploration.explore()
    first, *others = exploration.groups
    for group in others:
        raise _refused(exploration.decision(group.paths[0]))
    for number in range(len(first.paths[0].shape.sources)):
        values = set()
        for step, path in enumerate(exploration.path_of):
            assert path is not None
            source: Any = path.shape.sources[number]
            if isinstance(source, str):
                source = exploration.column(exploration.names.expressions[source])[step]
            values.add(repr(float(source) if isinstance(source, int) else source))
        if len(values) > 1:
            raise _refused(exploration.origin(first.paths[-1], number))
    ways = tuple((path.request, path.traced) for path in first.paths[1:])
    return At(passes, 0, Names(), None, fixed=True), ways


def _refused(place: str) -> UsageError:
    return UsageError(
        f"The validation loss uses the number of the step{place}, and is another one in each pass: "
        "a pass of validation is no step of the training, and has no table.",
        "Use the number only where module.training is true, or give a validation loss without it.",
    )
