"""Name to kernel, per device and contract; what a device is; the execution context."""
