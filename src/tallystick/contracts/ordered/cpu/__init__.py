"""The kernels of `ordered/1` on this machine's processor, one module per family."""
