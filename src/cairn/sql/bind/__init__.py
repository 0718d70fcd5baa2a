"""The tree to typed IR: what every name means."""
