"""Reads the compiled code of the device kernels: `python -m device_code` (docs/proofs/ptxas.md).

Compiling is no proof that a kernel computes what its text says: a compiler may fuse a product and a
sum, flush a subnormal, or take an approximate quotient. So native/cuda/*.cu is compiled for every
architecture, and each instruction of the PTX and of the machine code is held against a list of
what a kernel may use.
"""
