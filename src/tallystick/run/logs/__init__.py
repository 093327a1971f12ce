"""The rounding logs of a run: their files, and the steps that record or follow them."""
