"""What is wrong, and what to do about it: of a directory, and of a running cluster."""
