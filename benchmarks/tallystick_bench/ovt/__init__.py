"""What "Optimistic Verifiable Training" shows, measured: its method, and ours beyond it."""
