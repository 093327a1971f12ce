"""A dispute over a network: the servers, the client, the driver of a session (PROTOCOL 13)."""
