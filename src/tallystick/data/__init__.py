"""Data sets frozen into records: sources, rules, the frozen directory (DESIGN 2, COMMITMENTS 8)."""
