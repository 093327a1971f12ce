"""Small texts of PTX and of machine code, as nvcc, ptxas and nvdisasm write them."""

from __future__ import annotations

# A table with braces, a prototype, a kernel that calls a function, vector operands, inline
# assembly, a guard, and labels.
WHOLE = """\
//
.version 9.0
.target sm_90
.address_size 64
	// .globl	t_a
.func  (.param .b64 func_retval0) slow
(
	.param .b64 slow_param_0
)
;
.global .align 8 .b8 kTail[4] = {10, 0, 0, 0};
.visible .entry t_a(
	.param .align 8 .b8 t_a_param_0[304]
)
.maxntid 256, 1, 1
{
	.reg .pred 	%p<27>;
	.reg .f32 	%f<13>;

	ld.global.nc.v4.f32 	{%f1, %f2, %f3, %f4}, [%rd13];
	@%p2 bra 	$L__BB0_2;
	bra.uni 	$L__BB0_1;

$L__BB0_1:
	mul.rn.f32 	%f7, %f1, %f6;
	// begin inline asm
	fma.rn.f32 %f2, %f1, %f4, %f1;
	// end inline asm
	{ // callseq 0, 0
	.reg .b32 temp_param_reg;
	.param .b64 param0;
	st.param.f64 	[param0+0], %fd1;
	.param .b64 retval0;
	call.uni (retval0),
	slow,
	(
	param0
	);
	ld.param.f64 	%fd24, [retval0+0];
	} // callseq 0
$L__BB0_2: @!%p1 add.rn.f32 	%f9, %f7, %f8;
	ret;

}
.func  (.param .b64 func_retval0) slow(
	.param .b64 slow_param_0
)
{
	div.rn.f64 	%fd5, %fd1, 0d401E000000000000;
	ret;
}
.visible .entry t_b()
{
	add.s64 	%rd1, %rd2, %rd3;
	ret;
}
"""


def kernel(*lines: str, head: str = "") -> str:
    """A module with one kernel of these instructions."""
    body = "".join(f"\t{line};\n" for line in lines)
    return f".version 9.0\n.target sm_90\n{head}.visible .entry t_k()\n{{\n{body}\tret;\n}}\n"


def inline(line: str) -> str:
    """The instruction as inline assembly."""
    return f"// begin inline asm\n\t{line};\n\t// end inline asm\n\tmov.u32 %r1, 0"


def code(*lines: str) -> str:
    """The machine code of the kernel t_k."""
    body = "".join(
        f"        /*{16 * i:04x}*/                   {x} ;\n" for i, x in enumerate(lines)
    )
    return f"\t.section\t.text.t_k\n.text.t_k:\n{body}        /*ffff0*/ EXIT ;\n"


SAID = """\
ptxas info    : 568 bytes gmem
ptxas info    : Compiling entry function 'gemm_a' for 'sm_90'
ptxas info    : Function properties for gemm_a
    16 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 4112 bytes smem, 376 bytes cmem[0]
ptxas info    : Compile time = 24.409 ms
ptxas info    : Function properties for slow
    0 bytes stack frame, 0 bytes spill stores, 2 bytes spill loads
ptxas info    : Compiling entry function 'copy_a' for 'sm_90'
ptxas info    : Function properties for copy_a
    0 bytes stack frame, 1 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 38 registers, used 0 barriers
"""
