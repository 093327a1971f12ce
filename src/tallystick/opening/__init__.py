"""Opening rules: one element of an operator's output as a tree of quantities (PROTOCOL 6)."""
