"""A model directory as the engine's network."""

from __future__ import annotations

from collections.abc import Mapping

from tallystick.answers.model import Model, engine_program
from tallystick.commit.tensor import Array
from tallystick.program.ir import Program


class ModelNetwork:
    """A model under a contract (`network.Network`); `held` are its weights by slot."""

    def __init__(self, model: Model, contract: str, held: Mapping[str, Array]) -> None:
        self.contract, self.vocabulary, self.length = contract, model.vocabulary, model.longest
        self._model, self._held = model, held

    def program(self, rows: int) -> Program:
        return engine_program(self._model, rows, self.contract)

    def weights(self) -> Mapping[str, Array]:
        return self._held
