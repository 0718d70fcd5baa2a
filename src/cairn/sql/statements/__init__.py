"""Statements that Cairn reads from their tokens itself: schema, users, COPY, plain INSERT."""
