"""Benchmark results over time: what is kept of each, how a page and a plot show it."""
