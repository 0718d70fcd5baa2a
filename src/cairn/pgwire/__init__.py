"""The PostgreSQL wire protocol, version 3: both halves, without any input or output."""
