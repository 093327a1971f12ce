"""The contracts, each in a folder: `contract.py` is the object, beside its kernels and rules."""

# In the order in which people read of them.
FOLDERS = ("ordered", "rounded", "replay", "exact")
