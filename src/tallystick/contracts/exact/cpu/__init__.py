"""The DOTs of `exact/1`: sums of integers, which no kernel rounds (NUMERICS 17).

`integers` turns groups of elements into integers. `engines` has the ways to multiply them: numpy's
BLAS in binary64, or the core's 8-bit digits. `products` and `convolution` are the operators.
"""
