"""IR to plans: what runs where."""
