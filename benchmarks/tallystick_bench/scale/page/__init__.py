"""docs/SCALE.md: its tables and plots from the results, its words."""
