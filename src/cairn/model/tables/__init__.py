"""Tables as the catalogue describes them, the system tables, and pictures made from their rows."""
