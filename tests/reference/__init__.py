"""The plain reference: every operator of spec/NUMERICS.md, written from its text alone.

Slow and obvious on purpose, in numpy binary32 arithmetic, and nothing here imports the package or
its native core. It is the judge of every kernel, for ever.
"""
