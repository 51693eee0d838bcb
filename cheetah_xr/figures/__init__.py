"""Figures and tables of the three seeds and beyond: one module each, with ``data()`` and ``draw()``."""
