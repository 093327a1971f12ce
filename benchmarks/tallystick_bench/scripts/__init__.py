"""Training scripts as people write them, which know nothing of Tallystick.

Each is a function of the number of the loader's workers and gives a module and numbers; `table.py`
lists them. `benchmarks/ordinary_scripts.py` runs them within `tallystick.reproducible()`.
"""
