"""One module per table, with ``data``."""
