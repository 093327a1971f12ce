"""Run a job and repeat it: trainer, auditor, the files on disk. See docs/ARCHITECTURE.md."""
