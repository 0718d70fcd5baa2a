"""The simulator: a whole cluster in one thread on a virtual clock, driven by one seed.

The real Raft core runs unmodified between a simulated network and simulated disks, while faults
happen and oracles watch. See `world` for the clock, `main` for running many seeds.
"""
