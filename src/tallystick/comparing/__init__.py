"""Two jobs, two runs or two traces of a PyTorch loop, and where they first differ.

There are no keys and no parties. `jobs` compares what two job digests cover, `runs` executes two
runs again to the first step that differs, and `traces` reads what `recording` has written. `steps`
finds the operator in two executions of one step, aligned by structure. `causes` names what
the difference of two runs comes from, `trace_causes` that of two traces.
"""
