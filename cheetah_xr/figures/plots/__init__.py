"""One module per figure, with ``data`` and ``draw``."""
