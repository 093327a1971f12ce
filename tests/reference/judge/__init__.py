"""A judge written from spec/ alone: it shares no code with src/ (PROTOCOL 8.2)."""
