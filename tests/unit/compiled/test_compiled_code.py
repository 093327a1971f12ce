"""The check of compiled code sees what it must, in planted texts (NUMERICS 1.2 to 1.5, 1.11)."""

from __future__ import annotations

import pytest
from device_code import ptx, resources, rules, sass
from device_code.allowed import ALLOWED, Allowances, Allowed
from unit.compiled.texts import SAID, WHOLE, code, inline, kernel


def _whys(text: str, *rows: Allowed) -> list[str]:
    return [f.why for f in rules.findings("t", ptx.parse(text), Allowances(rows))]


def _in_code(ptx_text: str, *lines: str) -> list[str]:
    found = sass.findings("t", ptx.parse(ptx_text), sass.parse(code(*lines)))
    return [f.why for f in found]


# -- reading ---------------------------------------------------------------------------------------


def test_every_instruction_is_read_and_nothing_else() -> None:
    module = ptx.parse(WHOLE)
    assert list(module.functions) == ["t_a", "slow", "t_b"]
    assert [f.is_kernel for f in module.functions.values()] == [True, False, True]
    assert [i.opcode for i in module.functions["t_a"].instructions] == [
        *("ld.global.nc.v4.f32", "bra", "bra.uni", "mul.rn.f32", "fma.rn.f32", "st.param.f64"),
        *("call.uni", "ld.param.f64", "add.rn.f32", "ret"),
    ]
    written = [i.opcode for i in module.functions["t_a"].instructions if i.written]
    assert written == ["fma.rn.f32"]
    assert not list(rules.findings("t", module, Allowances()))


def test_what_a_kernel_calls_counts_as_its_own() -> None:
    module = ptx.parse(WHOLE)
    assert "div.rn.f64" in [i.opcode for i in module.reachable("t_a")]
    assert "div.rn.f64" not in [i.opcode for i in module.reachable("t_b")]


@pytest.mark.parametrize("cut", ["\n}\n.func", "ret;\n}\n.visible"])
def test_a_text_that_is_not_understood_is_refused(cut: str) -> None:
    with pytest.raises(ValueError):
        ptx.parse(WHOLE.replace(cut, cut.replace("}", "")))


def test_a_line_of_the_finding_leads_to_the_instruction() -> None:
    text = kernel("mov.f32 %f1, %f2", "add.f32 %f1, %f2, %f3")
    [found] = rules.findings("t", ptx.parse(text), Allowances())
    assert "add.f32" in text.splitlines()[found.line - 1]


# -- PTX -------------------------------------------------------------------------------------------

REFUSED = [
    ("add.f32 %f1, %f2, %f3", "'.rn'"),
    ("sub.f64 %fd1, %fd2, %fd3", "'.rn'"),
    ("@%p1 mul.f32 %f1, %f2, %f3", "'.rn'"),
    ("mul.f32x2 %rd1, %rd2, %rd3", "'.rn'"),
    ("mul.rz.f32 %f1, %f2, %f3", "'.rz'"),
    ("add.rn.sat.f32 %f1, %f2, %f3", "'.sat'"),
    ("add.rn.ftz.f32 %f1, %f2, %f3", "subnormals"),
    ("setp.lt.ftz.f32 %p1, %f2, %f3", "subnormals"),
    ("fma.rn.f32 %f1, %f2, %f3, %f4", "product and a sum"),
    ("fma.rn.f64 %fd1, %fd2, %fd3, %fd4", "product and a sum"),
    ("mad.rn.f32 %f1, %f2, %f3, %f4", "not among"),
    ("div.approx.f32 %f1, %f2, %f3", "approximate"),
    ("div.full.f32 %f1, %f2, %f3", "approximate"),
    ("sqrt.approx.ftz.f32 %f1, %f2", "approximate"),
    ("rcp.approx.ftz.f64 %fd1, %fd2", "approximate"),
    ("ex2.approx.f32 %f1, %f2", "approximate"),
    ("tanh.approx.f32 %f1, %f2", "approximate"),
    ("rsqrt.rn.f32 %f1, %f2", "not among"),
    ("max.f32 %f1, %f2, %f3", "drops a NaN"),
    ("min.f64 %fd1, %fd2, %fd3", "drops a NaN"),
    ("atom.global.add.f32 %f1, [%rd1], %f2", "no fixed order"),
    ("red.global.add.f64 [%rd1], %fd2", "no fixed order"),
    ("add.rn.f16 %h1, %h2, %h3", "in this type"),
    ("cvt.rn.f16.f32 %h1, %f1", "in this type"),
    ("cvt.rzi.s64.f64 %rd1, %fd1", "its range"),
    ("cvt.sat.f32.f32 %f1, %f2", "'.sat'"),
    ("cvt.rz.f32.f64 %f1, %fd2", "round to nearest"),
    ("cvt.rz.f32.s64 %f1, %rd2", "round to nearest"),
    (
        "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%fd1}, {%fd3}, {%fd4}, {%fd1}",
        "not among",
    ),
    ("call.uni (retval0), __nv_expf, (param0)", "__nv_expf"),
    ("call (retval0), %rd5, (param0), prototype_0", "%rd5"),
]


@pytest.mark.parametrize(("line", "why"), REFUSED, ids=[line.split()[0] for line, _ in REFUSED])
def test_a_planted_instruction_is_found(line: str, why: str) -> None:
    assert why in "".join(_whys(kernel(line)))
    assert len(_whys(kernel("mov.f32 %f1, %f2", line, line))) == 2


TAKEN = [
    "add.rn.f32 %f1, %f2, %f3",
    "div.rn.f64 %fd1, %fd2, %fd3",
    "sqrt.rn.f32 %f1, %f2",
    "rcp.rn.f32 %f1, %f2",
    "neg.f32 %f1, %f2",
    "setp.neu.f32 %p1, %f1, %f2",
    "max.NaN.f32 %f1, %f2, %f3",
    "max.s64 %rd1, %rd2, %rd3",
    "atom.global.min.u64 %rd1, [%rd2], %rd3",
    "shfl.sync.bfly.b32 %r1|%p1, %r2, 16, 31, -1",
    "cvt.rn.f32.f64 %f1, %fd1",
    "cvt.f64.f32 %fd1, %f1",
    "cvt.rn.f32.s64 %f1, %rd1",
    "cvt.rmi.f32.f32 %f1, %f2",
    "st.global.v2.f64 [%rd1], {%fd1, %fd2}",
    inline("fma.rn.f32 %f1, %f2, %f3, %f4"),
]


@pytest.mark.parametrize("line", TAKEN, ids=[line.split(" ")[0].strip("/ ") for line in TAKEN])
def test_an_honest_instruction_is_not_found(line: str) -> None:
    assert _whys(kernel(line)) == []


def test_a_function_of_a_library_is_found_where_it_is_declared() -> None:
    text = kernel(
        head=".extern .func  (.param .b32 func_retval0) vprintf(\n\t.param .b64 a\n)\n;\n"
    )
    assert len(_whys(text)) == 1


def test_an_allowance_is_for_its_file_and_is_needed() -> None:
    text = kernel("max.f64 %fd1, %fd2, %fd3")
    row = Allowed("max.f64 *", ("t", "other"), "a test")
    allowances = Allowances((row,))
    assert not list(rules.findings("t", ptx.parse(text), allowances))
    assert list(rules.findings("third", ptx.parse(text), allowances))
    assert allowances.unused() == ["other: `max.f64 *`"]


@pytest.mark.parametrize(
    ("line", "is_allowed"),
    [
        ("max.f64 %fd1, %fd2, 0dC0862E42FEFA39EF", True),
        ("min.f64 %fd1, %fd2, 0d3FF0000000000000", True),
        ("min.f64 %fd1, %fd2, 0d7FF8000000000000", False),
        ("min.f64 %fd1, %fd2, %fd3", False),
        ("min.f64 %fd1, %fd2, 0d0000000000000000", False),
        ("max.f32 %f1, %f2, 0f3F800000", False),
    ],
)
def test_a_clamp_by_a_constant_is_allowed(line: str, is_allowed: bool) -> None:
    """NUMERICS 1.11: a maximum of two numbers of the step keeps a NaN and the sign of a zero."""
    found = list(rules.findings("softmax", ptx.parse(kernel(line)), Allowances()))
    assert bool(found) is not is_allowed


def test_every_allowance_has_its_reason() -> None:
    assert all(row.reason.endswith(".") and len(row.reason) > 20 for row in ALLOWED)


# -- machine code ----------------------------------------------------------------------------------

PLAIN = kernel("mul.rn.f32 %f1, %f2, %f3", "add.rn.f32 %f1, %f1, %f4")
DIVIDES = kernel("div.rn.f32 %f1, %f2, %f3")
REMAINDER = kernel("rem.s64 %rd1, %rd2, %rd3")
FUSES = kernel(inline("fma.rn.f32 %f1, %f2, %f3, %f4"))

UNEXPLAINED = [
    (PLAIN, "FFMA R0, R1, R2, R3"),
    (PLAIN, "UFFMA UR0, UR1, UR2, UR3"),
    (PLAIN, "DFMA R0, R2, R4, R6"),
    (FUSES, "DFMA R0, R2, R4, R6"),
    (PLAIN, "@!P0 FMUL.FTZ R9, R0, R3"),
    (PLAIN, "MUFU.RCP R0, R1"),
    (REMAINDER, "FFMA R0, R1, R2, R3"),
    (DIVIDES, "MUFU.EX2 R0, R1"),
    (DIVIDES, "MUFU.TANH R0, R1"),
    (PLAIN, "FADD.RM R0, R1, R2"),
    (PLAIN, "FMNMX R0, R1, R2, PT"),
    (PLAIN, "HFMA2 R0, R1, R2, R3"),
    (PLAIN, "HMMA.16816.F32 R0, R1, R2, R3"),
    (PLAIN, "RED.E.ADD.F32.FTZ.RN.STRONG.GPU [R2.64], R0"),
    (PLAIN, "ATOMG.E.ADD.F64.RN R0, [R2.64], R4"),
]


@pytest.mark.parametrize(("source", "line"), UNEXPLAINED, ids=[x for _, x in UNEXPLAINED])
def test_machine_code_that_the_ptx_does_not_explain_is_found(source: str, line: str) -> None:
    assert len(_in_code(source, "FADD R0, R1, R2", line)) == 1


EXPLAINED = [
    (PLAIN, "FMUL R0, R1, R2"),
    (PLAIN, "HFMA2.MMA R3, -RZ, RZ, 0, 0"),
    (PLAIN, "FMNMX.NAN R3, RZ, R6, !PT"),
    (PLAIN, "ATOMG.E.MIN.64.STRONG.GPU PT, RZ, [R2.64], R4"),
    (DIVIDES, "FFMA R0, R1, R2, R3"),
    (DIVIDES, "MUFU.RCP R0, R1"),
    (DIVIDES, "FSETP.NEU.FTZ.AND P0, PT, R12, R11, PT"),
    (REMAINDER, "F2I.FTZ.U32.TRUNC.NTZ R5, R4"),
    (REMAINDER, "MUFU.RCP R0, R1"),
    (FUSES, "@P0 FFMA R0, R1, R2, R3"),
]


@pytest.mark.parametrize(("source", "line"), EXPLAINED, ids=[x for _, x in EXPLAINED])
def test_machine_code_that_the_ptx_explains_is_not_found(source: str, line: str) -> None:
    assert _in_code(source, line) == []


def test_a_kernel_without_machine_code_is_found() -> None:
    other = code("FADD R0, R1, R2").replace("t_k", "t_other")
    assert len(list(sass.findings("t", ptx.parse(PLAIN), sass.parse(other)))) == 1


def test_machine_code_that_is_not_understood_is_refused() -> None:
    with pytest.raises(ValueError):
        sass.parse(".text.t_k:\n   FADD R0, R1, R2 ;\n")


# -- registers and memory --------------------------------------------------------------------------


def test_the_words_of_ptxas_are_read() -> None:
    found = resources.parse(SAID)
    assert found == {
        "gemm_a": resources.Resources(255, 4112, 16, 14),
        "copy_a": resources.Resources(38, 0, 0, 1),
    }
    assert resources.spills(found) == ["gemm_a spills 14 bytes"]


def test_the_table_lists_what_was_read() -> None:
    found = resources.parse(SAID)
    rows = [resources.Row(name, 0, (r, resources.Resources(38))) for name, r in found.items()]
    page = resources.table(rows)
    assert resources.listed(page) == {"gemm_a", "copy_a"}
    assert "| `copy_a` | 0 | 38 | 0 | 0 | 1 / 0 |" in page


def test_rows_of_other_sources_stay() -> None:
    found = resources.parse(SAID)
    pages = [resources.table([resources.Row(name, 1, (r,))]) for name, r in found.items()]
    assert resources.listed(resources.merged(*pages, lambda kernel: True)) == set(found)
    assert resources.merged(*pages, lambda kernel: False) == pages[0]
