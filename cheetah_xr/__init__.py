"""cheetah_xr: the design-space engine for LLM inference performance.

A first-principles cost model of prefill and decode, evaluated on labelled grids of models, accelerators, precisions,
parallel layouts, batches and lengths. Start with :func:`evaluate`.
"""

import logging
import sys

import lazy_loader

# The public names are those of __init__.pyi; each is imported when it is first used.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

if "xarray" in sys.modules:  # else ds.cheetah is registered by what makes or opens a dataset
    from .analysis import accessor as accessor

logging.getLogger(__name__).addHandler(logging.NullHandler())
