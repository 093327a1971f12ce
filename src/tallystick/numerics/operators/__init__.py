"""Declarations of operators by family: their type rules, and nothing that computes."""
