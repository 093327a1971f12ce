"""Answers one can check: a model, a request and tokens as a job of one step (spec/ANSWERS.md)."""
