"""Text to sqlglot's tree."""
