"""Measurements of the method of "Optimistic Verifiable Training", and of ours beyond it."""
