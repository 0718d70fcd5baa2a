"""Batch reads of tables, of one moment of the cluster, and of what each instance knows."""
