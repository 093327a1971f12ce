"""What a run of 1B or 70B parameters costs: measured unit costs, stated formulas, a simulation."""
