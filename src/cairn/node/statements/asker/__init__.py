"""Statements at the instance that was asked: who has the rows, and what they answered."""
