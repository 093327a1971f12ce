"""Declared cheats: what makes a run dishonest on purpose, by replacing parts of an honest one.

Nothing honest imports this room: `tests/unit/test_layers.py` says who may.
"""
