"""Declarations of operators by family: their type rules, without any kernel."""
