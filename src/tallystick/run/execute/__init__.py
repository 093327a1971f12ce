"""Execute a job's steps: trainer, auditor, and the engine that both share."""
