"""Published rounding logs (NUMERICS 14.9 to 14.11): an entry for every element."""
