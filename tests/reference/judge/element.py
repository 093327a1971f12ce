"""Phase 3: one element, and the game below it (PROTOCOL 6, OPENING 4, 5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from reference.judge import messages as ask
from reference.judge.game import Referee
from reference.judge.merkle import LEAF, NUMPY, elements, width
from reference.judge.quantities import WIDTHS, Element, Q, RefusedError, block, decode, encode
from reference.judge.rounds import BOTH, Play, UndecidedError, VerdictError, both, convict
from reference.judge.rounds import first_element as find_element
from reference.judge.trees import quantity

EXECUTED = [(0, "6.5"), (1, "6.5")]
BLOCK = 256


def output_differs(
    game: Referee, j: int, inputs: dict[int, bytes], records: dict[int, ask.Record]
) -> Play:
    """5.7: the first output that differs, and its first element that does."""
    node = game.program.nodes[j]
    pairs = zip(records[0].outputs, records[1].outputs, strict=True)
    output = next(k for k, (x, y) in enumerate(pairs) if x != y)
    kind = node.types[output]
    place = ask.Place(game.step, j, 1, output)
    digests = [records[p].outputs[output] for p in BOTH]
    e, claims = yield from find_element(place, kind, digests)
    operands = [None if o is None else game.program.type_of(o) for o in node.operands]
    element = Element(node.op, node.attrs, operands, kind, output, e)
    below = Below(game, place, element, inputs)
    below.entries = yield from own_entries(game, j, output, e)
    yield from below.settle(quantity(element, game.terms.contract), claims)


def own_entries(game: Referee, j: int, output: int, e: int) -> Play:
    """Each party's entry for the element, where its output has a section (6.10)."""
    if "replay/" not in game.terms.contract:
        return [None, None]
    from reference.judge.logs import open_block, open_logs, sections

    them = sections(game)
    number = next((n for n, s in enumerate(them) if (s.node, s.output) == (j, output)), None)
    if number is None:
        return [None, None]
    logs = yield from open_logs(game)
    block = e // them[number].per_block
    found = yield from open_block(game, number, block, [logs[p][0][number] for p in BOTH])
    return [found[p].get(e) for p in BOTH]


class Below:
    """The game below one element."""

    def __init__(
        self, game: Referee, place: ask.Place, element: Element, inputs: dict[int, bytes]
    ) -> None:
        self.game, self.place, self.element, self.inputs = game, place, element, inputs
        self.leaves: dict[tuple[int, int], bytes] = {}
        self.entries: list[int | None] = [None, None]
        # The element's value where both agree on it (6.13), and whether the game goes on then.
        self.value: bytes | None = None

    def read(self, k: int, positions: Sequence[int]) -> Play:
        """One read (5.2, 5.3): the elements as an array of the operand's dtype."""
        kind = self.element.operands[k]
        assert kind is not None
        if any(not 0 <= f < elements(kind) for f in positions):
            raise VerdictError(EXECUTED)
        w = width(kind[0])
        new = sorted({f * w // LEAF for f in positions} - {i for o, i in self.leaves if o == k})
        if new:
            place = ask.Place(self.place.step, self.place.node, 0, k)
            data, _ = yield from self.game.opened(place, kind, self.inputs[k], new)
            self.leaves |= {(k, i): d for i, d in data.items()}
        found = b""
        for f in positions:
            i, start = divmod(f * w, LEAF)
            found += self.leaves[k, i][start : start + w]
        array = np.frombuffer(found, NUMPY[kind[0]])
        return array.astype(np.bool_) if kind[0] == "bool" else array

    def executed(self, formula: Any) -> Play:
        """The value of an executed part; what it refuses convicts both (5.4)."""
        try:
            with np.errstate(all="ignore"):
                return (yield from formula)
        except RefusedError:
            raise VerdictError(EXECUTED) from None

    def ask(self, path: list[int], view: int, numbers: tuple[int, int, int], of: list[str]) -> Play:
        widths = [WIDTHS[d] for d in of]
        query = ask.values(self.place, self.element.e, path, view, numbers, widths)
        return (yield from both(query))

    def judged(self, q: Q, claims: Sequence[bytes], true: Any) -> None:
        due = encode(q.dtype, true)
        convict([(p, claims[p] != due) for p in BOTH], "6.5")
        raise AssertionError("the claims differ")

    def settle(self, q: Q, claims: Sequence[bytes]) -> Play:
        """4.2 to 4.8: ends in a verdict."""
        path: list[int] = []
        while True:
            needs: list[Any] = []
            if q.needs:
                stated = yield from self.ask(path, 1, (0, 0, 0), [n.dtype for n in q.needs])
                k = differs(stated[0], stated[1])
                if k is not None:
                    q, claims = q.needs[k], [stated[p][k] for p in BOTH]
                    path = [*path, k]
                    continue
                needs = [decode(n.dtype, d) for n, d in zip(q.needs, stated[0], strict=True)]
            if q.kind == "terms":
                i, claims = yield from self.term(q, path, claims, needs)
                path = [*path, len(q.needs) + i]
                q = q.f(i)
                continue
            yield from getattr(self, q.kind)(q, path, claims, needs)
            return

    def local(self, q: Q, _path: list[int], claims: Sequence[bytes], needs: list[Any]) -> Play:
        with np.errstate(all="ignore"):
            formula = q.f(self.read, *needs)
        self.judged(q, claims, (yield from self.executed(formula)))

    def logged(self, q: Q, _path: list[int], claims: Sequence[bytes], needs: list[Any]) -> Play:
        """OPENING 8.6, 8.7, 9.5, 9.6."""
        from reference.judge.logs import false_value, forged_choice, published

        of, due = yield from self.executed(q.f(self.read, *needs))
        agreed = self.value is not None
        wrong = []
        for p in BOTH:
            entry = self.entries[p]
            if published(self.game.terms.contract):
                c = 1 if entry is None else entry
                bad = of is not None and false_value(of, claims[p], c)
                if agreed and of is not None:
                    bad = bad or forged_choice(of, c)
            else:
                bad = differs_from(due[entry], claims[p])
                if agreed and entry is not None:
                    bad = bad or of is None or of.forged(entry)
            wrong.append((p, bad))
        convict(wrong, "6.13" if agreed else "6.11")
        if not agreed:
            raise UndecidedError

    def narrow(self, q: Q, path: list[int], claims: Sequence[bytes]) -> Play:
        """4.4.1: the disputed block of terms, and its claims."""
        sizes = [-(-q.count // BLOCK)]
        while sizes[-1] > 1:
            sizes.append(-(-sizes[-1] // BLOCK))
        i = 0
        for level in range(len(sizes) - 1, 0, -1):
            first, last = BLOCK * i, min(BLOCK * (i + 1), sizes[level - 1])
            of = [q.dtype] * (last - first)
            stated = yield from self.ask(path, 2, (level, i, 0), of)
            self.sums(q, stated, claims, "6.6")
            k = differs(stated[0], stated[1])
            assert k is not None
            claims, i = [stated[p][k] for p in BOTH], first + k
        return i, claims

    def sums(self, q: Q, stated: Any, claims: Sequence[bytes], clause: str) -> None:
        wrong = []
        for p in BOTH:
            due = encode(q.dtype, block(q.dtype, [decode_raw(q.dtype, d) for d in stated[p]]))
            wrong.append((p, due != claims[p]))
        convict(wrong, clause)

    def tree(self, q: Q, path: list[int], claims: Sequence[bytes], needs: list[Any]) -> Play:
        i, claims = yield from self.narrow(q, path, claims)
        numbers = range(BLOCK * i, min(BLOCK * (i + 1), q.count))
        terms: Any = []
        if q.count:
            terms = yield from self.executed(q.f(self.read, numbers, *needs))
        self.judged(q, claims, block(q.dtype, terms))

    def term(self, q: Q, path: list[int], claims: Sequence[bytes], _needs: list[Any]) -> Play:
        i, claims = yield from self.narrow(q, path, claims)
        if q.count == 0:
            self.judged(q, claims, block(q.dtype, []))
        first, last = BLOCK * i, min(BLOCK * (i + 1), q.count)
        stated = yield from self.ask(path, 5, (first, last, 0), [q.dtype] * (last - first))
        self.sums(q, stated, claims, "6.9")
        k = differs(stated[0], stated[1])
        assert k is not None
        return first + k, [stated[p][k] for p in BOTH]

    def chain(self, q: Q, path: list[int], claims: Sequence[bytes], needs: list[Any]) -> Play:
        low, high, state = 0, q.count, q.start
        while high - low > q.stretch:
            pieces = -(-(high - low) // q.stretch)
            stride = q.stretch * -(-pieces // BLOCK)
            positions = list(range(low + stride, high, stride))
            of = [q.dtype] * len(positions)
            stated = yield from self.ask(path, 3, (low, high, stride), of)
            k = differs(stated[0], stated[1])
            if k is not None:
                high, claims = positions[k], [stated[p][k] for p in BOTH]
            k = len(positions) if k is None else k
            if k > 0:
                low, state = positions[k - 1], decode(q.dtype, stated[0][k - 1])
        if high > low:
            state = yield from self.executed(q.f(self.read, low, high, state, *needs))
        self.judged(q, claims, state)

    def extremum(self, q: Q, path: list[int], claims: Sequence[bytes], _needs: list[Any]) -> Play:
        stated = claims
        if q.word != "argmax":
            found = yield from self.ask(path, 4, (0, 0, 0), ["i64"])
            stated = [found[p][0] for p in BOTH]
        w = [decode("i64", stated[p]) for p in BOTH]
        convict([(p, not 0 <= w[p] < q.count) for p in BOTH], "6.8")
        read = yield from self.executed(self.read(0, [q.f(i) for i in w]))
        if q.word != "argmax":
            wrong = [(p, encode(q.dtype, read[p]) != claims[p]) for p in BOTH]
            convict(wrong, "6.8")
        order = sorted(BOTH, key=lambda p: w[p])
        winner = order[0] if not better(q.word, read[order[1]], read[order[0]]) else order[1]
        raise VerdictError([(1 - winner, "6.8")])


def differs_from(due: Any, claim: bytes) -> bool:
    return encode("f32", due) != claim


def better(word: str, a: Any, b: Any) -> bool:
    """Whether a wins over b (2.5)."""
    if np.isnan(a) or np.isnan(b):
        return bool(np.isnan(a) and not np.isnan(b))
    if a == b and word != "argmax" and a.dtype == np.float32:
        low, high = np.signbit(b) > np.signbit(a), np.signbit(a) > np.signbit(b)
        return bool(low if word == "max" else high)
    return bool(a < b if word == "min" else a > b)


def decode_raw(dtype: str, data: bytes) -> Any:
    """A stated value as it is: bounds are added as they were stated (10.6)."""
    return tuple(np.frombuffer(data, "<f8")) if dtype == "real" else decode(dtype, data)


def differs(x: list[bytes], y: list[bytes]) -> int | None:
    return next((i for i in range(len(x)) if x[i] != y[i]), None)
