"""The unit costs, each measured on this machine: `python benchmarks/unit_costs.py --json`."""
