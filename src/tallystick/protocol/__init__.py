"""The game between two runs: sans-IO state machines; no sockets, no clock, no torch (PROTOCOL)."""
