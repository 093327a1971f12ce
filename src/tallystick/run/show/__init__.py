"""What a run has cost, will cost and holds, as tables for people and programs."""
