"""Sessions, written from spec/ alone: it shares no code with src/ (PROTOCOL 10 to 12)."""
