"""Where the command line prints: results on standard output, the rest on standard error."""

from __future__ import annotations

import os
import sys
from typing import Any

from rich.console import Console

WIDE = 200
"""Columns where no terminal says how many there are: a table in a file is not cut."""


def _width(stream: Any) -> int | None:
    return None if stream.isatty() or "COLUMNS" in os.environ else WIDE


out = Console(width=_width(sys.stdout))
errors = Console(stderr=True, width=_width(sys.stderr))
