"""The examples of `examples/` in every way: paths, threads, kills, an audit, every cheat."""
