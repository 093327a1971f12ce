"""What a terminal is told: lines that hide nothing, and the progress of what runs (ADR 0036)."""
