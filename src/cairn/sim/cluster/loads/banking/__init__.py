"""A bank under fire: its clients, its texts, and the books that judge what they were told."""
