"""The primitives of values: all that a value may be made of (NUMERICS 1, 5, 10).

An interpreter has one function for each. None has an attribute or a size, and each works on one
element. `rounds` says that binary32 need not hold the result exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

FLOATS, NUMBERS, WHOLE = ("f32", "f64"), ("f32", "f64", "i64"), ("bool", "i64")
EVERY = ("f32", "f64", "i64", "i32", "u8", "bool")
# A whole number of no dtype: a position, a size, a count of terms.
INDEX = "index"
# The output's dtype, of an element that is moved: its bits stay what they are.
MOVED = "moved"


@dataclass(frozen=True)
class Primitive:
    """`takes` are the dtypes that its operands may have, all of them one. `gives` is the result's:
    "" for theirs. `clause` is of spec/NUMERICS.md."""

    arity: int
    takes: tuple[str, ...]
    clause: str
    gives: str = ""
    rounds: bool = False


_ROUNDED = {"add": 2, "sub": 2, "mul": 2, "div": 2, "sqrt": 1}
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
# 5.1's list.
FUNCTIONS = (
    "exp", "exp2", "expm1", "log", "log2", "log1p", "tanh", "erf", "sigmoid", "sin", "cos", "rsqrt",
)  # fmt: skip

PRIMITIVES: dict[str, Primitive] = {
    # On i64 they wrap (10.8), and div and sqrt do not exist.
    **{
        name: Primitive(
            arity, FLOATS if name in ("div", "sqrt") else (*NUMBERS, INDEX), "1.3", rounds=True
        )
        for name, arity in _ROUNDED.items()
    },
    # Of indices: the quotient rounded down, and what it leaves.
    "over": Primitive(2, (INDEX,), "1.1"),
    "rest": Primitive(2, (INDEX,), "1.1"),
    "fma": Primitive(3, ("f32",), "1.4", rounds=True),
    "neg": Primitive(1, FLOATS, "10.3"),
    "abs": Primitive(1, FLOATS, "10.3"),
    "max": Primitive(2, ("f32", "i64", INDEX), "1.11"),
    "min": Primitive(2, ("f32", "i64", INDEX), "1.11"),
    **{name: Primitive(2, (*EVERY, INDEX), "1.10", gives="bool") for name in _COMPARISONS},
    "and": Primitive(2, WHOLE, "10.5"),
    "or": Primitive(2, WHOLE, "10.5"),
    "xor": Primitive(2, WHOLE, "10.11"),
    "not": Primitive(1, WHOLE, "10.5"),
    "floor_divide": Primitive(2, ("i64",), "10.10"),
    "left_shift": Primitive(2, ("i64",), "10.11"),
    "right_shift": Primitive(2, ("i64",), "10.11"),
    **{name: Primitive(1, ("f32",), "5.1", rounds=True) for name in FUNCTIONS},
    "pow": Primitive(2, ("f32",), "10.6", rounds=True),
}
