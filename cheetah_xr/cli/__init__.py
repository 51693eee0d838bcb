"""The command line ``cheetah-xr``: a module for each command, which imports what it needs when it runs.

``cheetah-xr NAME`` stands in the module NAME, and what it prints there or in the module of its tables.
"""

from .application import app, main

__all__ = ["app", "main"]
