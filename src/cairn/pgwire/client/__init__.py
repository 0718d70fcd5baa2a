"""The client half of the protocol."""
