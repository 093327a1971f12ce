"""Execution of a job's steps: the trainer, the auditor, and the engine that both share."""
