"""Texts of programs that hold attention (NUMERICS 18): who has it, and which calls fit."""

from __future__ import annotations

_SEEN = "causal=true, first=4, window=0"
GOOD = f"""tallystick program 1
contract ordered/1-draft.1
input batch batch.k f32[1,2,6,8]
input batch batch.q f32[1,4,2,8]
input batch batch.v f32[1,2,6,3]
%0 = tallystick.attention_scores(@batch.q, @batch.k){{causal=true, first=4, \
scale=0x1.0000000000000p-3, softcap=0x0.0p+0, window=0}} : f32[1,4,2,6]
%1 = tallystick.attention_weights(%0){{{_SEEN}}} : f32[1,4,2,6]
%2 = tallystick.attention_values(%1, @batch.v){{{_SEEN}}} : f32[1,4,2,3]
output loss %2
end
"""
_CONTRACT = "contract ordered/1-draft.1"
# (name, clause, what is replaced, by what)
ALSO: tuple[tuple[str, str, str, str], ...] = (
    ("attention under rounded/1", "NUMERICS 18.1", _CONTRACT, "contract rounded/1-draft.1"),
    ("attention under rounded/1, b", "NUMERICS 18.1", _CONTRACT, "contract rounded/1-draft.1;b=28"),
    ("attention with a window", "NUMERICS 18.2", f"(%0){{{_SEEN}}}",
     "(%0){causal=true, first=4, window=1}"),
    ("attention of the last window", "NUMERICS 18.2", f"(%0){{{_SEEN}}}",
     "(%0){causal=true, first=2147483647, window=2147483644}"),
    ("attention without order", "NUMERICS 18.2", f"(%0){{{_SEEN}}}",
     "(%0){causal=false, first=0, window=0}"),
)  # fmt: skip
MALFORMED: tuple[tuple[str, str, str, str], ...] = (
    ("attention under replay/1", "NUMERICS 18.1", _CONTRACT,
     "contract replay/1-draft.1;b=28;form=bounded"),
    ("attention under replay/1, published", "NUMERICS 18.1", _CONTRACT,
     "contract replay/1-draft.1;b=28;form=published;scale=binary;tau=0"),
    ("attention under exact/1", "NUMERICS 18.1", _CONTRACT, "contract exact/1-draft.1;b=22"),
    ("attention to no key", "NUMERICS 18.2", f"(%0){{{_SEEN}}}",
     "(%0){causal=true, first=5, window=1}"),
    ("attention with a window and without order", "NUMERICS 18.2", f"(%0){{{_SEEN}}}",
     "(%0){causal=false, first=4, window=3}"),
    ("attention before the text", "NUMERICS 18.2", f"(%0){{{_SEEN}}}",
     "(%0){causal=true, first=-1, window=0}"),
    ("attention beyond all texts", "NUMERICS 18.2", f"(%0){{{_SEEN}}}",
     "(%0){causal=true, first=2147483648, window=0}"),
    ("attention of heads that share nothing", "NUMERICS 18.2", "input batch batch.k f32[1,2,6,8]",
     "input batch batch.k f32[1,3,6,8]"),
    ("attention of rows that differ", "NUMERICS 16.9", "input batch batch.k f32[1,2,6,8]",
     "input batch batch.k f32[1,2,6,7]"),
    ("attention to other keys", "NUMERICS 16.9", "input batch batch.v f32[1,2,6,3]",
     "input batch batch.v f32[1,2,5,3]"),
)  # fmt: skip
