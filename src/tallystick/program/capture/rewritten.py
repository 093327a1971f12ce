"""The person's functions, written again so that each of their operations can be followed.

The source of a function's file is parsed, and in its syntax tree every call, operator, comparison,
attribute, item and loop becomes a call of the object that is named `NAME` among Python's builtins
(`follow.Following`). Lines stay. The compiled functions take the place of the ones in memory
(`__code__`) while a trace runs, and are put back (PROGRAM 5.19).
"""

from __future__ import annotations

import ast
from typing import Any

NAME = "__tallystick_following__"
# These look at the frame that calls them.
_AS_THEY_ARE = frozenset({"super", "locals", "globals", "vars", "dir", "eval", "exec", "NAME"})
# Python wants a plain result of these.
_STRICT = frozenset({
    "__str__", "__repr__", "__format__", "__len__", "__bool__", "__hash__", "__index__", "__int__",
    "__float__", "__length_hint__",
})  # fmt: skip
_TEMPORARY = "__tallystick_value_{}__"
_Node = ast.AST


def _hook(name: str, *arguments: ast.expr, keywords: list[ast.keyword] | None = None) -> ast.Call:
    owner = ast.Name(NAME, ast.Load())
    return ast.Call(ast.Attribute(owner, name, ast.Load()), list(arguments), keywords or [])


def _text(value: Any) -> ast.Constant:
    return ast.Constant(value)


def _named(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _only_raises(body: list[ast.stmt]) -> bool:
    return all(isinstance(statement, ast.Raise) for statement in body)


def _is_simple(node: ast.expr) -> bool:
    """Whether `node` may be evaluated early, or twice."""
    if isinstance(node, ast.Attribute):
        return _is_simple(node.value)
    return isinstance(node, (ast.Name, ast.Constant))


class _Assigned(ast.NodeVisitor):
    """The bare names that statements assign, without those of functions inside."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store) and node.id not in self.names:
            self.names.append(node.id)

    def _inside(self, node: Any) -> None:
        pass

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = visit_Lambda = _inside  # noqa: N815
    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _inside  # noqa: N815


def _assigned(statements: list[ast.stmt]) -> list[str]:
    found = _Assigned()
    for statement in statements:
        found.visit(statement)
    return found.names


class Rewriter(ast.NodeTransformer):
    def __init__(self) -> None:
        self.sites = 0
        self.classes: list[str] = []
        self.functions = 0
        self.named: list[str] = []

    def _number(self) -> int:
        self.sites += 1
        return self.sites

    def _site(self) -> ast.Constant:
        return _text(self._number())

    def _temporary(self) -> str:
        self.sites += 1
        return _TEMPORARY.format(self.sites)

    def _mangled(self, name: str) -> ast.Constant:
        if self.classes and name.startswith("__") and not name.endswith("__"):
            owner = self.classes[-1].lstrip("_")
            name = f"_{owner}{name}" if owner else name
        return _text(name)

    def visit(self, node: _Node) -> Any:
        made = super().visit(node)
        for one in made if isinstance(made, list) else [made]:
            if isinstance(one, ast.AST) and isinstance(node, (ast.expr, ast.stmt)):
                ast.copy_location(one, node)
                _fill(one, node)
        return made

    def visit_ClassDef(self, node: ast.ClassDef) -> Any:
        self.classes.append(node.name)
        try:
            return self.generic_visit(node)
        finally:
            self.classes.pop()

    def visit_Return(self, node: ast.Return) -> Any:
        value = self.visit(node.value) if node.value is not None else None
        if value is not None and self.named and self.named[-1] in _STRICT:
            value = _hook("returned", value)
        return ast.Return(value)

    def _function(self, node: Any) -> Any:
        self.functions += 1
        self.named.append(getattr(node, "name", ""))
        try:
            if getattr(node, "returns", None) is not None:
                node.returns = None  # annotations have no part in a step
            for argument in ast.walk(node.args):
                if isinstance(argument, ast.arg):
                    argument.annotation = None
            return self.generic_visit(node)
        finally:
            self.functions -= 1
            self.named.pop()

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = _function  # noqa: N815

    # -- expressions -------------------------------------------------------------------------------
    def visit_Call(self, node: ast.Call) -> Any:
        if isinstance(node.func, ast.Name) and node.func.id in _AS_THEY_ARE:
            return self.generic_visit(node)
        arguments = [self.visit(a) for a in node.args]
        keywords = [ast.keyword(k.arg, self.visit(k.value)) for k in node.keywords]
        return _hook("call", self.visit(node.func), *arguments, keywords=keywords)

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        value = self.visit(node.value)
        if not isinstance(node.ctx, ast.Load):
            return ast.Attribute(value, node.attr, node.ctx)
        return _hook("attribute", value, self._mangled(node.attr))

    def _index(self, node: ast.expr) -> ast.expr:
        if isinstance(node, ast.Slice):
            parts = [
                self.visit(p) if p else _text(None) for p in (node.lower, node.upper, node.step)
            ]
            return _hook("slice", *parts)
        if isinstance(node, ast.Tuple) and any(isinstance(e, ast.Slice) for e in node.elts):
            return ast.Tuple([self._index(e) for e in node.elts], ast.Load())
        made: ast.expr = self.visit(node)
        return made

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        value = self.visit(node.value)
        if not isinstance(node.ctx, ast.Load):
            return ast.Subscript(value, self.visit(node.slice), node.ctx)
        return _hook("item", value, self._index(node.slice))

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        return _hook(
            "binary", _text(type(node.op).__name__), self.visit(node.left), self.visit(node.right)
        )

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        return _hook("unary", _text(type(node.op).__name__), self.visit(node.operand))

    def visit_Compare(self, node: ast.Compare) -> Any:
        operands = [node.left, *node.comparators]
        pairs = []
        for i, op in enumerate(node.ops):
            left, right = operands[i], operands[i + 1]
            pairs.append((type(op).__name__, left, right))
        if len(pairs) == 1:
            name, left, right = pairs[0]
            return _hook("compare", _text(name), self.visit(left), self.visit(right))
        if all(map(_is_simple, operands[1:-1])):
            again = [
                _hook("compare", _text(n), self.visit(_copy(a)), self.visit(_copy(b)))
                for n, a, b in pairs
            ]
            return ast.BoolOp(ast.And(), list(again))
        names = ast.Tuple([_text(n) for n, _, _ in pairs], ast.Load())
        return _hook("chain", names, *map(self.visit, operands))

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        return ast.BoolOp(node.op, [_hook("asked", self.visit(v)) for v in node.values])

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        site = self._number()
        test = _hook("fork", _text(site), self.visit(node.test))
        return _hook(
            "joined", _text(site), ast.IfExp(test, self.visit(node.body), self.visit(node.orelse))
        )

    def visit_Dict(self, node: ast.Dict) -> Any:
        if all(k is None or isinstance(k, ast.Constant) for k in node.keys):
            return self.generic_visit(node)
        pairs: list[ast.expr] = [
            ast.Tuple([_text(None) if k is None else self.visit(k), self.visit(v)], ast.Load())
            if k is not None
            else self.visit(v)
            for k, v in zip(node.keys, node.values, strict=True)
        ]
        return _hook("dictionary", *pairs)

    def visit_Set(self, node: ast.Set) -> Any:
        return _hook("set", ast.List([self.visit(e) for e in node.elts], ast.Load()))

    def _generators(self, node: Any) -> list[ast.comprehension]:
        return [self._generator(g) for g in node.generators]

    def _generator(self, node: ast.comprehension) -> ast.comprehension:
        items = self.visit(node.iter)
        if not node.is_async:
            items = _hook("each", self._site(), items)
        asked: list[ast.expr] = [_hook("asked", self.visit(test)) for test in node.ifs]
        return ast.comprehension(self.visit(node.target), items, asked, node.is_async)

    def visit_ListComp(self, node: ast.ListComp) -> Any:
        return ast.ListComp(self.visit(node.elt), self._generators(node))

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> Any:
        return ast.GeneratorExp(self.visit(node.elt), self._generators(node))

    def visit_SetComp(self, node: ast.SetComp) -> Any:
        return _hook("set", ast.ListComp(self.visit(node.elt), self._generators(node)))

    def visit_DictComp(self, node: ast.DictComp) -> Any:
        pair = ast.Tuple([self.visit(node.key), self.visit(node.value)], ast.Load())
        return _hook(
            "dictionary", ast.Starred(ast.ListComp(pair, self._generators(node)), ast.Load())
        )

    def visit_JoinedStr(self, node: ast.JoinedStr) -> Any:
        parts: list[ast.expr] = []
        for value in node.values:
            if isinstance(value, ast.FormattedValue):
                spec = self.visit(value.format_spec) if value.format_spec else _text("")
                parts.append(
                    _hook("formatted", self.visit(value.value), _text(value.conversion), spec)
                )
            else:
                parts.append(value)
        return _hook("text", *parts)

    # -- statements --------------------------------------------------------------------------------
    def _stored(self, target: ast.expr, value: ast.expr) -> list[ast.stmt]:
        """`target = value` for one target that is already of the old tree."""
        if isinstance(target, ast.Attribute):
            return [
                ast.Expr(
                    _hook(
                        "set_attribute", value, self.visit(target.value), self._mangled(target.attr)
                    )
                )
            ]
        if isinstance(target, ast.Subscript):
            return [
                ast.Expr(
                    _hook("set_item", value, self.visit(target.value), self._index(target.slice))
                )
            ]
        if isinstance(target, (ast.Tuple, ast.List)):
            after: list[ast.stmt] = []
            elements = [self._deferred(e, after) for e in target.elts]
            unpacked = _hook("unpacked", value)
            return [ast.Assign([ast.Tuple(elements, ast.Store())], unpacked), *after]
        return [ast.Assign([target], value)]

    def _deferred(self, target: ast.expr, after: list[ast.stmt]) -> ast.expr:
        """A target of an unpacking: what is no name gets its value afterwards."""
        if isinstance(target, ast.Starred):
            return ast.Starred(self._deferred(target.value, after), ast.Store())
        if isinstance(target, ast.Name):
            return target
        name = self._temporary()
        after.extend(self._stored(target, _named(name)))
        return ast.Name(name, ast.Store())

    def visit_Assign(self, node: ast.Assign) -> Any:
        value = self.visit(node.value)
        if len(node.targets) == 1:
            return self._stored(node.targets[0], value)
        name = self._temporary()
        made: list[ast.stmt] = [ast.Assign([ast.Name(name, ast.Store())], value)]
        for target in node.targets:
            made.extend(self._stored(target, _named(name)))
        return made

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        if node.value is None or not self.functions:
            return self.generic_visit(node)
        return self._stored(node.target, self.visit(node.value))

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        name, value, target = _text(type(node.op).__name__), self.visit(node.value), node.target
        if isinstance(target, ast.Attribute):
            owner = self.visit(target.value)
            return ast.Expr(
                _hook("add_to_attribute", owner, self._mangled(target.attr), name, value)
            )
        if isinstance(target, ast.Subscript):
            owner, key = self.visit(target.value), self._index(target.slice)
            return ast.Expr(_hook("add_to_item", owner, key, name, value))
        return ast.Assign([target], _hook("inplace", name, _named(target.id), value))

    def visit_Delete(self, node: ast.Delete) -> Any:
        made: list[ast.stmt] = []
        for target in node.targets:
            if isinstance(target, ast.Subscript):
                owner, key = self.visit(target.value), self._index(target.slice)
                made.append(ast.Expr(_hook("delete_item", owner, key)))
            elif isinstance(target, ast.Attribute):
                owner = self.visit(target.value)
                made.append(ast.Expr(_hook("delete_attribute", owner, self._mangled(target.attr))))
            else:
                made.append(ast.Delete([target]))
        return made

    def _body(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        made: list[ast.stmt] = []
        for statement in statements:
            new = self.visit(statement)
            made.extend(new if isinstance(new, list) else [new])
        return made

    def _rejoined(self, site: int, names: list[str]) -> list[ast.stmt]:
        """Names that branches have assigned depend on what the branch depended on."""
        if not self.functions or not names:
            return []
        changes: list[ast.stmt] = [
            ast.Try(
                [ast.Assign([ast.Name(n, ast.Store())], _hook("chosen", _text(site), _named(n)))],
                [ast.ExceptHandler(_named("NameError"), None, [ast.Pass()])],
                [],
                [],
            )
            for n in names
        ]
        return [ast.If(_hook("forked", _text(site)), changes, [])]

    def visit_If(self, node: ast.If) -> Any:
        site = self._number()
        names = _assigned(node.body + node.orelse)
        what = "checked" if _only_raises(node.body) and not node.orelse else "fork"
        test = _hook(what, _text(site), self.visit(node.test))
        made: list[ast.stmt] = [ast.If(test, self._body(node.body), self._body(node.orelse))]
        return made + self._rejoined(site, names)

    def visit_Assert(self, node: ast.Assert) -> Any:
        test = _hook("checked", self._site(), self.visit(node.test))
        return ast.Assert(test, self.visit(node.msg) if node.msg else None)

    def visit_While(self, node: ast.While) -> Any:
        site = self._number()
        names = _assigned(node.body)
        test = _hook("fork", _text(site), self.visit(node.test))
        made: list[ast.stmt] = [ast.While(test, self._body(node.body), self._body(node.orelse))]
        return made + self._rejoined(site, names)

    def visit_For(self, node: ast.For) -> Any:
        site = self._number()
        names = _assigned(node.body)
        after: list[ast.stmt] = []
        if isinstance(node.target, (ast.Tuple, ast.List)):
            elements = [self._deferred(e, after) for e in node.target.elts]
            target: ast.expr = ast.Tuple(elements, ast.Store())
        else:
            target = self._deferred(node.target, after)
        items = _hook("each", _text(site), self.visit(node.iter))
        body = after + self._body(node.body)
        made: list[ast.stmt] = [ast.For(target, items, body, self._body(node.orelse))]
        return made + self._rejoined(site, names)

    def visit_Match(self, node: ast.Match) -> Any:
        """As `if`s where the patterns are values, sequences of them, and names."""
        subject = self._temporary()
        first = ast.Assign([ast.Name(subject, ast.Store())], self.visit(node.subject))
        tests = [_pattern(case.pattern, _named(subject)) for case in node.cases]
        if any(test is None for test in tests):
            native = ast.Match(_hook("fixed", _named(subject)), [
                ast.match_case(
                    case.pattern,
                    _hook("asked", self.visit(case.guard)) if case.guard else None,
                    self._body(case.body),
                )
                for case in node.cases
            ])  # fmt: skip
            return [first, native]
        chain: list[ast.stmt] = []
        for case, test in zip(reversed(node.cases), reversed(tests), strict=True):
            assert test is not None
            found, names = test
            wanted: ast.expr = found
            bound = [ast.NamedExpr(ast.Name(n, ast.Store()), part) for n, part in names]
            parts: list[ast.expr] = [found, *(_always(b) for b in bound)]
            if case.guard is not None:
                parts.append(case.guard)
            wanted = parts[0] if len(parts) == 1 else ast.BoolOp(ast.And(), parts)
            chain = [ast.If(wanted, case.body, chain)]
        placed = [ast.fix_missing_locations(ast.copy_location(s, node)) for s in chain]
        return [first, *self._body(placed)]


def _always(expression: ast.expr) -> ast.expr:
    return ast.Compare(ast.Tuple([expression], ast.Load()), [ast.IsNot()], [_text(None)])


def _pattern(
    pattern: ast.pattern, subject: ast.expr
) -> tuple[ast.expr, list[tuple[str, ast.expr]]] | None:
    """A test that says whether `subject` fits, and the names that get its parts; or None."""
    if isinstance(pattern, ast.MatchValue):
        return ast.Compare(subject, [ast.Eq()], [pattern.value]), []
    if isinstance(pattern, ast.MatchSingleton):
        return ast.Compare(subject, [ast.Is()], [_text(pattern.value)]), []
    if isinstance(pattern, ast.MatchAs):
        named = [] if pattern.name is None else [(pattern.name, subject)]
        if pattern.pattern is None:
            return _text(True), named
        inner = _pattern(pattern.pattern, subject)
        return None if inner is None else (inner[0], inner[1] + named)
    if isinstance(pattern, ast.MatchOr):
        several = [_pattern(p, subject) for p in pattern.patterns]
        if any(s is None or s[1] for s in several):
            return None
        return ast.BoolOp(ast.Or(), [s[0] for s in several if s]), []
    if isinstance(pattern, ast.MatchSequence):
        if any(isinstance(p, ast.MatchStar) for p in pattern.patterns):
            return None
        fits = _hook("is_sequence", subject, _text(len(pattern.patterns)))
        tests: list[ast.expr] = [fits]
        names: list[tuple[str, ast.expr]] = []
        for i, part in enumerate(pattern.patterns):
            found = _pattern(part, ast.Subscript(subject, _text(i), ast.Load()))
            if found is None:
                return None
            tests.append(found[0])
            names += found[1]
        return ast.BoolOp(ast.And(), tests), names
    return None


def _copy(node: ast.expr) -> ast.expr:
    made = ast.parse(ast.unparse(node), mode="eval").body
    for inner in ast.walk(made):
        if isinstance(inner, (ast.expr, ast.stmt)):
            ast.copy_location(inner, node)
    return made


def _fill(made: _Node, near: _Node) -> None:
    """The location of `near` for the nodes in `made` that have none."""
    for child in ast.iter_child_nodes(made):
        if isinstance(child, (ast.expr, ast.stmt, ast.ExceptHandler, ast.keyword)):
            if getattr(child, "lineno", None) is not None:
                continue
            ast.copy_location(child, near)
        _fill(child, near)
