"""A job whose parts do not fit together is refused, one case for each line of COMMITMENTS 7.4."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tallystick.commit.data import DataSchema, Field
from tallystick.errors import CorruptFileError
from tallystick.job.job import Job, check_program_fits
from tallystick.program.ir import Program


def with_program(job: Job, program: Program) -> Job:
    """`job` with another program; its file and digest are not looked at here."""
    other = replace(job)
    other.__dict__["texts"] = (program,)
    return other


def without_loss(p: Program) -> Program:
    return replace(p, outputs=tuple(o for o in p.outputs if o[0] != "loss"))


def loss_of_another_type(p: Program) -> Program:
    state = next(v for name, v in p.outputs if name in p.state_types and p.type_of(v).shape)
    return replace(p, outputs=tuple(("loss", state) if o[0] == "loss" else o for o in p.outputs))


def without_next_state(p: Program) -> Program:
    outputs = tuple(o for o in p.outputs if o[0] not in p.state_types)
    return replace(p, outputs=outputs, nodes=p.nodes[:-1])


def fields_but(job: Job, change: Callable[[list[Field]], list[Field]]) -> Job:
    return replace(job, schemas=(DataSchema(tuple(change(list(job.schema.fields)))),))


def table_of(job: Job, more: int) -> Job:
    name = next(iter(job.scalars))
    return replace(job, scalars={**job.scalars, name: [0.5] * (job.steps + more)})


CASES: dict[str, tuple[Callable[[Job], Job], str]] = {
    "another contract": (
        lambda j: with_program(j, replace(j.program, contract="rounded/1-draft.1")),
        "another contract",
    ),
    "no next state": (lambda j: with_program(j, without_next_state(j.program)), "no next state"),
    "no loss": (lambda j: with_program(j, without_loss(j.program)), "`loss`"),
    "a loss with axes": (lambda j: with_program(j, loss_of_another_type(j.program)), "`loss`"),
    "a field too few": (lambda j: fields_but(j, lambda f: f[1:]), "batch"),
    "a field of another shape": (
        lambda j: fields_but(j, lambda f: [replace(f[0], shape=(*f[0].shape, 2)), *f[1:]]),
        "batch",
    ),
    "another batch size": (
        lambda j: replace(j, commitment=replace(j.commitment, batch_size=1)),
        "batch",
    ),
    "a scalar too many": (lambda j: replace(j, scalars={**j.scalars, "odd": 1.0}), "scalars"),
    "a scalar too few": (lambda j: replace(j, scalars={}), "scalars"),
    "a table too short": (lambda j: table_of(j, -1), "values for"),
    "a table too long": (lambda j: table_of(j, 1), "values for"),
}


def test_the_job_itself_fits(mlp_job: Job) -> None:
    check_program_fits(mlp_job)
    check_program_fits(table_of(mlp_job, 0))


@pytest.mark.parametrize("name", CASES)
def test_what_does_not_fit_is_refused(mlp_job: Job, name: str) -> None:
    change, word = CASES[name]
    changed: Any = change(mlp_job)
    with pytest.raises(CorruptFileError, match=word) as caught:
        check_program_fits(changed)
    assert caught.value.next_action
