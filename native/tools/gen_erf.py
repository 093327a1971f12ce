"""The coefficients of erf (kErfP, kErfQ in elementary_erf.hpp), by mpmath.

erf(x)/x is a function of z = x^2. P and Q of degree 11 interpolate it at the Chebyshev points of
[0, 15.5], which is within a small factor of the best rational approximation: relative error
2^-55.2 with the coefficients rounded to binary64, all of them positive.

Run: python native/tools/gen_erf.py
"""

from __future__ import annotations

import mpmath as mp

DEGREE = 11
TOP = mp.mpf("15.5")


def target(z: mp.mpf) -> mp.mpf:
    x = mp.sqrt(z)
    return mp.erf(x) / x if z else 2 / mp.sqrt(mp.pi)


def fit() -> tuple[list[float], list[float]]:
    n = 2 * DEGREE + 1
    a, b = mp.matrix(n, n), mp.matrix(n, 1)
    for i in range(n):
        z = TOP * (1 + mp.cos(mp.pi * (2 * i + 1) / (2 * n))) / 2
        f = target(z)
        for j in range(DEGREE + 1):
            a[i, j] = z**j
        for j in range(1, DEGREE + 1):
            a[i, DEGREE + j] = -f * z**j
        b[i] = f
    s = mp.lu_solve(a, b)
    p = [float(s[j]) for j in range(DEGREE + 1)]
    return p, [1.0] + [float(s[DEGREE + j]) for j in range(1, DEGREE + 1)]


def worst(p: list[float], q: list[float], points: int = 400) -> mp.mpf:
    def value(z: mp.mpf) -> mp.mpf:
        return mp.polyval([mp.mpf(c) for c in p[::-1]], z) / mp.polyval(
            [mp.mpf(c) for c in q[::-1]], z
        )

    zs = [TOP * i / points for i in range(points + 1)]
    return max(abs(value(z) / target(z) - 1) for z in zs)


if __name__ == "__main__":
    mp.mp.dps = 60
    p, q = fit()
    for name, c in (("P", p), ("Q", q)):
        print(name, *(x.hex() for x in c), sep="\n  ")
    print("relative error 2^" + mp.nstr(mp.log(worst(p, q), 2), 4))
