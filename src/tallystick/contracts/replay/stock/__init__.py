"""The stock kernels of the published form: torch's, in binary64 (NUMERICS 14.9)."""
