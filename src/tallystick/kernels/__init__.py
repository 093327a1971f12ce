"""Tables of name to kernel, per device and contract; the device; the execution context."""
