"""What simulated clients do, and judges of what they were told."""
