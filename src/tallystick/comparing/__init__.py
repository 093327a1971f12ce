"""Two jobs, two runs or two traces of a PyTorch loop, and where they first differ.

There are no keys and no parties. `jobs` compares what two job digests cover.
"""
