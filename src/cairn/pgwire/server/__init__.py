"""The server half of the protocol."""
