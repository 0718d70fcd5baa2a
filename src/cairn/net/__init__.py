"""Instances talking to instances: frames, handshake, links."""
