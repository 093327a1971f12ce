"""Program texts with micro-batches for vectors/program, written by hand (PROGRAM 6).

Nothing of tallystick is imported. Each change breaks one rule, and the clause beside it is that
rule.
"""

from __future__ import annotations

from program_texts import Change

MICRO = """\
tallystick program 2
contract ordered/1-draft.1
input batch batch.x f32[2,3]
input state buffer.count i64[]
input state buffer.mean f32[3]
input state param.w f32[3,2]
input rng rng i64[2]
input scalar scalar.lr f64[]
micro 9
carry buffer.count %3
carry buffer.mean %2
%0 = aten.mean.dim(@batch.x){dim=[0], keepdim=false} : f32[3]
%1 = aten.mul.Scalar(@buffer.mean){other=0x1.0000000000000p-1} : f32[3]
%2 = aten.add.Tensor(%1, %0){alpha=0x1.0000000000000p-1} : f32[3]
%3 = aten.add.Scalar(@buffer.count){alpha=0x1.0000000000000p+0, other=0x1.0000000000000p+0} : i64[]
%4 = tallystick.dropout_mask(@rng){draw=0, p=0x1.0000000000000p-2, shape=[2,3]} : bool[2,3]
%5 = tallystick.mask_scale(@batch.x, %4){scale=0x1.5555555555555p+0} : f32[2,3]
%6 = aten.mm(%5, @param.w) : f32[2,2]
%7 = aten.native_layer_norm(%6, none, none){eps=0x1.4f8b588e368f1p-17, normalized_shape=[2]}\
 : f32[2,2], f32[2,1], f32[2,1]
%8 = tallystick.uniform(@rng){draw=3, high=0x1.0000000000000p+0, low=0x0.0p+0, shape=[3,2]}\
 : f32[3,2]
%9 = tallystick.fold(%7.1){mean=true} : f32[2,1]
%10 = tallystick.fold(%8){mean=false} : f32[3,2]
%11 = aten.sum(%9) : f32[]
%12 = tallystick.sgd_step(@param.w, %10, none, @scalar.lr)\
{dampening=0x0.0p+0, momentum=0x0.0p+0, nesterov=false, weight_decay=0x0.0p+0} : f32[3,2]
%13 = tallystick.commit(%3, %2, %12) : none
output buffer.count %3
output buffer.mean %2
output loss %11
output metric.before @buffer.mean
output param.w %12
end
"""

_CARRY = "carry buffer.count %3\ncarry buffer.mean %2\n"
_FOLD = "%9 = tallystick.fold(%7.1){mean=true} : f32[2,1]\n"
_TAIL = "%11 = aten.sum(%9) : f32[]\n"

GOOD: list[Change] = [
    ("text 2: nothing folded twice", "6.5", "tallystick.fold(%8){mean=false}",
     "tallystick.fold(%8){mean=true}"),
    ("text 2: the tail reads a slot that is carried", "6.4",
     "aten.sum(%9)", "aten.sum(@buffer.mean)"),
    ("text 2: the tail reads a carried value", "6.5", "aten.sum(%9)", "aten.sum(%2)"),
    ("text 2: a carried value is folded too", "6.5", _FOLD,
     "%9 = tallystick.fold(%2){mean=true} : f32[3]\n"),
    ("text 2: an output is an input", "6.6", "output metric.before @buffer.mean",
     "output metric.before @scalar.lr"),
]  # fmt: skip

MALFORMED: list[Change] = [
    ("text 2: header of a text 1", "6.1", "program 2", "program 1"),
    ("text 2: version of the future", "2.1", "program 2", "program 3"),
    ("text 2: no line micro", "6.2", "micro 9\n" + _CARRY, ""),
    ("text 2: micro twice", "6.2", "micro 9\n", "micro 9\nmicro 9\n"),
    ("text 2: micro after carry", "2.1", "micro 9\n" + _CARRY, _CARRY + "micro 9\n"),
    ("text 2: micro before the inputs", "2.1", "input batch", "micro 9\ninput batch"),
    ("text 2: a section of no node", "6.2", "micro 9", "micro 0"),
    ("text 2: micro with a zero in front", "2.2", "micro 9", "micro 09"),
    ("text 2: a section of more nodes than there are", "6.2", "micro 9", "micro 15"),
    ("text 2: a fold in the section", "6.5", "micro 9", "micro 10"),
    ("text 2: a random node in the tail", "6.5", "micro 9", "micro 8"),
    ("text 2: the commit node in the section", "6.6", "micro 9", "micro 14"),
    ("text 2: carry twice", "6.4", "carry buffer.mean %2\n",
     "carry buffer.mean %2\ncarry buffer.mean %2\n"),
    ("text 2: carry in another order", "6.4", _CARRY,
     "carry buffer.mean %2\ncarry buffer.count %3\n"),
    ("text 2: carry of no slot", "6.4", "carry buffer.mean %2", "carry buffer.meaning %2"),
    ("text 2: carry of a batch tensor", "6.4", "carry buffer.mean %2",
     "carry batch.x %5\ncarry buffer.mean %2"),
    ("text 2: carry of another type", "6.4", "carry buffer.count %3", "carry buffer.count %2"),
    ("text 2: carry of a tail's value", "6.4", "carry buffer.mean %2", "carry buffer.mean %9"),
    ("text 2: carry of an input", "6.4", "carry buffer.mean %2", "carry buffer.mean @buffer.mean"),
    ("text 2: carry of an output that there is not", "3.3", "carry buffer.mean %2",
     "carry buffer.mean %2.1"),
    ("text 2: carry without a value", "2.1", "carry buffer.mean %2", "carry buffer.mean"),
    ("text 2: what is not carried is committed", "6.5", _CARRY, "carry buffer.count %3\n"),
    ("text 2: fold of two values", "6.5", "fold(%7.1)", "fold(%7.1, %7.2)"),
    ("text 2: fold of a tail's value", "6.5", "fold(%8)", "fold(%9)"),
    ("text 2: fold of an input", "6.5", "fold(%8)", "fold(@param.w)"),
    ("text 2: fold with a count", "6.5", "{mean=true}", "{count=1, mean=true}"),
    ("text 2: fold without a mean", "3.2",
     "tallystick.fold(%8){mean=false}", "tallystick.fold(%8)"),
    ("text 2: the tail reads a section's value", "6.5", "aten.sum(%9)", "aten.sum(%6)"),
    ("text 2: the tail reads the batch", "6.5", "aten.sum(%9)", "aten.sum(@batch.x)"),
    ("text 2: the tail reads the key", "6.5", _TAIL,
     "%11 = aten._to_copy(@rng){dtype=\"f32\"} : f32[2]\n"),
    ("text 2: an output of one micro-batch", "6.6", "output metric.before @buffer.mean",
     "output metric.before %1"),
    ("text 2: a name with the sign of a micro-batch", "2.3", "batch.x f32[2,3]",
     "batch.x#0 f32[2,3]"),
]  # fmt: skip

# (name, changes of MICRO, V).
EXPANDED: list[tuple[str, list[tuple[str, str]], int]] = [
    ("one micro-batch", [], 1),
    ("two", [], 2),
    ("three", [], 3),
    ("ten, whose names are in another order than their numbers", [], 11),
    ("256: one fold of all", [], 256),
    ("257: folds of two levels", [], 257),
    ("1000, with a mean in two levels", [], 1000),
    ("nothing is carried", [
        ("micro 9\n" + _CARRY, "micro 9\n"),
        ("commit(%3, %2, %12)", "commit(@buffer.count, @buffer.mean, %12)"),
        ("output buffer.count %3\noutput buffer.mean %2",
         "output buffer.count @buffer.count\noutput buffer.mean @buffer.mean")], 3),
    ("nothing is drawn", [
        ("tallystick.dropout_mask(@rng){draw=0, p=0x1.0000000000000p-2, shape=[2,3]}",
         'aten.full(){dtype="bool", size=[2,3], value=0x1.0000000000000p+0}'),
        ("tallystick.uniform(@rng){draw=3, high=0x1.0000000000000p+0, low=0x0.0p+0, shape=[3,2]}",
         'aten.full(){dtype="f32", size=[3,2], value=0x1.0000000000000p+0}')], 3),
    ("one draw id of all", [("draw=3", "draw=0")], 3),
    ("the largest draw id", [("draw=3", "draw=4294967295")], 1),
]  # fmt: skip
# (name, changes, V): no program for that V.
REFUSED: list[tuple[str, list[tuple[str, str]], int]] = [
    ("no micro-batch", [], 0),
    ("more than 65536 micro-batches", [], 65537),
    ("draw ids beyond 2^32", [("draw=3", "draw=4294967295")], 2),
    ("draw ids beyond 2^32 by one", [("draw=3", "draw=2147483648")], 2),
]
