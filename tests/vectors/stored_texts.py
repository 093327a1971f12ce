"""Texts of programs whose weights are bf16 and f16 (PROGRAM 3.6, NUMERICS 1.14)."""

from __future__ import annotations

_COPY = '{dtype="f32"}'
GOOD = f"""tallystick program 1
contract ordered/1-draft.1
input batch batch.token i64[2]
input state param.head f16[3,4]
input state param.table bf16[5,4]
%0 = aten.index_select(@param.table, @batch.token){{dim=0}} : bf16[2,4]
%1 = aten._to_copy(%0){_COPY} : f32[2,4]
%2 = aten.permute(@param.head){{dims=[1,0]}} : f16[4,3]
%3 = aten._to_copy(%2){_COPY} : f32[4,3]
%4 = aten.mm(%1, %3) : f32[2,3]
%5 = aten.sum(%4) : f32[]
%6 = tallystick.commit(@param.head, @param.table) : none
output loss %5
output param.head @param.head
output param.table @param.table
end
"""
_CONTRACT = "contract ordered/1-draft.1"
_PERMUTE = "%2 = aten.permute(@param.head){dims=[1,0]} : f16[4,3]"
_LINES = '%3 = aten._to_copy(%2){dtype="f32"} : f32[4,3]\n'
# (name, clause, what is replaced, by what)
ALSO: tuple[tuple[str, str, str, str], ...] = (
    ("stored types under rounded/1", "NUMERICS 1.14", _CONTRACT, "contract rounded/1-draft.1;b=28"),
    ("a stored type that is seen as another shape", "NUMERICS 1.14", _PERMUTE,
     "%2 = aten.view(@param.head){size=[4,3]} : f16[4,3]"),
    ("a stored type that is cut", "NUMERICS 1.14",
     "%0 = aten.index_select(@param.table, @batch.token){dim=0}",
     "%0 = aten.slice(@param.table){dim=0, end=4, start=1, step=2}"),
)  # fmt: skip
MALFORMED: tuple[tuple[str, str, str, str], ...] = (
    ("stored types under replay/1", "NUMERICS 1.14", _CONTRACT,
     "contract replay/1-draft.1;b=28;form=bounded"),
    ("stored types under exact/1", "NUMERICS 1.14", _CONTRACT, "contract exact/1-draft.1;b=22"),
    ("a batch field of a stored type", "3.6",
     "input batch batch.token i64[2]\n",
     "input batch batch.given bf16[2]\ninput batch batch.token i64[2]\n"),
    ("a next state that is not the slot itself", "3.6",
     "%6 = tallystick.commit(@param.head, @param.table) : none\noutput loss %5\n"
     "output param.head @param.head",
     "%6 = aten.view(@param.head){size=[3,4]} : f16[3,4]\n"
     "%7 = tallystick.commit(%6, @param.table) : none\noutput loss %5\noutput param.head %6"),
    ("another half for a half", "16.6", ": f16[4,3]\n%3", ": bf16[4,3]\n%3"),
    ("a conversion to itself", "NUMERICS 10.7", _LINES,
     '%3 = aten._to_copy(%2){dtype="f16"} : f16[4,3]\n'),
    ("a conversion to another half", "NUMERICS 10.7", _LINES,
     '%3 = aten._to_copy(%2){dtype="bf16"} : bf16[4,3]\n'),
    ("a conversion of a half to i64", "NUMERICS 10.7", _LINES,
     '%3 = aten._to_copy(%2){dtype="i64"} : i64[4,3]\n'),
    ("a product of halves", "NUMERICS 1.14", "%4 = aten.mm(%1, %3)", "%4 = aten.mm(%1, %2)"),
    ("a sum of halves", "NUMERICS 1.14", "%5 = aten.sum(%4)", "%5 = aten.sum(%2)"),
    ("the magnitude of halves", "NUMERICS 1.14", _PERMUTE, "%2 = aten.abs(@param.head) : f16[3,4]"),
    ("halves that are joined", "NUMERICS 1.14", _PERMUTE,
     "%2 = aten.cat(@param.head){dim=0} : f16[3,4]"),
    ("halves that are broadcast", "NUMERICS 1.14", _PERMUTE,
     "%2 = aten.expand(@param.head){size=[3,4]} : f16[3,4]"),
    ("halves by embedding", "NUMERICS 1.14", "aten.index_select(@param.table, @batch.token){dim=0}",
     "aten.embedding(@param.table, @batch.token){padding_idx=-1}"),
    ("halves that are made", "NUMERICS 1.14", _PERMUTE,
     '%2 = aten.full(){dtype="f16", size=[4,3], value=0x0.0p+0} : f16[4,3]'),
)  # fmt: skip
