"""Declared cheats: they make a run dishonest on purpose, by replacing parts of an honest one.

No honest module imports this room: `tests/unit/test_layers.py` lists the modules that may.
"""
