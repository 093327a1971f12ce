"""What the functions of `rewritten` call in the place of Python's operations (PROGRAM 5.19)."""

from __future__ import annotations

import operator
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor, nn

from tallystick.program.capture.follow_calls import FollowedCalls
from tallystick.program.capture.follow_marks import MarkedAnswers
from tallystick.program.capture.recorded import Expression, is_recorded, plain
from tallystick.program.capture.rewriting import Rewriting, raised_by_handlers
from tallystick.program.capture.source import is_model

_BINARY: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "Add": (operator.add, operator.iadd), "Sub": (operator.sub, operator.isub),
    "Mult": (operator.mul, operator.imul), "Div": (operator.truediv, operator.itruediv),
    "FloorDiv": (operator.floordiv, operator.ifloordiv), "Mod": (operator.mod, operator.imod),
    "Pow": (operator.pow, operator.ipow), "LShift": (operator.lshift, operator.ilshift),
    "RShift": (operator.rshift, operator.irshift), "BitOr": (operator.or_, operator.ior),
    "BitXor": (operator.xor, operator.ixor), "BitAnd": (operator.and_, operator.iand),
    "MatMult": (operator.matmul, operator.imatmul),
}  # fmt: skip
_UNARY: dict[str, Callable[..., Any]] = {
    "Not": operator.not_, "USub": operator.neg, "UAdd": operator.pos, "Invert": operator.invert,
}  # fmt: skip
_COMPARED: dict[str, Callable[..., Any]] = {
    "Eq": operator.eq, "NotEq": operator.ne, "Lt": operator.lt, "LtE": operator.le,
    "Gt": operator.gt, "GtE": operator.ge, "Is": operator.is_, "IsNot": operator.is_not,
    "In": lambda a, b: a in b, "NotIn": lambda a, b: a not in b,
}  # fmt: skip
_CHOSEN = (bool, int, float, str, type(None))


class Following(FollowedCalls):
    """The operations of followed code. A value that depends on none of the moving state is passed
    through Python's own operation."""

    def __init__(
        self, record: MarkedAnswers, count: Callable[[], int], rewriting: Rewriting
    ) -> None:
        super().__init__(record, count, rewriting)
        self.forks: list[tuple[int, int, Expression | None]] = []
        self.last: dict[tuple[int, int], Expression | None] = {}

    # -- operators ---------------------------------------------------------------------------------
    def _computed(self, function: Callable[..., Any], *operands: Any) -> Any:
        """`function` of plain operands; recorded, or a reach where it makes nodes."""
        expression = self.mix(map(self.inside, operands))
        if expression is None:
            return self.outside_or_plain(function, *operands)
        return self.outside(function, expression, *operands)

    def binary(self, name: str, a: Any, b: Any) -> Any:
        return self._operator(_BINARY[name][0], a, b)

    def inplace(self, name: str, a: Any, b: Any) -> Any:
        function = _BINARY[name][1]
        expression = self.of(b) if self.mutable(a) else None
        made = self._operator(function, a, b)
        if expression is not None and made is a:
            self.mark_object(a, expression)
        return made

    def _operator(self, function: Callable[..., Any], a: Any, b: Any) -> Any:
        if self.of(a) is None and self.of(b) is None and not isinstance(a, str):
            return self.outside_or_plain(function, a, b)
        if self.mutable(a) and self.mutable(b) and not is_recorded(a) and not is_recorded(b):
            made = function(a, b)
            expression = self.mix((self.of(a), self.of(b)))
            if expression is not None:
                self.mark_object(made, expression)
            return made
        return self._computed(function, a, b)

    def unary(self, name: str, a: Any) -> Any:
        return _UNARY[name](a) if self.of(a) is None else self._computed(_UNARY[name], a)

    def compare(self, name: str, a: Any, b: Any) -> Any:
        if isinstance(a, Tensor) and isinstance(b, Tensor):
            return _COMPARED[name](a, b)
        return self._computed(_COMPARED[name], a, b)

    def chain(self, names: tuple[str, ...], *operands: Any) -> Any:
        made: Any = True
        for i, name in enumerate(names):
            made = self.compare(name, operands[i], operands[i + 1])
            if not made:
                return made
        return made

    # -- attributes and items ----------------------------------------------------------------------
    def attribute(self, owner: Any, name: str) -> Any:
        if is_recorded(owner):
            return self.recorded(getattr(owner.number, name), owner.expression)
        found = getattr(owner, name)
        if is_recorded(found) or (not self.places and not self.objects):
            return found
        return self.recorded(found, self.attribute_depends(owner, name, found))

    def attribute_depends(self, owner: Any, name: str, found: Any) -> Expression | None:
        """What an attribute depends on that was found to be `found`."""
        expression = self.at(owner, name)
        if expression is None:
            bases = owner.__mro__ if isinstance(owner, type) else type(owner).__mro__
            held = getattr(owner, "__dict__", {})
            own = name in held and not isinstance(owner, type)
            expression = None if own else next(
                (e for base in bases if (e := self.at(base, name)) is not None), None
            )  # fmt: skip
        if expression is None and id(owner) in self.objects and not callable(found):
            expression = self.objects[id(owner)][1]
        return expression

    def item(self, owner: Any, key: Any) -> Any:
        chosen = self.mix((self.of(owner), self.inside(key)))
        if chosen is None:
            found = owner[key]
            if is_recorded(found) or not self.places:
                return found
            at = key
            if isinstance(key, int) and key < 0 and isinstance(owner, list):
                at = key + len(owner)
            return self.recorded(found, self.at(owner, at))
        return self.outside(operator.getitem, chosen, owner, key, raises=True)

    def set_attribute(self, value: Any, owner: Any, name: str) -> None:
        owner = self._choice(owner)
        expression = self.of(value) if is_recorded(value) else None
        if expression is None:
            setattr(owner, name, value)
            self.unmark_place(owner, name)
            return
        if self._torch_may_read(owner, name, value.number):
            self.reach(expression, f"becomes the attribute {name} of {type(owner).__name__}")
        if self._sets_itself(type(owner), name) or isinstance(owner, types.ModuleType):
            setattr(owner, name, value)
            return
        setattr(owner, name, value.number)
        if name in getattr(owner, "__dict__", {}):
            self.mark_place(owner, name, expression)
        else:  # a field of C code
            self.mark_object(owner, expression)

    def _choice(self, owner: Any) -> Any:
        """The object itself, of a choice; what is changed in it depends on that."""
        if is_recorded(owner):
            self.mark_object(owner.number, owner.expression)
        return plain(owner)

    @staticmethod
    def _sets_itself(kind: type, name: str) -> bool:
        described = getattr(kind, name, None)
        described = getattr(described, "fset", None) or getattr(
            type(described), "__set__", None
        )  # fmt: skip
        codes = (getattr(f, "__code__", None) for f in (described, kind.__setattr__))
        return any(code is not None and is_model(code.co_filename) for code in codes)

    @staticmethod
    def _torch_may_read(owner: Any, name: str, value: Any) -> bool:
        """Whether torch's own code may read the attribute."""
        if isinstance(owner, Tensor):
            return True
        kind = owner if isinstance(owner, type) else type(owner)
        if not issubclass(kind, nn.Module):
            return False
        torchs = kind.__module__.startswith("torch.")
        return torchs or name == "training" or isinstance(value, (nn.Module, Tensor)) or name in (
            vars(nn.Module)
        )  # fmt: skip

    def set_item(self, value: Any, owner: Any, key: Any) -> None:
        chosen = self.mix((self.of(owner) if is_recorded(owner) else None, self.inside(key)))
        owner = plain(owner)
        expression = self.of(value) if is_recorded(value) else None
        if isinstance(owner, (Tensor, nn.Module)):
            both = self.mix((chosen, expression))
            start = self.count()
            changed: Any = owner
            changed[self.bare(key)] = self.bare(value)
            if both is not None:
                self.reach(both, "changes a tensor or a layer", start)
            return
        key = self.bare(key)
        if isinstance(owner, dict) and "__builtins__" in owner:  # globals, read by their names
            owner[key] = value
            return
        owner[key] = plain(value)
        everywhere = not isinstance(owner, (dict, list))
        both = self.mix((chosen, expression if everywhere else None))
        if both is not None:
            self.mark_object(owner, both)
        if chosen is None and everywhere:
            return
        if expression is not None:
            at = key + len(owner) if isinstance(key, int) and key < 0 else key
            self.mark_place(owner, at, expression)
        else:
            self.unmark_place(owner, key)

    def add_to_attribute(self, owner: Any, name: str, op: str, value: Any) -> None:
        self.set_attribute(self.inplace(op, self.attribute(owner, name), value), owner, name)

    def add_to_item(self, owner: Any, key: Any, op: str, value: Any) -> None:
        self.set_item(self.inplace(op, self.item(owner, key), value), owner, key)

    def delete_item(self, owner: Any, key: Any) -> None:
        expression = self.mix((self.of(owner), self.inside(key)))
        owner = plain(owner)
        del owner[self.bare(key)]
        if expression is not None:
            self.mark_object(owner, expression)

    def delete_attribute(self, owner: Any, name: str) -> None:
        delattr(self._choice(owner), name)

    def slice(self, *bounds: Any) -> slice:
        return slice(*bounds)

    # -- displays and text -------------------------------------------------------------------------
    def dictionary(self, *parts: Any) -> dict[Any, Any]:
        made: dict[Any, Any] = {}
        for part in parts:
            if isinstance(part, dict):
                made.update(part)
                continue
            self.set_item(part[1], made, part[0])
        return made

    def set(self, items: list[Any]) -> Any:
        expression = self.mix(map(self.of, items))
        made = {plain(item) for item in items}
        if expression is not None:
            self.mark_object(made, expression)
        return made

    def formatted(self, value: Any, conversion: int, spec: Any) -> Any:
        convert: Any = {115: str, 114: repr, 97: ascii}.get(conversion, lambda v: v)
        expression = self.mix((self.inside(value), self.of(spec)))
        made = format(convert(self.bare(value)), plain(spec))
        return self.recorded(made, self.mix((expression, self.lost())))

    def returned(self, value: Any) -> Any:
        """What a method returns from which Python takes no recorded value, as `__len__`."""
        if is_recorded(value):
            self.given_up.append(value.expression)
        return plain(value)

    def text(self, *parts: Any) -> Any:
        made = "".join(plain(p) for p in parts)
        return self.recorded(made, self.mix(map(self.of, parts)))

    def unpacked(self, value: Any) -> Any:
        if is_recorded(value):
            return iter(value) if isinstance(value.number, (tuple, list)) else iter(
                [self.recorded(v, value.expression) for v in value.number]
            )  # fmt: skip
        expression = self.of(value)
        if expression is not None:
            return [self.recorded(v, expression) for v in value]
        if isinstance(value, list) and id(value) in self.holders:
            return [self.item(value, i) for i in range(len(value))]
        return value

    def fixed(self, value: Any) -> Any:
        """A value that a pattern reads in ways that are not followed."""
        if is_recorded(value):
            self.reach(value.expression, "chooses a case of a match that is not followed")
        return self.bare(value)

    def is_sequence(self, value: Any, length: int) -> Any:
        given = plain(value)
        fits = isinstance(given, (list, tuple)) and len(given) == length
        return self.recorded(fits, self.of(value))

    # -- branches ----------------------------------------------------------------------------------
    def asked(self, value: Any) -> Any:
        """A value whose truth is asked for next."""
        for name in ("__bool__", "__len__"):
            method = getattr(type(value), name, None)
            if isinstance(method, types.FunctionType) and not is_recorded(value):
                return self.outside_or_plain(bool, value)
        return value if is_recorded(value) else self.recorded(value, self.of(value))

    def checked(self, site: int, value: Any) -> Any:
        """A truth that only decides about an error passes as it is, where nothing takes that."""
        if raised_by_handlers(sys._getframe(1)) is not None:
            return self.asked(value)
        return plain(value)

    def fork(self, site: int, value: Any) -> Any:
        value = self.asked(value)
        expression = self.of(value)
        frame = id(sys._getframe(1))
        before = self.last.get((frame, site))
        self.last[frame, site] = expression if expression is not None else before
        self.forks.append((frame, site, expression))
        return value

    def joined(self, site: int, value: Any) -> Any:
        """The value of `a if test else b`."""
        frame = id(sys._getframe(1))
        while self.forks:
            found = self.forks.pop()
            if found[:2] == (frame, site):
                self.last.pop((frame, site), None)
                return self._chosen(value, found[2])
        return value

    def forked(self, site: int) -> bool:
        """Whether the last branch at `site` depends on moving state."""
        return self.last.get((id(sys._getframe(1)), site)) is not None

    def chosen(self, site: int, value: Any) -> Any:
        return self._chosen(value, self.last[id(sys._getframe(1)), site])

    def _chosen(self, value: Any, expression: Expression | None) -> Any:
        if isinstance(value, _CHOSEN):
            return self.recorded(value, self.mix((expression, self.of(value))))
        return value

    def each(self, site: int, items: Any) -> Any:
        """The items of a loop; each step of a moving one is a truth, and its end too."""
        frame = id(sys._getframe(1))
        self.last.pop((frame, site), None)
        expression = self.of(items)
        if expression is None:
            if isinstance(items, list) and id(items) in self.holders:
                return iter([self.item(items, i) for i in range(len(items))])
            if isinstance(items, dict) and id(items) in self.holders:
                return iter(items)
            return items
        self.last[frame, site] = expression
        return self._steps(plain(items), expression)

    def _steps(self, items: Any, expression: Expression) -> Iterator[Any]:
        given: list[Any] = []
        stream = iter(items)
        while True:
            try:
                item, more = next(stream), True
            except StopIteration:
                item, more = None, False
            if not self.record.decided(more, expression, "loop"):
                return
            if not more:
                if given:
                    item = given[-1]
                elif isinstance(items, range):
                    item = items.start
                else:
                    self.reach(expression, "gives a loop items that are not known yet")
                    return
                more = True
            given.append(item)
            if len(given) > 1_000_000:
                raise RuntimeError("A loop does not end where a branch is turned around.")
            yield self.recorded(item, expression)
