"""Where records come from: one module for each kind of source, and `pick` which chooses."""
