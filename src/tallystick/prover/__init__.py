"""Provers, which answer a referee from a run's directory, and play with both parties at hand."""
