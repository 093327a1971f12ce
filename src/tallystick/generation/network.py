"""What the engine needs of a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from tallystick.answers.model import Model, weights
from tallystick.answers.programs import engine_program
from tallystick.generation.sizes import RowPrograms
from tallystick.numerics.contracts import find_contract
from tallystick.program.ir import Program


class Network(Protocol):
    """A model under a contract.

    `program(rows)` has the batch inputs `token` and `place`, i64[rows, 1], the weights as state,
    and one output: `logits`, f32[rows, vocabulary]. Its attention nodes have queries of the shape
    [rows, heads, 1, elements]. Apart from these, no row's values depend on another row, and the
    programs of two numbers of rows differ in that number alone. `length` is the most places of a
    text.
    """

    contract: str
    vocabulary: int
    length: int

    def program(self, rows: int) -> Program: ...

    def weights(self) -> Mapping[str, Any]: ...


class ModelNetwork:
    """An opened model under a contract. Its weights are `held`, where the caller has them."""

    def __init__(self, model: Model, contract: str, held: Mapping[str, Any] | None = None) -> None:
        self.contract = find_contract(contract).text
        self.vocabulary, self.length = model.vocabulary, model.longest
        self._model, self._held = model, held
        self._sizes = RowPrograms(lambda rows: engine_program(model, rows, self.contract))

    def program(self, rows: int) -> Program:
        return self._sizes.program(rows)

    def weights(self) -> Mapping[str, Any]:
        return weights(self._model) if self._held is None else self._held
