"""Recorded steps to be followed, and the plain reference's view of their elements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from reference.logs import C, Element
from reference.nasty import near_boundaries
from reference.orders import LeftToRight, Perturbed, Shuffled
from reference.rounded import square_sums

from tallystick.commit.encoding import sha256
from tallystick.contracts.replay import entries as blocks
from tallystick.contracts.replay.entries import Entries
from tallystick.contracts.replay.sections import LoggedProgram
from tallystick.contracts.replay.steps import LoggedSteps
from tallystick.devices.context import ExecutionContext
from tallystick.devices.cpu import CPU
from tallystick.devices.device import Device
from tallystick.numerics.types import type_of
from tallystick.products.engines import DEFAULT, using
from tallystick.program.build import Builder
from tallystick.program.executor import Executor
from tallystick.program.ir import Program, Value
from tallystick.run.logs.reader import LogReader, expected_of, open_log
from tallystick.run.logs.writer import LogDirectory

JOB = sha256(b"job")
ENGINES = [DEFAULT, LeftToRight(), Shuffled(1), Perturbed(1), Perturbed(2)]
Arrays = Mapping[str, np.ndarray]
Emit = Callable[[Builder, dict[str, Value]], list[Value]]


def program(bits: int, batch: Arrays, emit: Emit) -> Program:
    """One step over `batch` whose outputs are those that `emit` gives."""
    b = Builder(f"replay/1-draft.1;b={bits};form=bounded")
    inputs = {name: b.batch(name, type_of(array)) for name, array in batch.items()}
    outputs = emit(b, inputs)
    return b.finish({f"grad.{n}": value for n, value in enumerate(outputs)})


def run(
    logs: LoggedSteps, batch: Arrays, step: int, engine: Any, device: Device = CPU
) -> tuple[list[np.ndarray], bytes]:
    logs.move_to(device)
    executor = Executor(logs.logged.program, ExecutionContext(device=device), logs.kernels)
    with using(engine), executor.context.entered():
        logs.begin(step)
        result = executor.run_step({}, batch)
        digest = logs.finish()
    return [result.outputs[name] for name in sorted(result.outputs)], digest


class Run:
    """A recorded run of one step, and what it takes to follow it."""

    def __init__(
        self,
        path: Path,
        program_: Program,
        batch: Arrays,
        engine: Any = DEFAULT,
        device: Device = CPU,
    ) -> None:
        self.program, self.batch, self.path = program_, batch, path
        logged = LoggedProgram(program_)
        self.expected = expected_of(logged, JOB)
        logs = LogDirectory(path, JOB, logged.sections)
        self.recorder = LoggedSteps(program_, sink=logs.writer)
        self.outputs, self.digest = run(self.recorder, batch, 0, engine, device)
        assert not self.recorder.findings

    def entries(self, number: int = 0) -> Entries:
        with open_log(self.path, 0, self.expected) as log:
            return blocks.decode(self.expected.sections[number], log.bounded(number))[0]

    def forge(self, path: Path, change: Callable[[int, Entries], Entries]) -> Path:
        """Write this run's log anew with other entries."""
        logs = LogDirectory(path, JOB, self.expected.sections)
        writer = logs.writer(0)
        for number, section in enumerate(self.expected.sections):
            made = change(number, self.entries(number))
            writer.bounded(number, blocks.encode(section, made))
        writer.finish()
        return path

    def follow(
        self,
        path: Path | None = None,
        engine: Any = DEFAULT,
        digest: bytes | None = None,
        device: Device = CPU,
        **how: bool,
    ) -> tuple[LoggedSteps, list[np.ndarray], bytes]:
        def source(step: int) -> LogReader:
            return open_log(path or self.path, step, self.expected, digest)

        follower = LoggedSteps(self.program, source, **how)
        outputs, digest = run(follower, self.batch, 0, engine, device)
        return follower, outputs, digest


def same(a: list[np.ndarray], b: list[np.ndarray]) -> bool:
    return all(x.tobytes() == y.tobytes() for x, y in zip(a, b, strict=True))


def mm(b: Builder, x: dict[str, Value]) -> list[Value]:
    return b.emit("aten.mm", [x["a"], x["b"]])


def nasty_mm(
    bits: int, seed: int, shape: tuple[int, int, int] = (24, 45, 12)
) -> tuple[Program, Arrays]:
    a, b = near_boundaries(*shape, seed, bits)
    batch = {"a": a, "b": b}
    return program(bits, batch, mm), batch


def elements_of_mm(batch: Arrays, bits: int) -> list[Element]:
    """The plain reference's view of every element of a·b, row-major."""
    a, b = batch["a"], batch["b"]
    k = float(a.shape[1]) * C
    left, right = np.sqrt(square_sums(a.T)), np.sqrt(square_sums(b))
    return [
        Element(
            [Fraction(float(x)) * Fraction(float(y)) for x, y in zip(a[i], b[:, j], strict=True)],
            float((k * left[i]) * right[j]),
            bits,
        )
        for i in range(a.shape[0])
        for j in range(b.shape[1])
    ]
