"""A contract that lives outside of the package: `toy/1`, in which mm and bmm have chunks of 32.

Everything about it is in this folder: its name, its kernels for processor and GPU, its opening
rule. Nothing in the package knows it; whoever imports `toy_contract.contract` has declared it.
"""
