"""The whole control plane under simulation: real instances, virtual time, network and disk."""
