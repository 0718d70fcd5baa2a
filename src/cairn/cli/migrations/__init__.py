"""Numbered SQL files for the queue of the governor."""
