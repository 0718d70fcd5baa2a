"""Memory over time: a load of every kind, and a judge of what grows when all caches are full."""
