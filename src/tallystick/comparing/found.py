"""What a comparison found, as plain data for every face."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tallystick.comparing.values import ElementApart
from tallystick.job.words.sentences import Apart
from tallystick.visible import Tabled

JOBS, RUNS, TRACES = "jobs", "runs", "traces"

# The kinds of causes, each by its word in JSON and its words for a person.
CAUSES: Mapping[str, str] = {
    "seed": "a different seed",
    "rate": "a different learning rate",
    "setting": "a different setting of the optimizer",
    "data order": "a different order of the data",
    "last batch": "a different last batch of an epoch",
    "batch size": "a different batch size",
    "micro-batches": "different micro-batches",
    "data": "different data",
    "dropout": "different dropout",
    "program": "a different program",
    "weights": "different weights at the start",
    "flipped bit": "a flipped bit",
    "precision": "a lower precision",
    "rounding": "different rounding",
    "result": "a different result of one operator",
    "outside": "a change outside of the recorded operators",
    "steps": "a different number of steps",
    "record": "a record that its own job does not give",
}

SIZES = ("batch size", "micro-batches")


@dataclass(frozen=True)
class Cause:
    """Where a difference comes from: its kind, one of CAUSES, and a sentence with both values.
    `about` is the name of the scalar that the sentence is about, if there is one."""

    kind: str
    sentence: str
    about: str = ""

    @property
    def words(self) -> str:
        return CAUSES[self.kind]


@dataclass(frozen=True)
class InputApart:
    """An input of the first operator that differs, which differed before the operator ran."""

    number: int
    name: str


@dataclass(frozen=True)
class FirstApart:
    """The first place where two executions differ.

    `operator`, `node` and `place` are those of A and of B, None where one has no such operator.
    `operand` is the differing one in words, such as "output 0". `elements` has its values where
    they are known, and `unknown` the reason where they are not. `inputs` are the operator's inputs
    that already differed.
    """

    step: int
    operator: tuple[str | None, str | None]
    node: tuple[int | None, int | None]
    place: tuple[str, str] = ("", "")
    operand: str = ""
    elements: ElementApart | None = None
    unknown: str = ""
    inputs: tuple[InputApart, ...] = ()

    @property
    def facts(self) -> dict[str, object]:
        """For JSON; documented keys."""
        return {
            "step": self.step,
            "operator": list(self.operator),
            "node": list(self.node),
            "place": list(self.place),
            "operand": self.operand or None,
            "element": None if self.elements is None else self.elements.facts,
            "values_unknown": self.unknown or None,
            "inputs_already_different": [{"input": i.number, "name": i.name} for i in self.inputs],
        }


@dataclass(frozen=True, repr=False)
class Comparison(Tabled):
    """Two things compared.

    `causes` begins with what the first difference comes from; further ones differ too. `fields`
    are the sentences by which two jobs differ, `uncommitted` those that no digest covers.
    `programs` says where the two programs differ, one line each.
    """

    kind: str
    equal: bool
    causes: tuple[Cause, ...] = ()
    first: FirstApart | None = None
    fields: tuple[Apart, ...] = ()
    uncommitted: tuple[Apart, ...] = ()
    programs: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    compared: Mapping[str, object] = field(default_factory=dict)

    @property
    def cause(self) -> Cause | None:
        """What the first difference comes from; None where nothing differs."""
        return self.causes[0] if self.causes else None

    def facts_for_people(self) -> tuple[str, dict[str, object]]:
        if self.equal:
            return f"Two {self.kind}: equal", dict(self.compared)
        facts: dict[str, object] = {}
        if self.cause is not None:
            facts["cause"] = self.cause.sentence
        if self.first is not None:
            facts["step"] = self.first.step
            facts["operator"] = self.first.operator[0] or self.first.operator[1]
        if self.fields:
            facts["fields"] = ", ".join(apart.label for apart in self.fields)
        return f"Two {self.kind}: different", facts

    @property
    def facts(self) -> dict[str, object]:
        """For JSON; documented keys."""
        return {
            "kind": self.kind,
            "equal": self.equal,
            "cause": None if self.cause is None else self.cause.kind,
            "causes": [{"kind": c.kind, "sentence": c.sentence} for c in self.causes],
            "first": None if self.first is None else self.first.facts,
            "apart": [apart._asdict() for apart in self.fields],
            "not_committed": [apart._asdict() for apart in self.uncommitted],
            "programs": list(self.programs),
            "notices": list(self.notices),
            "compared": dict(self.compared),
        }
