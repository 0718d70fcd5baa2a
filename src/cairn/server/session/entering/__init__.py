"""How a client comes in: TLS, who it is, what it wants to be told."""
