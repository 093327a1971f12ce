"""The pages of errors, made from the error tree and from every place that raises one."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

from command_pages import escaped

from tallystick import errors

SOURCES = Path(errors.__file__).parent
# What to do where the message itself says no more.
REMEDIES = {
    "TallystickError": "Catch this one to catch them all. Read `next_action`.",
    "UsageError": "Change the call, the option or the file that the message names.",
    "UnsupportedOperatorError": "Express the model with the existing operators, or add one.",
    "RefusedModelError": "Use a model of a family that the message lists.",
    "MovingStateError": "Let the loss depend on its batch and module alone, or trace each step.",
    "RefusedOperandsError": "Repair the data. No honest run has such operands.",
    "CannotCheckError": "Nothing was judged. Remove the obstacle and run the same command again.",
    "CallbackError": "Leave the change out, or make it part of the job. Then continue.",
    "StorageError": "Free some space, fix the permissions, or restore the file.",
    "StoreError": "Try again later. Check the URL and the credentials.",
    "StoreChangedError": "Stop everyone who writes there, and start again.",
    "StoreConflictError": "Let only one process write there.",
    "UnsupportedVersionError": "Use the release of Tallystick that knows this version.",
    "EnvironmentRefusedError": "Undo the setting that the message names, or use another machine.",
    "MachineFaultError": "Try again, or elsewhere. The error says nothing about the run.",
    "DeviceLostError": "Start a new process. What was stored is not lost.",
    "CounterpartyError": "Do not rely on the file. Ask its author for an intact copy.",
    "CorruptFileError": "Restore the file, or ask its author for an intact copy.",
    "DigestMismatchError": "Treat the bytes as false. Ask for those that the digest names.",
    "SignatureInvalidError": "Treat the statement as unsigned. Check that you trust the right key.",
    "MismatchError": "The run is not what was signed: go to a dispute.",
}
EXIT = {1: "1, mismatch", 2: "2, could not check", 3: "3, wrong usage"}


def tree() -> str:
    """Every class of the tree: its cause, its exit code and what to do."""

    def of(cls: type[errors.TallystickError]) -> Iterator[str]:
        depth = len([c for c in cls.__mro__ if issubclass(c, errors.TallystickError)])
        cause = " ".join((cls.__doc__ or "").split())
        yield f"{'#' * min(depth + 1, 4)} {cls.__name__}\n"
        yield f"{escaped(cause)}\n"
        yield f"Exit code\n: {EXIT[cls.exit_code]}\n"
        yield f"What to do\n: {escaped(REMEDIES[cls.__name__])}\n"
        for below in cls.__subclasses__():
            if below.__module__ == errors.__name__:
                yield from of(below)

    return "\n".join(of(errors.TallystickError))


def _text(node: ast.expr | None, constants: dict[str, ast.expr]) -> str | None:
    """A string of the source; what it takes from a variable stands as `…`."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        parts = [_text(value, constants) or "…" for value in node.values]
        return "".join(parts)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        sides = _text(node.left, constants), _text(node.right, constants)
        return "".join(side or "…" for side in sides)
    if isinstance(node, ast.Name) and node.id in constants:
        return _text(constants[node.id], {})
    return None


def _messages(path: Path) -> Iterator[tuple[str, str, str]]:
    """Class, message and next action of what a module raises."""
    module = ast.parse(path.read_text("utf-8"))
    constants = {
        target.id: node.value
        for node in module.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(module):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        named = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        if named not in REMEDIES:
            continue
        by_name = {word.arg: word.value for word in node.keywords}
        after = 1 if named == "RefusedOperandsError" else 0
        given = node.args[after:]
        message = _text(given[0], constants) if given else None
        action = given[1] if len(given) > 1 else by_name.get("next_action")
        # A sentence that is a variable and nothing else helps nobody.
        if message is not None and len(message.replace("…", "").split()) > 1:
            yield named, message.strip(), (_text(action, constants) or "").strip()


def messages(usage: bool) -> str:
    """Every message, by the room of the code that raises it: of wrong usage, or all others."""
    found: dict[str, dict[str, tuple[str, str]]] = {}
    for path in sorted(SOURCES.rglob("*.py")):
        room = path.relative_to(SOURCES).parts[0].removesuffix(".py")
        for named, message, action in _messages(path):
            if issubclass(getattr(errors, named), errors.UsageError) == usage:
                found.setdefault(room, {}).setdefault(message, (named, action))
    lines = []
    for room, rows in found.items():
        lines.append(f"## {room}\n")
        for message, (named, action) in sorted(rows.items()):
            does = escaped(" ".join((action or REMEDIES[named]).split()))
            lines.append(f"{escaped(' '.join(message.split()))}\n: {does} *({named})*\n")
    return "\n".join(lines)


def classes() -> set[str]:
    """Every class of the tree by name."""
    return {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, errors.TallystickError)
    }
