"""The run directory: its files, its journal, its claim, and the checks of both."""
