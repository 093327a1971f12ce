"""The engine: text from a model, many requests at once, each with the bits that it has alone."""
