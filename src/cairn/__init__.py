"""Cairn: a distributed SQL database whose clients always know the way."""

__version__ = "0.1.0"
