"""A run that answers a referee, from its own directory; and play where both parties are at hand."""
