"""``python -m cheetah_xr``."""

from .cli import main

main()
