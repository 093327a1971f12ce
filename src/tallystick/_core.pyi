"""Made by native/tools/make_stub.py from the native module. Do not edit."""

from collections.abc import Sequence as _Sequence
from typing import Annotated, Any

import numpy
from numpy.typing import NDArray


class OperandError(ValueError):
    pass

def isa() -> str: ...

def supported_isas() -> list[str]: ...

def threads() -> int: ...

def set_isa(name: str) -> None: ...

def set_threads(n: int) -> None: ...

class Context:
    """Threads and instruction set of an execution."""

    def __init__(self, threads: int, isa: str) -> None: ...

    @property
    def threads(self) -> int: ...

    @property
    def isa(self) -> str: ...

def enter_context(context: Context) -> None: ...

def leave_context() -> None: ...

def fp_environment_ok() -> bool:
    """
    Whether the calling thread has the environment of NUMERICS 1.7, found out by arithmetic.
    """

def fp_environment_enter() -> int:
    """
    Sets the calling thread's environment (NUMERICS 1.7); returns the word that was there.
    """

def fp_environment_leave(word: int) -> None:
    """Puts back, in the same thread, a word that fp_environment_enter gave."""

def compiler() -> str: ...

def sha256(data: object) -> bytes:
    """SHA-256 of a C-contiguous buffer: 32 bytes."""

def tensor_leaves_root(data: object, leaf: int) -> bytes:
    """
    RFC 9162 root over `leaf`-byte leaves of a C-contiguous buffer (COMMITMENTS 3).
    """

def tensor_leaf_hashes(data: object, leaf: int) -> bytes:
    """
    All leaf hashes in order, 32 bytes each, of a C-contiguous buffer (COMMITMENTS 3).
    """

def merkle_root_of_hashes(hashes: object) -> bytes:
    """RFC 9162 root over leaf hashes already computed (COMMITMENTS 2)."""

def sha256_implementations() -> list[str]:
    """Names of the SHA-256 implementations that can run on this machine."""

def sha256_implementation() -> str:
    """Name of the SHA-256 implementation in use."""

def set_sha256_implementation(name: str) -> None:
    """Use this implementation from now on; every one gives the same bits."""

class Sequence:
    """
    Calls of this module's functions, checked once and made many times. The caller keeps their arrays.
    """

    def __init__(self) -> None: ...

    def __len__(self) -> int: ...

    @property
    def done(self) -> int:
        """How many calls of the last run have ended."""

    def run(self) -> None:
        """Make all calls, in order."""

def record(into: Sequence) -> None:
    """
    Until stop_recording, this thread's calls of ew1, ew2, ew3, elementary, pow, reduce_sum, concatenate_rows, mm_panels, mm_panels_stored and mm_panels_quantised go into the sequence and do nothing else.
    """

def stop_recording() -> None: ...

def elementary_names() -> list[str]:
    """The functions that elementary() knows."""

def elementary(name: str, x: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')]) -> None:
    """
    out[i] = RN(f(x[i])) for a C-contiguous float32 x; out may be x (NUMERICS 5).
    """

def pow(x: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], y: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')]) -> None:
    """
    out[i] = RN(x[i] ** y[i]), or y[0] throughout when y has one element (NUMERICS 5.8).
    """

def mm(a: Annotated[NDArray[numpy.float32], dict(shape=(None, None), device='cpu', writable=False)], b: Annotated[NDArray[numpy.float32], dict(shape=(None, None), device='cpu', writable=False)], out: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu')]) -> None:
    """out[M,N] = a[M,K] b[K,N], f32, any strides of a and b (NUMERICS 2.4)."""

def addmm(c: Annotated[NDArray[numpy.float32], dict(device='cpu', writable=False)], a: Annotated[NDArray[numpy.float32], dict(shape=(None, None), device='cpu', writable=False)], b: Annotated[NDArray[numpy.float32], dict(shape=(None, None), device='cpu', writable=False)], out: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu')], beta: float, alpha: float) -> None:
    """out = beta·c + alpha·(a b), c broadcast to [M,N] (NUMERICS 2.5)."""

def mm_stored(a: Annotated[NDArray[numpy.float32], dict(shape=(None, None), device='cpu', writable=False)], b: Annotated[NDArray[numpy.uint16], dict(shape=(None, None), device='cpu', writable=False)], out: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu')], is_f16: bool) -> None:
    """out = a b, b the bits of bf16 or f16 (NUMERICS 2.4, 10.7)."""

def addmm_stored(c: Annotated[NDArray[numpy.float32], dict(device='cpu', writable=False)], a: Annotated[NDArray[numpy.float32], dict(shape=(None, None), device='cpu', writable=False)], b: Annotated[NDArray[numpy.uint16], dict(shape=(None, None), device='cpu', writable=False)], out: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu')], beta: float, alpha: float, is_f16: bool) -> None:
    """
    out = beta·c + alpha·(a b), b the bits of bf16 or f16 (NUMERICS 2.5, 10.7).
    """

def make_panels(b: Annotated[NDArray[numpy.float32], dict(shape=(None, None), device='cpu', writable=False)], out: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None), order='C', device='cpu')]) -> None:
    """
    out[panels,K,32] = b[K,N], f32, 32 columns to a panel, zeros beyond the last.
    """

def make_panels_stored(b: Annotated[NDArray[numpy.uint16], dict(shape=(None, None), device='cpu', writable=False)], out: Annotated[NDArray[numpy.uint16], dict(shape=(None, None, None), order='C', device='cpu')]) -> None:
    """The same for the bits of bf16 or f16."""

def mm_panels(a: Annotated[NDArray[numpy.float32], dict(shape=(None, None), device='cpu', writable=False)], b: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu')], c: Annotated[NDArray[numpy.float32], dict(device='cpu', writable=False)] | None) -> None:
    """
    out = a b, or a b + c; b as panels of 32 columns, zeros beyond the last (NUMERICS 2.4, 2.5).
    """

def mm_panels_stored(a: Annotated[NDArray[numpy.float32], dict(shape=(None, None), device='cpu', writable=False)], b: Annotated[NDArray[numpy.uint16], dict(shape=(None, None, None), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu')], c: Annotated[NDArray[numpy.float32], dict(device='cpu', writable=False)] | None, is_f16: bool) -> None:
    """The same, b the bits of bf16 or f16 (NUMERICS 2.4, 2.5, 10.7)."""

def make_panels_quantised(format: str, rows: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.uint8], dict(shape=(None, None, None, None), order='C', device='cpu')]) -> None:
    """
    out[panels,blocks,bytes,32]: rows of blocks, 32 rows to a panel, zeros beyond the last.
    """

def mm_panels_quantised(format: str, a: Annotated[NDArray[numpy.float32], dict(shape=(None, None), device='cpu', writable=False)], b: Annotated[NDArray[numpy.uint8], dict(shape=(None, None, None, None), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu')], c: Annotated[NDArray[numpy.float32], dict(device='cpu', writable=False)] | None) -> None:
    """out = a b, or a b + c; b as panels of blocks (NUMERICS 2.4, 2.5, 19)."""

def mm_quantised(format: str, a: Annotated[NDArray[numpy.float32], dict(shape=(None, None), device='cpu', writable=False)], b: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu')]) -> None:
    """out = a bᵀ, b rows of blocks (NUMERICS 2.4, 19)."""

def addmm_quantised(format: str, c: Annotated[NDArray[numpy.float32], dict(device='cpu', writable=False)], a: Annotated[NDArray[numpy.float32], dict(shape=(None, None), device='cpu', writable=False)], b: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu')], beta: float, alpha: float) -> None:
    """out = beta·c + alpha·(a bᵀ), b rows of blocks (NUMERICS 2.5, 19)."""

def bmm(a: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None), device='cpu', writable=False)], b: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None), device='cpu', writable=False)], out: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None), order='C', device='cpu')]) -> None:
    """out[i] = a[i] b[i] for each i (NUMERICS 2.4)."""

def convolution(input: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None, None), order='C', device='cpu', writable=False)], weight: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None, None), order='C', device='cpu', writable=False)], bias: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, out: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None, None), order='C', device='cpu')], stride: _Sequence[int], padding: _Sequence[int], dilation: _Sequence[int], groups: int) -> None:
    """2-D convolution, C-contiguous f32 (NUMERICS 2.6)."""

def convolution_input_grad(grad: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None, None), order='C', device='cpu', writable=False)], weight: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None, None), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None, None), order='C', device='cpu')], stride: _Sequence[int], padding: _Sequence[int], dilation: _Sequence[int], groups: int) -> None:
    """Gradient of a 2-D convolution's input (NUMERICS 2.7)."""

def convolution_weight_grad(grad: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None, None), order='C', device='cpu', writable=False)], input: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None, None), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None, None), order='C', device='cpu')], stride: _Sequence[int], padding: _Sequence[int], dilation: _Sequence[int], groups: int) -> None:
    """Gradient of a 2-D convolution's weight (NUMERICS 2.7)."""

def convolution_bias_grad(grad: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None, None), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu')]) -> None:
    """Gradient of a 2-D convolution's bias (NUMERICS 2.7)."""

def dequantize(format: str, raw: Annotated[NDArray[numpy.uint8], dict(order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')]) -> None:
    """The numbers of blocks of quantised weights (NUMERICS 19)."""

def ew1(name: str, a: Annotated[NDArray[Any], dict(device='cpu', writable=False)], out: Annotated[NDArray[Any], dict(device='cpu')], p0: float = 0.0, p1: float = 0.0) -> None:
    """
    out = name(a), elementwise; a: float32 of any strides, broadcast; out: C-contiguous.
    """

def ew2(name: str, a: Annotated[NDArray[Any], dict(device='cpu', writable=False)], b: Annotated[NDArray[Any], dict(device='cpu', writable=False)], out: Annotated[NDArray[Any], dict(device='cpu')], p0: float = 0.0, p1: float = 0.0) -> None:
    """out = name(a, b); operands of any strides, broadcast (NUMERICS 10.1)."""

def ew3(name: str, a: Annotated[NDArray[Any], dict(device='cpu', writable=False)], b: Annotated[NDArray[Any], dict(device='cpu', writable=False)], c: Annotated[NDArray[Any], dict(device='cpu', writable=False)], out: Annotated[NDArray[Any], dict(device='cpu')], p0: float = 0.0, p1: float = 0.0) -> None:
    """out = name(a, b, c); operands of any strides, broadcast."""

def concatenate_rows(parts: _Sequence[Annotated[NDArray[numpy.float32], dict(device='cpu', writable=False)]], out: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')]) -> None:
    """
    out = the parts side by side along the last axis, in which each is contiguous.
    """

def copy_strided(x: Annotated[NDArray[Any], dict(device='cpu', writable=False)], out: Annotated[NDArray[Any], dict(device='cpu')]) -> None:
    """
    Copies x, of any strides, to the C-contiguous out of the same shape and dtype.
    """

def reduce_sum(x: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], outer: int, n: int, inner: int, out: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')], square: bool = False, mean: bool = False) -> None:
    """
    SUM over the middle axis of x seen as [outer][n][inner] (NUMERICS 3.1); `mean` divides by RN32(n), `square` sums squares (rows only).
    """

def var_mean(x: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], outer: int, n: int, divisor: float, var: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')], mean: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')]) -> None:
    """Variance and mean of each row of x seen as [outer][n] (NUMERICS 3.6)."""

def reduce_extreme(which: str, x: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], outer: int, n: int, inner: int, out: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')]) -> None:
    """
    'max' or 'min' over the middle axis of x seen as [outer][n][inner] (NUMERICS 3.5).
    """

def reduce_argmax(x: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], outer: int, n: int, out: Annotated[NDArray[numpy.int64], dict(order='C', device='cpu')]) -> None:
    """Lowest index of the maximum of each row (NUMERICS 3.5)."""

def dropout_mask(seed: int, step: int, draw: int, threshold: int, out: Annotated[NDArray[Any], dict(order='C', device='cpu')]) -> None:
    """Kept iff word >= threshold (NUMERICS 8.4)."""

def uniform(seed: int, step: int, draw: int, low: float, high: float, out: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')]) -> None:
    """Uniform floats (NUMERICS 8.6)."""

def normal(seed: int, step: int, draw: int, mean: float, std: float, out: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')]) -> None:
    """Normal floats (NUMERICS 8.7)."""

def gumbel(seed: int, step: int, draw: int, place: Annotated[NDArray[numpy.int64], dict(order='C', device='cpu', writable=False)], classes: int, out: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')]) -> None:
    """Gumbel noise by place and class (NUMERICS 8.8)."""

def philox_words(seed: int, step: int, draw: int, first: int, out: Annotated[NDArray[numpy.uint32], dict(order='C', device='cpu')]) -> None:
    """The 32-bit words of elements first, first+1, ... (NUMERICS 8.1)."""

def philox_block(counter: Annotated[NDArray[numpy.uint32], dict(order='C', device='cpu', writable=False)], key: Annotated[NDArray[numpy.uint32], dict(order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.uint32], dict(order='C', device='cpu')]) -> None:
    """One block of Philox4x32-10."""

def softmax(x: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], y: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')], n: int) -> None:
    """Rows of n elements (NUMERICS 6.1)."""

def log_softmax(x: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], y: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')], n: int) -> None:
    """Rows of n elements (NUMERICS 6.2)."""

def softmax_backward(g: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], y: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')], n: int) -> None:
    """NUMERICS 6.3."""

def log_softmax_backward(g: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], y: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')], n: int) -> None:
    """NUMERICS 6.4."""

def layer_norm(x: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], w: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)] | None, b: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)] | None, eps: float, y: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')], mean: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')], rstd: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')], n: int) -> None:
    """Rows of n elements (NUMERICS 6.5)."""

def layer_norm_backward(g: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], x: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], mean: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], rstd: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], w: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)] | None, dx: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')] | None, dw: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')] | None, db: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')] | None, n: int) -> None:
    """The wanted ones of dx, dw and db (NUMERICS 6.6)."""

def cross_entropy(x: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], target: Annotated[NDArray[numpy.int64], dict(order='C', device='cpu', writable=False)], ignore_index: int, reduction: int, loss: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')], row_max: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')], row_sum: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')]) -> None:
    """NUMERICS 7.1; reduction 0 mean, 1 sum, 2 none."""

def cross_entropy_backward(grad: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], x: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], target: Annotated[NDArray[numpy.int64], dict(order='C', device='cpu', writable=False)], row_max: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], row_sum: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], ignore_index: int, reduction: int, out: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')]) -> None:
    """NUMERICS 7.2."""

def nll_loss(x: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], target: Annotated[NDArray[numpy.int64], dict(order='C', device='cpu', writable=False)], ignore_index: int, reduction: int, loss: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')], total_weight: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')]) -> None:
    """NUMERICS 7.3."""

def nll_loss_backward(grad: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], x: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], target: Annotated[NDArray[numpy.int64], dict(order='C', device='cpu', writable=False)], total_weight: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], ignore_index: int, reduction: int, out: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')]) -> None:
    """NUMERICS 7.3."""

def attention_scores(q: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None, None), order='C', device='cpu', writable=False)], k: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None, None), order='C', device='cpu', writable=False)], slopes: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, out: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None, None), order='C', device='cpu')], scale: float, softcap: float, causal: bool, first: int, window: int) -> None:
    """
    out[B,H,T,S] of q[B,H,T,D] and k[B,G,S,D], slopes[H] or None (NUMERICS 18.3).
    """

def attention_weights(s: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None, None), order='C', device='cpu', writable=False)], sinks: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, out: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None, None), order='C', device='cpu')], causal: bool, first: int, window: int) -> None:
    """
    out[B,H,T,S], which may be s, of s[B,H,T,S], sinks[H] or None (NUMERICS 18.4).
    """

def attention_values(p: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None, None), order='C', device='cpu', writable=False)], v: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None, None), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None, None), order='C', device='cpu')], causal: bool, first: int, window: int) -> None:
    """out[B,H,T,E] of p[B,H,T,S] and v[B,G,S,E] (NUMERICS 18.5)."""

def attention(q: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None, None), order='C', device='cpu', writable=False)], k: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None, None), order='C', device='cpu', writable=False)], v: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None, None), order='C', device='cpu', writable=False)], slopes: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, sinks: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, out: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None, None), order='C', device='cpu')], scale: float, softcap: float, causal: bool, first: int, window: int) -> None:
    """
    out[B,H,T,E] of q[B,H,T,D], k[B,G,S,D], v[B,G,S,E], slopes[H] and sinks[H] or None: the three operators at once, with the same attributes, in memory that does not grow with T*S (NUMERICS 18.3 to 18.5).
    """

def attention_pages(q: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None), order='C', device='cpu', writable=False)], pool: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], tables: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], starts: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], places: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], groups: int, out: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None), order='C', device='cpu')], scale: float, softcap: float, window: int, slopes: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, sinks: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None) -> None:
    """
    out[rows,H,E] of q[rows,H,D]: the three operators for one query a row, causal, first = its place, over pages. pool is f32[pages, G*16*(D+E)]: of a page the keys [G,D,16], then the values [G,16,E]. Key j of row r is number j % 16 of page tables[starts[r] + j // 16]. tables, starts[rows] and places[rows] are i64. Pages below the window are not looked at.
    """

def attention_append(k: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None), order='C', device='cpu', writable=False)], v: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None), order='C', device='cpu', writable=False)], pool: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu')], tables: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], starts: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], places: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None:
    """
    Writes k[rows,G,D] and v[rows,G,E] as the keys and values number places[r] of the rows' pages (attention_pages).
    """

def embedding(weight: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], index: Annotated[NDArray[numpy.int64], dict(order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')]) -> None:
    """Rows of an f32 weight by i64 indices (NUMERICS 9)."""

def embedding_dense_backward(grad: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], index: Annotated[NDArray[numpy.int64], dict(order='C', device='cpu', writable=False)], padding_idx: int, out: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')]) -> None:
    """
    Gradient rows added by ascending source; padding_idx < 0: none (NUMERICS 4.2).
    """

def index_add(x: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], index: Annotated[NDArray[numpy.int64], dict(order='C', device='cpu', writable=False)], source: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], outer: int, inner: int, out: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')]) -> None:
    """Source slices added to x's by ascending source (NUMERICS 4.3)."""

def batch_norm(x: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], w: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)] | None, b: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)] | None, running_mean: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)] | None, running_var: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)] | None, momentum: float, eps: float, y: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')], mean: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')], rstd: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')], new_mean: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')] | None, new_var: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')] | None) -> None:
    """Training (NUMERICS 6.12)."""

def batch_norm_eval(x: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], w: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)] | None, b: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)] | None, mean: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], var: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], eps: float, y: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')]) -> None:
    """By running statistics (NUMERICS 6.14)."""

def batch_norm_backward(g: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], x: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], w: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)] | None, mean: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], spread: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], train: bool, eps: float, dx: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')] | None, dw: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')] | None, db: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')] | None) -> None:
    """
    The wanted ones of dx, dw and db; spread is rstd, or the running variance (NUMERICS 6.13).
    """

def max_pool2d(x: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], kernel: _Sequence[int], stride: _Sequence[int], padding: _Sequence[int], dilation: _Sequence[int], y: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')], index: Annotated[NDArray[numpy.int64], dict(order='C', device='cpu')]) -> None:
    """Planes of the last two axes (NUMERICS 6.15)."""

def max_pool2d_backward(g: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], index: Annotated[NDArray[numpy.int64], dict(order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')]) -> None:
    """Planes of the last two axes (NUMERICS 6.16)."""

def adam_step(p: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], g: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], m: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], v: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], c: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)] | None, p_out: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')], m_out: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')], v_out: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')], rest1: float, beta2: float, rest2: float, eps: float, step_size: float, root_bc2: float, decay: float, adds_decay: bool, scales_param: bool) -> None:
    """
    One Adam or AdamW step on f32 tensors of one size (NUMERICS 11.2, 11.3).
    """

def sgd_step(p: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], g: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], buf: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)] | None, c: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)] | None, p_out: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')], buf_out: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')] | None, lr: float, momentum: float, undamped: float, weight_decay: float, decays: bool, nesterov: bool) -> None:
    """One SGD step on f32 tensors of one size (NUMERICS 11.4)."""

def clip_coef(squares: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], max_norm: float, coefficient: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')], norm: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')]) -> None:
    """Gradient clipping's coefficient and norm (NUMERICS 11.6)."""

def published_log(x: Annotated[NDArray[numpy.float64], dict(order='C', device='cpu', writable=False)], threshold: int, decimal: bool, bits: int, plus_zero: bool, out: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')], packed: Annotated[NDArray[numpy.uint8], dict(order='C', device='cpu')]) -> None:
    """out = R(x) and a trainer's entries, five to a byte (NUMERICS 14.9)."""

def published_follow(x: Annotated[NDArray[numpy.float64], dict(order='C', device='cpu', writable=False)], packed: Annotated[NDArray[numpy.uint8], dict(order='C', device='cpu', writable=False)], bits: int, plus_zero: bool, out: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')]) -> int:
    """
    out = rev(x, entries) (NUMERICS 14.9); returns how many elements are not R(x).
    """

def published_adam(p: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], g: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], m: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], v: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], scale: float, rest1: float, beta2: float, rest2: float, eps: float, root: float, step_size: float, kept: float, decay: float, p_out: Annotated[NDArray[numpy.float64], dict(order='C', device='cpu')], m_out: Annotated[NDArray[numpy.float64], dict(order='C', device='cpu')], v_out: Annotated[NDArray[numpy.float64], dict(order='C', device='cpu')]) -> None:
    """x of an Adam or AdamW step in binary64 (NUMERICS 11.2, 11.3, 14.9)."""

def round_grid(w: Annotated[NDArray[numpy.float64], dict(order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')], b: int) -> None:
    """
    out f32 = R(w f64) with b bits, equal shapes, C-contiguous (NUMERICS 13.2).
    """

def widen_rows(x: Annotated[NDArray[numpy.float32], dict(shape=(None, None), device='cpu', writable=False)], out: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu')]) -> None:
    """out f64 = x f32[R,n], a row's elements adjacent, in binary64 (exact)."""

def round_doubt(w: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], ea: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], eb: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], ec: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, t: float, b: int, out: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu')]) -> NDArray[numpy.int64]:
    """
    out[M,N] = R(w[M,N]); returns i64[k], ascending: the row-major positions where R differs between w - t·E and w + t·E, E = ea[i]·eb[j] (+ ec[j]), or w or E is not finite. The ends are taken a step further out than binary64 rounds them (NUMERICS 13.6, 14.6).
    """

def exact_dots(a: Annotated[NDArray[numpy.float32], dict(shape=(None, None), device='cpu', writable=False)], b: Annotated[NDArray[numpy.float32], dict(shape=(None, None), device='cpu', writable=False)], i: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], j: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], c: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, bits: int) -> NDArray[numpy.float32]:
    """
    f32[n]: R of the exact product of row i[e] of a[M,K] and column j[e] of b[K,N], plus c[e] (NUMERICS 13.3, 13.4). Any strides.
    """

def exact_accs(a: Annotated[NDArray[numpy.float32], dict(shape=(None, None), device='cpu', writable=False)], b: Annotated[NDArray[numpy.float32], dict(shape=(None, None), device='cpu', writable=False)], i: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], j: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], c: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None) -> NDArray[numpy.uint8]:
    """u8[n,80]: the accumulator records of the same sums (NUMERICS 13.5)."""

def exact_sums(x: Annotated[NDArray[numpy.float32], dict(shape=(None, None), device='cpu', writable=False)], rows: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], b: int) -> NDArray[numpy.float32]:
    """
    f32[k]: R of the exact sum of the named rows of x[R,n], any strides (NUMERICS 13.3).
    """

def exact_sum_accs(x: Annotated[NDArray[numpy.float32], dict(shape=(None, None), device='cpu', writable=False)], rows: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> NDArray[numpy.uint8]:
    """u8[k,80]: the accumulator records of the same sums (NUMERICS 13.5)."""

def acc_add_products(acc: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], a: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], b: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> NDArray[numpy.uint8]:
    """The record u8[80] after the terms a[k]·b[k] (NUMERICS 13.5)."""

def acc_add_terms(acc: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], x: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> NDArray[numpy.uint8]:
    """The record u8[80] after the terms x[k] (NUMERICS 13.5)."""

def acc_round(accs: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order='C', device='cpu', writable=False)], b: int) -> NDArray[numpy.float32]:
    """f32[n]: R of each of the records u8[n,80] (NUMERICS 13.2, 13.4)."""

def square_sums_rows(a: Annotated[NDArray[numpy.float32], dict(shape=(None, None), device='cpu', writable=False)]) -> NDArray[numpy.float64]:
    """
    f64[M]: SUM64 of the squares of each row of a[M,K], any strides (NUMERICS 14.4).
    """

def square_sums_columns(b: Annotated[NDArray[numpy.float32], dict(shape=(None, None), device='cpu', writable=False)]) -> NDArray[numpy.float64]:
    """
    f64[N]: SUM64 of the squares of each column of b[K,N], any strides (NUMERICS 14.4).
    """

def abs_sums_rows(x: Annotated[NDArray[numpy.float32], dict(shape=(None, None), device='cpu', writable=False)]) -> NDArray[numpy.float64]:
    """
    f64[R]: SUM64 of the absolute values of each row of x[R,n], any strides (NUMERICS 14.4).
    """

def exact_integers(x: Annotated[NDArray[numpy.float32], dict(shape=(None, None), device='cpu', writable=False)], segment: int, width: int, mu: Annotated[NDArray[numpy.uint32], dict(shape=(None, None), order='C', device='cpu')], out: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu')]) -> None:
    """
    out f32[R,n]: m(x) of x[R,n], any strides, whose rows are groups of `segment` elements; mu u32[R,ceil(n/segment)]: the bits of their largest magnitudes (NUMERICS 17.4).
    """

def exact_products(a: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None), device='cpu', writable=False)], b: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None), device='cpu', writable=False)], width: int, out: Annotated[NDArray[numpy.float64], dict(shape=(None, None, None), order='C', device='cpu')]) -> None:
    """
    out f64[G,M,N]: the sums of products of the integers a f32[G,M,k] and b f32[G,N,k], from digits of 8 bits (NUMERICS 17.8). k is at most a block's length.
    """

def exact_add(w: Annotated[NDArray[numpy.float64], dict(shape=(None, None, None), order='C', device='cpu', writable=False)], mu_a: Annotated[NDArray[numpy.uint32], dict(shape=(None, None), order='C', device='cpu', writable=False)], mu_b: Annotated[NDArray[numpy.uint32], dict(shape=(None, None), order='C', device='cpu', writable=False)], width: int, first: bool, total: Annotated[NDArray[numpy.float64], dict(shape=(None, None, None), order='C', device='cpu')]) -> None:
    """
    Adds the blocks with the integer sums w f64[G,M,N] to total (NUMERICS 17.5, 17.6).
    """

def exact_round(total: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu')]) -> None:
    """out = RN32(total) (NUMERICS 17.6)."""
