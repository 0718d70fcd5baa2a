"""Words of the system: plain values that every layer shares. Imports nothing of ours."""
