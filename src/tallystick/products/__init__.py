"""Tools of matrix products and convolutions that several contracts use: tiles, patches, engines."""
