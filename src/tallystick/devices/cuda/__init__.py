"""Kernels on an NVIDIA GPU: the sources are in native/cuda, the calls of them here."""
