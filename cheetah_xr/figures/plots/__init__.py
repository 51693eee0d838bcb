"""Hold one module per figure, each with ``data`` and ``draw``."""
