"""What the evidence of a dispute about an answer or an encoding shows of the text (ANSWERS 9.7).

Each signed answer says to which query it is. So the evidence and the job's terms tell which leaves,
values and records stand open in it, and the program tells what those are: tokens, numbers of the
model, or activations, which tell of the text. Numbers are shown as the parties have signed them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from math import prod
from typing import Any

import numpy as np

from tallystick.answers.statement import ANSWER_PREFIX
from tallystick.commit.data import parse_record
from tallystick.commit.signing import Envelope, RunCommitment, verify_run
from tallystick.commit.tensor import LEAF_BYTES, TensorOpening
from tallystick.errors import CounterpartyError, UsageError
from tallystick.limits import LIMITS
from tallystick.numerics.types import TensorType
from tallystick.program.ir import BATCH_PREFIX, COMMIT, Value
from tallystick.program.terms import Terms
from tallystick.protocol.bodies import RecordBody
from tallystick.protocol.evidence import Evidence
from tallystick.protocol.facts import INPUT, Facts
from tallystick.protocol.messages import ANSWERED, Query, open_answer
from tallystick.protocol.queries import Leaf, Opening, Record, Values, decode_query
from tallystick.report.answer_meanings import Work, work_of
from tallystick.report.html import count
from tallystick.report.layers import layer_of

_TEXT, _TOKENS = BATCH_PREFIX + "text", ANSWER_PREFIX + "tokens"
_LOGPROBS, _VALUES = ANSWER_PREFIX + "logprobs", ANSWER_PREFIX + "values"
_VIEW = "aten.view"
_I64 = 8
_MOST = 8  # of one kind, in words

Range = tuple[int, int]  # first and last, both included


@dataclass(frozen=True)
class OpenedNumbers:
    """Numbers that stand open: of an input of the program by its `name`, or of what a node has
    made, `operator` of `layer`. `opened` of `of` numbers; `places` are those of the text that they
    belong to, where the shape tells."""

    name: str
    node: int | None
    operator: str | None
    layer: str | None
    shape: tuple[int, ...]
    opened: int
    of: int
    places: tuple[Range, ...]


@dataclass(frozen=True)
class Revealed:
    """What stands open in evidence about an answer or an encoding.

    `tokens` are those of the text by place, as far as they are shown, prompt and answer;
    `prompt` is the number of prompt tokens, where that is shown. `drawn` are tokens that a party
    says were drawn, and `logprobs` their log-probabilities, by row; `made` are values of an
    encoding. `fields` are other fields of
    the record. `weights` are numbers of the model, which its owner has. `activations` are numbers
    that the model computed from the text; `values` counts the terms that were opened below them.
    """

    tokens: Mapping[int, int]
    prompt: int | None
    drawn: Mapping[int, int]
    logprobs: tuple[int, ...]
    fields: tuple[str, ...]
    weights: tuple[OpenedNumbers, ...]
    activations: tuple[OpenedNumbers, ...]
    values: int
    made: tuple[int, ...] = ()

    @property
    def nothing(self) -> bool:
        """Whether no number of the text, or made of it, stands open."""
        return not (
            self.tokens or self.drawn or self.logprobs or self.fields or self.activations
        ) and not (self.values or self.made)


def revealed(terms: Terms, evidence: Evidence) -> Revealed:
    """What `evidence` shows of the answer or encoding that the job of `terms` is.

    Raises UsageError for a job that is neither, and for evidence of another job;
    CorruptFileError for a message that its party has not signed.
    """
    if work_of(terms) is Work.TRAINING:
        raise UsageError(
            "The job is none of an answer or an encoding.", "Name the job that the evidence is of."
        )
    if evidence.job_digest != terms.digest:
        raise UsageError("The evidence is of another job.", "Name the job that it is of.")
    facts = Facts(terms).at(0)
    found = _Found(facts)
    runs = [
        verify_run(Envelope.from_bytes(data, LIMITS.commitment_bytes))[0]
        for data in evidence.commitments
    ]
    for party, message in evidence.messages:
        answer = open_answer(message, runs[party].signer)
        query = decode_query(answer.query)
        if answer.status == ANSWERED and _fits(query, facts, runs[party]):
            found.take(query, answer.body)
    return found.revealed()


def _fits(query: Query[Any], facts: Facts, run: RunCommitment) -> bool:
    """Whether a referee of this job asks for it; an answer has step 0 only."""
    if getattr(query, "step", 0) != 0:
        return False
    try:
        query.check(facts, run)
    except UsageError:
        return False
    return True


def in_words(found: Revealed) -> list[str]:
    """What stands open, a sentence for each kind of it."""
    if found.nothing:
        told = ["No number of the text, and none that was made of it, stands open in it."]
    else:
        told = [*_texts(found), *_numbers_of_text(found)]
    if found.weights:
        named = ", ".join(one.name for one in found.weights[:_MOST])
        count_ = sum(one.opened for one in found.weights)
        told.append(f"{count(count_, 'number')} of the model, of {named}.")
    told.append(
        "Fingerprints of numbers that nobody opened stand in it too. Whoever guesses all numbers "
        "behind a fingerprint can confirm the guess."
    )
    return told


def _texts(found: Revealed) -> Iterator[str]:
    if found.tokens and found.prompt is not None:
        answer = len(found.tokens) - found.prompt
        said = f", {answer} of answer" if answer else ""
        yield f"The whole text: {count(found.prompt, 'token')} of prompt{said}."
    elif found.tokens:
        places = _listed(ranges(found.tokens))
        yield f"{count(len(found.tokens), 'token')} of prompt and answer, at {places} of the text."
    if found.drawn:
        yield f"What was drawn in {_listed(ranges(found.drawn), 'row')} of the answer."
    if found.logprobs:
        rows = _listed(ranges(found.logprobs), "row")
        yield f"How likely the tokens were in {rows} of the answer."
    if found.made:
        made = _listed(ranges(found.made), "number")
        yield f"Of the numbers that the model made of the text: {made}."
    if found.fields:
        yield f"Of the request: {', '.join(found.fields)}."


def _numbers_of_text(found: Revealed) -> Iterator[str]:
    for one in found.activations[:_MOST]:
        layer = f", in layer {one.layer}" if one.layer else ""
        where = f", of {_listed(one.places)} of the text" if one.places else ""
        yield (
            f"{one.opened:,} of {count(one.of, 'number')} that the model computed from the text: "
            f"{one.name} ({one.operator}{layer}){where}."
        )
    if found.activations:
        yield (
            "Whoever has the model may read tokens off such numbers: those of its first layers "
            "name them."
        )
    if len(found.activations) > _MOST:
        yield f"And numbers of {count(len(found.activations) - _MOST, 'further operation')}."
    if found.values:
        yield f"{count(found.values, 'answer')} with parts of sums below such numbers."


def _listed(found: tuple[Range, ...], what: str = "place") -> str:
    shown = [f"{a}" if a == b else f"{a} to {b}" for a, b in found[:_MOST]]
    more = "" if len(found) <= _MOST else f" and {len(found) - _MOST} more"
    one = len(found) == 1 and found[0][0] == found[0][1]
    return f"{what}{'' if one else 's'} {', '.join(shown)}{more}"


def ranges(numbers: Iterable[int]) -> tuple[Range, ...]:
    """Numbers as ranges, ascending."""
    found = []
    for _, group in groupby(enumerate(sorted(set(numbers))), key=lambda pair: pair[1] - pair[0]):
        members = [number for _, number in group]
        found.append((members[0], members[-1]))
    return tuple(found)


@dataclass
class _Found:
    """Gathers what the answers of both parties open."""

    facts: Facts
    tokens: dict[int, int] = field(default_factory=dict)
    drawn: dict[int, int] = field(default_factory=dict)
    prompt: int | None = None
    fields: set[str] = field(default_factory=set)
    values: int = 0
    end: int | None = None  # of the text, where the record is shown
    # By what they are of: the elements that stand open.
    elements: dict[Value, set[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        slots = self.facts.program.next_state.items()
        self._slots = {self._before_views(value): name for name, value in slots}

    def take(self, query: object, body: bytes) -> None:
        """One answer. One that does not fit its query opens nothing: a judge convicts for it."""
        try:
            if isinstance(query, Record):
                self._record(query.layout.decode(body))
            elif isinstance(query, Leaf):
                said = query.layout.decode(body)
                self._leaves(query.node, query.side, query.operand, {query.leaf: said.data})
            elif isinstance(query, Opening):
                opening = TensorOpening.from_bytes(query.layout.decode(body).data)
                self._leaves(query.node, INPUT, query.operand, opening.leaves)
            elif isinstance(query, Values):
                query.layout.decode(body)
                self.values += 1
        except CounterpartyError:
            return

    def _record(self, body: RecordBody) -> None:
        schema = self.facts.schema
        assert schema is not None  # an answer reads one record
        fields = parse_record(schema, body.record)
        self.tokens |= dict(enumerate(fields["text"].tolist()))
        self.fields |= fields.keys() - {"text", "place", "live", "length"}
        if "length" in fields:  # of an encoding, whose text has no answer
            self.prompt = self.end = int(fields["length"][0])
        else:
            self.prompt = int(fields["place"][0]) + 1
            self.end = self.prompt + int(fields["live"].sum())

    def _leaves(self, node: int, side: int, operand: int, leaves: Mapping[int, bytes]) -> None:
        value = self._value(node, side, operand)
        if value is None:
            return
        type_ = self.facts.program.type_of(value)
        size = type_.nbytes // max(1, type_.numel)
        for leaf, data in leaves.items():
            first = leaf * LEAF_BYTES // size
            numbers = range(first, min(first + len(data) // size, type_.numel))
            self.elements.setdefault(value, set()).update(numbers)
            if size == _I64:
                self._token(value, numbers, np.frombuffer(data[: len(numbers) * _I64], "<i8"))

    def _token(self, value: Value, numbers: range, data: np.ndarray) -> None:
        if self._name(value) == _TEXT:
            self.tokens |= zip(numbers, data.tolist(), strict=True)
        elif self._slots.get(value) == _TOKENS:
            self.drawn |= zip(numbers, data.tolist(), strict=True)

    def _value(self, node: int, side: int, operand: int) -> Value | None:
        """What stands there, before any change of shape; None for the chains of COMMIT."""
        if side != INPUT:
            is_commit = self.facts.program.nodes[node].op == COMMIT
            return None if is_commit else self._before_views(Value(node, operand))
        sources = {number: source for number, source, _ in self.facts.operands(node)}
        source = sources.get(operand)
        return self._before_views(source) if isinstance(source, Value) else None

    def _before_views(self, value: Value) -> Value:
        nodes = self.facts.program.nodes
        while not value.is_input and nodes[value.node].op == _VIEW:
            before = nodes[value.node].inputs[0]
            assert before is not None
            value = before
        return value

    def _name(self, value: Value) -> str:
        return self.facts.program.inputs[value.out].name if value.is_input else ""

    def revealed(self) -> Revealed:
        weights, activations, fields = [], [], set(self.fields)
        rows: dict[str, set[int]] = {_LOGPROBS: set(), _VALUES: set()}
        for value, elements in sorted(self.elements.items(), key=lambda pair: pair[0]):
            name, slot = self._name(value), self._slots.get(value)
            if name == _TEXT or slot == _TOKENS:
                continue
            if slot in rows:
                rows[slot] |= elements
            elif name.startswith(BATCH_PREFIX):
                fields.add(name.removeprefix(BATCH_PREFIX))
            elif name and not name.startswith(ANSWER_PREFIX):
                weights.append(self._numbers(value, elements))
            elif not name:
                activations.append(self._numbers(value, elements))
        return Revealed(
            {n: t for n, t in sorted(self.tokens.items()) if self.end is None or n < self.end},
            self.prompt,
            dict(sorted(self.drawn.items())),
            tuple(sorted(rows[_LOGPROBS])),
            tuple(sorted(fields)),
            tuple(weights),
            tuple(activations),
            self.values,
            tuple(sorted(rows[_VALUES])),
        )

    def _numbers(self, value: Value, elements: set[int]) -> OpenedNumbers:
        program = self.facts.program
        type_ = program.type_of(value)
        node = None if value.is_input else value.node
        operator = None if node is None else program.nodes[node].op
        layer = None if node is None else layer_of(program, node)
        places = () if value.is_input else ranges(self._places(type_, elements))
        name = self._name(value) or f"result {value.out} of operation {value.node}"
        return OpenedNumbers(
            name, node, operator, layer, type_.shape, len(elements), type_.numel, places
        )

    def _places(self, type_: TensorType, elements: set[int]) -> Iterator[int]:
        """The places of the text that these elements belong to, by the first axis that is as long
        as the text; none where there is no such axis."""
        length = next(i.type.shape[-1] for i in self.facts.program.inputs if i.name == _TEXT)
        axis = next((n for n, size in enumerate(type_.shape) if size == length), None)
        if axis is not None:
            stride = prod(type_.shape[axis + 1 :])
            yield from {element // stride % length for element in elements}
