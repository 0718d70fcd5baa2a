"""Work beside statements: backups, indexes that are filled, damage that is found and mended."""
