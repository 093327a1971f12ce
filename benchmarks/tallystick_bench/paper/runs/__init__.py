"""Signed runs of the papers' models under every contract."""
