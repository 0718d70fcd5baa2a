"""What an instance knows of its own work: sessions, statements, times, samples of the last hour."""
