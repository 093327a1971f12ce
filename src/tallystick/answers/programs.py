"""The programs of a model, captured from its transformers module.

The answer program takes a whole text, and has logits for the rows of the answer alone. In the
engine program each row is a text of one token with its own place; the engine puts the kept keys and
values into its attention. So the two differ in shapes and in attention only, and a row's numbers
are the same bits in both (spec/ANSWERS.md).
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any

from tallystick.answers.layout import SALT_WORDS, SETS, Bucket, batch_types
from tallystick.answers.sampler import emit
from tallystick.answers.weights import over_stored, types_of
from tallystick.errors import RefusedModelError, UsageError
from tallystick.numerics.contracts import find_contract
from tallystick.numerics.types import TensorType
from tallystick.program.build import Builder
from tallystick.program.canonical import canonicalize, in_order_of_need
from tallystick.program.check import check_program
from tallystick.program.ir import Program, split_batch

if TYPE_CHECKING:
    from tallystick.answers.model import Model

# The slots that an answer's step fills.
TOKENS, LOGPROBS, SALT = "buffer.answer.tokens", "buffer.answer.logprobs", "buffer.answer.salt"


def answer_slots(bucket: Bucket) -> dict[str, TensorType]:
    """The types of these slots; before the step they are zeros."""
    rows = (bucket.answer,)
    return {
        TOKENS: TensorType("i64", rows),
        LOGPROBS: TensorType("f32", rows),
        SALT: TensorType("i64", (SALT_WORDS,)),
    }


# Programs that this process captured last, by what decides them: `check` after `generate`, or one
# check after another, asks for the same.
_KEPT_PROGRAMS = 32
_kept: OrderedDict[str, Program] = OrderedDict()
_keeping = Lock()


def captured(
    model: Model, batch: Mapping[str, Any], forward: Callable[..., Any], contract: str
) -> Program:
    """The program of `forward(module, batch)`, a function of this package, over the model's
    module. Raises RefusedModelError, UsageError."""
    if model.adapter is not None:
        return _captured(model, batch, forward, contract)  # its matrices decide too
    key = repr((
        json.dumps(model.config, sort_keys=True), sorted(model.stored.items()), model.encoding,
        sorted(model.turned), sorted(model.plus_one), forward.__qualname__, batch, contract,
    ))  # fmt: skip
    with _keeping:
        if key in _kept:
            _kept.move_to_end(key)
            return _kept[key]
    program = _captured(model, batch, forward, contract)
    with _keeping:
        _kept[key] = program
        if len(_kept) > _KEPT_PROGRAMS:
            _kept.popitem(last=False)
    return program


def _captured(
    model: Model, batch: Mapping[str, Any], forward: Callable[..., Any], contract: str
) -> Program:
    from tallystick.answers.modules import merged_weights, module_of
    from tallystick.program.capture.api import capture_forward

    module = module_of(model)
    program = capture_forward(module, batch, forward, contract)
    types = types_of(model, module)
    types |= dict.fromkeys(merged_weights(model, module), "f32")  # ANSWERS 4.7.3
    stored = {f"param.{name}": kind for name, kind in types.items() if kind != "f32"}
    turned = {f"param.{name}" for name in model.turned}
    plus_one = {f"param.{name}" for name in model.plus_one}
    if stored or turned or plus_one:
        program = canonicalize(over_stored(program, stored, turned, plus_one))
    return checked(in_order_of_need(program))


def _refuse_encoders(model: Model) -> None:
    if model.encoding is not None:
        raise RefusedModelError(
            "The model is an encoder, so it does not generate text.",
            "Use `tallystick embed` or `tallystick classify`.",
        )


def checked(program: Program) -> Program:
    program = canonicalize(program)
    check_program(program)
    find_contract(program.contract).check_program(program)
    return program


def engine_program(model: Model, rows: int, contract: str) -> Program:
    """Inputs `token` and `place`, i64[rows, 1]; output `logits`, f32[rows, V].

    Raises RefusedModelError, UsageError.
    """
    from tallystick.answers.modules import token_logits

    _refuse_encoders(model)
    if rows < 1:
        raise UsageError(f"An engine needs at least 1 row, not {rows}.", "Pass 1 or more.")
    shape = ((rows, 1), "i64")
    return captured(model, {"token": shape, "place": shape}, token_logits, contract)


def forward_program(model: Model, length: int, rows: int, contract: str) -> Program:
    """Inputs `text`, i64[length], and `place`, i64[rows]; output `logits`, f32[rows, V], of the
    tokens after these places.

    Raises RefusedModelError, UsageError.
    """
    from tallystick.answers.modules import text_logits

    _refuse_encoders(model)
    if rows < 1 or not 1 <= length <= model.longest:
        raise UsageError(
            f"This model cannot compute a text of {length} places with {rows} rows.",
            f"Use 1 to {model.longest} places, and at least 1 row.",
        )
    batch = {"text": ((length,), "i64"), "place": ((rows,), "i64")}
    return captured(model, batch, text_logits, contract)


def answer_program(model: Model, bucket: Bucket, sampler: str, contract: str) -> Program:
    """The program whose one step is an answer in `bucket`, drawn by the set `sampler`.

    Raises RefusedModelError, UsageError.
    """
    forward = forward_program(model, bucket.length, bucket.answer, contract)
    return answering_program(forward, bucket, sampler)


def answer_programs(model: Model, bucket: Bucket, contract: str) -> dict[str, Program]:
    """The answer program of every sampler set, by set: the model is captured once. Raises as
    `answer_program`."""
    forward = forward_program(model, bucket.length, bucket.answer, contract)
    return {sampler: answering_program(forward, bucket, sampler) for sampler in SETS}


def answering_program(forward: Program, bucket: Bucket, sampler: str) -> Program:
    """`forward` with the sampler after it: every weight passes through, and the answer's slots take
    what is drawn."""
    vocabulary = forward.type_of(forward.output_values["logits"]).shape[1]
    b = Builder(forward.contract)
    state = {name: b.state(name, type_) for name, type_ in forward.state_types.items()}
    for name, type_ in answer_slots(bucket).items():
        b.state(name, type_)
    types = batch_types(bucket, sampler, vocabulary)
    # A batch of one record (COMMITMENTS 7.4).
    given = {n: b.batch(n, TensorType(t.dtype, (1, *t.shape))) for n, t in types.items()}
    fields = {n: b.one("aten.view", [given[n]], size=t.shape) for n, t in types.items()}
    inputs = [
        state[given.name] if given.kind == "state" else fields[split_batch(given.name)[0]]
        for given in forward.inputs
    ]
    logits = b.copy(forward, inputs)(forward.output_values["logits"])
    drawn, logprobs = emit(b, sampler, logits, fields, vocabulary)
    zero = b.one("aten.full", [], size=(), value=0.0, dtype="f32")
    total = b.one("aten.sum", [logprobs])
    loss = b.one("aten.sub.Tensor", [zero, total], alpha=1.0)
    following = {**state, TOKENS: drawn, LOGPROBS: logprobs, SALT: fields["salt"]}
    b.commit(following)
    return checked(b.finish({"loss": loss, **following}))
