"""cheetah_xr: the design-space engine for LLM inference performance.

A first-principles cost model of prefill and decode, evaluated on labelled grids of models, accelerators, precisions,
parallel layouts, batches and lengths. Start with :func:`evaluate`.
"""

import logging

from . import analysis
from ._version import MODEL_VERSION, __version__
from .analysis import derive
from .api import breakdown, evaluate, layouts, operations
from .memory import explain_memory
from .result import open_result
from .run import run_sweep
from .specs import (
    Efficiency,
    Gpu,
    LayerGroup,
    LumpedModel,
    Model,
    Options,
    Precision,
    SpecError,
    list_efficiencies,
    list_gpus,
    list_models,
    list_precisions,
    list_sweeps,
    load_efficiency,
    load_gpu,
    load_model,
    load_precision,
)
from .sweep import Sweep, load_sweep

logging.getLogger(__name__).addHandler(logging.NullHandler())

__all__ = [
    "MODEL_VERSION",
    "Efficiency",
    "Gpu",
    "LayerGroup",
    "LumpedModel",
    "Model",
    "Options",
    "Precision",
    "SpecError",
    "Sweep",
    "__version__",
    "analysis",
    "breakdown",
    "derive",
    "evaluate",
    "explain_memory",
    "layouts",
    "list_efficiencies",
    "list_gpus",
    "list_models",
    "list_precisions",
    "list_sweeps",
    "load_efficiency",
    "load_gpu",
    "load_model",
    "load_precision",
    "load_sweep",
    "open_result",
    "operations",
    "run_sweep",
]
