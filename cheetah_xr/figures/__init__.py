"""Draw figures and tables of the source texts and further comparisons: one module each, with ``data`` and ``draw``."""
