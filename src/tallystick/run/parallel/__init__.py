"""Audits in parallel: segments between stored states, in processes or on a cluster (ADR 0021)."""
