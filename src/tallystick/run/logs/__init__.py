"""The rounding logs of a run: their files, where a step's log comes from and where it goes."""
