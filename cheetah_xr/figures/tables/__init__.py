"""Hold one module per table, each with ``data``."""
