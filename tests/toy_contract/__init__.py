"""A contract that lives outside of the package: `toy/1`, whose chunks of a DOT have 32 terms.

Everything about it is in this folder: its name, its kernels for every device, its opening rule.
Nothing in the package knows it; whoever imports `toy_contract.contract` has declared it.
"""
