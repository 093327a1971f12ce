"""A job on disk: its file, its data, its initial state, and the recipes that make one."""
